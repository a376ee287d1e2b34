//! Attention on tensor cores, forward: of whole sequences, and of a few tokens after those whose keys and values are kept.
//!
//! Takes an [`Attend`] spec. The warps keep their queries, running maxima and sums, and results in registers. Two tiles
//! of 64 rows lie in shared memory: while keys are multiplied, values arrive, and while values are, the next keys do.
//! Weights are rounded to bf16; their sum is taken before. Tiles begin at multiples of 64 keys whatever the queries are, and
//! one that a query does not see changes nothing, so kept keys give the bits of the whole sequence.

use super::mask::{Seen, Sight};
use super::{Block, Side, Source, Sums, across_lanes, flat, fragments, number, rounded, warpgroup};
use crate::body::apply;
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::attend::scores::{ahead, shaped, slope};
use crate::gpu::attend::window;
use odec_program::DType;
use odec_program::expr::UnaryOp;
use odec_program::gpu::tensor::attend::{KEYS, ROWS};
use odec_program::gpu::tensor::warpgroup::attends;
use odec_program::kernel::Attend;
use std::f64::consts::LOG2_E;

const LSE: u64 = 4;

/// Dims `[batch, seq]`, and how many keys where these are others; operands q, k, v, o, lse, and sinks if there are.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let (seq, zero) = (e.dim(1), e.int(0));
    attend(e, kernel, (seq, zero), Some(LSE));
    Ok(())
}

/// Dims `[seq, past]`; operands q, k, v, o, and sinks if there are.
pub(in crate::gpu) fn emit_cached(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    if !kernel.causal {
        return Err("attention to kept keys is causal".into());
    }
    let (seq, past) = (e.dim(0), e.dim(1));
    attend(e, kernel, (seq, past), None);
    Ok(())
}

/// `seq` queries, of which number i stands at `past + i`, and `past + seq` keys, or as many of other tokens as a dim says; the statistic, where it is kept, is that operand.
fn attend(e: &mut Emitter, kernel: &Attend, (seq, past): (Val, Val), statistic: Option<u64>) {
    let number_of_block = e.block();
    let block = Block::new(e, kernel, Side::Queries, (number_of_block, seq));
    let total = match kernel.others {
        true => e.dim(2),
        false => e.add(past, seq),
    };
    let zero = e.int(0);
    let from = window(kernel).map(|w| e.add_int(past, 1 - w));
    let begin = from.map_or(zero, |from| {
        let first = e.add(block.row, from);
        let first = e.max(first, zero);
        e.floor_to(first, KEYS as i64)
    });
    let rows = block.rows(e);
    let sees = |e: &mut Emitter, row: Val| match kernel.causal {
        true => {
            let n = e.add(past, row);
            let n = e.add_int(n, 1);
            e.min(n, total)
        }
        false => total,
    };
    let last = e.add_int(block.row, ROWS as i64 - 1);
    let mut bounds = |lower: Val, upper: Val| Sight {
        from: from.map(|from| e.add(lower, from)),
        until: sees(e, upper),
    };
    let seen = Seen {
        rows: rows.map(|r| bounds(r, r)),
        all: bounds(last, block.row),
    };
    let end = sees(e, last);
    let sink = kernel.scores.sinks.then(|| {
        let sinks = e.operand(statistic.map_or(4, |n| n + 1));
        let p = e.at(sinks, block.head, e.elem);
        let (sink, inverse) = (e.load(p, e.scalar()), number(e, 1.0 / unit(kernel)));
        e.mul(sink, inverse)
    });
    let bias = slope(e, kernel, block.head).map(|slope| Bias {
        slope,
        queries: rows.map(|r| e.add(past, r)),
    });
    let walk = Walk {
        begin,
        end,
        seen,
        sink,
        bias,
    };
    let State { max, sum, o } = match attends(kernel, e.target) {
        true => warpgroup::walk(e, &block, walk),
        false => {
            let rows = [(0, seq), (1, total), (2, total)];
            let sources = rows.map(|(n, rows)| block.source(e, n, DType::Bf16, rows));
            by_warps(e, &block, sources, walk)
        }
    };
    let sum = sum.map(|s| across_lanes(e, s, |e, a, b| e.add(a, b)));
    let one = number(e, 1.0);
    let inverse = sum.map(|s| e.div(one, s));
    let result = match kernel.rounds {
        true => DType::Bf16,
        false => DType::F32,
    };
    let out = block.matrix(e, 3, result, seq);
    block.write(e, out, &o, Some(inverse));
    let Some(operand) = statistic else {
        return;
    };
    let first = e.cmp(Cmp::Eq, block.lane_col, zero);
    let unit = number(e, unit(kernel));
    for (half, row) in rows.into_iter().enumerate() {
        let exists = e.below(row, seq);
        let writes = e.and(first, exists);
        e.when(writes, |e| {
            let log = apply(e, UnaryOp::Log, sum[half]);
            let lse = e.fma(max[half], unit, log);
            let p = block.statistic(e, operand, seq, row);
            e.store(lse, p);
        });
    }
}

