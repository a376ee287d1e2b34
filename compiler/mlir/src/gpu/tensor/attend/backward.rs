//! Attention on tensor cores, backward.
//!
//! Takes an [`Attend`] spec. One half of the blocks computes gradients of queries, walking over keys; the other half those
//! of keys and values, walking over queries. Both compute weights again from scores and the forward kernel's statistic, so
//! nothing is added up by several blocks. Of its own side a block keeps two tiles in shared memory, of the other one tiles
//! of as many rows as fit beside them. Weights, slopes and dO are rounded to bf16 as factors.

use super::super::put;
use super::{Block, Side, Sums, flat, fragments, number, rounded};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gpu::access::wide;
use crate::gpu::attend::{each_member, window};
use crate::gpu::tensor::Source;
use odec_program::DType;
use odec_program::gpu::tensor::attend::{ROWS, THREADS, streamed};
use odec_program::kernel::Attend;
use std::f64::consts::LOG2_E;

const LSE: u64 = 4;

/// Dims `[batch, seq]`; operands q, k, v, o, lse, d_o, d_q, d_k, d_v.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    let number = e.block();
    let tiles = e.div_ceil(seq, ROWS as i64);
    let half = e.mul(batch, tiles);
    let half = e.mul_int(half, kernel.heads as i64);
    let of_queries = e.below(number, half);
    e.either(of_queries, |e, of_queries| {
        let (side, number) = match of_queries {
            true => (Side::Queries, number),
            false => (Side::Keys, e.sub(number, half)),
        };
        let block = Block::new(e, kernel, side, (number, seq));
        let places = Places::new(e, &block);
        match of_queries {
            true => queries(e, &block, &places, seq),
            false => keys(e, &block, &places, seq),
        }
    });
    Ok(())
}

/// Tiles of the block's rows and of others, in elements; statistics and δ of 64 rows, in f32.
struct Places {
    own: [Val; 2],
    others: [Val; 2],
    lse: Val,
    delta: Val,
}

impl Places {
    fn new(e: &mut Emitter, block: &Block) -> Places {
        let own = block.tile(ROWS).elements();
        let others = block.tile(streamed(block.kernel)).elements();
        let numbers = own + others;
        Places {
            own: [0, own].map(|n| e.int(n as i64)),
            others: [2 * own, 2 * own + others].map(|n| e.int(n as i64)),
            lse: e.shared(numbers),
            delta: e.shared(numbers + ROWS),
        }
    }
}

/// q and dO.
fn of_queries(e: &mut Emitter, block: &Block, seq: Val) -> [Source; 2] {
    [(0, DType::Bf16), (5, DType::F32)].map(|(n, dtype)| block.source(e, n, dtype, seq))
}

