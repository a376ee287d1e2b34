//! Attention on tensor cores, backward.
//!
//! Takes an [`Attend`] spec. One half of the blocks computes gradients of queries, walking over keys; the other half those
//! of keys and values, walking over queries. Both compute weights again from scores and the forward kernel's statistic, so
//! nothing is added up by several blocks. Weights and slopes are rounded to bf16 as factors; dO comes so, and δ = Σ o ∘ dO is given. Leaves tiles and
//! products to [`warps`], with `mma`, and [`warpgroup`], with `wgmma`.

mod warpgroup;
mod warps;

use super::forward::{Walk, fast_exp};
use super::mask::{Seen, Sight};
use super::{Block, Side, Sums, number};
use crate::emit::{Emitter, Val};
use crate::gpu::attend::scores::shaped;
use crate::gpu::attend::{keys_of, window};
use crate::gpu::tensor::Source;
use odec_program::DType;
use odec_program::gpu::tensor::attend::ROWS;
use odec_program::gpu::tensor::warpgroup::attends;
use odec_program::kernel::Attend;
use std::f64::consts::LOG2_E;

/// Operands.
const DELTA: u64 = 3;
const LSE: u64 = 4;
const D_O: u64 = 5;
const D_Q: u64 = 6;
const D_K: u64 = 7;
const D_V: u64 = 8;

/// Dims `[batch, seq]`, and how many keys where these are others; operands q, k, v, delta, lse, d_o, d_q, d_k, d_v.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    let rows = Rows {
        queries: seq,
        keys: keys_of(e, kernel, seq),
    };
    let number = e.block();
    let tiles = e.div_ceil(seq, ROWS as i64);
    let half = e.mul(batch, tiles);
    let half = e.mul_int(half, kernel.heads as i64);
    let of_queries = e.below(number, half);
    if attends(kernel, e.target) {
        warpgroup::emit(e, kernel, rows, of_queries, (number, half));
        return Ok(());
    }
    e.either(of_queries, |e, of_queries| {
        let (side, number) = match of_queries {
            true => (Side::Queries, number),
            false => (Side::Keys, e.sub(number, half)),
        };
        let [own, _] = rows.of(side);
        let block = Block::new(e, kernel, side, (number, own));
        let walk = walk(e, &block, side, rows);
        match side {
            Side::Queries => warps::queries(e, &block, walk, rows),
            Side::Keys => warps::keys(e, &block, walk, rows),
        }
    });
    Ok(())
}

/// How many queries and keys a sequence has.
#[derive(Clone, Copy)]
struct Rows {
    queries: Val,
    keys: Val,
}

impl Rows {
    /// Those of a side, and of the other one.
    fn of(self, side: Side) -> [Val; 2] {
        match side {
            Side::Queries => [self.queries, self.keys],
            Side::Keys => [self.keys, self.queries],
        }
    }
}

/// −lse · log₂ e and δ of 64 rows: addresses in shared memory.
struct Numbers {
    shift: Val,
    delta: Val,
}

impl Numbers {
    /// Behind so many bytes.
    fn behind(e: &mut Emitter, bytes: u64) -> Numbers {
        Numbers {
            shift: e.shared(bytes / 4),
            delta: e.shared(bytes / 4 + ROWS),
        }
    }
}

/// The rows of the other side that a block goes through, and which of them the lane's rows see; queries behind the last need no
/// bound, because they weigh nothing ([`shift`]).
fn walk(e: &mut Emitter, block: &Block, side: Side, of: Rows) -> Walk {
    let rows = block.rows(e);
    let [_, others] = of.of(side);
    let (zero, window) = (e.int(0), window(block.kernel));
    let below = |e: &mut Emitter, row: Val, count: i64| {
        let end = e.add_int(row, count);
        e.min(end, others)
    };
    let causal = block.kernel.causal;
    let last = e.add_int(block.row, ROWS as i64 - 1);
    match side {
        Side::Queries => {
            let mut sees = |from: Val, until: Val| Sight {
                from: window.map(|w| e.add_int(from, 1 - w)),
                until: if causal { e.add_int(until, 1) } else { others },
            };
            let seen = Seen {
                rows: rows.map(|row| sees(row, row)),
                all: sees(last, block.row),
            };
            Walk {
                begin: window.map_or(zero, |w| {
                    let first = e.add_int(block.row, 1 - w);
                    e.max(first, zero)
                }),
                end: match causal {
                    true => below(e, block.row, ROWS as i64),
                    false => others,
                },
                seen,
                sink: None,
                bias: None,
            }
        }
        Side::Keys => {
            let mut sees = |from: Val, until: Val| Sight {
                from: causal.then_some(from),
                until: window.map_or(others, |w| e.add_int(until, w)),
            };
            let seen = Seen {
                rows: rows.map(|row| sees(row, row)),
                all: sees(last, block.row),
            };
            Walk {
                begin: if causal { block.row } else { zero },
                end: window.map_or(others, |w| below(e, block.row, ROWS as i64 - 1 + w)),
                seen,
                sink: None,
                bias: None,
            }
        }
    }
}

