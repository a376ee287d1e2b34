//! Rows of earlier tokens while a text is read in pieces, of which a ring is kept.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::shift_tokens::check;
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::Delay;
use odec_program::{DType, Dim};

/// x `[B, S, C]` and a carry `[B, reach, C]`, reach the longest distance → `[B, S, K · C]`, what [`ShiftTokens`](super::ShiftTokens) gives for the
/// last S of `past + S` tokens, and the carry that takes the other's place: a ring, in which the row of the token after n others is row n mod reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    pub by: Vec<u32>,
}

impl Delayed {
    fn spec(&self, cols: u64) -> Delay {
        Delay {
            dtype: DType::F64,
            cols,
            by: self.by.clone(),
        }
    }
}

impl Op for Delayed {
    const NAME: &'static str = "delayed";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("by", format!("{:?}", self.by))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let by: Vec<i32> = given.need("by")?;
        match by.into_iter().map(u32::try_from).collect() {
            Ok(by) => Ok(Delayed { by }),
            Err(_) => given.refuse("by", "tokens that are not there yet"),
        }
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, ring] = operands(Self::NAME, ins)?;
        let by: Vec<i32> = (self.by.iter())
            .map(|by| i32::try_from(*by).unwrap_or(i32::MAX))
            .collect();
        check(Self::NAME, x, &by)?;
        let spec = self.spec(x.cols());
        let shape = [Dim::Batch, Dim::Fixed(spec.reach()), Dim::Fixed(x.cols())];
        let kept = TensorType::real(shape);
        match x.cols().checked_mul(by.len() as u64) {
            _ if spec.reach() == 0 => fail(Self::NAME, "reads no earlier token"),
            _ if *ring != kept => fail(Self::NAME, format!("keeps {kept}, not {ring}")),
            Some(cols) => Ok(vec![x.with_cols(cols), kept]),
            None => fail(Self::NAME, "too many columns"),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, mut ring) = (ins[0], ins[1].clone());
        let (seq, cols, past) = (x.shape[1] as usize, x.cols(), cx.bindings.past as usize);
        let reach = ring.shape[1] as usize;
        let mut data = Vec::with_capacity(x.data.len() * self.by.len());
        let texts = x.data.chunks_exact(seq * cols);
        for (text, ring) in texts.zip(ring.data.chunks_exact_mut(reach * cols)) {
            for (row, token) in text.chunks_exact(cols).zip(past..) {
                for by in self.by.iter().map(|by| *by as usize) {
                    match by {
                        0 => data.extend_from_slice(row),
                        by if by > token => data.extend(std::iter::repeat_n(0.0, cols)),
                        by => data.extend_from_slice(&ring[(token - by) % reach * cols..][..cols]),
                    }
                }
                ring[token % reach * cols..][..cols].copy_from_slice(row);
            }
        }
        let shape = vec![x.shape[0], x.shape[1], (cols * self.by.len()) as u64];
        Ok(vec![Tensor::new(shape, data), ring])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::Delay(self.spec(ins[0].cols()))
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, by: &[u32]| {
            let op = Delayed { by: by.to_vec() };
            let shape = [Dim::Batch, Dim::Fixed(op.spec(5).reach()), Dim::Fixed(5)];
            Sample::new(
                op,
                name,
                vec![TensorType::state(5), TensorType::real(shape)],
            )
        };
        vec![
            sample("from the start", &[3, 1]).bindings(2, 4),
            sample("the last one", &[1]).bindings(2, 3).after(2),
            sample("dilated", &[4, 2, 0]).bindings(2, 6).after(3),
        ]
    }
}
