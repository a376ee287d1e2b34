//! Products of rows with the matrix of their group, and sums of outer products over the rows of a group.
//!
//! Takes a [`Grouped`] spec. A block looks through the numbers of a range of rows, 32 at a time, and lists those of its group in
//! shared memory; then it multiplies tiles as [`super::contract`] does, finding rows by the list. Whether a row is of the group is decided by
//! two comparisons, as on a processor, so nothing is addressed by a number.

use super::stage::{Listed, Matrix, Place, Team, four, outer, stage};
use crate::emit::{Cmp, Elem, Emitter, Val};
use crate::grouped::Members;
use odec_program::gpu::WARP;
use odec_program::gpu::contract::{K, M, N, PAD, THREADS};
use odec_program::gpu::grouped::{RANGE, by_columns, tiles};
use odec_program::kernel::{Grouped, Layout, Order};

/// Elements of a thread.
const MINE: usize = (M * N) as usize;

/// Emits products of rows.
///
/// # Errors
/// A blocking that is not that of a GPU, or another order than the chain.
pub(super) fn emit_rows(e: &mut Emitter, spec: &Grouped) -> Result<(), String> {
    let block = Block::new(e, spec)?;
    let (n, k) = (spec.of.n, spec.of.k);
    let ranges = e.div_ceil(block.rows, RANGE as i64);
    let across = e.int(by_columns(spec) as i64);
    let number = e.block();
    let (number, column) = (e.div(number, across), e.rem(number, across));
    let (group, range) = (e.div(number, ranges), e.rem(number, ranges));
    let from = e.mul_int(range, RANGE as i64);
    let to = e.add_int(from, RANGE as i64);
    let to = e.min(to, block.rows);
    let count = block.list(e, group, (from, to), RANGE);
    let col = e.mul_int(column, spec.blocking.nr.into());
    let listed = block.listed(e, from, spec.of.copies);
    let a = block.operand(e, 1, count, k, Some(listed));
    if spec.layout == Layout::Panels {
        return Err("matrices in panels, which processors pack".into());
    }
    let matrices = match spec.layout {
        Layout::Columns => block.matrix(e, group, n, k),
        _ => block.matrix(e, group, k, n),
    };
    let zero = e.int(0);
    let end = e.int(k as i64);
    e.for_each(zero, count, spec.blocking.mr.into(), |e, row| {
        let start = block.nothing(e, -0.0);
        let sums = e.for_with(
            zero,
            end,
            spec.blocking.kc.into(),
            &start,
            |e, begin, totals| {
                let stop = e.add_int(begin, spec.blocking.kc.into());
                let stop = e.min(stop, end);
                let sums = block.sums(e, (begin, stop), |e, k0| {
                    block.left(e, a, (row, k0), true);
                    match spec.layout {
                        Layout::Columns => block.right(e, matrices, (col, k0), true),
                        _ => block.right(e, matrices, (k0, col), false),
                    }
                });
                totals.iter().zip(sums).map(|(t, s)| e.add(*t, s)).collect()
            },
        );
        let lines = block.lines(e, row);
        for (line, sums) in lines.into_iter().zip(sums.chunks(N as usize)) {
            let exists = e.below(line, count);
            e.when(exists, |e| {
                let to = listed.number(e, line);
                block.write(e, (to, col), n, sums);
            });
        }
    });
    if spec.of.partial {
        block.clear(e, group, (from, to), col);
    }
    Ok(())
}

/// Emits sums of outer products.
///
/// # Errors
/// A blocking that is not that of a GPU.
pub(super) fn emit_outer(e: &mut Emitter, spec: &Grouped) -> Result<(), String> {
    let block = Block::new(e, spec)?;
    let (n, k) = (spec.of.n, spec.of.k);
    let (mr, nr, kc) = (spec.blocking.mr, spec.blocking.nr, spec.blocking.kc);
    let (down, across) = (n.div_ceil(mr.into()), k.div_ceil(nr.into()));
    let (number, column) = (e.block(), e.block());
    let (down, across) = (e.int(down as i64), e.int(across as i64));
    let (number, column) = (e.div(number, across), e.rem(column, across));
    let (group, row) = (e.div(number, down), e.rem(number, down));
    let (row, col) = (e.mul_int(row, mr.into()), e.mul_int(column, nr.into()));
    let zero = e.int(0);
    let start = block.nothing(e, -0.0);
    let sums = e.for_with(zero, block.rows, kc.into(), &start, |e, from, totals| {
        let to = e.add_int(from, kc.into());
        let to = e.min(to, block.rows);
        let count = block.list(e, group, (from, to), kc.into());
        let [own, copied] = [1, spec.of.copies].map(|copies| block.listed(e, from, copies));
        let a = block.operand(e, 1, count, n, Some(own));
        let b = block.operand(e, 2, count, k, Some(copied));
        let sums = block.sums(e, (zero, count), |e, k0| {
            block.left(e, a, (k0, row), false);
            block.right(e, b, (k0, col), false);
        });
        totals.iter().zip(sums).map(|(t, s)| e.add(*t, s)).collect()
    });
    let bottom = e.int(n as i64);
    let first = e.mul_int(group, n as i64);
    let lines = block.lines(e, row);
    for (line, sums) in lines.into_iter().zip(sums.chunks(N as usize)) {
        let exists = e.below(line, bottom);
        e.when(exists, |e| {
            let to = e.add(first, line);
            block.write(e, (to, col), k, sums);
        });
    }
    Ok(())
}

