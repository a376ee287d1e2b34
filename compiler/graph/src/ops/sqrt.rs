//! `√x` of numbers from 0; its derivative at 0 is infinite.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul, Recip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;

/// `x · rsqrt(x)` would be no number at 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sqrt;

impl Op for Sqrt {
    const NAME: &'static str = "sqrt";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Sqrt)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], f64::sqrt)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // d / 2y
        let (y, d) = (cx.outs[0], cx.d());
        let inverse = cx.b.push1(Recip, &[y]).expect("one operand");
        let product = cx.b.push1(Mul, &[d, inverse]).expect("one shape");
        let half = Combine::of([Exact::ratio(1, 2)]);
        Vjp::Rule(vec![Some(cx.b.push1(half, &[product]).expect("one term"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.unary(UnaryOp::Sqrt, x))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Sqrt, "positive", vec![TensorType::state(5)]).range(0.25, 9.0)]
    }
}