/// What a block goes through of the other side, and what the lane's rows see of it.
pub(super) struct Walk {
    pub begin: Val,
    pub end: Val,
    pub seen: Seen,
    /// The head's sink, where it has one, in the unit of scores.
    pub sink: Option<Val>,
    pub bias: Option<Bias>,
}

/// What falls with distance: by how much, and the positions of the lane's two queries.
#[derive(Clone, Copy)]
pub(super) struct Bias {
    slope: Val,
    queries: [Val; 2],
}

/// What numbers that weights are made of are multiplied by to be scores: products of queries and keys until more becomes of them.
fn unit(kernel: &Attend) -> f64 {
    match kernel.scores.are_scaled_products() {
        true => kernel.scale,
        false => 1.0,
    }
}

/// `e^x` of a number, by the card's own power of two.
pub(super) fn fast_exp(e: &mut Emitter, x: Val) -> Val {
    let factor = number(e, LOG2_E);
    let x = e.mul(x, factor);
    e.exp2(x)
}

/// With `mma`: each warp its own 16 queries, which stay in registers.
fn by_warps(e: &mut Emitter, block: &Block, [q, k, v]: [Source; 3], walk: Walk) -> State {
    let tile = block.tile(KEYS);
    let (keys, values) = (e.int(0), e.int(tile.elements() as i64));
    let zero = e.int(0);
    // Queries pass through the place of the first values.
    q.fetch(e, block.team, block.row, zero, tile, values);
    e.close_copies();
    k.fetch(e, block.team, walk.begin, zero, tile, keys);
    e.close_copies();
    e.await_copies(1);
    e.barrier();
    let depth = (0..block.kernel.head).step_by(16);
    let queries: Vec<[Val; 4]> = depth.map(|d| block.left(e, values, d)).collect();
    let start = State::start(e, block, walk.sink).flat();
    let done = e.for_with(
        walk.begin,
        walk.end,
        KEYS as i64,
        &start,
        |e, first, carried| {
            // Everybody is done with the values before.
            e.barrier();
            v.fetch(e, block.team, first, zero, tile, values);
            e.close_copies();
            e.await_copies(1);
            e.barrier();
            let scores = scores(e, block, &queries, keys);
            e.barrier();
            let next = e.add_int(first, KEYS as i64);
            k.fetch(e, block.team, next, zero, tile, keys);
            e.close_copies();
            let state = State::of(carried);
            let (weights, mut state) = state.with(e, block, scores, &walk, first);
            e.await_copies(1);
            e.barrier();
            for (n, pair) in weights.chunks(2).enumerate() {
                let left = rounded(e, pair[0], pair[1]);
                let row = e.int(16 * n as i64);
                block.accumulate(e, left, values, row, &mut state.o);
            }
            state.flat()
        },
    );
    e.await_copies(0);
    State::of(&done)
}

/// Products of the warp's queries with 64 keys.
fn scores(e: &mut Emitter, block: &Block, queries: &[[Val; 4]], keys: Val) -> Sums {
    let zero = number(e, 0.0);
    let mut out = vec![[zero; 4]; (KEYS / 8) as usize];
    for (n, pair) in out.chunks_mut(2).enumerate() {
        let row = e.int(16 * n as i64);
        for (d, query) in queries.iter().enumerate() {
            let right = block.over_columns(e, keys, row, 16 * d as u64);
            for (sum, right) in pair.iter_mut().zip(right) {
                *sum = e.multiply(*query, right, *sum);
            }
        }
    }
    out
}

