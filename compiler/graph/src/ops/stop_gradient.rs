//! The operand itself, with a derivative that is declared to be zero: for shifts that cancel in the result.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopGradient;

impl Op for StopGradient {
    const NAME: &'static str = "stop_gradient";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(StopGradient)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| x)
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|_, x| x)
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(
            StopGradient,
            "identity",
            vec![TensorType::state(1)],
        )]
    }
}
