//! Concatenates the columns of several tensors.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Slice;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::fail;
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Access;
use odec_program::expr::{CmpOp, ColMap, Expr};

/// `[.., C₁], [.., C₂] … → [.., C₁ + C₂ + …]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concat;

/// Columns of the result that come before each operand.
fn starts(ins: &[TensorType]) -> impl Iterator<Item = u64> {
    let widths = ins.iter().map(TensorType::cols);
    widths.scan(0, |at, cols| {
        let start = *at;
        *at += cols;
        Some(start)
    })
}

impl Op for Concat {
    const NAME: &'static str = "concat";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Concat)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let Some(first) = ins.first() else {
            return fail(Self::NAME, "takes one operand at least");
        };
        if first.rank() == 0 || first.elem != Elem::Real {
            return fail(Self::NAME, format!("needs real rows, not {first}"));
        }
        let mut cols: u64 = 0;
        for t in ins {
            if t.elem != first.elem || t.per_row() != first.per_row() {
                return fail(Self::NAME, format!("{first} and {t} have other rows"));
            }
            cols = match cols.checked_add(t.cols()) {
                Some(sum) => sum,
                None => return fail(Self::NAME, "too many columns"),
            };
        }
        Ok(vec![first.with_cols(cols)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let cols: usize = ins.iter().map(|t| t.cols()).sum();
        let mut data = Vec::new();
        for r in 0..ins[0].rows() {
            for t in ins {
                data.extend_from_slice(&t.data[r * t.cols()..][..t.cols()]);
            }
        }
        let mut shape = ins[0].shape.clone();
        if let Some(last) = shape.last_mut() {
            *last = cols as u64;
        }
        Ok(vec![Tensor::new(shape, data)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let types: Vec<TensorType> = (0..cx.ins.len()).map(|i| cx.in_type(i)).collect();
        let d = cx.d();
        let part = |(from, t): (u64, &TensorType)| {
            let slice = Slice {
                from,
                cols: t.cols(),
            };
            Some(cx.b.push1(slice, &[d]).expect("a part of the result"))
        };
        Vjp::Rule(starts(&types).zip(&types).map(part).collect())
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let read = |(start, t): (u64, &TensorType)| {
            let cols = t.cols();
            // turned so that its first column meets the first of its place
            let by = (cols - start % cols) % cols;
            let col = ColMap::Turn { cols, by };
            Read::Through(vec![Access {
                col,
                ..Access::full(cols)
            }])
        };
        let starts: Vec<u64> = starts(ins).collect();
        Kind::Rows {
            reads: starts.iter().copied().zip(ins).map(read).collect(),
            rule: Box::new(move |s, xs| {
                let col = s.body.push(Expr::ColIndex);
                let last = xs[xs.len() - 1];
                let before = xs.iter().zip(&starts[1..]).rev();
                before.fold(last, |after, (x, end)| {
                    let end = s.body.konst(*end as f64);
                    s.body.select(CmpOp::Lt, col, end, *x, after)
                })
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, widths: &[u64]| {
            let ins = widths.iter().map(|c| TensorType::state(*c)).collect();
            Sample::new(Concat, name, ins)
        };
        vec![
            sample("two", &[5, 5]),
            sample("ragged", &[3, 1, 17]),
            sample("one", &[4]),
        ]
    }
}
