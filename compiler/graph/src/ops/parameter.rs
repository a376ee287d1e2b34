//! A trained tensor, fed by its path.

use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Sample, TypeError, Vjp, VjpCx};
use crate::ops::support::{fail, operands};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::manifest::Init;

#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// `step.3.att.q.weight`; unique in a graph.
    pub path: String,
    pub shape: Vec<u64>,
    pub init: Init,
}

impl Parameter {
    /// Whether weight decay applies: to matrices, not to gains and scalars.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }
}

impl Op for Parameter {
    const NAME: &'static str = "parameter";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let init = match &self.init {
            Init::Zeros => "zeros".into(),
            Init::Ones => "ones".into(),
            Init::Constant(x) => format!("constant({x})"),
            Init::Normal { std } => format!("normal({std})"),
        };
        vec![("path", self.path.clone()), ("init", init)]
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.path.is_empty() {
            return fail(Self::NAME, "has no path");
        }
        let shape: Vec<Dim> = self.shape.iter().map(|n| Dim::Fixed(*n)).collect();
        Ok(vec![TensorType::real(shape)])
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