/// k and v.
fn of_keys(e: &mut Emitter, block: &Block, seq: Val) -> [Source; 2] {
    [1, 2].map(|n| block.source(e, n, DType::Bf16, seq))
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

/// The weight of a pair, zero where it is hidden, and the gradient of its score before scaling.
fn weight(
    e: &mut Emitter,
    block: &Block,
    (score, rate): (Val, Val),
    (shift, delta): (Val, Val),
    visible: Val,
) -> (Val, Val) {
    let factor = number(e, block.kernel.scale * LOG2_E);
    let (scale, zero) = (number(e, block.kernel.scale), number(e, 0.0));
    let x = e.fma(score, factor, shift);
    let p = e.exp2(x);
    let p = e.select(visible, p, zero);
    let away = e.sub(rate, delta);
    let slope = e.mul(p, away);
    (p, e.mul(slope, scale))
}

/// −lse · log₂ e.
fn shift(e: &mut Emitter, lse: Val) -> Val {
    let factor = number(e, -LOG2_E);
    e.mul(lse, factor)
}

/// dQ = dS·K.
fn queries(e: &mut Emitter, block: &Block, places: &Places, seq: Val) {
    let (own, keys) = (of_queries(e, block, seq), of_keys(e, block, seq));
    fetch(e, block, own, block.row, ROWS, places.own);
    statistics(e, block, places, seq, block.row, ROWS);
    arrive(e);
    let rows = block.rows(e);
    let own = e.add(block.own, block.lane_row);
    let known = [0, 8].map(|below| {
        let at = e.add_int(own, below);
        let [lse, delta] = [places.lse, places.delta].map(|place| {
            let p = e.at(place, at, e.elem);
            e.load(p, e.scalar())
        });
        (shift(e, lse), delta)
    });
    let (seen, end) = match block.kernel.causal {
        true => {
            let end = e.add_int(block.row, ROWS as i64);
            (
                rows.map(|r| {
                    let n = e.add_int(r, 1);
                    e.min(n, seq)
                }),
                e.min(end, seq),
            )
        }
        false => ([seq; 2], seq),
    };
    let others = streamed(block.kernel);
    let zero = e.int(0);
    let window = window(block.kernel).map(|w| 1 - w);
    let hidden = window.map(|w| rows.map(|r| e.add_int(r, w)));
    let begin = window.map_or(zero, |w| {
        let first = e.add_int(block.row, w);
        e.max(first, zero)
    });
    let start = flat(&block.nothing(e));
    let done = e.for_with(begin, end, others as i64, &start, |e, first, sums| {
        fetch(e, block, keys, first, others, places.others);
        arrive(e);
        let all = e.int(others as i64);
        let sums = e.for_with(zero, all, 16, sums, |e, row, sums| {
            let scores = products(e, block, places.own[0], places.others[0], row);
            let rates = products(e, block, places.own[1], places.others[1], row);
            let here = e.add(first, row);
            let here = e.add(here, block.lane_col);
            let left = seen.map(|s| e.sub(s, here));
            let hidden = hidden.map(|h| h.map(|h| e.sub(h, here)));
            let slopes: Sums = (0..2)
                .map(|n| {
                    [0, 1, 2, 3].map(|i| {
                        let column = e.int((8 * n + i % 2) as i64);
                        let visible = e.below(column, left[i / 2]);
                        let visible = hidden.map_or(visible, |hidden| {
                            let sees = e.cmp(Cmp::Ge, column, hidden[i / 2]);
                            e.and(visible, sees)
                        });
                        weight(e, block, (scores[n][i], rates[n][i]), known[i / 2], visible).1
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
    let d_q = block.matrix(e, 6, DType::F32, seq);
    block.write(e, d_q, &fragments(&done), None);
}

/// dV = Pᵀ·dO, dK = dSᵀ·Q.
fn keys(e: &mut Emitter, block: &Block, places: &Places, seq: Val) {
    let own = of_keys(e, block, seq);
    fetch(e, block, own, block.row, ROWS, places.own);
    let rows = block.rows(e);
    let others = streamed(block.kernel);
    let zero = e.int(0);
    let begin = match block.kernel.causal {
        true => block.row,
        false => zero,
    };
    let window = window(block.kernel);
    let end = window.map_or(seq, |w| {
        let end = e.add_int(block.row, ROWS as i64 - 1 + w);
        e.min(end, seq)
    });
    let start = [flat(&block.nothing(e)), flat(&block.nothing(e))].concat();
    let count = start.len() / 2;
    let done = each_member(e, block.kernel, &start, |e, member, sums| {
        let block = &block.of_member(e, member);
        let queries = of_queries(e, block, seq);
        e.for_with(begin, end, others as i64, sums, |e, first, sums| {
            fetch(e, block, queries, first, others, places.others);
            statistics(e, block, places, seq, first, others);
            arrive(e);
            let all = e.int(others as i64);
            let sums = e.for_with(zero, all, 16, sums, |e, row, sums| {
                let scores = products(e, block, places.own[0], places.others[0], row);
                let rates = products(e, block, places.own[1], places.others[1], row);
                let here = e.add(row, block.lane_col);
                let mut weights = vec![];
                let mut slopes = vec![];
                for n in 0..2 {
                    let at = e.add_int(here, 8 * n as i64);
                    let [lse, delta] = [places.lse, places.delta].map(|place| {
                        let p = e.at(place, at, e.elem);
                        let pair = e.load_whole(p, Type::vector(Elem::F32, 2));
                        e.parts(pair)
                    });
                    let shifts: Vec<Val> = lse.into_iter().map(|x| shift(e, x)).collect();
                    let numbers = [0, 1, 2, 3].map(|i| {
                        let column = e.add_int(at, i as i64 % 2);
                        let column = e.add(column, first);
                        let exists = e.below(column, seq);
                        let visible = match block.kernel.causal {
                            true => {
                                let sees = e.cmp(Cmp::Ge, column, rows[i / 2]);
                                e.and(exists, sees)
                            }
                            false => exists,
                        };
                        let visible = window.map_or(visible, |w| {
                            let end = e.add_int(rows[i / 2], w);
                            let sees = e.below(column, end);
                            e.and(visible, sees)
                        });
                        let known = (shifts[i % 2], delta[i % 2]);
                        weight(e, block, (scores[n][i], rates[n][i]), known, visible)
                    });
                    weights.push(numbers.map(|x| x.0));
                    slopes.push(numbers.map(|x| x.1));
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
    let (d_k, d_v) = (
        block.matrix(e, 7, DType::F32, seq),
        block.matrix(e, 8, DType::F32, seq),
    );
    block.write(e, d_v, &fragments(&done[..count]), None);
    block.write(e, d_k, &fragments(&done[count..]), None);
}

/// The forward kernel's statistic and δ = Σ o ∘ dO of `count` rows from `first` on, into shared memory; rows beyond the last
/// repeat it.
fn statistics(e: &mut Emitter, block: &Block, places: &Places, seq: Val, first: Val, count: u64) {
    let per = THREADS / count;
    let o = block.matrix(e, 3, DType::Bf16, seq);
    let d_o = block.matrix(e, 5, DType::F32, seq);
    let several = e.int(per as i64);
    let (slot, part) = (
        e.div(block.team.thread, several),
        e.rem(block.team.thread, several),
    );
    let last = e.add_int(seq, -1);
    let row = e.add(first, slot);
    let row = e.min(row, last);
    let base = e.mul(row, o.stride);
    let begin = e.mul_int(part, 4);
    let nothing = number(e, 0.0);
    let mut sum = e.for_with(begin, o.cols, 4 * per as i64, &[nothing], |e, c, sum| {
        let at = e.add(base, c);
        let [x, y] = [o, d_o].map(|m| {
            let p = e.at(m.pointer, at, m.elem);
            let x = e.load_whole(p, wide(m.elem, 4));
            let x = e.convert(x, Elem::F32);
            e.parts(x)
        });
        let pairs = x.into_iter().zip(y);
        vec![pairs.fold(sum[0], |sum, (x, y)| e.fma(x, y, sum))]
    })[0];
    let mut distance = 1;
    while distance < per {
        let other = e.at_distance(sum, distance);
        sum = e.add(sum, other);
        distance *= 2;
    }
    // The threads of a row write the same.
    let p = block.statistic(e, LSE, seq, row);
    let lse = e.load(p, e.scalar());
    for (place, x) in [(places.lse, lse), (places.delta, sum)] {
        let p = e.at(place, slot, e.elem);
        e.store(x, p);
    }
}
