//! Natural logarithm of positive numbers.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Mul, Recip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log;

impl Op for Log {
    const NAME: &'static str = "log";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Log)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], f64::ln)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d) = (cx.ins[0], cx.d());
        let inverse = cx.b.push1(Recip, &[x]).expect("one operand");
        Vjp::Rule(vec![Some(
            cx.b.push1(Mul, &[d, inverse]).expect("one shape"),
        )])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.unary(UnaryOp::Log, x))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Log, "positive", vec![TensorType::state(1)]).range(0.5, 9.0)]
    }
}
