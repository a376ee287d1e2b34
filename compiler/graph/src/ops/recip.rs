//! `1 / x`.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::BinaryOp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recip;

impl Op for Recip {
    const NAME: &'static str = "recip";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Recip)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], f64::recip)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (y, d) = (cx.outs[0], cx.d());
        let square = cx.b.push1(Mul, &[y, y]).expect("one shape");
        let product = cx.b.push1(Mul, &[d, square]).expect("one shape");
        let minus = Combine::of([Exact::int(-1)]);
        Vjp::Rule(vec![Some(cx.b.push1(minus, &[product]).expect("one term"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| {
            let one = b.konst(1.0);
            b.binary(BinaryOp::Div, one, x)
        })
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Recip, "positive", vec![TensorType::state(5)]).range(0.5, 3.0)]
    }
}
