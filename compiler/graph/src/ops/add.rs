//! `a + b`, the narrower broadcast into the wider. Sums of equal shapes are [`crate::ops::Combine`]'s.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{reals, unbroadcast, wider, zip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// Two operands; one may be per row `[.., 1]`, per column `[C]` or `[]` where the other is `[.., C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Add;

impl Op for Add {
    const NAME: &'static str = "add";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Add)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = reals(Self::NAME, ins)?;
        Ok(vec![wider(Self::NAME, a, b)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        zip(ins[0], ins[1], |a, b| a + b)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, a, b) = (cx.d(), cx.in_type(0), cx.in_type(1));
        Vjp::Rule(vec![
            Some(unbroadcast(cx.b, d, &a)),
            Some(unbroadcast(cx.b, d, &b)),
        ])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| s.body.add(xs[0], xs[1])),
        }
    }

    fn samples() -> Vec<Sample> {
        let column = TensorType::real([Dim::Fixed(5)]);
        let row = TensorType::state(1);
        vec![
            Sample::new(
                Add,
                "full",
                vec![TensorType::state(5), TensorType::state(5)],
            ),
            Sample::new(Add, "per_row", vec![TensorType::state(5), row.clone()]),
            Sample::new(Add, "per_column", vec![column, TensorType::state(5)]),
            Sample::new(Add, "scalar", vec![TensorType::scalar(), row]),
        ]
    }
}
