//! The sum over a batch, for every position: the transpose of adding a row to each.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::AddPositions;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// `x[B, S, C] → [positions, C]`, S ≤ positions: `y[p] = Σ_b x[b, p]`, in order; zero from S on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionSum {
    pub positions: u64,
}

impl Op for PositionSum {
    const NAME: &'static str = "position_sum";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let [positions, _] = given.matrix()?;
        Ok(PositionSum { positions })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        match x.is_state() {
            true => {
                let shape = [self.positions, x.cols()].map(Dim::Fixed);
                Ok(vec![TensorType::real(shape)])
            }
            false => fail(Self::NAME, format!("needs [B, S, width], not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let (seq, cols) = (x.shape[1], x.shape[2]);
        if seq > self.positions {
            let what = format!(
                "sequence of {seq} in a table of {} positions",
                self.positions
            );
            let op = Self::NAME;
            return Err(EvalError { op, what });
        }
        let mut out = Tensor::zeros(vec![self.positions, cols]);
        for (i, x) in x.data.iter().enumerate() {
            out.data[i % (seq * cols) as usize] += x;
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // every row of the result is added back to all tokens at its position
        let (x, d) = (cx.ins[0], cx.d());
        let zero = crate::nn::combine(cx.b, &[(crate::Exact::zero(), x)]).expect("one type");
        let back =
            cx.b.push1(AddPositions, &[zero, d])
                .expect("a row for each position");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::PositionSum
    }

    fn samples() -> Vec<Sample> {
        let op = PositionSum { positions: 5 };
        vec![Sample::new(op, "longer table", vec![TensorType::state(5)])]
    }
}
