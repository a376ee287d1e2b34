//! Attention in f32: what the forward and the backward kernel have in common.
//!
//! A block of 128 threads takes 32 rows of one head (queries; keys, for their gradients) and walks over the other side in
//! tiles of 64. For scores, 8 × 16 threads hold 4 × 4 each; for sums over the other side, 4 rows and every 16th column of
//! the head. The orders of all sums are those of [`odec_program::kernel::Attend`], which leaves open who computes what.
//!
//! A block of queries reads the head of keys that its head shares with others; a block of keys goes over those heads one
//! after the other. Tiles that no row of the block sees, before a window or after the last query of one, are left out.

pub(super) mod backward;
pub(super) mod forward;
mod part;
pub(super) mod scores;

use super::stage::{Matrix, Place, Team, four, outer, stage};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::gpu::attend::{CHUNK, COLS, DEPTH, PAD, ROWS, SCORES, THREADS, staged};
use odec_program::kernel::Attend;

/// Rows of a thread.
const MINE: usize = 4;
/// Elements from one column of a tile of scores to the next.
const PITCH: u64 = ROWS + PAD;

/// A head of a sequence, and this thread's part of the block's work.
#[derive(Clone, Copy)]
struct Work<'a> {
    kernel: &'a Attend,
    /// How many operands are of the type of the inputs.
    inputs: u64,
    team: Team,
    /// The thread's place among 8 × 16.
    y: Val,
    x: Val,
    /// The thread's number in its warp: the row whose maximum and sum it keeps.
    lane: Val,
    /// The first of the block's rows.
    row: Val,
    /// Sequence, head of queries, and the head of keys that it reads.
    batch: Val,
    head: Val,
    shared: Val,
}

/// Whose rows a block takes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Queries,
    Keys,
}

/// Rows of the other side that each of the block's rows is to be summed over: from `begin` to `end`, and of those, row r
/// sees the ones from r + `from` to r + `to`, both included, where there are such bounds.
struct Seen {
    begin: Val,
    end: Val,
    from: Option<Val>,
    to: Option<Val>,
}

