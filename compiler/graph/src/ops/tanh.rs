//! `tanh x`, to the last bits near 0 and far from it.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{BinaryOp, Body, CmpOp, ExprId, UnaryOp};

/// Kernels take Lambert's continued fraction `x / (1 + x²/(3 + x²/(5 + …)))`, cut behind the 15, below `NEAR`, where its error is below 10⁻¹⁷, and
/// `1 − 2/(e^2|x| + 1)` with the sign of x beyond. `2σ(2x) − 1` would lose a small x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tanh;

/// Where kernels change from the fraction to the exponential.
const NEAR: f64 = 0.625;
/// The fraction as a quotient: `x` times a polynomial of `x²`, lowest power first, over another.
const ABOVE: [f64; 4] = [2_027_025.0, 270_270.0, 6_930.0, 36.0];
const BELOW: [f64; 5] = [2_027_025.0, 945_945.0, 51_975.0, 630.0, 1.0];

/// `c₀ + c₁·x + …`.
fn polynomial(b: &mut Body, coefficients: &[f64], x: ExprId) -> ExprId {
    let (last, rest) = coefficients.split_last().expect("it has coefficients");
    let last = b.konst(*last);
    rest.iter().rev().fold(last, |sum, c| {
        let c = b.konst(*c);
        b.fma(sum, x, c)
    })
}

fn rule(b: &mut Body, x: ExprId) -> ExprId {
    let square = b.mul(x, x);
    let above = polynomial(b, &ABOVE, square);
    let below = polynomial(b, &BELOW, square);
    let ratio = b.binary(BinaryOp::Div, above, below);
    let near = b.mul(x, ratio);

    let minus = b.unary(UnaryOp::Neg, x);
    let size = b.binary(BinaryOp::Max, x, minus);
    let (zero, one, two) = (b.konst(0.0), b.konst(1.0), b.konst(2.0));
    let twice = b.add(size, size);
    let e = b.unary(UnaryOp::Exp, twice);
    let e = b.add(e, one);
    let rest = b.binary(BinaryOp::Div, two, e);
    let far = b.sub(one, rest);
    let minus_far = b.unary(UnaryOp::Neg, far);
    let far = b.select(CmpOp::Lt, x, zero, minus_far, far);
    let split = b.konst(NEAR);
    b.select(CmpOp::Lt, size, split, near, far)
}

impl Op for Tanh {
    const NAME: &'static str = "tanh";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Tanh)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], libm::tanh)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // d − d y²
        let (y, d) = (cx.outs[0], cx.d());
        let square = cx.b.push1(Mul, &[y, y]).expect("one shape");
        let lost = cx.b.push1(Mul, &[d, square]).expect("one shape");
        let minus = Combine::of([Exact::one(), Exact::int(-1)]);
        Vjp::Rule(vec![Some(
            cx.b.push1(minus, &[d, lost]).expect("one shape"),
        )])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(rule)
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, most: f64| {
            Sample::new(Tanh, name, vec![TensorType::state(20)]).range(-most, most)
        };
        vec![
            sample("near", 1.0),
            sample("tiny", 1e-3),
            sample("saturated", 200.0),
        ]
    }
}
