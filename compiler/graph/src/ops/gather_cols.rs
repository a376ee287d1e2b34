//! One column of every row, chosen by an index: the logit of the target.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::ScatterCols;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, index_of, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::expr::{CmpOp, Expr, ReduceOp};

/// `x[.., C]`, `index[.., 1] → [.., 1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherCols;

impl Op for GatherCols {
    const NAME: &'static str = "gather_cols";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(GatherCols)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, at] = operands(Self::NAME, ins)?;
        if x.elem != Elem::Real {
            return fail(Self::NAME, format!("needs real rows, not {x}"));
        }
        index_of(Self::NAME, at, x)?;
        Ok(vec![x.per_row()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, at) = (ins[0], ins[1]);
        let rows = x.data.chunks_exact(x.cols()).zip(&at.data);
        let picked = rows.map(|(row, at)| Ok(row[index(Self::NAME, *at, row.len())?]));
        Ok(vec![Tensor::new(
            at.shape.clone(),
            picked.collect::<Result<_, _>>()?,
        )])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (at, d, cols) = (cx.ins[1], cx.d(), cx.in_type(0).cols());
        let d =
            cx.b.push1(ScatterCols { cols }, &[d, at])
                .expect("one index per row");
        Vjp::Rule(vec![Some(d), None])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| {
                let col = s.body.push(Expr::ColIndex);
                let zero = s.body.konst(0.0);
                let chosen = s.body.select(CmpOp::Eq, col, xs[1], xs[0], zero);
                s.body.reduce(ReduceOp::Sum, chosen)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let at = TensorType::index(TensorType::state(1).shape);
        vec![Sample::new(GatherCols, "target", vec![TensorType::state(19), at]).indices(19)]
    }
}
