//! 1 where a is larger than b, 1/2 where they are equal, else 0: the share of a in the derivative of their maximum.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::maximum::pairs;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{reals, wider, zip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::CmpOp;

/// The step function of `a − b`, the narrower broadcast into the wider. Its derivative is 0, also at the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heaviside;

impl Op for Heaviside {
    const NAME: &'static str = "heaviside";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Heaviside)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = reals(Self::NAME, ins)?;
        Ok(vec![wider(Self::NAME, a, b)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        zip(ins[0], ins[1], |a, b| match (a > b, a == b) {
            (true, _) => 1.0,
            (_, true) => 0.5,
            _ => 0.0,
        })
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| {
                let b = &mut *s.body;
                let (zero, half, one) = (b.konst(0.0), b.konst(0.5), b.konst(1.0));
                let rest = b.select(CmpOp::Eq, xs[0], xs[1], half, zero);
                b.select(CmpOp::Lt, xs[1], xs[0], one, rest)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        pairs(Heaviside)
    }
}
