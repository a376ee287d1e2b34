//! What becomes of scaled scores, for a vector of queries at a time: [`odec_program::kernel::Scores`].

use super::{Head, distances};
use crate::body::apply;
use crate::emit::{Emitter, Val};
use odec_program::expr::UnaryOp;
use odec_program::kernel::Attend;

/// What a block of keys and one of queries add to scores by their distance.
#[derive(Clone, Copy)]
pub(super) struct Bias {
    slope: Val,
    /// How far the first key is behind the first query.
    ahead: Val,
}

impl Bias {
    /// Of blocks that begin with the query at a position and with a key.
    pub fn of(e: &mut Emitter, head: &Head, position: Val, key: Val) -> Option<Bias> {
        let slope = head.slope?;
        let ahead = e.sub(key, position);
        Some(Bias { slope, ahead })
    }
}

/// The slope of a head in every lane.
pub(super) fn slope(e: &mut Emitter, kernel: &Attend, head: Val) -> Val {
    let number = e.add_int(head, 1);
    let number = e.convert(number, e.elem);
    let number = e.broadcast(number, e.lanes);
    let factor = e.float(kernel.slope_exponent(), e.vector());
    let exponent = e.mul(factor, number);
    apply(e, UnaryOp::Exp, exponent)
}

/// What becomes of the scaled scores of key `k` and the queries from `c` on, of their blocks, and what derivatives are multiplied by.
pub(super) fn shaped(
    e: &mut Emitter,
    kernel: &Attend,
    bias: Option<Bias>,
    scaled: Val,
    (k, c): (Val, Val),
) -> (Val, Option<Val>) {
    let (mut score, mut bend, vector) = (scaled, None, e.vector());
    if let Some(cap) = kernel.scores.softcap {
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|x| e.float(x, vector));
        let [cap, twice] = [cap, 2.0 / cap].map(|x| e.float(x, vector));
        let x = e.mul(scaled, twice);
        let x = apply(e, UnaryOp::Exp, x);
        let below = e.add(one, x);
        let rest = e.div(two, below);
        let tanh = e.sub(one, rest);
        score = e.mul(cap, tanh);
        let minus = e.sub(zero, tanh);
        bend = Some(e.fma(minus, tanh, one));
    }
    if let Some(Bias { slope, ahead }) = bias {
        let k = e.add(k, ahead);
        let (number, distance) = distances(e, k, c);
        let ahead = e.sub(distance, number);
        let mut ahead = e.convert(ahead, e.elem);
        if !kernel.causal {
            let zero = e.float(0.0, vector);
            let back = e.sub(zero, ahead);
            ahead = e.min_float(ahead, back);
        }
        score = e.fma(slope, ahead, score);
    }
    (score, bend)
}
