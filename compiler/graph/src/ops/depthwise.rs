//! Depthwise convolution along tokens: each column by itself.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::shift_tokens::{check, earlier, reversed, row};
use crate::ops::support::{fail, reals};
use crate::ops::{Concat, Mul, ShiftTokens, SumRows};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::value::Value;
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::{Access, ColMap};

/// Taps whose gradients one launch sums. Each column of its result reads the rows of all of them and needs one, so its work grows with their square.
const AT_ONCE: usize = 8;

/// `x[B, S, C]`, `taps[K · C] → [B, S, C]`: `y[i] = Σₖ tapsₖ · x[i − byₖ]`, added in order, zeros where a text has no such
/// row; tapsₖ are columns k·C to (k + 1)·C.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depthwise {
    pub by: Vec<i32>,
}

impl Op for Depthwise {
    const NAME: &'static str = "depthwise";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("by", format!("{:?}", self.by))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Depthwise {
            by: given.need("by")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, taps] = reals(Self::NAME, ins)?;
        check(Self::NAME, x, &self.by)?;
        let columns = x.cols().checked_mul(self.by.len() as u64);
        match taps.shape[..] {
            [Dim::Fixed(n)] if Some(n) == columns => Ok(vec![x.clone()]),
            _ => {
                let what = format!("{taps} are not {} numbers for each of {x}", self.by.len());
                fail(Self::NAME, what)
            }
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, taps) = (ins[0], ins[1]);
        let (seq, cols) = (x.shape[1] as usize, x.cols());
        let mut out = Tensor::zeros(x.shape.clone());
        let texts = x.data.chunks_exact(seq * cols);
        for (text, to) in texts.zip(out.data.chunks_exact_mut(seq * cols)) {
            for (i, y) in to.chunks_exact_mut(cols).enumerate() {
                for (by, taps) in self.by.iter().zip(taps.data.chunks_exact(cols)) {
                    let from = row(text, cols, i, *by).into_iter().flatten();
                    let products = from.zip(taps).map(|(x, tap)| tap * x);
                    y.iter_mut().zip(products).for_each(|(y, p)| *y += p);
                }
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, taps, d) = (cx.ins[0], cx.ins[1], cx.d());
        let by = reversed(&self.by);
        let d_x = cx.b.push1(Depthwise { by }, &[d, taps]).expect("a state");
        let mut sums: Vec<Value> = Vec::new();
        for by in self.by.chunks(AT_ONCE) {
            let repeated = vec![d; by.len()];
            let by = by.to_vec();
            let rows = cx.b.push1(ShiftTokens { by }, &[x]).expect("a state");
            let repeated = cx.b.push1(Concat, &repeated).expect("the same rows");
            let products = cx.b.push1(Mul, &[repeated, rows]).expect("one type");
            let sum = cx.b.push1(SumRows, &[products]).expect("rows");
            sums.push(match cx.b.ty(sum).rank() {
                // The sum of a single column is a number.
                0 => {
                    let to = cx.in_type(1).with_cols(1);
                    let of_one = crate::ops::Broadcast { to };
                    cx.b.push1(of_one, &[sum]).expect("a number")
                }
                _ => sum,
            });
        }
        let d_taps = match sums[..] {
            [sum] => sum,
            _ => cx.b.push1(Concat, &sums).expect("columns"),
        };
        Vjp::Rule(vec![Some(d_x), Some(d_taps)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let cols = ins[0].cols();
        let taps = |k: u64| Access {
            col: ColMap::Turn {
                cols: ins[1].cols(),
                by: k * cols,
            },
            ..Access::PER_COL
        };
        let count = self.by.len();
        let rows = self.by.iter().map(|by| earlier(*by, cols)).collect();
        let taps = (0..count as u64).map(taps).collect();
        Kind::Rows {
            reads: vec![Read::Through(rows), Read::Through(taps)],
            rule: Box::new(move |s, all| {
                let (rows, taps) = all.split_at(count);
                let mut sum = None;
                for (x, tap) in rows.iter().zip(taps) {
                    let product = s.body.mul(*tap, *x);
                    sum = Some(match sum {
                        Some(before) => s.body.add(before, product),
                        None => product,
                    });
                }
                sum.expect("infer asked for one distance at least")
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, by: &[i32], cols: u64| {
            let (by, taps) = (by.to_vec(), cols * by.len() as u64);
            let taps = TensorType::real([Dim::Fixed(taps)]);
            let ins = vec![TensorType::state(cols), taps];
            Sample::new(Depthwise { by }, name, ins).bindings(2, 5)
        };
        vec![
            sample("causal", &[3, 2, 1, 0], 5),
            sample("centred", &[1, 0, -1], 20),
            sample("dilated", &[4, 2, 0, -2], 3),
            sample("one tap", &[0], 4),
            sample("many taps", &[9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 5),
            sample("many taps of one column", &[8, 7, 6, 5, 4, 3, 2, 1, 0], 1),
            sample("one column", &[1, 0], 1),
            sample("one tap of one column", &[1], 1),
        ]
    }
}
