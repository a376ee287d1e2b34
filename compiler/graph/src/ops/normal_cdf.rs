//! `Φ(x) = (1 + erf(x/√2)) / 2`: the share of a standard normal distribution below x. GELU is `x · Φ(x)`.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Mul, NormalPdf};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;
use std::f64::consts::FRAC_1_SQRT_2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormalCdf;

impl Op for NormalCdf {
    const NAME: &'static str = "normal_cdf";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(NormalCdf)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| 0.5 * libm::erf(FRAC_1_SQRT_2 * x) + 0.5)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d) = (cx.ins[0], cx.d());
        let slope = cx.b.push1(NormalPdf, &[x]).expect("one operand");
        Vjp::Rule(vec![Some(cx.b.push1(Mul, &[d, slope]).expect("one shape"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| {
            let (scale, half) = (b.konst(FRAC_1_SQRT_2), b.konst(0.5));
            let scaled = b.mul(scale, x);
            let erf = b.unary(UnaryOp::Erf, scaled);
            b.fma(half, erf, half)
        })
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(NormalCdf, "both_sides", vec![TensorType::state(5)]).range(-5.0, 5.0)]
    }
}