/// q and dO.
fn of_queries(e: &mut Emitter, block: &Block, rows: Rows) -> [Source; 2] {
    [0, D_O].map(|n| block.source(e, n, DType::Bf16, rows.queries))
}

/// k and v.
fn of_keys(e: &mut Emitter, block: &Block, rows: Rows) -> [Source; 2] {
    [1, 2].map(|n| block.source(e, n, DType::Bf16, rows.keys))
}

/// The weight of a pair, zero where its score is −∞.
fn weight(e: &mut Emitter, block: &Block, score: Val, shift: Val) -> Val {
    let factor = number(e, block.kernel.scale * LOG2_E);
    let x = e.fma(score, factor, shift);
    e.exp2(x)
}

/// The same of a pair that may be hidden, whose score may be more than a scaled product, and what the slope of its score is multiplied by.
fn shaped_weight(
    e: &mut Emitter,
    block: &Block,
    (score, bias): (Val, Option<(Val, Val)>),
    shift: Val,
    visible: Val,
) -> (Val, Option<Val>) {
    let zero = number(e, 0.0);
    if block.kernel.scores.are_scaled_products() {
        let p = weight(e, block, score, shift);
        return (e.select(visible, p, zero), None);
    }
    let scale = number(e, block.kernel.scale);
    let scaled = e.mul(score, scale);
    let (score, bend) = shaped(e, block.kernel, scaled, bias, fast_exp);
    let factor = number(e, LOG2_E);
    let x = e.fma(score, factor, shift);
    let p = e.exp2(x);
    (e.select(visible, p, zero), bend)
}

/// The gradient of a scaled score, from its weight and the product of dO and v; [`write`] scales what becomes of it.
fn slope(e: &mut Emitter, weight: Val, rate: Val, delta: Val) -> Val {
    let away = e.sub(rate, delta);
    e.mul(weight, away)
}

/// Writes a gradient: sums of slopes times queries or keys, which are scaled only now, or of weights times dO.
fn write(e: &mut Emitter, block: &Block, operand: u64, sums: &Sums, rows: Rows) {
    let rows = match Attend::is_of_keys(operand) {
        true => rows.keys,
        false => rows.queries,
    };
    let to = block.matrix(e, operand, DType::F32, rows);
    let scale = number(e, block.kernel.scale);
    let scaled = (operand != D_V).then_some([scale; 2]);
    block.write(e, to, sums, scaled);
}

/// −lse · log₂ e of a query; if there is none, what gives it no weight.
fn shift(e: &mut Emitter, block: &Block, seq: Val, query: Val) -> Val {
    let last = e.add_int(seq, -1);
    let row = e.min(query, last);
    let p = block.statistic(e, LSE, seq, row);
    let lse = e.load(p, e.scalar());
    let (factor, nowhere) = (number(e, -LOG2_E), number(e, f64::NEG_INFINITY));
    let shift = e.mul(lse, factor);
    let exists = e.below(query, seq);
    e.select(exists, shift, nowhere)
}

/// δ of a query; if there is none, that of the last.
fn delta(e: &mut Emitter, block: &Block, seq: Val, query: Val) -> Val {
    let last = e.add_int(seq, -1);
    let row = e.min(query, last);
    let p = block.statistic(e, DELTA, seq, row);
    e.load(p, e.scalar())
}

/// Two numbers of shared memory that lie side by side, the first at an even place.
fn pair(e: &mut Emitter, place: Val, at: Val) -> Vec<Val> {
    let p = e.at(place, at, e.elem);
    let pair = e.load_whole(p, crate::gpu::access::wide(e.elem, 2));
    e.parts(pair)
}

/// Two numbers of shared memory, for the lane's two rows.
fn of_rows(e: &mut Emitter, block: &Block, place: Val) -> [Val; 2] {
    let own = e.add(block.own, block.lane_row);
    [0, 8].map(|below| {
        let at = e.add_int(own, below);
        let p = e.at(place, at, e.elem);
        e.load(p, e.scalar())
    })
}
