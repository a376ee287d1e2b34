//! The sum over the columns of every row.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Broadcast;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, fold_cols, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::ReduceOp;

/// `[.., C] → [.., 1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumCols;

impl Op for SumCols {
    const NAME: &'static str = "sum_cols";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(SumCols)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match reals(Self::NAME, ins)? {
            [x] if x.rank() == 0 => fail(Self::NAME, format!("{x} has no columns")),
            [x] => Ok(vec![x.per_row()]),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        fold_cols(ins[0], |row| row.iter().sum())
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, to) = (cx.d(), cx.in_type(0));
        let wide =
            cx.b.push1(Broadcast { to }, &[d])
                .expect("a number per row");
        Vjp::Rule(vec![Some(wide)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.reduce(ReduceOp::Sum, x))
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(SumCols, "state", vec![TensorType::state(19)]),
            Sample::new(SumCols, "vector", vec![TensorType::real([Dim::Fixed(3)])]),
        ]
    }
}
