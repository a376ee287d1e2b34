//! The tokens under windows of a grid, one after the other: what a convolution of images multiplies ("im2col", "unfold").

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::ops::{OverWindows, Reshape};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::expr::{Access, RowMap};
use odec_program::window::Through;
use odec_program::{Dim, Window};

/// `x[B, tokens, C] → [B, windows · places, C]`: row `w · places + p` is the token at place p of window w, zeros beside the grid. In memory it is
/// `[B, windows, places · C]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    pub window: Window,
}

/// What an op over windows is called by.
pub(super) fn attrs(w: &Window) -> Vec<(&'static str, String)> {
    vec![
        ("grid", format!("{:?}", w.grid)),
        ("windows", format!("{:?}", w.windows)),
        ("kernel", w.kernel.to_string()),
        ("stride", w.stride.to_string()),
        ("before", format!("{:?}", w.before)),
    ]
}

/// The same, read.
pub(super) fn window(given: &mut Attrs) -> Result<Window, ParseError> {
    let mut pair = |name: &'static str| -> Result<[i32; 2], ParseError> {
        let numbers: Vec<i32> = given.need(name)?;
        match numbers[..] {
            [a, b] => Ok([a, b]),
            _ => given.refuse(name, format!("`{name}` has two numbers")),
        }
    };
    let (grid, windows, before) = (pair("grid")?, pair("windows")?, pair("before")?);
    // What is negative is no length, and is refused with the types.
    let length = |n: [i32; 2]| n.map(|n| u32::try_from(n).unwrap_or(0));
    Ok(Window {
        grid: length(grid),
        windows: length(windows),
        kernel: given.need("kernel")?,
        stride: given.need("stride")?,
        before,
    })
}

/// Checks that x has a row for each of so many tokens or windows.
pub(super) fn check(
    op: &'static str,
    x: &TensorType,
    (window, rows): (&Window, u64),
) -> Result<(), TypeError> {
    if let Err(what) = window.check() {
        return fail(op, what);
    }
    match x.shape[..] {
        [Dim::Batch, Dim::Fixed(n), Dim::Fixed(_)] if n == rows => Ok(()),
        _ => fail(op, format!("needs [B, {rows}, width], not {x}")),
    }
}

impl Op for Windows {
    const NAME: &'static str = "windows";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        attrs(&self.window)
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let window = window(given)?;
        Ok(Windows { window })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        let w = &self.window;
        check(Self::NAME, x, (w, w.tokens()))?;
        let rows = Dim::Fixed(w.count() * w.places());
        Ok(vec![TensorType::real([Dim::Batch, rows, Dim::Fixed(x.cols())])])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, w) = (ins[0], &self.window);
        let [batch, cols] = [x.shape[0], x.shape[2]];
        let mut out = Tensor::zeros(vec![batch, w.count() * w.places(), cols]);
        let (cols, places) = (cols as usize, w.places());
        let images = x.data.chunks_exact(w.tokens() as usize * cols);
        let results = out.data.chunks_exact_mut((w.count() * places) as usize * cols);
        for (image, result) in images.zip(results) {
            for (row, to) in result.chunks_exact_mut(cols).enumerate() {
                let (window, place) = (row as u64 / places, row as u64 % places);
                if let Some(token) = w.token(window, place) {
                    to.copy_from_slice(&image[token as usize * cols..][..cols]);
                }
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, window) = (cx.d(), self.window);
        let columns = window.places() * cx.in_type(0).cols();
        let to = vec![Dim::Batch, Dim::Fixed(window.count()), Dim::Fixed(columns)];
        let d = cx.b.push1(Reshape::of(to), &[d]).expect("the same elements");
        let back = cx.b.push1(OverWindows { window }, &[d]);
        Vjp::Rule(vec![Some(back.expect("a row for each window"))])
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let read = Access {
            row: RowMap::Window(self.window, Through::Places),
            ..Access::full(ins[0].cols())
        };
        Kind::Rows {
            reads: vec![Read::Through(vec![read])],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |(name, window): (&'static str, Window)| {
            let shape = [Dim::Batch, Dim::Fixed(window.tokens()), Dim::Fixed(5)];
            Sample::new(Windows { window }, name, vec![TensorType::real(shape)])
        };
        shown().into_iter().map(sample).collect()
    }
}

/// Windows of many kinds, for samples.
pub(super) fn shown() -> Vec<(&'static str, Window)> {
    let fitted = |grid, kernel, stride, padding| {
        Window::fitted(grid, kernel, stride, padding).expect("a window that fits")
    };
    vec![
        ("around each token", fitted([3, 4], 3, 1, 1)),
        ("every second", fitted([5, 4], 3, 2, 1)),
        ("beside each other", fitted([4, 6], 2, 2, 0)),
        ("wider than their distance", fitted([6, 5], 4, 3, 2)),
        ("part of a sequence", Window::part(6, 2, 3).expect("inside of it")),
    ]
}
