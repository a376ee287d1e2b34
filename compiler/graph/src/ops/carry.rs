//! What a run leaves to the next one, of a size that does not grow with the text.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs, word};
use crate::types::TensorType;
use odec_program::Dim;

/// `[B, rows, width]`, which outlives a run. One op reads it and gives what takes its place ([`Kind::replaces`]); to that op it is zero where
/// there are no tokens before those of the run, whatever it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct Carry {
    /// `step.3.eval.1.att.scan`; unique in a graph.
    pub path: String,
    pub rows: u64,
    pub width: u64,
}

impl Op for Carry {
    const NAME: &'static str = "carry";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("path", word(&self.path))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let ty = given.result()?;
        let [Dim::Batch, Dim::Fixed(rows), Dim::Fixed(width)] = ty.shape[..] else {
            return given.refuse("", format!("a carry is [B, rows, width], not {ty}"));
        };
        let path = given.need("path")?;
        Ok(Carry { path, rows, width })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.path.is_empty() {
            return fail(Self::NAME, "has no path");
        }
        Ok(vec![TensorType::real([
            Dim::Batch,
            Dim::Fixed(self.rows),
            Dim::Fixed(self.width),
        ])])
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
