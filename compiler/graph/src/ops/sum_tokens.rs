//! The sum over the tokens of each sequence: what is said of a whole text or image.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::RepeatTokens;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::kernel::{Gather, KernelSpec};

/// `x[B, S, C] → [B, 1, C]`: `y[b] = Σ_t x[b, t]`, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumTokens;

impl Op for SumTokens {
    const NAME: &'static str = "sum_tokens";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(SumTokens)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        match x.is_state() {
            true => {
                let shape = [Dim::Batch, Dim::Fixed(1), Dim::Fixed(x.cols())];
                Ok(vec![TensorType::real(shape)])
            }
            false => fail(Self::NAME, format!("needs [B, S, width], not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let [batch, seq, cols] = [x.shape[0], x.shape[1], x.shape[2]];
        let mut out = Tensor::zeros(vec![batch, 1, cols]);
        for (i, x) in x.data.iter().enumerate() {
            let (row, col) = (i / cols as usize, i % cols as usize);
            out.data[row / seq as usize * cols as usize + col] += x;
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, tokens) = (cx.d(), cx.in_type(0).tokens());
        let each = cx.b.push1(RepeatTokens { tokens }, &[d]).expect("a row per sequence");
        Vjp::Rule(vec![Some(each)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let kernel = move |dtype| KernelSpec::SequenceSum(Gather { dtype, cols });
        Kind::One(OneLaunch::along(kernel, ins))
    }

    fn samples() -> Vec<Sample> {
        let grid = TensorType::real([Dim::Batch, Dim::Fixed(7), Dim::Fixed(5)]);
        let of = |name, cols| Sample::new(SumTokens, name, vec![TensorType::state(cols)]);
        vec![
            of("state", 5),
            of("one column", 1),
            of("one token", 20).bindings(3, 1),
            Sample::new(SumTokens, "grid", vec![grid]),
        ]
    }
}
