//! A tensor that the caller supplies by name: tokens, targets, a state.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs, word};
use crate::types::TensorType;

#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Unique in a graph.
    pub name: String,
    pub ty: TensorType,
}

impl Op for Input {
    const NAME: &'static str = "input";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("name", word(&self.name))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Input {
            name: given.need("name")?,
            ty: given.result()?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.name.is_empty() {
            return fail(Self::NAME, "has no name");
        }
        Ok(vec![self.ty.clone()])
    }

    fn eval(&self, _: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let what = format!("`{}` is fed from outside", self.name);
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
