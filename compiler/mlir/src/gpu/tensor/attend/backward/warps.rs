//! Attention backward by warps, with `mma`.
//!
//! Takes what a block walks over; of its own side it keeps two tiles in shared memory, of the other one tiles of as many rows as fit
//! beside them. Each warp has 16 rows of the block's 64, and takes 16 of the others at a time.

use super::super::{Block, Sums, flat, fragments, number, rounded};
use super::{D_K, D_Q, D_V, Numbers, Rows};
use super::{delta, of_keys, of_queries, of_rows, pair, shaped_weight, shift, slope, write};
use crate::emit::{Emitter, Val};
use crate::gpu::attend::each_member;
use crate::gpu::attend::scores::{self, ahead};
use crate::gpu::tensor::attend::forward::Walk;
use crate::gpu::tensor::attend::mask::Mask;
use crate::gpu::tensor::{Source, put};
use odec_program::gpu::tensor::attend::{ROWS, streamed};

/// Tiles of the block's rows and of others, in elements; numbers of 64 rows.
struct Places {
    own: [Val; 2],
    others: [Val; 2],
    numbers: Numbers,
}

impl Places {
    fn new(e: &mut Emitter, block: &Block) -> Places {
        let own = block.tile(ROWS).elements();
        let others = block.tile(streamed(block.kernel)).elements();
        Places {
            own: [0, own].map(|n| e.int(n as i64)),
            others: [2 * own, 2 * own + others].map(|n| e.int(n as i64)),
            numbers: Numbers::behind(e, 4 * (own + others)),
        }
    }
}

/// Brings `rows` rows of two matrices from `first` on; the caller waits.
fn fetch(e: &mut Emitter, block: &Block, from: [Source; 2], first: Val, rows: u64, to: [Val; 2]) {
    let zero = e.int(0);
    for (source, to) in from.into_iter().zip(to) {
        let loaded = source.fetch(e, block.team, first, zero, block.tile(rows), to);
        put(e, loaded, to);
    }
    e.close_copies();
}

fn arrive(e: &mut Emitter) {
    e.await_copies(0);
    e.barrier();
}

/// Products of the warp's 16 rows of a tile with 16 others.
fn products(e: &mut Emitter, block: &Block, own: Val, others: Val, row: Val) -> Sums {
    let zero = number(e, 0.0);
    let mut out = vec![[zero; 4]; 2];
    for d in (0..block.kernel.head).step_by(16) {
        let left = block.left(e, own, d);
        let right = block.over_columns(e, others, row, d);
        for (sum, right) in out.iter_mut().zip(right) {
            *sum = e.multiply(left, right, *sum);
        }
    }
    out
}

/// dQ = dS·K.
pub(super) fn queries(e: &mut Emitter, block: &Block, walk: Walk, rows: Rows) {
    let places = Places::new(e, block);
    let (own, keys) = (of_queries(e, block, rows), of_keys(e, block, rows));
    fetch(e, block, own, block.row, ROWS, places.own);
    statistics(e, block, &places.numbers, rows.queries, block.row, ROWS);
    arrive(e);
    let shifts = of_rows(e, block, places.numbers.shift);
    let delta = of_rows(e, block, places.numbers.delta);
    let others = streamed(block.kernel);
    let zero = e.int(0);
    let start = flat(&block.nothing(e));
    let steep = scores::slope(e, block.kernel, block.head);
    let own_rows = steep.map(|_| block.rows(e));
    let (begin, end) = (walk.begin, walk.end);
    let done = e.for_with(begin, end, others as i64, &start, |e, first, sums| {
        fetch(e, block, keys, first, others, places.others);
        arrive(e);
        let all = e.int(others as i64);
        let sums = e.for_with(zero, all, 16, sums, |e, row, sums| {
            let scores = products(e, block, places.own[0], places.others[0], row);
            let rates = products(e, block, places.own[1], places.others[1], row);
            let here = e.add(first, row);
            let mask = Mask::new(e, block, walk.seen.rows, here);
            let from = own_rows.map(|rows| {
                let key = e.add(here, block.lane_col);
                rows.map(|query| ahead(e, key, query))
            });
            let slopes: Sums = (0..2)
                .map(|n| {
                    [0, 1, 2, 3].map(|i| {
                        let visible = mask.sees(e, n, i);
                        let bias = steep.zip(from).map(|(steep, from)| {
                            let column = number(e, (8 * n + i % 2) as f64);
                            (steep, e.add(from[i / 2], column))
                        });
                        let score = (scores[n][i], bias);
                        let (p, bend) = shaped_weight(e, block, score, shifts[i / 2], visible);
                        let slope = slope(e, p, rates[n][i], delta[i / 2]);
                        bend.map_or(slope, |bend| e.mul(slope, bend))
                    })
                })
                .collect();
            let left = rounded(e, slopes[0], slopes[1]);
            let mut sums = fragments(sums);
            block.accumulate(e, left, places.others[0], row, &mut sums);
            flat(&sums)
        });
        e.barrier();
        sums
    });
    write(e, block, D_Q, &fragments(&done), rows);
}

