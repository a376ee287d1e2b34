//! What windows over a grid give to each token, added up: the transpose of reading the tokens under them ("col2im", "fold").

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::ops::windows::{attrs, check, shown, window};
use crate::ops::{Reshape, Windows};
use crate::tensor::{EvalCx, Tensor, add_scaled};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Access, ColMap, RowMap};
use odec_program::window::Through;
use odec_program::{Dim, Window};

/// `d[B, windows, places · C] → [B, tokens, C]`: a token is the sum of its part of every window that it lies under, place by place from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverWindows {
    pub window: Window,
}

impl Op for OverWindows {
    const NAME: &'static str = "over_windows";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        attrs(&self.window)
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let window = window(given)?;
        Ok(OverWindows { window })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [d] = reals(Self::NAME, ins)?;
        let w = &self.window;
        check(Self::NAME, d, (w, w.count()))?;
        if !d.cols().is_multiple_of(w.places()) {
            let what = format!("{d} has no part for each of {} places", w.places());
            return fail(Self::NAME, what);
        }
        let columns = Dim::Fixed(d.cols() / w.places());
        let shape = [Dim::Batch, Dim::Fixed(w.tokens()), columns];
        Ok(vec![TensorType::real(shape)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (d, w) = (ins[0], &self.window);
        let cols = d.shape[2] / w.places();
        let mut out = Tensor::zeros(vec![d.shape[0], w.tokens(), cols]);
        let cols = cols as usize;
        let images = d.data.chunks_exact(w.count() as usize * d.cols());
        let results = out.data.chunks_exact_mut(w.tokens() as usize * cols);
        for (image, result) in images.zip(results) {
            for (token, to) in result.chunks_exact_mut(cols).enumerate() {
                for place in 0..w.places() {
                    if let Some(window) = w.window(token as u64, place) {
                        let at = (window * w.places() + place) as usize * cols;
                        add_scaled(to, 1.0, &image[at..at + cols]);
                    }
                }
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, window, to) = (cx.d(), self.window, cx.in_type(0).shape);
        let back = cx.b.push1(Windows { window }, &[d]).expect("a row for each token");
        let back = cx.b.push1(Reshape::of(to), &[back]).expect("the same elements");
        Vjp::Rule(vec![Some(back)])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let (all, places) = (ins[0].cols(), self.window.places());
        let read = |place: u64| Access {
            row: RowMap::Window(self.window, Through::Under(place as u32)),
            col: match places {
                1 => ColMap::Col,
                _ => ColMap::Turn {
                    cols: all,
                    by: place * (all / places),
                },
            },
            stride: all,
        };
        Kind::Rows {
            reads: vec![Read::Through((0..places).map(read).collect())],
            rule: Box::new(|s, xs| {
                let sum = xs.iter().copied().reduce(|sum, x| s.body.add(sum, x));
                sum.expect("a window has a place")
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |(name, window): (&'static str, Window)| {
            let columns = Dim::Fixed(window.places() * 5);
            let shape = [Dim::Batch, Dim::Fixed(window.count()), columns];
            Sample::new(OverWindows { window }, name, vec![TensorType::real(shape)])
        };
        shown().into_iter().map(sample).collect()
    }
}