impl<'a> Work<'a> {
    /// `tile` is the block's number among all tiles of `seq` rows of a side.
    fn new(
        e: &mut Emitter,
        kernel: &'a Attend,
        inputs: u64,
        side: Side,
        (tile, seq): (Val, Val),
    ) -> Work<'a> {
        let thread = e.thread();
        let tiles = e.div_ceil(seq, ROWS as i64);
        let (number, within) = (e.div(tile, tiles), e.rem(tile, tiles));
        let heads = match side {
            Side::Queries => kernel.heads,
            Side::Keys => kernel.kv_heads,
        };
        let heads = e.int(heads as i64);
        let head = e.rem(number, heads);
        let (sixteen, warp) = (e.int(16), e.int(32));
        Work {
            kernel,
            inputs,
            team: Team {
                thread,
                threads: THREADS,
            },
            y: e.div(thread, sixteen),
            x: e.rem(thread, sixteen),
            lane: e.rem(thread, warp),
            row: e.mul_int(within, ROWS as i64),
            batch: e.div(number, heads),
            head,
            shared: match side {
                Side::Queries => shared_by(e, kernel, head),
                Side::Keys => head,
            },
        }
    }

    /// The same block of keys, for the query head number `member` of those that read it.
    fn of_member(self, e: &mut Emitter, member: Val) -> Work<'a> {
        let first = e.mul_int(self.shared, self.kernel.group() as i64);
        let head = e.add(first, member);
        Work { head, ..self }
    }

    /// The head's part of an operand of `rows` rows per sequence.
    fn matrix(&self, e: &mut Emitter, operand: u64, rows: Val) -> Matrix {
        let k = self.kernel;
        let columns = k.columns(operand);
        let (head, heads) = match Attend::is_of_keys(operand) {
            true => (self.shared, k.kv_heads),
            false => (self.head, k.heads),
        };
        let pointer = e.operand(operand);
        let first = e.mul(self.batch, rows);
        let first = e.mul_int(first, heads as i64);
        let first = e.add(first, head);
        let first = e.mul_int(first, columns as i64);
        let dtype = if operand < self.inputs {
            k.inputs
        } else {
            k.dtype
        };
        let elem = Elem::of(dtype);
        Matrix {
            pointer: e.at(pointer, first, elem),
            elem,
            rounds: false,
            rows,
            cols: e.int(columns as i64),
            stride: e.int((heads * columns) as i64),
            whole: columns.is_multiple_of(4),
            listed: None,
        }
    }

    /// The address of the number that belongs to a row and this head.
    fn statistic(&self, e: &mut Emitter, operand: u64, rows: Val, row: Val) -> Val {
        let pointer = e.operand(operand);
        let at = e.mul(self.batch, rows);
        let at = e.add(at, row);
        let at = e.mul_int(at, self.kernel.heads as i64);
        let at = e.add(at, self.head);
        e.at(pointer, at, e.elem)
    }

    /// The operand behind the sinks, which are this one if there are some: biases, or who takes part, never both.
    fn behind_sinks(&self, sinks: u64) -> u64 {
        sinks + u64::from(self.kernel.scores.sinks)
    }

    /// The first of the thread's four rows, within the block.
    fn own_row(&self, e: &mut Emitter) -> Val {
        e.mul_int(self.y, MINE as i64)
    }

    /// Columns of an operand's head that the thread sums: x, x + 16, …; those beyond the last repeat it.
    fn own_columns(&self, e: &mut Emitter, operand: u64) -> Vec<Val> {
        let columns = self.kernel.columns(operand);
        let last = e.int(columns as i64 - 1);
        let count = columns.div_ceil(16) as i64;
        (0..count)
            .map(|i| {
                let c = e.add_int(self.x, 16 * i);
                e.min(c, last)
            })
            .collect()
    }

    /// Zeros for the thread's rows and columns of an operand.
    fn nothing(&self, e: &mut Emitter, operand: u64) -> Vec<Val> {
        let count = MINE * self.kernel.columns(operand).div_ceil(16) as usize;
        vec![e.float(0.0, e.scalar()); count]
    }

    /// The place of the weights, or with `n` = 1 of the slopes.
    fn weights(&self, e: &mut Emitter, n: u64) -> Val {
        e.shared(staged(self.kernel) + n * SCORES)
    }

    /// Products of the block's rows of `left` and 64 rows of `right` from `other` on: 4 × 4, row by row. Begins and ends
    /// with shared memory free for others.
    fn products(&self, e: &mut Emitter, left: Matrix, right: Matrix, other: Val) -> Vec<Val> {
        let (xs, ys) = (e.shared(0), e.shared(DEPTH * PITCH));
        let place = |pointer, rows: u64| Place {
            pointer,
            rows,
            cols: DEPTH,
            pitch: rows + PAD,
            turned: true,
        };
        let start = vec![e.float(0.0, e.scalar()); MINE * 4];
        let (zero, depth) = (e.int(0), left.cols);
        e.for_with(zero, depth, DEPTH as i64, &start, |e, d, sums| {
            stage(e, self.team, left, self.row, d, place(xs, ROWS));
            stage(e, self.team, right, other, d, place(ys, COLS));
            e.barrier();
            let (all, left) = (e.int(DEPTH as i64), e.sub(depth, d));
            let count = e.min(all, left);
            let after = e.for_with(zero, count, 1, sums, |e, i, sums| {
                let (x_at, y_at) = (
                    e.mul_int(i, PITCH as i64),
                    e.mul_int(i, (COLS + PAD) as i64),
                );
                let (own_x, own_y) = (e.mul_int(self.y, 4), e.mul_int(self.x, 4));
                let (x_at, y_at) = (e.add(x_at, own_x), e.add(y_at, own_y));
                let (x, y) = (four(e, xs, x_at), four(e, ys, y_at));
                outer(e, &x, &y, sums)
            });
            e.barrier();
            after
        })
    }

    /// Puts the thread's 4 × 4 numbers into a tile of scores, where columns come first.
    fn put(&self, e: &mut Emitter, tile: Val, numbers: &[Val]) {
        let row = self.own_row(e);
        let first = e.mul_int(self.x, 4 * PITCH as i64);
        let first = e.add(first, row);
        for j in 0..4 {
            let column: Vec<Val> = (0..MINE).map(|i| numbers[i * 4 + j]).collect();
            let column = e.join(&column);
            let at = e.add_int(first, j as i64 * PITCH as i64);
            let p = e.at(tile, at, e.elem);
            e.store_whole(column, p);
        }
    }

    /// Adds `Σ weight(row, j) · from(j, ·)` over the 64 rows j from `other` on, as far as they are seen, to the thread's
    /// sums; `from` is an operand with its number. Ends with shared memory free for others.
    fn accumulate(
        &self,
        e: &mut Emitter,
        tile: Val,
        (operand, from): (u64, Matrix),
        other: Val,
        seen: &Seen,
        sums: &[Val],
    ) -> Vec<Val> {
        let staging = e.shared(0);
        let head = self.kernel.columns(operand);
        let pitch = head.next_multiple_of(4);
        let columns = self.own_columns(e, operand);
        let row = self.own_row(e);
        let first = e.add(self.row, row);
        let top = e.add_int(other, COLS as i64);
        let stop = e.min(top, seen.end);
        e.for_with(other, stop, CHUNK as i64, sums, |e, chunk, sums| {
            let place = Place {
                pointer: staging,
                rows: CHUNK,
                cols: head,
                pitch,
                turned: false,
            };
            let zero = e.int(0);
            stage(e, self.team, from, chunk, zero, place);
            e.barrier();
            let end = e.add_int(chunk, CHUNK as i64);
            let end = e.min(end, stop);
            let begin = e.max(chunk, seen.begin);
            // All rows of the block see what lies between the two.
            let last = e.add_int(self.row, ROWS as i64 - 1);
            let low = seen.from.map_or(begin, |from| {
                let low = e.add(last, from);
                let low = e.max(low, begin);
                e.min(low, end)
            });
            let high = seen.to.map_or(end, |to| {
                let high = e.add(self.row, to);
                let high = e.add_int(high, 1);
                let high = e.min(high, end);
                e.max(high, low)
            });
            let step = |e: &mut Emitter, j: Val, sums: &[Val], masked: bool| {
                let (within, in_chunk) = (e.sub(j, other), e.sub(j, chunk));
                let at = e.mul_int(within, PITCH as i64);
                let at = e.add(at, row);
                let weights = four(e, tile, at);
                let base = e.mul_int(in_chunk, pitch as i64);
                let values: Vec<Val> = columns
                    .iter()
                    .map(|c| {
                        let at = e.add(base, *c);
                        let p = e.at(staging, at, e.elem);
                        e.load(p, e.scalar())
                    })
                    .collect();
                let after = outer(e, &weights, &values, sums);
                if !masked {
                    return after;
                }
                let per = values.len();
                let mut out = Vec::with_capacity(after.len());
                for i in 0..MINE {
                    let r = e.add_int(first, i as i64);
                    let bounds = [(seen.from, Cmp::Ge), (seen.to, Cmp::Le)];
                    let mut seen = vec![];
                    for (bound, cmp) in bounds {
                        if let Some(bound) = bound {
                            let bound = e.add(r, bound);
                            seen.push(e.cmp(cmp, j, bound));
                        }
                    }
                    for t in i * per..(i + 1) * per {
                        let one = |after: Val, sees: &Val| e.select(*sees, after, sums[t]);
                        out.push(seen.iter().fold(after[t], one));
                    }
                }
                out
            };
            let mut sums = sums.to_vec();
            if seen.from.is_some() {
                sums = e.for_with(begin, low, 1, &sums, |e, j, sums| step(e, j, sums, true));
            }
            sums = e.for_with(low, high, 1, &sums, |e, j, sums| step(e, j, sums, false));
            if seen.to.is_some() {
                sums = e.for_with(high, end, 1, &sums, |e, j, sums| step(e, j, sums, true));
            }
            e.barrier();
            sums
        })
    }

    /// Writes the thread's sums to an operand, each row times `factors`, where there are rows and columns for them.
    fn write(
        &self,
        e: &mut Emitter,
        (operand, to): (u64, Matrix),
        sums: &[Val],
        factors: Option<&[Val]>,
    ) {
        let columns = self.kernel.columns(operand);
        let row = self.own_row(e);
        let first = e.add(self.row, row);
        let per = sums.len() / MINE;
        for i in 0..MINE {
            let r = e.add_int(first, i as i64);
            let exists = e.below(r, to.rows);
            e.when(exists, |e| {
                let r = to.listed.map_or(r, |listed| listed.row(e, r));
                let base = e.mul(r, to.stride);
                for t in 0..per {
                    let c = e.add_int(self.x, 16 * t as i64);
                    let value = match factors {
                        Some(f) => e.mul(sums[i * per + t], f[i]),
                        None => sums[i * per + t],
                    };
                    let at = e.add(base, c);
                    let p = e.at(to.pointer, at, e.elem);
                    if (t as u64 + 1) * 16 <= columns {
                        e.store(value, p);
                        continue;
                    }
                    let inside = e.below(c, to.cols);
                    e.when(inside, |e| e.store(value, p));
                }
            });
        }
    }

    fn scale(&self, e: &mut Emitter) -> Val {
        e.float(self.kernel.scale, e.scalar())
    }
}

