//! Appends rows of new tokens to the cache of earlier ones.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `cache[B, P, C]`, `x[B, S, C] → [B, P, C]`: rows `past .. past + S` are those of x, the others stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append;

impl Op for Append {
    const NAME: &'static str = "append";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Append)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [cache, x] = operands(Self::NAME, ins)?;
        if cache.elem != x.elem || x.elem == Elem::Index {
            return fail(Self::NAME, format!("{x} is not what {cache} holds"));
        }
        let state = matches!(x.shape[..], [Dim::Batch, Dim::Seq, Dim::Fixed(_)]);
        match cache.shape[..] {
            [Dim::Batch, Dim::Fixed(_), Dim::Fixed(c)] if state && c == x.cols() => {
                Ok(vec![cache.clone()])
            }
            _ => fail(Self::NAME, format!("{x} has no place in {cache}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (cache, x) = (ins[0], ins[1]);
        let (past, positions) = (cx.bindings.past, cache.shape[1]);
        if past + x.shape[1] > positions {
            let what = format!(
                "{} tokens after {past} in a cache of {positions}",
                x.shape[1]
            );
            return Err(EvalError {
                op: Self::NAME,
                what,
            });
        }
        let cols = x.cols();
        let (kept, new) = (positions as usize * cols, x.shape[1] as usize * cols);
        let mut out = cache.clone();
        for (to, from) in out
            .data
            .chunks_exact_mut(kept)
            .zip(x.data.chunks_exact(new))
        {
            to[past as usize * cols..][..new].copy_from_slice(from);
        }
        Ok(vec![out])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Append
    }

    fn samples() -> Vec<Sample> {
        let cache = TensorType::real([Dim::Batch, Dim::Fixed(6), Dim::Fixed(5)]);
        vec![Sample::new(Append, "after two", vec![cache, TensorType::state(5)]).after(2)]
    }
}
