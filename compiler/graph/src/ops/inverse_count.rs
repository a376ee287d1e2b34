//! `1 / size` for a size known at launch: turns a sum over tokens into their mean.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::{Coeff, Size};

#[derive(Clone, Debug, PartialEq)]
pub struct InverseCount {
    pub size: Size,
}

impl Op for InverseCount {
    const NAME: &'static str = "inverse_count";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("of", self.size.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let size = given.need("of")?;
        Ok(InverseCount { size })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        if self.size.factor == 0 {
            return fail(Self::NAME, "of nothing");
        }
        Ok(vec![TensorType::scalar()])
    }

    fn eval(&self, _: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        match self.size.at(cx.bindings) {
            Some(n) if n > 0 => Ok(vec![Tensor::scalar(1.0 / n as f64)]),
            _ => {
                let what = format!("{} is no count here", self.size);
                Err(EvalError {
                    op: Self::NAME,
                    what,
                })
            }
        }
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Scalar(Coeff::Inverse(self.size))
    }

    fn samples() -> Vec<Sample> {
        let size = Size {
            factor: 2,
            batch: 1,
            seq: 1,
            past: 0,
            recent: 0,
            source: 0,
        };
        vec![Sample::new(InverseCount { size }, "rows", vec![])]
    }
}
