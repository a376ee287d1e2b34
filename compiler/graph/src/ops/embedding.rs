//! Rows of a table, chosen by token.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::EmbeddingGrad;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Dim;
use odec_program::kernel::{Gather, KernelSpec};

/// `table[V, C]`, `tokens[B, S, 1] → [B, S, C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedding;

impl Op for Embedding {
    const NAME: &'static str = "embedding";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Embedding)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [table, tokens] = operands(Self::NAME, ins)?;
        if table.elem != Elem::Real || !matches!(table.shape[..], [Dim::Fixed(_), Dim::Fixed(_)]) {
            return fail(Self::NAME, format!("{table} is no table of rows"));
        }
        if tokens.elem != Elem::Index || tokens.rank() < 2 || tokens.cols() != 1 {
            return fail(Self::NAME, format!("needs one index per row, not {tokens}"));
        }
        Ok(vec![TensorType::real(tokens.with_cols(table.cols()).shape)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (table, tokens) = (ins[0], ins[1]);
        let cols = table.cols();
        let mut data = Vec::with_capacity(tokens.data.len() * cols);
        for t in &tokens.data {
            let at = index(Self::NAME, *t, table.rows())? * cols;
            data.extend_from_slice(&table.data[at..at + cols]);
        }
        let mut shape = tokens.shape.clone();
        *shape.last_mut().expect("rank ≥ 2") = cols as u64;
        Ok(vec![Tensor::new(shape, data)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (tokens, d) = (cx.ins[1], cx.d());
        let Some(Dim::Fixed(vocab)) = cx.in_type(0).shape.first().copied() else {
            unreachable!("infer asked for a fixed number of rows")
        };
        let d =
            cx.b.push1(EmbeddingGrad { vocab }, &[tokens, d])
                .expect("one row per token");
        Vjp::Rule(vec![Some(d), None])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let kernel = move |dtype| KernelSpec::Gather(Gather { dtype, cols });
        Kind::One(OneLaunch {
            operands: vec![1, 0],
            ..OneLaunch::new(kernel, ins, vec![ins[1].rows(), ins[0].rows()])
        })
    }

    fn samples() -> Vec<Sample> {
        let table = TensorType::real([Dim::Fixed(7), Dim::Fixed(5)]);
        let tokens = TensorType::index(TensorType::state(1).shape);
        vec![Sample::new(Embedding, "tokens", vec![table, tokens]).indices(7)]
    }
}
