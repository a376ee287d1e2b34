//! Rotary positions (Su et al. 2021): within each head, columns i and i + head/2 turn by the position's angle, or columns 2i and 2i + 1.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::OpKind;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::{Access, ColMap, RowMap, UnaryOp};
use odec_program::manifest;

/// `x[B, S, heads · head]`, `cos[P, head]`, `sin[P, head] → [B, S, heads · head]`, S ≤ P:
/// `y = x·cos + swap(x)·sin`, the sine negated in the first column of a pair (see [`odec_program::manifest::Table`]).
/// The inverse turns back. The tables may have a row for each token instead, `[B, S, head]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rope {
    /// Columns of one head; even.
    pub head: u64,
    /// Whether pairs are neighbours; else a column's partner is in the other half.
    pub interleaved: bool,
    pub inverse: bool,
}

impl Rope {
    /// Columns whose halves are swapped.
    fn swapped(self) -> u64 {
        if self.interleaved { 2 } else { self.head }
    }
}

impl Op for Rope {
    const NAME: &'static str = "rope";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("head", self.head.to_string())];
        for (name, holds) in [("interleaved", self.interleaved), ("inverse", self.inverse)] {
            if holds {
                attrs.push((name, "true".into()));
            }
        }
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Rope {
            head: given.need("head")?,
            interleaved: given.optional("interleaved")?.unwrap_or(false),
            inverse: given.optional("inverse")?.unwrap_or(false),
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, cos, sin] = reals(Self::NAME, ins)?;
        if !x.is_state() {
            return fail(Self::NAME, format!("needs [B, S, width], not {x}"));
        }
        if self.head == 0 || !self.head.is_multiple_of(2) || !x.cols().is_multiple_of(self.head) {
            let what = format!(
                "{x} does not split into even heads of {} columns",
                self.head
            );
            return fail(Self::NAME, what);
        }
        let by_position = |t: &TensorType| matches!(t.shape[..], [Dim::Fixed(_), Dim::Fixed(n)] if n == self.head);
        let fits = |t: &TensorType| by_position(t) || *t == x.with_cols(self.head);
        if !fits(cos) || cos != sin {
            let what = format!("tables {cos} and {sin} are not [positions, {}]", self.head);
            return fail(Self::NAME, what);
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, cos, sin) = (ins[0], ins[1], ins[2]);
        let (seq, head, sign) = (
            x.shape[1] as usize,
            self.head as usize,
            if self.inverse { -1.0 } else { 1.0 },
        );
        let of_tokens = cos.shape.len() == x.shape.len();
        if seq > cos.rows() && !of_tokens {
            let what = format!("sequence of {seq} in a table of {} positions", cos.rows());
            return Err(EvalError {
                op: Self::NAME,
                what,
            });
        }
        let group = self.swapped() as usize;
        let mut out = x.clone();
        let cols = x.cols();
        for (r, (y, x)) in out
            .data
            .chunks_exact_mut(cols)
            .zip(x.data.chunks_exact(cols))
            .enumerate()
        {
            let at = if of_tokens { r } else { r % seq } * head;
            for (y, x) in y.chunks_exact_mut(head).zip(x.chunks_exact(head)) {
                for c in 0..head {
                    let first = c - c % group;
                    let swapped = x[first + (c + group / 2) % group];
                    y[c] = x[c] * cos.data[at + c] + sign * swapped * sin.data[at + c];
                }
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // turning back is the transpose only of a true rotation
        let table = |i: usize| match &cx.b.graph().node(cx.ins[i].node).op {
            OpKind::Table(t) => match t.table {
                manifest::Table::RotaryCos { turns, .. } | manifest::Table::RotarySin { turns, .. } => {
                    turns.interleaved == self.interleaved
                }
                _ => false,
            },
            _ => false,
        };
        if !table(1) || !table(2) {
            return Vjp::NotDifferentiable("its cosines and sines must be constant tables of its pairs");
        }
        let (cos, sin, d) = (cx.ins[1], cx.ins[2], cx.d());
        let back = Rope {
            inverse: !self.inverse,
            ..*self
        };
        let d = cx.b.push1(back, &[d, cos, sin]).expect("the same shapes");
        Vjp::Rule(vec![Some(d), None, None])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let (head, inverse, stride) = (self.head, self.inverse, ins[0].cols());
        let x = Access::full(stride);
        let swapped = Access {
            col: ColMap::HalfSwap(self.swapped()),
            ..x
        };
        let table = Access {
            row: match ins[1].is_state() {
                true => RowMap::Row,
                false => RowMap::Position,
            },
            col: ColMap::repeat(head),
            stride: head,
        };
        Kind::Rows {
            reads: vec![
                Read::Through(vec![x, swapped]),
                Read::Through(vec![table]),
                Read::Through(vec![table]),
            ],
            rule: Box::new(move |s, xs| {
                let [x, mut swapped, cos, sin] = xs[..] else {
                    unreachable!("four accesses are declared above")
                };
                if inverse {
                    swapped = s.body.unary(UnaryOp::Neg, swapped);
                }
                let kept = s.body.mul(x, cos);
                s.body.fma(swapped, sin, kept)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let table = TensorType::real([Dim::Fixed(7), Dim::Fixed(4)]);
        let ins = vec![TensorType::state(12), table.clone(), table];
        let of_tokens = [12, 4, 4].map(TensorType::state).to_vec();
        vec![
            Sample::new(
                Rope {
                    head: 4,
                    interleaved: false,
                    inverse: false,
                },
                "forth",
                ins.clone(),
            ),
            Sample::new(
                Rope {
                    head: 4,
                    interleaved: false,
                    inverse: true,
                },
                "back",
                ins.clone(),
            ),
            Sample::new(
                Rope {
                    head: 4,
                    interleaved: true,
                    inverse: false,
                },
                "neighbours",
                ins,
            ),
            Sample::new(
                Rope {
                    head: 4,
                    interleaved: false,
                    inverse: false,
                },
                "a row for each token",
                of_tokens,
            ),
        ]
    }
}
