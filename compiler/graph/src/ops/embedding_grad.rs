//! Rows summed into a table at their tokens: the transpose of an embedding.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Embedding;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{index, index_of, operands};
use crate::tensor::{EvalCx, Tensor, add_scaled};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// `tokens[B, S, 1]`, `d[B, S, C] → [vocab, C]`; rows of one token are added in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingGrad {
    pub vocab: u64,
}

impl Op for EmbeddingGrad {
    const NAME: &'static str = "embedding_grad";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let [vocab, _] = given.matrix()?;
        Ok(EmbeddingGrad { vocab })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [tokens, d] = operands(Self::NAME, ins)?;
        index_of(Self::NAME, tokens, d)?;
        Ok(vec![TensorType::real([
            Dim::Fixed(self.vocab),
            Dim::Fixed(d.cols()),
        ])])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (tokens, d) = (ins[0], ins[1]);
        let cols = d.cols();
        let mut out = Tensor::zeros(vec![self.vocab, cols as u64]);
        for (t, d) in tokens.data.iter().zip(d.data.chunks_exact(cols)) {
            let at = index(Self::NAME, *t, self.vocab as usize)? * cols;
            add_scaled(&mut out.data[at..at + cols], 1.0, d);
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (tokens, d) = (cx.ins[0], cx.d());
        let d =
            cx.b.push1(Embedding, &[d, tokens])
                .expect("one row per token");
        Vjp::Rule(vec![None, Some(d)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::ScatterAdd
    }

    fn samples() -> Vec<Sample> {
        let tokens = TensorType::index(TensorType::state(1).shape);
        let sample = Sample::new(
            EmbeddingGrad { vocab: 4 },
            "repeated",
            vec![tokens, TensorType::state(5)],
        );
        vec![sample.indices(4)]
    }
}
