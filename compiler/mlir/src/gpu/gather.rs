//! Gathers rows by index, with their gradient, and sums rows by position or by sequence.
//!
//! Takes a [`Gather`] spec. Copies and sums by position or sequence run a group of threads per row. The gradient of a gather runs a
//! warp for each piece of each row of the table, which looks through all indices for the row's number, 32 at a time, and
//! adds the rows it finds in order: no atomics, so the order of the sum is that of the specification.

use super::access::{self, wide};
use super::rows::{Place, index, row_at};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gather::Terms;
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

/// `table[p] = Σ_b rows[b·seq + p]`; operands rows, table.
pub(super) fn emit_position_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    sums(e, kernel, 2, |e, p| {
        let zero = e.int(0);
        let read = e.below(p, seq);
        Terms {
            count: e.select(read, batch, zero),
            first: p,
            apart: seq,
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
    let zero = e.int(0);
    let terms = terms(e, place.row);
    let access = Access::full(kernel.cols);
    e.when(place.exists, |e| {
        each_column(e, kernel, split, &place, |e, c| {
            let nothing = e.float(0.0, wide(e.elem, split.vector));
            let sums = e.for_with(zero, terms.count, 1, &[nothing], |e, i, sum| {
                let r = terms.row(e, i);
                let from = row_at(e, rows, r, kernel.cols);
                let x = access::load(e, from, e.elem, access, c, split.vector);
                vec![e.add(sum[0], x)]
            });
            access::store(e, sums[0], to, access, c);
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
    let (numbers, rows, table) = (e.operand(0), e.operand(1), e.operand(2));
    let (count, height, cols) = (e.dim(0), e.dim(1), kernel.cols);
    let vector = Split::map(cols).vector;
    let (thread, block) = (e.thread(), e.block());
    let warp_size = e.int(WARP as i64);
    let (warp, lane) = (e.div(thread, warp_size), e.rem(thread, warp_size));
    let first = e.mul_int(block, (scatter::THREADS / WARP) as i64);
    let task = e.add(first, warp);
    let pieces = e.int(scatter::pieces(kernel) as i64);
    let (row, piece) = (e.div(task, pieces), e.rem(task, pieces));
    let c = e.mul_int(piece, (WARP * vector) as i64);
    let own = e.mul_int(lane, vector as i64);
    let c = e.add(c, own);
    // All threads of a warp look; those without a column, or beyond the table, write nothing.
    let end = e.int(cols as i64);
    let (in_row, in_table) = (e.below(c, end), e.below(row, height));
    let exists = e.and(in_row, in_table);
    let last = e.int((cols - vector) as i64);
    let c = e.min(c, last);
    let bottom = e.add_int(height, -1);
    let at = e.min(row, bottom);
    let to = row_at(e, table, at, cols);
    let access = Access::full(cols);
    let (zero, one, none) = (e.int(0), e.int(1), e.int(-1));
    // Nobody reads what another thread writes.
    let own = e.select(exists, one, zero);
    let nothing = e.float(0.0, wide(e.elem, vector));
    let before = e.for_with(zero, own, 1, &[nothing], |e, _, _| {
        vec![access::load(e, to, e.elem, access, c, vector)]
    });
    let sums = e.for_with(zero, count, WARP as i64, &before, |e, r, sum| {
        let mine = e.add(r, lane);
        let last = e.add_int(count, -1);
        let there = e.below(mine, count);
        let clamped = e.min(mine, last);
        let number = index(e, numbers, clamped);
        let number = e.select(there, number, none);
        let wanted = e.cmp(Cmp::Eq, number, row);
        let found = e.ballot(wanted);
        let times = e.count_ones(found);
        let start = [found, sum[0]];
        let after = e.for_with(zero, times, 1, &start, |e, _, carried| {
            let which = e.first_one(carried[0]);
            let from = e.add(r, which);
            let from = row_at(e, rows, from, cols);
            let x = access::load(e, from, e.elem, access, c, vector);
            let one = e.integer(-1, Type::scalar(Elem::I32));
            let less = e.add(carried[0], one);
            vec![e.and(carried[0], less), e.add(carried[1], x)]
        });
        vec![after[1]]
    });
    e.when(exists, |e| access::store(e, sums[0], to, access, c));
    Ok(())
}
