//! `e^x`. Callers shift their argument: results beyond the range of the arithmetic are infinite.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Mul;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exp;

impl Op for Exp {
    const NAME: &'static str = "exp";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Exp)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], f64::exp)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (y, d) = (cx.outs[0], cx.d());
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, y]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.unary(UnaryOp::Exp, x))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Exp, "small", vec![TensorType::state(5)]).range(-4.0, 1.0)]
    }
}
