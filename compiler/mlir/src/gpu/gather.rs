//! Gathers rows by index, with their gradient, and sums rows by position or by sequence.
//!
//! Takes a [`Gather`] spec. Copies and sums by position or sequence run a group of threads per row. Of the gradient of a
//! gather a block takes a group of rows of the table: it looks through the indices, lists the rows that are of its group in shared memory, and
//! adds them in order: no atomics, so the order of the sum is that of the specification.

use super::access::{self, wide};
use super::rows::{Place, index, row_at};
use crate::emit::{Cmp, Elem, Emitter, Val};
use crate::gather::{Terms, turns};
use odec_program::expr::Access;
use odec_program::gpu::{Split, WARP, scatter};
use odec_program::kernel::Gather;

/// `out[r] = table[index[r]]`; operands index, table, out.
pub(super) fn emit_gather(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (numbers, table, out) = (e.operand(0), e.operand(1), e.operand(2));
    let split = Split::map(kernel.cols);
    let place = Place::new(e, split, 0);
    let number = index(e, numbers, place.row);
    let from = row_at(e, table, number, kernel.cols);
    let to = row_at(e, out, place.row, kernel.cols);
    let access = Access::full(kernel.cols);
    e.when(place.exists, |e| {
        each_column(e, kernel, split, &place, |e, c| {
            let x = access::load(e, from, e.elem, access, c, split.vector);
            access::store(e, x, to, access, c);
        })
    });
    Ok(())
}

/// `table[p] = Σ_b rows[b·seq + p]`, and in the last row those beyond it; operands rows, table.
pub(super) fn emit_position_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    sums(e, kernel, 2, |e, p| {
        let zero = e.int(0);
        let read = e.below(p, seq);
        Terms {
            count: e.select(read, batch, zero),
            first: p,
            apart: seq,
            turns: turns(e, p, seq),
        }
    })
}

/// `out[b] = Σ_t rows[b·seq + t]`; operands rows, out.
pub(super) fn emit_sequence_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let seq = e.dim(1);
    sums(e, kernel, 0, |e, sequence| Terms {
        count: seq,
        first: e.mul(sequence, seq),
        apart: e.int(1),
        turns: e.int(1),
    })
}

/// Each row of the result, of which there are `dims[dim]`, is the sum of the rows that `terms` gives for it.
fn sums(
    e: &mut Emitter,
    kernel: &Gather,
    dim: u64,
    terms: impl Fn(&mut Emitter, Val) -> Terms,
) -> Result<(), String> {
    let (rows, out) = (e.operand(0), e.operand(1));
    let split = Split::map(kernel.cols);
    let place = Place::new(e, split, dim);
    let to = row_at(e, out, place.row, kernel.cols);
    let terms = terms(e, place.row);
    let access = Access::full(kernel.cols);
    e.when(place.exists, |e| {
        each_column(e, kernel, split, &place, |e, c| {
            let nothing = e.float(0.0, wide(e.elem, split.vector));
            let sum = terms.sum(e, nothing, |e, r, sum| {
                let from = row_at(e, rows, r, kernel.cols);
                let x = access::load(e, from, e.elem, access, c, split.vector);
                e.add(sum, x)
            });
            access::store(e, sum, to, access, c);
        })
    });
    Ok(())
}

fn each_column(
    e: &mut Emitter,
    kernel: &Gather,
    split: Split,
    place: &Place,
    body: impl FnOnce(&mut Emitter, Val),
) {
    let first = e.mul_int(place.member, split.vector as i64);
    let end = e.int(kernel.cols as i64);
    e.for_each(first, end, (split.vector * split.group) as i64, body);
}

/// `table[index[r]] += rows[r]` in row order; operands index, rows, table.
pub(super) fn emit_scatter_add(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (count, cols) = (e.dim(0), kernel.cols);
    let vector = Split::map(cols).vector;
    let (thread, block) = (e.thread(), e.block());
    let pieces = e.int(scatter::pieces(kernel) as i64);
    let (group, piece) = (e.div(block, pieces), e.rem(block, pieces));
    let first = e.mul_int(piece, scatter::THREADS as i64);
    let c = e.add(first, thread);
    let c = e.mul_int(c, vector as i64);
    let (zero, end) = (e.int(0), e.int(cols as i64));
    let exists = e.below(c, end);
    let last = e.int((cols - vector) as i64);
    let column = e.min(c, last);
    e.for_each(zero, count, scatter::CHUNK as i64, |e, from| {
        let listed = list(e, thread, group, from);
        // A thread adds to columns of its own, which nobody else reads; one without columns only looks for rows.
        let own = e.select(exists, listed, zero);
        e.for_each(zero, own, scatter::AHEAD as i64, |e, first| {
            add_listed(e, kernel, from, (first, own), column)
        });
    });
    Ok(())
}

