//! `y` where `x > 0`, else 0. ReLU is `where_positive(x, x)`, and the op is its own derivative.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals, zip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::CmpOp;

/// Two operands of one shape, `x` and `y`. The derivative by `x` is 0, also at the jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WherePositive;

impl Op for WherePositive {
    const NAME: &'static str = "where_positive";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(WherePositive)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, y] = reals(Self::NAME, ins)?;
        if x != y {
            return fail(Self::NAME, format!("{x} and {y} differ"));
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        zip(ins[0], ins[1], |x, y| if x > 0.0 { y } else { 0.0 })
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d) = (cx.ins[0], cx.d());
        let d = cx.b.push1(WherePositive, &[x, d]).expect("one shape");
        Vjp::Rule(vec![None, Some(d)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| {
                let zero = s.body.konst(0.0);
                s.body.select(CmpOp::Lt, zero, xs[0], xs[1], zero)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(
            WherePositive,
            "both_signs",
            vec![TensorType::state(5); 2],
        )]
    }
}
