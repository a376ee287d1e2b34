//! Puts a number per row into the column that an index chooses, zero elsewhere: the transpose of `gather_cols`.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::GatherCols;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, index_of, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::expr::{CmpOp, Expr};

/// `x[.., 1]`, `index[.., 1] → [.., cols]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterCols {
    pub cols: u64,
}

impl Op for ScatterCols {
    const NAME: &'static str = "scatter_cols";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let cols = given.result()?.cols();
        Ok(ScatterCols { cols })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, at] = operands(Self::NAME, ins)?;
        if x.elem != Elem::Real || x.rank() == 0 || x.cols() != 1 {
            return fail(Self::NAME, format!("needs one number per row, not {x}"));
        }
        index_of(Self::NAME, at, x)?;
        Ok(vec![x.with_cols(self.cols)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, at) = (ins[0], ins[1]);
        let mut shape = x.shape.clone();
        *shape.last_mut().expect("rank ≥ 1") = self.cols;
        let mut out = Tensor::zeros(shape);
        let rows = out.data.chunks_exact_mut(self.cols as usize);
        for ((row, x), at) in rows.zip(&x.data).zip(&at.data) {
            row[index(Self::NAME, *at, self.cols as usize)?] = *x;
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (at, d) = (cx.ins[1], cx.d());
        let d = cx.b.push1(GatherCols, &[d, at]).expect("one index per row");
        Vjp::Rule(vec![Some(d), None])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|s, xs| {
                let col = s.body.push(Expr::ColIndex);
                let zero = s.body.konst(0.0);
                s.body.select(CmpOp::Eq, col, xs[1], xs[0], zero)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let at = TensorType::index(TensorType::state(1).shape);
        vec![
            Sample::new(
                ScatterCols { cols: 19 },
                "target",
                vec![TensorType::state(1), at],
            )
            .indices(19),
        ]
    }
}
