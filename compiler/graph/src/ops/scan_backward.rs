//! The derivative of recurrences along tokens: a recurrence itself, last tokens first.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::scan::{chunks_given, chunks_said, in_chunks, sequences, some_chunks, tokens};
use crate::ops::support::fail;
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::ScanForm;

/// a, h, d → d_a, d_b; of running sums d → d_b. With `g_t = a_{t+1} g_{t+1} + d_t` from zero behind the last token, `d_b = g`, `d_a_t = g_t h_{t−1}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanBackward {
    pub chunks: u64,
}

impl Op for ScanBackward {
    const NAME: &'static str = "scan_backward";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        chunks_said(self.chunks)
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let chunks = chunks_given(given)?;
        Ok(ScanBackward { chunks })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        some_chunks(Self::NAME, self.chunks)?;
        match ins {
            [a, h, d] => {
                tokens(Self::NAME, &[a.clone(), h.clone()])?;
                let ty = tokens(Self::NAME, &[h.clone(), d.clone()])?;
                Ok(vec![ty.clone(), ty])
            }
            [d] => Ok(vec![tokens(Self::NAME, std::slice::from_ref(d))?]),
            _ => fail(Self::NAME, format!("takes 1 or 3 operands, not {}", ins.len())),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let d = ins[ins.len() - 1];
        let (seq, cols) = (d.shape[1] as usize, d.cols());
        let mut d_b = d.clone();
        for first in sequences(d) {
            for i in (first * cols..(first + seq - 1) * cols).rev() {
                let factor = if ins.len() == 3 { ins[0].data[i + cols] } else { 1.0 };
                d_b.data[i] += factor * d_b.data[i + cols];
            }
        }
        let &[_, h, _] = ins else {
            return Ok(vec![d_b]);
        };
        let mut d_a = Tensor::zeros(d.shape.clone());
        for first in sequences(d) {
            for i in (first + 1) * cols..(first + seq) * cols {
                d_a.data[i] = d_b.data[i] * h.data[i - cols];
            }
        }
        Ok(vec![d_a, d_b])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("second derivatives of recurrences have no rule")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let forms = [ScanForm::Backward, ScanForm::EndsBackward];
        Kind::One(in_chunks(self.chunks, ins, forms))
    }

    fn samples() -> Vec<Sample> {
        let x = || TensorType::state(5);
        vec![
            Sample::new(ScanBackward { chunks: 1 }, "with factors", vec![x(), x(), x()]),
            Sample::new(ScanBackward { chunks: 1 }, "running sums", vec![x()]),
            Sample::new(ScanBackward { chunks: 1 }, "one token", vec![x(), x(), x()]).bindings(3, 1),
            Sample::new(ScanBackward { chunks: 1 }, "several tiles", vec![TensorType::state(70); 3]).bindings(2, 11),
            Sample::new(ScanBackward { chunks: 4 }, "in chunks", vec![TensorType::state(70); 3]).bindings(2, 11),
            Sample::new(ScanBackward { chunks: 3 }, "sums in chunks", vec![x()]).bindings(2, 7),
        ]
    }
}
