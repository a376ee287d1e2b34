//! `1 / (1 + e^−x)`: gates, and SiLU as `x · sigmoid(x)`.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{BinaryOp, UnaryOp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sigmoid;

impl Op for Sigmoid {
    const NAME: &'static str = "sigmoid";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Sigmoid)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| 1.0 / (1.0 + (-x).exp()))
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // d (y − y²)
        let (y, d) = (cx.outs[0], cx.d());
        let square = cx.b.push1(Mul, &[y, y]).expect("one shape");
        let minus = Combine::of([Exact::one(), Exact::int(-1)]);
        let slope = cx.b.push1(minus, &[y, square]).expect("one shape");
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, slope]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| {
            let minus = b.unary(UnaryOp::Neg, x);
            let e = b.unary(UnaryOp::Exp, minus);
            let one = b.konst(1.0);
            let below = b.add(one, e);
            b.binary(BinaryOp::Div, one, below)
        })
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Sigmoid, "both_sides", vec![TensorType::state(5)]).range(-6.0, 6.0)]
    }
}
