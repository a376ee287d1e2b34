//! A row of each sequence, given to all of its tokens: the transpose of their sum.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::SumTokens;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::{Access, ColMap, RowMap};

/// `x[B, 1, C] → [B, tokens, C]`: `y[b, t] = x[b]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepeatTokens {
    /// S or, of a grid, so many.
    pub tokens: Dim,
}

impl Op for RepeatTokens {
    const NAME: &'static str = "repeat_tokens";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let tokens = given.result()?.tokens();
        Ok(RepeatTokens { tokens })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        match x.shape[..] {
            [Dim::Batch, Dim::Fixed(1), cols] => {
                Ok(vec![TensorType::real([Dim::Batch, self.tokens, cols])])
            }
            _ => fail(Self::NAME, format!("needs [B, 1, width], not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, seq) = (ins[0], self.tokens.at(cx.bindings));
        let rows = x.data.chunks_exact(x.cols());
        let data = rows.flat_map(|row| row.repeat(seq as usize));
        let shape = vec![x.shape[0], seq, x.shape[2]];
        Ok(vec![Tensor::new(shape, data.collect())])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let d = cx.d();
        let sum = cx.b.push1(SumTokens, &[d]).expect("a row per token");
        Vjp::Rule(vec![Some(sum)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let of_sequence = Access {
            row: RowMap::Sequence,
            // A single column is the same for every one of a wider domain.
            col: if cols == 1 { ColMap::Zero } else { ColMap::Col },
            stride: cols,
        };
        Kind::Rows {
            reads: vec![Read::Through(vec![of_sequence])],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let row = |cols| TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(cols)]);
        let of = |tokens, name, cols| Sample::new(RepeatTokens { tokens }, name, vec![row(cols)]);
        vec![
            of(Dim::Seq, "row", 5),
            of(Dim::Seq, "one column", 1),
            of(Dim::Seq, "one token", 20).bindings(3, 1),
            of(Dim::Fixed(7), "grid", 5),
        ]
    }
}
