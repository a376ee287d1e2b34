//! `log(1 + e^x)`, a smooth maximum of x and 0, which no x makes overflow.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Mul, Sigmoid};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{BinaryOp, Body, CmpOp, ExprId, UnaryOp};

/// `max(x, 0) + log(1 + e^−|x|)`. Kernels take the logarithm at u, the rounded `1 + e`, times `e/(u − 1)`, which takes the rounding back (Kahan): far
/// below 0 it is e itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Softplus;

fn rule(b: &mut Body, x: ExprId) -> ExprId {
    let minus = b.unary(UnaryOp::Neg, x);
    let size = b.binary(BinaryOp::Max, x, minus);
    let minus_size = b.unary(UnaryOp::Neg, size);
    let e = b.unary(UnaryOp::Exp, minus_size);
    let (zero, one) = (b.konst(0.0), b.konst(1.0));
    let u = b.add(one, e);
    let log = b.unary(UnaryOp::Log, u);
    let rounded = b.sub(u, one);
    let back = b.binary(BinaryOp::Div, e, rounded);
    let log = b.mul(log, back);
    let log = b.select(CmpOp::Eq, u, one, e, log);
    // Zero comes first: a NaN in second place goes through.
    let above = b.binary(BinaryOp::Max, zero, x);
    b.add(above, log)
}

impl Op for Softplus {
    const NAME: &'static str = "softplus";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Softplus)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let above = |x: f64| if x < 0.0 { 0.0 } else { x };
        map(ins[0], |x| above(x) + libm::log1p(libm::exp(-x.abs())))
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d) = (cx.ins[0], cx.d());
        let slope = cx.b.push1(Sigmoid, &[x]).expect("one operand");
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, slope]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(rule)
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, low, high| {
            Sample::new(Softplus, name, vec![TensorType::state(20)]).range(low, high)
        };
        vec![
            sample("both_sides", -6.0, 6.0),
            sample("far_below", -80.0, -10.0),
            sample("far_above", 50.0, 1000.0),
        ]
    }
}