/// dV = Pᵀ·dO, dK = dSᵀ·Q.
pub(super) fn keys(e: &mut Emitter, block: &Block, walk: Walk, rows: Rows) {
    let places = Places::new(e, block);
    let own = of_keys(e, block, rows);
    fetch(e, block, own, block.row, ROWS, places.own);
    let others = streamed(block.kernel);
    let zero = e.int(0);
    let start = [flat(&block.nothing(e)), flat(&block.nothing(e))].concat();
    let count = start.len() / 2;
    let (begin, end) = (walk.begin, walk.end);
    let done = each_member(e, block.kernel, &start, |e, member, sums| {
        let block = &block.of_member(e, member);
        let queries = of_queries(e, block, rows);
        let steep = scores::slope(e, block.kernel, block.head);
        let own_rows = steep.map(|_| block.rows(e));
        e.for_with(begin, end, others as i64, sums, |e, first, sums| {
            fetch(e, block, queries, first, others, places.others);
            statistics(e, block, &places.numbers, rows.queries, first, others);
            arrive(e);
            let all = e.int(others as i64);
            let sums = e.for_with(zero, all, 16, sums, |e, row, sums| {
                let scores = products(e, block, places.own[0], places.others[0], row);
                let rates = products(e, block, places.own[1], places.others[1], row);
                let here = e.add(first, row);
                let mask = Mask::new(e, block, walk.seen.rows, here);
                // Columns are queries.
                let from = own_rows.map(|rows| {
                    let query = e.add(here, block.lane_col);
                    rows.map(|key| ahead(e, key, query))
                });
                let here = e.add(row, block.lane_col);
                let mut weights = vec![];
                let mut slopes = vec![];
                for n in 0..2 {
                    let at = e.add_int(here, 8 * n as i64);
                    let shifts = pair(e, places.numbers.shift, at);
                    let delta = pair(e, places.numbers.delta, at);
                    let p = [0, 1, 2, 3].map(|i| {
                        let visible = mask.sees(e, n, i);
                        let bias = steep.zip(from).map(|(steep, from)| {
                            let column = number(e, (8 * n + i % 2) as f64);
                            (steep, e.sub(from[i / 2], column))
                        });
                        let score = (scores[n][i], bias);
                        shaped_weight(e, block, score, shifts[i % 2], visible)
                    });
                    weights.push(p.map(|(p, _)| p));
                    let slope = |i: usize| {
                        let (p, bend) = p[i];
                        let slope = slope(e, p, rates[n][i], delta[i % 2]);
                        bend.map_or(slope, |bend| e.mul(slope, bend))
                    };
                    slopes.push([0, 1, 2, 3].map(slope));
                }
                let (mut of_values, mut of_keys) =
                    (fragments(&sums[..count]), fragments(&sums[count..]));
                let left = rounded(e, weights[0], weights[1]);
                block.accumulate(e, left, places.others[1], row, &mut of_values);
                let left = rounded(e, slopes[0], slopes[1]);
                block.accumulate(e, left, places.others[0], row, &mut of_keys);
                [flat(&of_values), flat(&of_keys)].concat()
            });
            e.barrier();
            sums
        })
    });
    for (operand, sums) in [(D_V, &done[..count]), (D_K, &done[count..])] {
        write(e, block, operand, &fragments(sums), rows);
    }
}

/// The numbers of `count` rows from `first` on; rows beyond the last repeat it.
fn statistics(e: &mut Emitter, block: &Block, numbers: &Numbers, seq: Val, first: Val, count: u64) {
    let all = e.int(count as i64);
    // Threads of the same row write the same.
    let slot = e.rem(block.team.thread, all);
    let query = e.add(first, slot);
    let numbers_of = [
        (numbers.shift, shift(e, block, seq, query)),
        (numbers.delta, delta(e, block, seq, query)),
    ];
    for (place, x) in numbers_of {
        let p = e.at(place, slot, e.elem);
        e.store(x, p);
    }
}
