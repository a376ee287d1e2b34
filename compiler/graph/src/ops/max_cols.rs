//! The largest column of every row. Equal ones share its derivative evenly, as in PyTorch and JAX.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::{Heaviside, Mul, Recip, SumCols};
use crate::ops::support::{fail, fold_cols, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::ReduceOp;

/// `[.., C] → [.., 1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaxCols;

impl Op for MaxCols {
    const NAME: &'static str = "max_cols";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(MaxCols)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match reals(Self::NAME, ins)? {
            [x] if x.rank() == 0 => fail(Self::NAME, format!("{x} has no columns")),
            [x] => Ok(vec![x.per_row()]),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let max = |row: &[f64]| row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        fold_cols(ins[0], max)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // No column is larger than the largest: the step is 1/2 where one is as large, else 0.
        let (x, y, d) = (cx.ins[0], cx.outs[0], cx.d());
        let largest = cx.b.push1(Heaviside, &[x, y]).expect("a number per row");
        let count = cx.b.push1(SumCols, &[largest]).expect("columns");
        let each = cx.b.push1(Recip, &[count]).expect("one operand");
        let each = cx.b.push1(Mul, &[d, each]).expect("one shape");
        let part = cx.b.push1(Mul, &[largest, each]);
        Vjp::Rule(vec![Some(part.expect("a number per row"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|b, x| b.reduce(ReduceOp::Max, x))
    }

    fn samples() -> Vec<Sample> {
        vec![Sample::new(MaxCols, "state", vec![TensorType::state(19)])]
    }
}
