//! Recurrences of first order along tokens, in each column by itself.

use crate::op::{Before, EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::ScanBackward;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::{self, KernelSpec, MOST_CHUNKS, ScanForm};
use odec_program::{DType, Dim, Size};

/// a, b `[B, S, C] → ` h like b: `h_t = a_t h_{t−1} + b_t` from zero; of b alone, running sums `h_t = h_{t−1} + b_t`.
/// `chunks` of a sequence, if there are several, are computed beside each other, then joined: h is rounded otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    pub chunks: u64,
}

impl Op for Scan {
    const NAME: &'static str = "scan";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        chunks_said(self.chunks)
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let chunks = chunks_given(given)?;
        Ok(Scan { chunks })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        some_chunks(Self::NAME, self.chunks)?;
        Ok(vec![tokens(Self::NAME, ins)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let mut h = Tensor::zeros(ins[0].shape.clone());
        for first in sequences(ins[0]) {
            run(ins, &mut h, first, &mut vec![0.0; ins[0].cols()]);
        }
        Ok(vec![h])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let ins = match *cx.ins {
            [a, _] => vec![a, cx.outs[0], cx.d()],
            _ => vec![cx.d()],
        };
        let chunks = self.chunks;
        let found = cx.b.push(ScanBackward { chunks }, &ins).expect("of one type");
        Vjp::Rule(found.into_iter().map(Some).collect())
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::One(in_chunks(self.chunks, ins, [ScanForm::Whole, ScanForm::Ends]))
    }

    fn samples() -> Vec<Sample> {
        let x = || TensorType::state(5);
        vec![
            Sample::new(Scan { chunks: 1 }, "with factors", vec![x(), x()]),
            Sample::new(Scan { chunks: 1 }, "running sums", vec![x()]),
            Sample::new(Scan { chunks: 1 }, "one token", vec![x(), x()]).bindings(3, 1),
            Sample::new(Scan { chunks: 1 }, "several tiles", vec![TensorType::state(70); 2]).bindings(2, 11),
            Sample::new(Scan { chunks: 4 }, "in chunks", vec![TensorType::state(70); 2]).bindings(2, 11),
            Sample::new(Scan { chunks: 3 }, "sums in chunks", vec![x()]).bindings(2, 7),
            Sample::new(Scan { chunks: 8 }, "more chunks than tokens", vec![x(), x()]).bindings(2, 3),
        ]
    }
}

/// The kernel.
pub(super) fn spec(cols: u64, factors: bool, form: ScanForm, chunks: u64) -> impl Fn(DType) -> KernelSpec {
    move |dtype| {
        KernelSpec::Scan(kernel::Scan {
            dtype,
            cols,
            factors,
            form,
            chunks,
        })
    }
}

/// A recurrence and, of several chunks, what makes their products and ends.
pub(super) fn in_chunks(chunks: u64, ins: &[TensorType], [whole, ends]: [ScanForm; 2]) -> OneLaunch {
    let (cols, factors) = (ins[0].cols(), ins.len() > 1);
    let launch = OneLaunch::along(spec(cols, factors, whole, chunks), ins);
    if chunks == 1 {
        return launch;
    }
    let last = ins.len() - 1;
    let of_ends = if factors { vec![0, last] } else { vec![last] };
    let products = factors.then(|| products(chunks, 0, cols));
    let ends = of_chunks("ends", chunks, of_ends, cols, spec(cols, factors, ends, chunks));
    OneLaunch {
        before: products.into_iter().chain([ends]).collect(),
        ..launch
    }
}

/// Products of the factors of chunks, those of an operand with so many columns.
pub(super) fn products(chunks: u64, operand: usize, cols: u64) -> Before {
    let spec = spec(cols, true, ScanForm::Products, chunks);
    of_chunks("products", chunks, vec![operand], cols, spec)
}

/// What a launch makes of chunks: so many columns of each.
pub(super) fn of_chunks(
    name: &'static str,
    chunks: u64,
    operands: Vec<usize>,
    cols: u64,
    kernel: impl Fn(DType) -> KernelSpec + 'static,
) -> Before {
    let rows = [Dim::Batch, Dim::Fixed(chunks * cols)];
    Before {
        name,
        kernel: Box::new(kernel),
        operands,
        size: Size::of(&rows).expect("the size of a row for each chunk"),
    }
}

/// Attributes of an op in so many chunks.
pub(super) fn chunks_said(chunks: u64) -> Vec<(&'static str, String)> {
    let several = (chunks > 1).then(|| ("chunks", chunks.to_string()));
    several.into_iter().collect()
}

pub(super) fn chunks_given(given: &mut Attrs) -> Result<u64, ParseError> {
    Ok(given.optional("chunks")?.unwrap_or(1))
}

pub(super) fn some_chunks(op: &'static str, chunks: u64) -> Result<(), TypeError> {
    match (1..=MOST_CHUNKS).contains(&chunks) {
        true => Ok(()),
        false => fail(op, format!("{chunks} chunks; 1 to {MOST_CHUNKS} are possible")),
    }
}

/// One or two operands of one type with a row for each token: that type.
pub(super) fn tokens(op: &'static str, ins: &[TensorType]) -> Result<TensorType, TypeError> {
    let (first, last) = match ins {
        [a, b] => (a, b),
        [b] => (b, b),
        _ => return fail(op, format!("takes 1 or 2 operands, not {}", ins.len())),
    };
    reals::<2>(op, &[first.clone(), last.clone()])?;
    match last.is_state() && first == last {
        true => Ok(last.clone()),
        false => fail(op, format!("needs [B, S, width] of one width, not {first} and {last}")),
    }
}

/// The first row of each sequence.
pub(super) fn sequences(x: &Tensor) -> impl Iterator<Item = usize> + use<> {
    let (batch, seq) = (x.shape[0] as usize, x.shape[1] as usize);
    (0..batch).map(move |n| n * seq)
}

/// The sequence that begins at row `first`, from `state` on, which becomes the last row.
pub(super) fn run(ins: &[&Tensor], h: &mut Tensor, first: usize, state: &mut [f64]) {
    let (seq, cols) = (h.shape[1] as usize, h.cols());
    let (factors, more) = match ins {
        [a, b] => (Some(&a.data), &b.data),
        _ => (None, &ins[0].data),
    };
    for i in (first * cols..(first + seq) * cols).step_by(cols) {
        for (c, state) in state.iter_mut().enumerate() {
            *state = factors.map_or(1.0, |a| a[i + c]) * *state + more[i + c];
            h.data[i + c] = *state;
        }
    }
}
