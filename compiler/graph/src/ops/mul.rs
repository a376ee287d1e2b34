//! `a · b`, the narrower broadcast into the wider: gates, gains, normalisation.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Combine;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{reals, unbroadcast, wider, zip};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// Two operands; one may be per row `[.., 1]`, per column `[C]` or `[]` where the other is `[.., C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mul;

impl Op for Mul {
    const NAME: &'static str = "mul";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Mul)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = reals(Self::NAME, ins)?;
        Ok(vec![wider(Self::NAME, a, b)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        zip(ins[0], ins[1], |a, b| a * b)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (a, b, d) = (cx.ins[0], cx.ins[1], cx.d());
        let (to_a, to_b) = (cx.in_type(0), cx.in_type(1));
        let mut times = |x, to| {
            let product = cx.b.push1(Mul, &[d, x]).expect("as wide as the result");
            unbroadcast(cx.b, product, to)
        };
        if a == b {
            // d(x²) = 2x
            let once = times(a, &to_a);
            let twice = Combine::of([Exact::int(2)]);
            let twice = cx.b.push1(twice, &[once]).expect("one term");
            return Vjp::Rule(vec![Some(twice), None]);
        }
        Vjp::Rule(vec![Some(times(b, &to_a)), Some(times(a, &to_b))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| s.body.mul(xs[0], xs[1])),
        }
    }

    fn samples() -> Vec<Sample> {
        let column = TensorType::real([Dim::Fixed(5)]);
        let row = TensorType::state(1);
        vec![
            Sample::new(
                Mul,
                "full",
                vec![TensorType::state(5), TensorType::state(5)],
            ),
            Sample::new(Mul, "per_row", vec![row, TensorType::state(5)]),
            Sample::new(
                Mul,
                "per_column",
                vec![TensorType::state(5), column.clone()],
            ),
            Sample::new(Mul, "scalar", vec![column, TensorType::scalar()]),
        ]
    }
}
