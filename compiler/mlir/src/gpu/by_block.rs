//! Rows that a block takes: all of its threads compute terms, 16 of them add.
//!
//! Takes the row of a kernel ([`Row`]) that is too wide to stay in registers; gives its reductions. A sum keeps the order of its 16 virtual lanes: the terms of
//! some columns go through shared memory to 16 threads, one per lane, which add them while the others compute the next ones. A maximum is taken in any
//! order: the sign of a zero may differ from the specification's, and the maximum of a row with a NaN.

use super::rows::{Column, Row, combination};
use crate::body::{Values, binary};
use crate::emit::{Cmp, Emitter, Val};
use odec_program::eval::LANES;
use odec_program::expr::{BinaryOp, ReduceOp};
use odec_program::gpu::WARP;
use odec_program::gpu::rows::{BLOCK_THREADS, block_values, most_sums};

/// Values of a lane that are read before they are added.
const AHEAD: u64 = 16;

/// A reduction: node, kind, argument.
type Due = (usize, ReduceOp, usize);

impl Row<'_> {
    /// Emits the reductions of a phase.
    pub fn reduce_by_block(&self, e: &mut Emitter, phase: u32, scalars: &mut Values) {
        let due = self.due(phase);
        let (maxima, sums): (Vec<Due>, Vec<Due>) =
            due.into_iter().partition(|d| d.1 == ReduceOp::Max);
        for one in maxima {
            scalars[one.0] = Some(self.maximum(e, one, scalars));
        }
        if !sums.is_empty() {
            let values = self.sums(e, &sums, scalars);
            for (one, value) in sums.iter().zip(values) {
                scalars[one.0] = Some(value);
            }
        }
    }

    /// The place in shared memory behind the values of columns, of number `n` of those that are there for each warp.
    fn note(&self, e: &mut Emitter, n: Val) -> Val {
        let all = e.shared(block_values(self.kernel));
        e.at(all, n, e.elem)
    }

    fn maximum(&self, e: &mut Emitter, (_, op, argument): Due, scalars: &Values) -> Val {
        let (op, start) = combination(op);
        let ty = super::access::wide(e.elem, self.split.vector);
        let start = e.float(start, ty);
        let most = self.sweep(e, &[argument], scalars, &[start], |e, column, most| {
            let x = self.compute(e, &[argument], column);
            vec![binary(e, op, most[0], x[0])]
        });
        let parts = e.parts(most[0]);
        let fold = |e: &mut Emitter, all: &[Val]| {
            let (first, others) = all.split_first().expect("there is one");
            others.iter().fold(*first, |a, b| binary(e, op, a, *b))
        };
        let mut most = fold(e, &parts);
        let mut distance = WARP / 2;
        while distance > 0 {
            let far = e.at_distance(most, distance);
            most = binary(e, op, most, far);
            distance /= 2;
        }
        // Nobody reads what was there before.
        e.barrier();
        let (width, zero) = (e.int(WARP as i64), e.int(0));
        let (warp, lane) = (
            e.div(self.place.member, width),
            e.rem(self.place.member, width),
        );
        let first = e.cmp(Cmp::Eq, lane, zero);
        e.when(first, |e| {
            let at = self.note(e, warp);
            e.store(most, at);
        });
        e.barrier();
        let warps: Vec<Val> = (0..BLOCK_THREADS / WARP)
            .map(|n| {
                let n = e.int(n as i64);
                let at = self.note(e, n);
                e.load(at, e.scalar())
            })
            .collect();
        fold(e, &warps)
    }

    fn sums(&self, e: &mut Emitter, due: &[Due], scalars: &Values) -> Vec<Val> {
        let arguments: Vec<usize> = due.iter().map(|d| d.2).collect();
        let (vector, lanes) = (self.split.vector, LANES as u64);
        // Columns of a turn, each thread's one access of them.
        let turn = self.split.group * vector;
        let half = most_sums(self.kernel) as u64 * turn;
        let member = self.place.member;
        let own = e.mul_int(member, vector as i64);
        // Threads that add: 16 for each sum.
        let adding = e.int((due.len() as u64 * lanes) as i64);
        let adds = e.below(member, adding);
        let width = e.int(lanes as i64);
        let (number, lane) = (e.div(member, width), e.rem(member, width));
        // The others read along with the first.
        let first = e.int(0);
        let values = e.select(adds, number, first);
        let values = e.mul_int(values, turn as i64);
        let values = e.add(values, lane);

        // Puts down the values of the columns from `column.first` on, if there are such, and adds those of the `count` columns from there on.
        let add = |e: &mut Emitter,
                   column: &mut Column,
                   exists: Option<Val>,
                   count: Val,
                   carried: &[Val]| {
            let (sum, offset) = (carried[0], carried[1]);
            let computed = self.compute(e, &arguments, column);
            let put = |e: &mut Emitter| {
                for (n, x) in computed.iter().enumerate() {
                    let at = e.add_int(own, (n as u64 * turn) as i64);
                    let at = e.add(offset, at);
                    let all = e.shared(0);
                    let at = e.at(all, at, e.elem);
                    e.store_whole(*x, at);
                }
            };
            match exists {
                None => put(e),
                Some(exists) => e.when(exists, put),
            }
            e.barrier();
            let zero = e.int(0);
            let count = e.select(adds, count, zero);
            let from = e.add(offset, values);
            let whole = e.floor_to(count, (AHEAD * lanes) as i64);
            let all = e.shared(0);
            let read = |e: &mut Emitter, c: Val, count: u64| -> Vec<Val> {
                let at = e.add(from, c);
                let each = (0..count).map(|n| {
                    let at = e.add_int(at, (n * lanes) as i64);
                    let at = e.at(all, at, e.elem);
                    e.load(at, e.scalar())
                });
                each.collect()
            };
            let total = |e: &mut Emitter, sum: Val, more: &[Val]| {
                more.iter().fold(sum, |sum, x| e.add(sum, *x))
            };
            // The next ones are read while these are added; behind the last there is nothing to read, so they are read again.
            let step = (AHEAD * lanes) as i64;
            let last = e.add_int(whole, -step);
            let last = e.max(last, zero);
            let mut carried = vec![sum];
            carried.extend(read(e, zero, AHEAD));
            let carried = e.for_with(zero, whole, step, &carried, |e, c, carried| {
                let next = e.add_int(c, step);
                let next = e.min(next, last);
                let more = read(e, next, AHEAD);
                let mut after = vec![total(e, carried[0], &carried[1..])];
                after.extend(more);
                after
            });
            // The lanes of a last piece are not all as long.
            let left = e.sub(count, lane);
            let sum = e.for_with(whole, left, lanes as i64, &carried[..1], |e, c, sum| {
                let more = read(e, c, 1);
                vec![total(e, sum[0], &more)]
            });
            // What is still added is in the other half.
            let other = e.int(half as i64);
            vec![sum[0], e.sub(other, offset)]
        };

        let (zero, nothing) = (e.int(0), e.float(0.0, e.scalar()));
        let together = self
            .together(&arguments, scalars)
            .min(self.kernel.cols / turn);
        let step = together * turn;
        let whole = self.kernel.cols / step * step;
        let (middle, end) = (e.int(whole as i64), e.int(self.kernel.cols as i64));
        let all = e.int(turn as i64);
        let carried = e.for_with(
            zero,
            middle,
            step as i64,
            &[nothing, zero],
            |e, c, carried| {
                let columns = (0..together).map(|n| {
                    let first = e.add(c, own);
                    let first = e.add_int(first, (n * turn) as i64);
                    let mut column = self.column(e, &arguments, scalars, first);
                    self.fetch(e, &arguments, &mut column);
                    column
                });
                let columns: Vec<Column> = columns.collect();
                columns
                    .into_iter()
                    .fold(carried.to_vec(), |carried, mut column| {
                        add(e, &mut column, None, all, &carried)
                    })
            },
        );
        let carried = match whole == self.kernel.cols {
            true => carried,
            false => e.for_with(middle, end, turn as i64, &carried, |e, c, carried| {
                let first = e.add(c, own);
                let exists = e.below(first, end);
                let last = e.int((self.kernel.cols - vector) as i64);
                let first = e.min(first, last);
                let mut column = self.column(e, &arguments, scalars, first);
                let left = e.sub(end, c);
                let count = e.min(left, all);
                add(e, &mut column, Some(exists), count, carried)
            }),
        };
        // Lanes meet as in every row; the first of each sum tells all threads.
        let mut sum = carried[0];
        let mut distance = lanes / 2;
        while distance > 0 {
            let far = e.at_distance(sum, distance);
            sum = binary(e, BinaryOp::Add, sum, far);
            distance /= 2;
        }
        e.barrier();
        let first = e.cmp(Cmp::Eq, lane, zero);
        let tells = e.and(adds, first);
        e.when(tells, |e| {
            let at = self.note(e, number);
            e.store(sum, at);
        });
        e.barrier();
        (0..due.len() as i64)
            .map(|n| {
                let n = e.int(n);
                let at = self.note(e, n);
                e.load(at, e.scalar())
            })
            .collect()
    }
}
