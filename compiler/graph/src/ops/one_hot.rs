//! A one in the column that a number names: which expert a token goes to, as a row.

use super::grouped_matmul::named;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{CmpOp, Expr};

/// `[.., 1] → [.., cols]`: 1 in the column that the number names, 0 elsewhere. A number names how many of `1, 2, … cols − 1` are not
/// above it, as in a [`super::GroupedMatMul`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneHot {
    pub cols: u64,
}

impl Op for OneHot {
    const NAME: &'static str = "one_hot";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let cols = given.result()?.cols();
        Ok(OneHot { cols })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match reals(Self::NAME, ins)? {
            [x] if x.rank() > 0 && x.cols() == 1 => Ok(vec![x.with_cols(self.cols)]),
            [x] => fail(Self::NAME, format!("needs one number per row, not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let mut shape = ins[0].shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = self.cols;
        }
        let mut out = Tensor::zeros(shape);
        let rows = out.data.chunks_exact_mut(self.cols as usize);
        for (row, number) in rows.zip(&ins[0].data) {
            if let Some(column) = named(self.cols, false, *number) {
                row[column] = 1.0;
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let last = self.cols as f64 - 1.0;
        Kind::Rows {
            reads: vec![Read::Pointwise],
            rule: Box::new(move |s, xs| {
                let col = s.body.push(Expr::ColIndex);
                let [last, zero, one] = [last, 0.0, 1.0].map(|x| s.body.konst(x));
                let next = s.body.add(col, one);
                let mut reached = |bound| {
                    let equal = s.body.select(CmpOp::Eq, bound, xs[0], one, zero);
                    s.body.select(CmpOp::Lt, bound, xs[0], one, equal)
                };
                let (above, beyond) = (reached(col), reached(next));
                // Lower numbers are the first column's too, higher ones the last one's.
                let above = s.body.select(CmpOp::Eq, col, zero, one, above);
                let beyond = s.body.select(CmpOp::Eq, col, last, zero, beyond);
                let below = s.body.sub(one, beyond);
                s.body.mul(above, below)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, cols| Sample::new(OneHot { cols }, name, vec![TensorType::state(1)]);
        vec![
            sample("five", 5).range(-1.0, 6.0),
            sample("one", 1).range(-1.0, 2.0),
        ]
    }
}
