//! `1 / √x` of positive numbers: the root of norms.

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
pub struct Rsqrt;

impl Op for Rsqrt {
    const NAME: &'static str = "rsqrt";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Rsqrt)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| 1.0 / x.sqrt())
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // −½ y³ d
        let (y, d) = (cx.outs[0], cx.d());
        let square = cx.b.push1(Mul, &[y, y]).expect("one shape");
        let cube = cx.b.push1(Mul, &[square, y]).expect("one shape");
        let product = cx.b.push1(Mul, &[d, cube]).expect("one shape");
        let half = Combine::of([Exact::ratio(-1, 2)]);
        Vjp::Rule(vec![Some(cx.b.push1(half, &[product]).expect("one term"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| {
            let root = b.unary(UnaryOp::Sqrt, x);
            let one = b.konst(1.0);
            b.binary(BinaryOp::Div, one, root)
        })
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(Rsqrt, "positive", vec![TensorType::state(1)]).range(0.5, 3.0)]
    }
}
