//! The larger of two elements, the narrower operand broadcast into the wider.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{reals, unbroadcast, wider, zip};
use crate::ops::{Heaviside, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::{BinaryOp, CmpOp};

/// Two operands; one may be per row `[.., 1]`, per column `[C]` or `[]` where the other is `[.., C]`. No number where one of them is none. Of equal
/// elements each takes half of the derivative, as in PyTorch and JAX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Maximum;

impl Op for Maximum {
    const NAME: &'static str = "maximum";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Maximum)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [a, b] = reals(Self::NAME, ins)?;
        Ok(vec![wider(Self::NAME, a, b)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        zip(ins[0], ins[1], |a, b| match a > b || a.is_nan() {
            true => a,
            false => b,
        })
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (a, b, d) = (cx.ins[0], cx.ins[1], cx.d());
        let mut part = |i: usize, pair: [_; 2]| {
            let share = cx.b.push1(Heaviside, &pair).expect("as the operands are");
            let part = cx.b.push1(Mul, &[d, share]).expect("one shape");
            let to = cx.in_type(i);
            Some(unbroadcast(cx.b, part, &to))
        };
        Vjp::Rule(vec![part(0, [a, b]), part(1, [b, a])])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| {
                let larger = s.body.binary(BinaryOp::Max, xs[0], xs[1]);
                s.body.select(CmpOp::Eq, xs[0], xs[0], larger, xs[0])
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        pairs(Maximum)
    }
}

/// Samples of an op of two operands that broadcast.
pub(super) fn pairs<O: Op + Into<super::OpKind>>(op: O) -> Vec<Sample> {
    let (state, row) = (TensorType::state(5), TensorType::state(1));
    let (column, number) = (TensorType::real([Dim::Fixed(5)]), TensorType::scalar());
    let sample = |name, a: &TensorType, b: &TensorType| {
        Sample::new(op.clone(), name, vec![a.clone(), b.clone()])
    };
    vec![
        sample("full", &state, &state),
        sample("per_row", &row, &state),
        sample("per_column", &state, &column),
        sample("scalar", &state, &number),
    ]
}
