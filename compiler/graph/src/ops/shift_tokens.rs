//! The rows of other tokens of a text, side by side: what a convolution along tokens multiplies.

use crate::exact::Exact;
use crate::nn;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Slice;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Access, CmpOp, ColMap, Expr, RowMap};

/// Most distances: each is a load of the kernel.
pub const MOST_SHIFTS: usize = 128;

/// `x[B, S, C] → [B, S, K · C]`: row i is rows i − by₁, i − by₂, … of the same text side by side, zeros where there are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShiftTokens {
    pub by: Vec<i32>,
}

impl ShiftTokens {
    /// By one distance.
    pub fn one(by: i32) -> ShiftTokens {
        ShiftTokens { by: vec![by] }
    }
}

/// How row `r − by` of `cols` columns is read.
pub(super) fn earlier(by: i32, cols: u64) -> Access {
    let row = match by {
        0 => RowMap::Row,
        by => RowMap::Shift(by),
    };
    Access {
        row,
        ..Access::full(cols)
    }
}

/// Checks that x is a state, and distances few and short.
pub(super) fn check(op: &'static str, x: &TensorType, by: &[i32]) -> Result<(), TypeError> {
    let state = x.is_state();
    let far = |by: &i32| by.unsigned_abs() > i32::MAX as u32;
    if !state || by.is_empty() || by.len() > MOST_SHIFTS || by.iter().any(far) {
        return fail(op, format!("{} rows of {x} are not to be had", by.len()));
    }
    Ok(())
}

/// Row `i − by` of a text whose rows are `text`, if there is one.
pub(super) fn row(text: &[f64], cols: usize, i: usize, by: i32) -> Option<&[f64]> {
    let there = usize::try_from(i as i64 - i64::from(by)).ok()?;
    text.chunks_exact(cols).nth(there)
}

/// The distances in the other direction.
pub(super) fn reversed(by: &[i32]) -> Vec<i32> {
    by.iter().map(|by| -by).collect()
}

impl Op for ShiftTokens {
    const NAME: &'static str = "shift_tokens";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("by", format!("{:?}", self.by))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(ShiftTokens {
            by: given.need("by")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        check(Self::NAME, x, &self.by)?;
        match x.cols().checked_mul(self.by.len() as u64) {
            Some(cols) => Ok(vec![x.with_cols(cols)]),
            None => fail(Self::NAME, "too many columns"),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let x = ins[0];
        let (seq, cols) = (x.shape[1] as usize, x.cols());
        let zeros = vec![0.0; cols];
        let mut data = Vec::with_capacity(x.data.len() * self.by.len());
        for text in x.data.chunks_exact(seq * cols) {
            for (i, by) in (0..seq).flat_map(|i| self.by.iter().map(move |by| (i, *by))) {
                data.extend_from_slice(row(text, cols, i, by).unwrap_or(&zeros));
            }
        }
        let mut shape = x.shape.clone();
        if let Some(last) = shape.last_mut() {
            *last *= self.by.len() as u64;
        }
        Ok(vec![Tensor::new(shape, data)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, cols) = (cx.d(), cx.in_type(0).cols());
        let back = reversed(&self.by).into_iter().zip(0..).map(|(by, k)| {
            let part = match self.by.len() {
                1 => d,
                _ => {
                    let from = k * cols;
                    let part = Slice { from, cols };
                    cx.b.push1(part, &[d]).expect("a part of the result")
                }
            };
            let moved = cx.b.push1(ShiftTokens::one(by), &[part]);
            (Exact::one(), moved.expect("a state"))
        });
        let back: Vec<_> = back.collect();
        let back = nn::combine(cx.b, &back).expect("of one type");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let only = self.by.len() == 1;
        let read = |by: &i32| Access {
            col: if only {
                ColMap::Col
            } else {
                ColMap::repeat(cols)
            },
            ..earlier(*by, cols)
        };
        let ends: Vec<f64> = (1..self.by.len() as u64)
            .map(|k| (k * cols) as f64)
            .collect();
        Kind::Rows {
            reads: vec![Read::Through(self.by.iter().map(read).collect())],
            rule: Box::new(move |s, xs| {
                let Some((last, before)) = xs.split_last().filter(|_| xs.len() > 1) else {
                    return xs[0];
                };
                let col = s.body.push(Expr::ColIndex);
                let before = before.iter().zip(&ends).rev();
                before.fold(*last, |after, (x, end)| {
                    let end = s.body.konst(*end);
                    s.body.select(CmpOp::Lt, col, end, *x, after)
                })
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, by: &[i32]| {
            let by = by.to_vec();
            let op = ShiftTokens { by };
            Sample::new(op, name, vec![TensorType::state(5)]).bindings(2, 4)
        };
        vec![
            sample("one before", &[1]),
            sample("two after", &[-2]),
            sample("itself", &[0]),
            sample("farther than the text", &[7]),
            sample("three around", &[1, 0, -1]),
            sample("dilated", &[4, 2, 0]),
        ]
    }
}
