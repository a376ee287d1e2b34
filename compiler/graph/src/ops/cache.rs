//! The KV cache: keys or values of earlier tokens, which outlive a run.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs, word};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `[B, positions, width]`; rows from the tokens so far on hold nothing yet. What all sequences of a run read is `[1, positions, width]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cache {
    /// `step.3.eval.1.att.k`; unique in a graph.
    pub path: String,
    pub positions: u64,
    pub width: u64,
    /// Whether there is one for all sequences.
    pub one: bool,
    /// Real, or bf16.
    pub elem: Elem,
}

impl Op for Cache {
    const NAME: &'static str = "cache";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("path", word(&self.path))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let ty = given.result()?;
        let [sequences, Dim::Fixed(positions), Dim::Fixed(width)] = ty.shape[..] else {
            return given.refuse("", format!("a cache is [B, positions, width], not {ty}"));
        };
        if !matches!(sequences, Dim::Batch | Dim::Fixed(1)) {
            return given.refuse("", format!("a cache is of all sequences, or one, not {ty}"));
        }
        Ok(Cache {
            path: given.need("path")?,
            positions,
            width,
            one: sequences != Dim::Batch,
            elem: ty.elem,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.path.is_empty() {
            return fail(Self::NAME, "has no path");
        }
        let sequences = match self.one {
            true => Dim::Fixed(1),
            false => Dim::Batch,
        };
        let shape = [
            sequences,
            Dim::Fixed(self.positions),
            Dim::Fixed(self.width),
        ];
        if self.elem == Elem::Index {
            return fail(Self::NAME, "does not hold indices");
        }
        let (elem, shape) = (self.elem, shape.into());
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