/// Lists those rows, of [`scatter::CHUNK`] from `from` on, whose row of the table is of a group, in order: their numbers from `from` on, and
/// those of the table's rows; how many there are.
fn list(e: &mut Emitter, thread: Val, group: Val, from: Val) -> Val {
    let (numbers, count, height) = (e.operand(0), e.dim(0), e.dim(1));
    let warps = scatter::THREADS / WARP;
    let part = scatter::CHUNK / warps;
    let (zero, one, size) = (e.int(0), e.int(1), e.int(WARP as i64));
    let (warp, lane) = (e.div(thread, size), e.rem(thread, size));
    let (groups, last) = (e.int(scatter::GROUPS as i64), e.add_int(count, -1));
    // A warp's part is read before anything is looked at.
    let own = e.mul_int(warp, part as i64);
    let own = e.add(own, lane);
    let rows: Vec<(Val, Val, Val)> = (0..part as i64)
        .step_by(WARP as usize)
        .map(|n| {
            let place = e.add_int(own, n);
            let row = e.add(from, place);
            let there = e.below(row, count);
            let row = e.min(row, last);
            (place, there, index(e, numbers, row))
        })
        .collect();
    let mut found = vec![];
    let mut all = zero;
    for (place, there, number) in rows {
        let remainder = e.rem(number, groups);
        let own = e.cmp(Cmp::Eq, remainder, group);
        let (begun, inside) = (e.cmp(Cmp::Ge, number, zero), e.below(number, height));
        let in_table = e.and(begun, inside);
        let there = e.and(there, in_table);
        let wanted = e.and(own, there);
        let votes = e.ballot(wanted);
        found.push((place, number, wanted, votes, all));
        let more = e.count_ones(votes);
        all = e.add(all, more);
    }
    let [rows, table_rows, totals] = [0, scatter::CHUNK, 2 * scatter::CHUNK].map(|n| e.shared(n));
    let writes = e.cmp(Cmp::Eq, lane, zero);
    e.when(writes, |e| store_index(e, all, totals, warp));
    e.barrier();
    // What warps before this one have found, and all of them.
    let (mut before, mut total) = (zero, zero);
    for n in 0..warps as i64 {
        let n = e.int(n);
        let more = index(e, totals, n);
        let earlier = e.below(n, warp);
        let counted = e.select(earlier, more, zero);
        before = e.add(before, counted);
        total = e.add(total, more);
    }
    // The threads before this one, as bits.
    let bit = e.shift_left(one, lane);
    let lower = e.add_int(bit, -1);
    let lower = e.convert(lower, Elem::I32);
    for (place, number, wanted, votes, earlier) in found {
        e.when(wanted, |e| {
            let own = e.and(votes, lower);
            let own = e.count_ones(own);
            let at = e.add(before, earlier);
            let at = e.add(at, own);
            store_index(e, place, rows, at);
            store_index(e, number, table_rows, at);
        });
    }
    e.barrier();
    total
}

/// Adds the rows that the list has from `first` on, up to [`scatter::AHEAD`] of `count`, to those of the table. All are read before the
/// first is added; a row of the table that was added to since is the sum.
fn add_listed(
    e: &mut Emitter,
    kernel: &Gather,
    from: Val,
    (first, count): (Val, Val),
    column: Val,
) {
    let (rows, table, cols) = (e.operand(1), e.operand(2), kernel.cols);
    let vector = Split::map(cols).vector;
    let access = Access::full(cols);
    let [own_rows, table_rows] = [0, scatter::CHUNK].map(|n| e.shared(n));
    let last = e.add_int(count, -1);
    let read: Vec<_> = (0..scatter::AHEAD as i64)
        .map(|n| {
            let at = e.add_int(first, n);
            let exists = e.below(at, count);
            let at = e.min(at, last);
            let row = index(e, own_rows, at);
            let row = e.add(from, row);
            let from = row_at(e, rows, row, cols);
            let number = index(e, table_rows, at);
            let to = row_at(e, table, number, cols);
            let x = access::load(e, from, e.elem, access, column, vector);
            let before = access::load(e, to, e.elem, access, column, vector);
            (number, to, exists, x, before)
        })
        .collect();
    let mut sums: Vec<Val> = vec![];
    for (n, (number, _, _, x, before)) in read.iter().enumerate() {
        let mut before = *before;
        for (earlier, sum) in read[..n].iter().zip(&sums) {
            let same = e.cmp(Cmp::Eq, earlier.0, *number);
            before = e.select(same, *sum, before);
        }
        sums.push(e.add(before, *x));
    }
    for ((_, to, exists, _, _), sum) in read.into_iter().zip(sums) {
        e.when(exists, |e| access::store(e, sum, to, access, column));
    }
}

/// Stores an i64 as an index.
fn store_index(e: &mut Emitter, x: Val, pointer: Val, at: Val) {
    let p = e.at(pointer, at, Elem::I32);
    let x = e.convert(x, Elem::I32);
    e.store(x, p);
}
