//! Some columns of every row: the transpose of concatenation.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Concat;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Access;
use odec_program::expr::ColMap;

/// `x[.., C] → [.., cols]`: columns `from .. from + cols`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    pub from: u64,
    pub cols: u64,
}

impl Op for Slice {
    const NAME: &'static str = "slice";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("from", self.from.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let cols = given.result()?.cols();
        Ok(Slice {
            from: given.need("from")?,
            cols,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let end = self.from.checked_add(self.cols);
        if x.rank() == 0 || end.is_none_or(|end| end > x.cols()) {
            let what = format!("{} columns from {} on are not in {x}", self.cols, self.from);
            return fail(Self::NAME, what);
        }
        Ok(vec![x.with_cols(self.cols)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let (from, cols) = (self.from as usize, self.cols as usize);
        let rows = x.data.chunks_exact(x.cols());
        let data = rows.flat_map(|row| &row[from..from + cols]).copied();
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = self.cols;
        }
        Ok(vec![Tensor::new(shape, data.collect())])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, d, width) = (cx.ins[0], cx.d(), cx.in_type(0).cols());
        let mut zeros = |from: u64, cols: u64| {
            if cols == 0 {
                return None;
            }
            let part = cx.b.push1(Slice { from, cols }, &[x]).expect("inside");
            let zero = [(crate::Exact::zero(), part)];
            Some(crate::nn::combine(cx.b, &zero).expect("one type"))
        };
        let end = self.from + self.cols;
        let parts = [zeros(0, self.from), Some(d), zeros(end, width - end)];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        let back = cx.b.push1(Concat, &parts).expect("the same rows");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let part = Access {
            col: ColMap::Turn {
                cols,
                by: self.from,
            },
            ..Access::full(cols)
        };
        Kind::Rows {
            reads: vec![Read::Through(vec![part])],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample =
            |name, from, cols| Sample::new(Slice { from, cols }, name, vec![TensorType::state(20)]);
        vec![
            sample("front", 0, 7),
            sample("middle", 3, 16),
            sample("one column", 19, 1),
        ]
    }
}
