//! Depthwise convolution over a grid of tokens: each column by itself.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::ops::windows::{attrs, check, shown, window};
use crate::ops::{Broadcast, Concat, Mul, Reshape, SumRows, Windows};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Access, ColMap, RowMap};
use odec_program::window::Through;
use odec_program::{Dim, Window};

/// `x[B, tokens, C]`, `taps[places · C] → [B, windows, C]`: `y[w] = Σₚ tapsₚ · x[token at place p of w]`, place by place from 0 on, zeros beside the
/// grid; tapsₚ are columns p·C to (p + 1)·C. `transposed`: `x[B, windows, C] → [B, tokens, C]`, each token with the windows that it lies under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepthwiseWindows {
    pub window: Window,
    pub transposed: bool,
}

impl DepthwiseWindows {
    /// Rows of each sequence of the operand and of the result.
    fn rows(&self) -> [u64; 2] {
        let [tokens, windows] = [self.window.tokens(), self.window.count()];
        match self.transposed {
            false => [tokens, windows],
            true => [windows, tokens],
        }
    }
}

impl Op for DepthwiseWindows {
    const NAME: &'static str = "depthwise_windows";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let transposed = self.transposed.then(|| ("transposed", "true".into()));
        attrs(&self.window).into_iter().chain(transposed).collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(DepthwiseWindows {
            window: window(given)?,
            transposed: given.optional("transposed")?.unwrap_or(false),
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, taps] = reals(Self::NAME, ins)?;
        let [from, to] = self.rows();
        check(Self::NAME, x, (&self.window, from))?;
        let columns = x.cols().checked_mul(self.window.places());
        match taps.shape[..] {
            [Dim::Fixed(n)] if Some(n) == columns => {
                let shape = [Dim::Batch, Dim::Fixed(to), Dim::Fixed(x.cols())];
                Ok(vec![TensorType::real(shape)])
            }
            _ => {
                let places = self.window.places();
                fail(Self::NAME, format!("{taps} are not {places} numbers for each of {x}"))
            }
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, taps, w) = (ins[0], ins[1], &self.window);
        let ([from, to], cols) = (self.rows(), x.cols());
        let mut out = Tensor::zeros(vec![x.shape[0], to, cols as u64]);
        let images = x.data.chunks_exact(from as usize * cols);
        for (image, result) in images.zip(out.data.chunks_exact_mut(to as usize * cols)) {
            for (row, y) in result.chunks_exact_mut(cols).enumerate() {
                for (place, taps) in taps.data.chunks_exact(cols).enumerate() {
                    let (row, place) = (row as u64, place as u64);
                    let there = match self.transposed {
                        false => w.token(row, place),
                        true => w.window(row, place),
                    };
                    let Some(there) = there else { continue };
                    let x = &image[there as usize * cols..][..cols];
                    for ((y, x), tap) in y.iter_mut().zip(x).zip(taps) {
                        *y += tap * x;
                    }
                }
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (x, taps, d, window) = (cx.ins[0], cx.ins[1], cx.d(), self.window);
        let back = DepthwiseWindows {
            transposed: !self.transposed,
            ..*self
        };
        let d_x = cx.b.push1(back, &[d, taps]).expect("a row for each");
        // Each row of windows beside the tokens under them, whichever of both was given.
        let (tokens, rows) = match self.transposed {
            false => (x, d),
            true => (d, x),
        };
        let under = cx.b.push1(Windows { window }, &[tokens]).expect("tokens");
        let columns = cx.in_type(1).cols();
        let to = vec![Dim::Batch, Dim::Fixed(window.count()), Dim::Fixed(columns)];
        let under = cx.b.push1(Reshape::of(to), &[under]).expect("the same elements");
        let repeated = vec![rows; window.places() as usize];
        let repeated = cx.b.push1(Concat, &repeated).expect("the same rows");
        let products = cx.b.push1(Mul, &[repeated, under]).expect("one type");
        let d_taps = cx.b.push1(SumRows, &[products]).expect("rows");
        let d_taps = match cx.b.ty(d_taps).rank() {
            // The sum of a single column is a number.
            0 => {
                let to = cx.in_type(1);
                cx.b.push1(Broadcast { to }, &[d_taps]).expect("a number")
            }
            _ => d_taps,
        };
        Vjp::Rule(vec![Some(d_x), Some(d_taps)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let (cols, window, transposed) = (ins[0].cols(), self.window, self.transposed);
        let count = window.places() as u32;
        let row = |place: u32| Access {
            row: match transposed {
                false => RowMap::Window(window, Through::Place(place)),
                true => RowMap::Window(window, Through::Under(place)),
            },
            ..Access::full(cols)
        };
        let taps = |place: u32| Access {
            col: ColMap::Turn {
                cols: ins[1].cols(),
                by: u64::from(place) * cols,
            },
            ..Access::PER_COL
        };
        Kind::Rows {
            reads: vec![
                Read::Through((0..count).map(row).collect()),
                Read::Through((0..count).map(taps).collect()),
            ],
            rule: Box::new(move |s, all| {
                let (rows, taps) = all.split_at(count as usize);
                let products = rows.iter().zip(taps).map(|(x, tap)| (*tap, *x));
                let mut sum = None;
                for (tap, x) in products {
                    let product = s.body.mul(tap, x);
                    sum = Some(match sum {
                        Some(before) => s.body.add(before, product),
                        None => product,
                    });
                }
                sum.expect("a window has a place")
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |(name, window): (&'static str, Window), transposed, columns: u64| {
            let op = DepthwiseWindows { window, transposed };
            let [from, _] = op.rows();
            let shape = [Dim::Batch, Dim::Fixed(from), Dim::Fixed(columns)];
            let taps = TensorType::real([Dim::Fixed(window.places() * columns)]);
            Sample::new(op, name, vec![TensorType::real(shape), taps])
        };
        let forth = shown().into_iter().map(|w| sample(w, false, 5));
        let back = shown().into_iter().map(|w| sample(w, true, 20));
        let one = shown().into_iter().take(2).map(|w| sample(w, false, 1));
        forth.chain(back).chain(one).collect()
    }
}