/// What the lane knows of its two rows: the largest score, its own part of the sum of weights, its columns of results.
pub(super) struct State {
    pub max: [Val; 2],
    pub sum: [Val; 2],
    pub o: Sums,
}

impl State {
    /// Of no keys, but perhaps a sink: the first lane of a row counts it.
    pub fn start(e: &mut Emitter, block: &Block, sink: Option<Val>) -> State {
        let [least, nothing] = [f64::NEG_INFINITY, 0.0].map(|x| number(e, x));
        let sum = sink.map_or(nothing, |_| {
            let zero = e.int(0);
            let (first, one) = (e.cmp(Cmp::Eq, block.lane_col, zero), number(e, 1.0));
            e.select(first, one, nothing)
        });
        State {
            max: [sink.unwrap_or(least); 2],
            sum: [sum; 2],
            o: block.nothing(e),
        }
    }

    /// In and out of a loop.
    pub fn flat(&self) -> Vec<Val> {
        [self.max.to_vec(), self.sum.to_vec(), flat(&self.o)].concat()
    }

    pub fn of(flat: &[Val]) -> State {
        State {
            max: [flat[0], flat[1]],
            sum: [flat[2], flat[3]],
            o: fragments(&flat[4..]),
        }
    }

    /// The weights of a tile of keys from `first` on, of which each row sees what the walk says, and what is known then.
    pub fn with(
        self,
        e: &mut Emitter,
        block: &Block,
        mut scores: Sums,
        walk: &Walk,
        first: Val,
    ) -> (Sums, State) {
        let seen = walk.seen;
        if !block.kernel.scores.are_scaled_products() {
            shape(e, block, &mut scores, walk.bias, first);
        }
        let mut scores = seen.only(e, block, scores, first);
        let mut max = self.max;
        for fragment in &scores {
            for (i, score) in fragment.iter().enumerate() {
                max[i / 2] = e.larger(max[i / 2], *score);
            }
        }
        let max = max.map(|m| across_lanes(e, m, |e, a, b| e.larger(a, b)));
        let factor = number(e, unit(block.kernel) * LOG2_E);
        // A row that has seen nothing yet has no largest score to be measured from.
        let from = [0, 1].map(|h| match seen.all.from {
            Some(_) => {
                let [least, zero] = [f64::NEG_INFINITY, 0.0].map(|x| number(e, x));
                let nothing = e.cmp(Cmp::Eq, max[h], least);
                e.select(nothing, zero, max[h])
            }
            None => max[h],
        });
        let shrink: Vec<Val> = (self.max.iter().zip(from))
            .map(|(before, max)| {
                let moved = e.sub(*before, max);
                let moved = e.mul(moved, factor);
                e.exp2(moved)
            })
            .collect();
        let shift = from.map(|m| {
            let m = e.mul(m, factor);
            e.neg(m)
        });
        let mut total = [number(e, 0.0); 2];
        for fragment in &mut scores {
            for (i, score) in fragment.iter_mut().enumerate() {
                let x = e.fma(*score, factor, shift[i / 2]);
                *score = e.exp2(x);
                total[i / 2] = e.add(total[i / 2], *score);
            }
        }
        let sum = [0, 1].map(|h| e.fma(self.sum[h], shrink[h], total[h]));
        let mut o = self.o;
        for fragment in &mut o {
            for (i, x) in fragment.iter_mut().enumerate() {
                *x = e.mul(*x, shrink[i / 2]);
            }
        }
        (scores, State { max, sum, o })
    }
}

/// Replaces products of queries and keys, those from `first` on, by what becomes of their scaled scores.
fn shape(e: &mut Emitter, block: &Block, scores: &mut Sums, bias: Option<Bias>, first: Val) {
    let scale = number(e, block.kernel.scale);
    let here = e.add(first, block.lane_col);
    let from = bias.map(|b| b.queries.map(|query| ahead(e, here, query)));
    for (n, fragment) in scores.iter_mut().enumerate() {
        for (i, score) in fragment.iter_mut().enumerate() {
            let scaled = e.mul(*score, scale);
            let bias = bias.zip(from).map(|(bias, from)| {
                let column = number(e, (8 * n + i % 2) as f64);
                (bias.slope, e.add(from[i / 2], column))
            });
            *score = shaped(e, block.kernel, scaled, bias, fast_exp).0;
        }
    }
}
