//! Rounds to bf16 and stores two bytes per element.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::bf16;
use odec_program::expr::UnaryOp;

/// The nearest bf16 of every element, ties to even. In f64 too it is rounded once, never by way of f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bf16;

/// The nearest bf16.
pub(super) fn round(x: f64) -> f64 {
    bf16::to_f32(bf16::of_f64(x)).into()
}

impl Op for Bf16 {
    const NAME: &'static str = "bf16";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Bf16)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let shape = x.shape.clone();
        let elem = Elem::Bf16;
        Ok(vec![TensorType { elem, shape }])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], round)
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("precision is chosen after derivatives are taken")
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.unary(UnaryOp::Bf16, x))
    }

    fn samples() -> Vec<Sample> {
        // f32 inputs round alike in f64 and f32.
        vec![
            Sample::new(Bf16, "wide", vec![TensorType::state(33)]),
            Sample::new(Bf16, "large", vec![TensorType::state(5)]).range(-1e38, 1e38),
        ]
    }
}
