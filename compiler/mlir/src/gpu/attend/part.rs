//! The tokens that take part, where some do not: the rows of a block, found among all.
//!
//! A block counts those of its sequence, 32 tokens at a time, and lists in shared memory the rows that it works on: 32 of its own side, and 64 of the other,
//! anew for each tile of that side. Memory does not depend on how long a sequence is. Results of rows that take no part become zero.

use super::Work;
use crate::emit::{Cmp, Elem, Emitter, Val};
use crate::gpu::stage::{Listed, Matrix};
use odec_program::gpu::WARP;
use odec_program::gpu::attend::{COLS, ROWS, THREADS, listed};

/// Which tokens of a sequence take part.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The number of the sequence's first token.
    numbers: Val,
    /// Where rows are listed.
    place: Val,
    /// What is taken off rows of queries: those of earlier tokens.
    past: Val,
}

/// The two sides of a block: rows of its own, and a tile of others.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Rows {
    Own,
    Other,
}

impl Part {
    /// Of a sequence whose first number is so far behind that of an operand. Queries are those of tokens after so many.
    pub fn of(e: &mut Emitter, work: &Work, operand: u64, first: Val, past: Val) -> Part {
        let numbers = e.operand(operand);
        Part {
            numbers: e.at(numbers, first, e.elem),
            place: e.shared(listed(work.kernel)),
            past,
        }
    }

    /// Whether a row takes part (i1).
    fn has(&self, e: &mut Emitter, row: Val) -> Val {
        let p = e.at(self.numbers, row, e.elem);
        let x = e.load(p, e.scalar());
        let zero = e.float(0.0, x.ty);
        e.cmp(Cmp::Ge, x, zero)
    }

    /// Which of the 32 rows from `r` on, below `to`, take part: whether this thread's does, and all as bits.
    fn votes(&self, e: &mut Emitter, lane: Val, (r, to): (Val, Val)) -> (Val, Val) {
        let last = e.add_int(to, -1);
        let row = e.add(r, lane);
        let there = e.below(row, to);
        let row = e.min(row, last);
        let has = self.has(e, row);
        let has = e.and(has, there);
        (has, e.ballot(has))
    }

    /// How many of the first `to` rows take part.
    pub fn count(&self, e: &mut Emitter, work: &Work, to: Val) -> Val {
        let zero = e.int(0);
        e.for_with(zero, to, WARP as i64, &[zero], |e, r, count| {
            let (_, all) = self.votes(e, work.lane, (r, to));
            let more = e.count_ones(all);
            vec![e.add(count[0], more)]
        })[0]
    }

    /// Lists the rows from the `first` of those that take part on, of `to` rows in all. Begins and ends with all threads at one place.
    pub fn list(&self, e: &mut Emitter, work: &Work, rows: Rows, first: Val, to: Val) {
        let most = match rows {
            Rows::Own => ROWS,
            Rows::Other => COLS,
        };
        let (zero, one, warp) = (e.int(0), e.int(1), e.int(WARP as i64));
        let number = e.div(work.team.thread, warp);
        let writes = e.cmp(Cmp::Eq, number, zero);
        let spare = e.add_int(work.team.thread, (ROWS + COLS) as i64);
        let start = self.start(e, rows);
        let most = e.int(most as i64);
        // The threads before this one, as bits.
        let bit = e.shift_left(one, work.lane);
        let before = e.add_int(bit, -1);
        let before = e.convert(before, Elem::I32);
        // Whoever still reads the list that was there before.
        e.barrier();
        e.for_with(zero, to, WARP as i64, &[zero], |e, r, count| {
            let (has, all) = self.votes(e, work.lane, (r, to));
            let earlier = e.and(all, before);
            let earlier = e.count_ones(earlier);
            let place = e.add(count[0], earlier);
            let place = e.sub(place, first);
            let (begun, open) = (e.cmp(Cmp::Ge, place, zero), e.below(place, most));
            let mine = e.and(has, writes);
            let mine = e.and(mine, begun);
            let mine = e.and(mine, open);
            // All threads store, those without a row to a place of their own: the next vote is of all threads of the warp, which a branch
            // would part.
            let place = e.add(place, start);
            let place = e.select(mine, place, spare);
            let p = e.at(self.place, place, Elem::I32);
            let row = e.add(r, work.lane);
            let row = e.convert(row, Elem::I32);
            e.store(row, p);
            let more = e.count_ones(all);
            vec![e.add(count[0], more)]
        });
        e.barrier();
    }

    fn start(&self, e: &mut Emitter, rows: Rows) -> Val {
        e.int(match rows {
            Rows::Own => 0,
            Rows::Other => ROWS as i64,
        })
    }

    /// The list, which has the rows from `first` on of those that take part. `queries`: as rows of queries, not of keys.
    pub fn listed(&self, e: &mut Emitter, (rows, first): (Rows, Val), queries: bool) -> Listed {
        let (zero, start) = (e.int(0), self.start(e, rows));
        Listed {
            pointer: e.at(self.place, start, Elem::I32),
            from: Some(first),
            first: if queries {
                e.sub(zero, self.past)
            } else {
                zero
            },
            copies: 1,
        }
    }

    /// A matrix of as many rows as take part, of which those of a list are at hand.
    pub fn matrix(all: Matrix, listed: Listed, count: Val) -> Matrix {
        Matrix {
            rows: count,
            listed: Some(listed),
            ..all
        }
    }

    /// Zeros for those rows of the block's own, `work.row` on of all tokens, that take no part: in a matrix of all rows, and in a statistic. Nothing
    /// follows it that asks all threads of a warp.
    pub fn clear(
        &self,
        e: &mut Emitter,
        work: &Work,
        (operand, to): (u64, Matrix),
        statistic: Option<u64>,
    ) {
        let zero = e.float(0.0, e.scalar());
        let first = e.add(work.row, work.y);
        let end = e.add_int(work.row, ROWS as i64);
        let end = e.min(end, to.rows);
        let columns = work.kernel.columns(operand);
        e.for_each(first, end, (THREADS / 16) as i64, |e, row| {
            let behind = e.add(row, self.past);
            let p = e.at(self.numbers, behind, e.elem);
            let x = e.load(p, e.scalar());
            let nothing = e.float(0.0, x.ty);
            let (below, none) = (e.cmp(Cmp::Lt, x, nothing), e.cmp(Cmp::Ne, x, x));
            let lacks = e.or(below, none);
            e.when(lacks, |e| {
                let base = e.mul(row, to.stride);
                let all = e.int(columns as i64);
                e.for_each(work.x, all, 16, |e, c| {
                    let at = e.add(base, c);
                    let p = e.at(to.pointer, at, to.elem);
                    e.store(zero, p);
                });
                if let Some(operand) = statistic {
                    let none = e.int(0);
                    let speaks = e.cmp(Cmp::Eq, work.x, none);
                    e.when(speaks, |e| {
                        let p = work.statistic(e, operand, to.rows, row);
                        e.store(zero, p);
                    });
                }
            });
        });
    }
}