/// The head of keys that a head of queries reads.
pub(super) fn shared_by(e: &mut Emitter, kernel: &Attend, head: Val) -> Val {
    match kernel.group() {
        1 => head,
        group => {
            let group = e.int(group as i64);
            e.div(head, group)
        }
    }
}

/// Keys of a sequence, of which there are so many queries, in the kernels of whole sequences.
pub(super) fn keys_of(e: &mut Emitter, kernel: &Attend, seq: Val) -> Val {
    match kernel.others {
        true => e.dim(2),
        false => seq,
    }
}

/// The window, no larger than any position, so that sums with positions do not overflow.
pub(super) fn window(kernel: &Attend) -> Option<i64> {
    kernel.window.map(|w| w.min(1 << 40) as i64)
}

/// `body` for each member of the heads that share a head of keys, which carries sums from one to the next.
pub(super) fn each_member(
    e: &mut Emitter,
    kernel: &Attend,
    sums: &[Val],
    body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
) -> Vec<Val> {
    let zero = e.int(0);
    match kernel.group() {
        1 => body(e, zero, sums),
        group => {
            let group = e.int(group as i64);
            e.for_with(zero, group, 1, sums, body)
        }
    }
}

/// A number per row that each warp holds one per thread, for the thread's four rows.
fn spread(e: &mut Emitter, work: &Work, x: Val) -> Vec<Val> {
    let row = work.own_row(e);
    (0..MINE as i64)
        .map(|i| {
            let lane = e.add_int(row, i);
            e.of_lane(x, lane)
        })
        .collect()
}

/// An f32 of shared memory.
fn number(e: &mut Emitter, pointer: Val, at: Val) -> Val {
    let p = e.at(pointer, at, e.elem);
    let ty: Type = e.scalar();
    e.load(p, ty)
}
