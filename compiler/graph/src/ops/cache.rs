//! Keys or values of the tokens so far: memory that outlives a run, fed by its path.

use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Sample, TypeError, Vjp, VjpCx};
use crate::ops::support::{fail, operands};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `[B, positions, width]`; rows from the tokens so far on hold nothing yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// `step.3.eval.1.att.k`; unique in a graph.
    pub path: String,
    pub positions: u64,
    pub width: u64,
    /// Real, or bf16.
    pub elem: Elem,
}

impl Op for Cache {
    const NAME: &'static str = "cache";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("path", self.path.clone())];
        if self.elem == Elem::Bf16 {
            attrs.push(("elements", "bf16".into()));
        }
        attrs
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.path.is_empty() {
            return fail(Self::NAME, "has no path");
        }
        let shape = [
            Dim::Batch,
            Dim::Fixed(self.positions),
            Dim::Fixed(self.width),
        ];
        if self.elem == Elem::Index {
            return fail(Self::NAME, "does not hold indices");
        }
        let (elem, shape) = (self.elem, shape.to_vec());
        Ok(vec![TensorType { elem, shape }])
    }

    fn eval(&self, _: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let what = format!("`{}` is fed from outside", self.path);
        Err(EvalError {
            op: Self::NAME,
            what,
        })
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Source
    }

    fn samples() -> Vec<Sample> {
        vec![]
    }
}
