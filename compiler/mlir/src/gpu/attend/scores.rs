//! What becomes of the scaled score of a pair: [`odec_program::kernel::Scores`], for kernels with and without tensor cores; tables of biases for those
//! without.

use crate::body::apply;
use crate::emit::{Cmp, Elem, Emitter, Val};
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

/// What scores of a head have added by how far a key is behind a query, where something is.
#[derive(Clone, Copy)]
pub(in crate::gpu) struct Bias<'a> {
    kernel: &'a Attend,
    slope: Option<Val>,
    /// The table, and the head.
    table: Option<(Val, Val)>,
}

impl<'a> Bias<'a> {
    /// `biases`: the operand that the table is, where there is one.
    pub fn of(e: &mut Emitter, kernel: &'a Attend, biases: u64, head: Val) -> Option<Bias<'a>> {
        kernel.scores.compare_places().then(|| Bias {
            kernel,
            slope: slope(e, kernel, head),
            table: kernel.scores.distances.map(|_| (e.operand(biases), head)),
        })
    }

    /// Of a key and a query.
    fn add(self, e: &mut Emitter, mut score: Val, (key, query): (Val, Val)) -> Val {
        if let Some(slope) = self.slope {
            let ahead = ahead(e, key, query);
            score = fall(e, self.kernel, score, (slope, ahead));
        }
        let Some((table, head)) = self.table else {
            return score;
        };
        let (behind, ahead) = (e.sub(query, key), e.sub(key, query));
        let distance = e.max(behind, ahead);
        let last = e.int(self.kernel.scores.distances.unwrap_or(1) as i64 - 1);
        let row = e.min(distance, last);
        let at = e.mul_int(row, self.kernel.bias_columns() as i64);
        let mut column = head;
        if !self.kernel.causal {
            let later = e.add_int(head, self.kernel.heads as i64);
            let is_later = e.cmp(Cmp::Gt, key, query);
            column = e.select(is_later, later, head);
        }
        let at = e.add(at, column);
        let p = e.at(table, at, e.elem);
        let x = e.load(p, e.scalar());
        e.add(score, x)
    }
}

/// What becomes of a scaled score of a key and a query, and what its derivative is multiplied by.
pub(in crate::gpu) fn biased(
    e: &mut Emitter,
    kernel: &Attend,
    scaled: Val,
    bias: Option<Bias>,
    pair: (Val, Val),
) -> (Val, Option<Val>) {
    let (score, bend) = shaped(e, kernel, scaled, None, exact_exp);
    (bias.map_or(score, |bias| bias.add(e, score, pair)), bend)
}

/// A score that falls with the distance, at a slope.
fn fall(e: &mut Emitter, kernel: &Attend, score: Val, (slope, mut ahead): (Val, Val)) -> Val {
    if !kernel.causal {
        let zero = e.float(0.0, score.ty);
        let back = e.sub(zero, ahead);
        ahead = e.min_float(ahead, back);
    }
    e.fma(slope, ahead, score)
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
    if let Some(bias) = bias {
        score = fall(e, kernel, score, bias);
    }
    (score, bend)
}

/// `e^x` as the specification has it.
pub(in crate::gpu) fn exact_exp(e: &mut Emitter, x: Val) -> Val {
    apply(e, UnaryOp::Exp, x)
}