/// What all threads of a block have in common, and a thread's place among 16 × 16.
struct Block<'a> {
    spec: &'a Grouped,
    thread: Val,
    y: Val,
    x: Val,
    rows: Val,
}

impl<'a> Block<'a> {
    fn new(e: &mut Emitter, spec: &'a Grouped) -> Result<Block<'a>, String> {
        let b = spec.blocking;
        let (rows, cols) = (u64::from(b.mr), u64::from(b.nr));
        if rows != 16 * M || cols != 16 * N || !u64::from(b.kc).is_multiple_of(WARP) {
            return Err(format!("a blocking of {rows} × {cols}, {} deep", b.kc));
        }
        if spec.order != Order::Chain {
            return Err("products added two after two".into());
        }
        let thread = e.thread();
        let sixteen = e.int(16);
        let rows = e.dim(0);
        Ok(Block {
            spec,
            thread,
            y: e.div(thread, sixteen),
            x: e.rem(thread, sixteen),
            rows: e.mul_int(rows, spec.of.copies as i64),
        })
    }

    /// The list of rows behind row `first`.
    fn listed(&self, e: &mut Emitter, first: Val, copies: u64) -> Listed {
        Listed {
            pointer: e.shared(tiles(self.spec)),
            from: None,
            first,
            copies,
        }
    }

    /// Writes zeros for those of the rows `from..to` that are of no group, which the blocks of the first group do. Nothing follows it that
    /// asks all threads of a warp.
    fn clear(&self, e: &mut Emitter, group: Val, (from, to): (Val, Val), col: Val) {
        let members = Members::of(e, self.spec, group);
        let zeros = [e.float(0.0, e.scalar()); N as usize];
        let first = e.add(from, self.y);
        let each = |e: &mut Emitter, row: Val| {
            let lacks = members.lacks(e, row);
            let write = |e: &mut Emitter| self.write(e, (row, col), self.spec.of.n, &zeros);
            e.when(lacks, write);
        };
        e.when(members.first, |e| e.for_each(first, to, 16, each));
    }

    fn nothing(&self, e: &mut Emitter, x: f64) -> Vec<Val> {
        vec![e.float(x, e.scalar()); MINE]
    }

    /// Lists the rows `from..to`, at most `range`, that are of a group, in order; how many there are. Every warp looks, the first one lists.
    fn list(&self, e: &mut Emitter, group: Val, (from, to): (Val, Val), range: u64) -> Val {
        let members = Members::of(e, self.spec, group);
        let size = e.int(WARP as i64);
        let (warp, lane) = (e.div(self.thread, size), e.rem(self.thread, size));
        let (zero, one) = (e.int(0), e.int(1));
        let writes = e.cmp(Cmp::Eq, warp, zero);
        let last = e.add_int(to, -1);
        let spare = e.add_int(self.thread, range as i64);
        // The threads before this one, as bits.
        let bit = e.shift_left(one, lane);
        let before = e.add_int(bit, -1);
        let before = e.convert(before, Elem::I32);
        let list = e.shared(tiles(self.spec));
        // Whoever still reads the list that was there before.
        e.barrier();
        let count = e.for_with(from, to, WARP as i64, &[zero], |e, r, count| {
            let row = e.add(r, lane);
            let there = e.below(row, to);
            let row = e.min(row, last);
            let found = members.has(e, row);
            let found = e.and(found, there);
            let all = e.ballot(found);
            let earlier = e.and(all, before);
            let place = e.count_ones(earlier);
            let place = e.add(count[0], place);
            let mine = e.and(found, writes);
            // All threads store, those without a row to a place of their own: the next vote is of all threads of the warp, which a branch
            // would part.
            let place = e.select(mine, place, spare);
            let p = e.at(list, place, Elem::I32);
            let number = e.sub(row, from);
            let number = e.convert(number, Elem::I32);
            e.store(number, p);
            let more = e.count_ones(all);
            vec![e.add(count[0], more)]
        });
        e.barrier();
        count[0]
    }

    /// Rows of a factor, operand 1 or 2, as many as are listed.
    fn operand(
        &self,
        e: &mut Emitter,
        n: u64,
        rows: Val,
        cols: u64,
        listed: Option<Listed>,
    ) -> Matrix {
        let cols_value = e.int(cols as i64);
        let elem = Elem::of(self.spec.factors[n as usize - 1]);
        Matrix {
            pointer: e.operand(n),
            rows,
            cols: cols_value,
            stride: cols_value,
            elem,
            rounds: self.spec.rounded && elem != Elem::Bf16,
            whole: cols.is_multiple_of(4),
            listed,
        }
    }

    /// The matrix of a group.
    fn matrix(&self, e: &mut Emitter, group: Val, rows: u64, cols: u64) -> Matrix {
        let all = e.operand(2);
        let start = e.mul_int(group, (rows * cols) as i64);
        let rows = e.int(rows as i64);
        let factor = self.operand(e, 2, rows, cols, None);
        Matrix {
            pointer: e.at(all, start, factor.elem),
            ..factor
        }
    }

    fn team(&self) -> Team {
        Team {
            thread: self.thread,
            threads: THREADS,
        }
    }

    /// Brings a tile of the left factor into shared memory, inner index first; `turned`: it is the last in memory.
    fn left(&self, e: &mut Emitter, from: Matrix, at: (Val, Val), turned: bool) {
        let place = self.place(e.shared(0), self.spec.blocking.mr.into(), turned);
        stage(e, self.team(), from, at.0, at.1, place);
    }

    fn right(&self, e: &mut Emitter, from: Matrix, at: (Val, Val), turned: bool) {
        let offset = K * (u64::from(self.spec.blocking.mr) + PAD);
        let place = self.place(e.shared(offset), self.spec.blocking.nr.into(), turned);
        stage(e, self.team(), from, at.0, at.1, place);
    }

    fn place(&self, pointer: Val, width: u64, turned: bool) -> Place {
        let (rows, cols) = if turned { (width, K) } else { (K, width) };
        Place {
            pointer,
            rows,
            cols,
            pitch: width + PAD,
            turned,
        }
    }

    /// The sums of a block of the inner length; `stage` brings what begins at an inner index into shared memory.
    fn sums(
        &self,
        e: &mut Emitter,
        (begin, end): (Val, Val),
        stage: impl FnOnce(&mut Emitter, Val),
    ) -> Vec<Val> {
        let b = self.spec.blocking;
        let (a_pitch, b_pitch) = (u64::from(b.mr) + PAD, u64::from(b.nr) + PAD);
        let (left, right) = (e.shared(0), e.shared(K * a_pitch));
        let zero = e.int(0);
        let nothing = self.nothing(e, 0.0);
        e.for_with(begin, end, K as i64, &nothing, |e, k0, sums| {
            stage(e, k0);
            e.barrier();
            let (deep, rest) = (e.int(K as i64), e.sub(end, k0));
            let count = e.min(deep, rest);
            let after = e.for_with(zero, count, 1, sums, |e, i, sums| {
                let (a_row, b_row) = (e.mul_int(i, a_pitch as i64), e.mul_int(i, b_pitch as i64));
                let (a_own, b_own) = (e.mul_int(self.y, 4), e.mul_int(self.x, 4));
                let (a_at, b_at) = (e.add(a_row, a_own), e.add(b_row, b_own));
                let mut xs = four(e, left, a_at);
                let a_at = e.add_int(a_at, 64);
                xs.extend(four(e, left, a_at));
                let ys = four(e, right, b_at);
                outer(e, &xs, &ys, sums)
            });
            e.barrier();
            after
        })
    }

    /// The rows of the thread's elements in the tile that begins at `first`: two runs of four, 64 apart.
    fn lines(&self, e: &mut Emitter, first: Val) -> Vec<Val> {
        let own = e.mul_int(self.y, 4);
        let own = e.add(first, own);
        (0..M as i64)
            .map(|i| e.add_int(own, i / 4 * 64 + i % 4))
            .collect()
    }

    /// Writes the thread's four sums of a row of the last operand; rows are of `cols` columns.
    fn write(&self, e: &mut Emitter, (row, col): (Val, Val), cols: u64, sums: &[Val]) {
        let out = e.operand(3);
        let own = e.mul_int(self.x, N as i64);
        let column = e.add(col, own);
        let base = e.mul_int(row, cols as i64);
        let end = e.int(cols as i64);
        if cols.is_multiple_of(4) {
            let inside = e.below(column, end);
            e.when(inside, |e| {
                let x = e.join(sums);
                let at = e.add(base, column);
                let p = e.at(out, at, e.elem);
                e.store_whole(x, p);
            });
            return;
        }
        for (j, sum) in sums.iter().enumerate() {
            let c = e.add_int(column, j as i64);
            let inside = e.below(c, end);
            e.when(inside, |e| {
                let at = e.add(base, c);
                let p = e.at(out, at, e.elem);
                e.store(*sum, p);
            });
        }
    }
}
