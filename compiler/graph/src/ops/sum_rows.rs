//! The sum over all rows, for every column: gradients of gains, losses of tokens.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Broadcast;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// `[.., C] → [C]`, and `[.., 1] → []`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumRows;

impl Op for SumRows {
    const NAME: &'static str = "sum_rows";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(SumRows)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match reals(Self::NAME, ins)? {
            [x] if x.rank() == 0 => fail(Self::NAME, format!("{x} has no rows")),
            [x] if x.cols() == 1 => Ok(vec![TensorType::scalar()]),
            [x] => Ok(vec![TensorType::real([Dim::Fixed(x.cols())])]),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let mut sums = vec![0.0; x.cols()];
        for row in x.data.chunks_exact(x.cols()) {
            sums.iter_mut().zip(row).for_each(|(s, x)| *s += x);
        }
        let shape = if x.cols() == 1 {
            vec![]
        } else {
            vec![x.cols() as u64]
        };
        Ok(vec![Tensor::new(shape, sums)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, to) = (cx.d(), cx.in_type(0));
        let wide =
            cx.b.push1(Broadcast { to }, &[d])
                .expect("a number per column");
        Vjp::Rule(vec![Some(wide)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Columns
    }

    fn samples() -> Vec<Sample> {
        vec![
            Sample::new(SumRows, "state", vec![TensorType::state(5)]).tolerance(1e-5),
            Sample::new(SumRows, "per_row", vec![TensorType::state(1)]).tolerance(1e-5),
        ]
    }
}
