//! An exact number.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::operands;
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, exact},
};
use crate::types::TensorType;
use odec_program::Coeff;

#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    pub value: Exact,
}

impl Op for Constant {
    const NAME: &'static str = "constant";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("value", exact(&self.value))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let value = given.need("value")?;
        Ok(Constant { value })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        operands::<0>(Self::NAME, ins)?;
        Ok(vec![TensorType::scalar()])
    }

    fn eval(&self, _: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        Ok(vec![Tensor::scalar(self.value.to_f64())])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Scalar(Coeff::Value(self.value.to_f64()))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(
            Constant {
                value: Exact::ratio(-2, 3),
            },
            "fraction",
            vec![],
        )]
    }
}
