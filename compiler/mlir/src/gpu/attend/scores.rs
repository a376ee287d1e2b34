//! What becomes of the scaled score of a pair: [`odec_program::kernel::Scores`], for kernels with and without tensor cores.

use crate::body::apply;
use crate::emit::{Elem, Emitter, Val};
use odec_program::expr::UnaryOp;
use odec_program::kernel::Attend;

/// By how much scores of a head fall with each token between, where they do.
pub(in crate::gpu) fn slope(e: &mut Emitter, kernel: &Attend, head: Val) -> Option<Val> {
    if !kernel.scores.alibi {
        return None;
    }
    let number = e.add_int(head, 1);
    let number = e.convert(number, e.elem);
    let factor = e.float(kernel.slope_exponent(), e.scalar());
    let exponent = e.mul(factor, number);
    Some(apply(e, UnaryOp::Exp, exponent))
}

/// How far a key is behind a query, as a number.
pub(in crate::gpu) fn ahead(e: &mut Emitter, key: Val, query: Val) -> Val {
    let ahead = e.sub(key, query);
    let ahead = e.convert(ahead, Elem::I32);
    e.convert(ahead, e.elem)
}

/// What becomes of a scaled score, and what its derivative is multiplied by. `bias`: the head's slope, and how far the key is behind the query.
pub(in crate::gpu) fn shaped(
    e: &mut Emitter,
    kernel: &Attend,
    scaled: Val,
    bias: Option<(Val, Val)>,
    exp: fn(&mut Emitter, Val) -> Val,
) -> (Val, Option<Val>) {
    let (mut score, mut bend) = (scaled, None);
    if let Some(cap) = kernel.scores.softcap {
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|x| e.float(x, scaled.ty));
        let [cap, twice] = [cap, 2.0 / cap].map(|x| e.float(x, scaled.ty));
        let x = e.mul(scaled, twice);
        let x = exp(e, x);
        let below = e.add(one, x);
        let rest = e.div(two, below);
        let tanh = e.sub(one, rest);
        score = e.mul(cap, tanh);
        let minus = e.sub(zero, tanh);
        bend = Some(e.fma(minus, tanh, one));
    }
    if let Some((slope, mut ahead)) = bias {
        if !kernel.causal {
            let zero = e.float(0.0, scaled.ty);
            let back = e.sub(zero, ahead);
            ahead = e.min_float(ahead, back);
        }
        score = e.fma(slope, ahead, score);
    }
    (score, bend)
}

/// `e^x` as the specification has it.
pub(in crate::gpu) fn exact_exp(e: &mut Emitter, x: Val) -> Val {
    apply(e, UnaryOp::Exp, x)
}
