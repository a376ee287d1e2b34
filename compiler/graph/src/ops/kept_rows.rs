//! The rows of tokens before those of a run, from where they are kept.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `kept[B, P, C] → [B, S, C]`: rows `past + from .. past + from + S` of a cache, or of one that was appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptRows {
    pub from: u64,
}

impl Op for KeptRows {
    const NAME: &'static str = "kept_rows";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("from", self.from.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(KeptRows {
            from: given.need("from")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [kept] = operands(Self::NAME, ins)?;
        match kept.shape[..] {
            [Dim::Batch, Dim::Fixed(rows), Dim::Fixed(c)]
                if self.from < rows && kept.elem != Elem::Index =>
            {
                let shape = vec![Dim::Batch, Dim::Seq, Dim::Fixed(c)];
                let elem = kept.elem;
                Ok(vec![TensorType { elem, shape }])
            }
            _ => fail(Self::NAME, format!("{kept} keeps no row {}", self.from)),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (kept, at) = (ins[0], cx.bindings);
        let (rows, cols) = (kept.shape[1] as usize, kept.cols());
        let (first, seq) = ((at.past + self.from) as usize, at.seq as usize);
        if first + seq > rows {
            let what = format!("{seq} rows from {first} on of {rows}");
            let op = Self::NAME;
            return Err(EvalError { op, what });
        }
        let texts = kept.data.chunks_exact(rows * cols);
        let parts = texts.flat_map(|text| &text[first * cols..][..seq * cols]);
        let shape = vec![kept.shape[0], at.seq, cols as u64];
        Ok(vec![Tensor::new(shape, parts.copied().collect())])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::KeptRows { from: self.from }
    }

    fn samples() -> Vec<Sample> {
        let kept = TensorType::real([Dim::Batch, Dim::Fixed(6), Dim::Fixed(4)]);
        let sample = |name, from| Sample::new(KeptRows { from }, name, vec![kept.clone()]);
        vec![
            sample("from the start", 0).bindings(1, 3),
            sample("after three", 1).bindings(1, 2).after(3),
        ]
    }
}
