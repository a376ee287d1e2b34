//! `φ(x) = e^(−x²/2) / √(2π)`: the density of the standard normal distribution, the derivative of
//! [`crate::ops::NormalCdf`].

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

/// `1/√(2π)`.
const TOP: f64 = FRAC_2_SQRT_PI * FRAC_1_SQRT_2 / 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormalPdf;

impl Op for NormalPdf {
    const NAME: &'static str = "normal_pdf";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(NormalPdf)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| TOP * (-0.5 * x * x).exp())
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // −d x φ(x)
        let (x, y, d) = (cx.ins[0], cx.outs[0], cx.d());
        let slope = cx.b.push1(Mul, &[x, y]).expect("one shape");
        let slope = cx.b.push1(Mul, &[d, slope]).expect("one shape");
        let minus = Combine::of([Exact::int(-1)]);
        Vjp::Rule(vec![Some(
            cx.b.push1(minus, &[slope]).expect("one operand"),
        )])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| {
            let (minus_half, top) = (b.konst(-0.5), b.konst(TOP));
            let scaled = b.mul(minus_half, x);
            let exponent = b.mul(scaled, x);
            let e = b.unary(UnaryOp::Exp, exponent);
            b.mul(top, e)
        })
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(NormalPdf, "both_sides", vec![TensorType::state(5)]).range(-4.0, 4.0)]
    }
}
