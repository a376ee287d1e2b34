//! Recurrences of first order along tokens, in each column by itself.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::ScanBackward;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::{self, KernelSpec, ScanForm};
use odec_program::DType;

/// a, b `[B, S, C] → ` h like b: `h_t = a_t h_{t−1} + b_t` from zero; of b alone, running sums `h_t = h_{t−1} + b_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan;

impl Op for Scan {
    const NAME: &'static str = "scan";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Scan)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
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
        let found = cx.b.push(ScanBackward, &ins).expect("of one type");
        Vjp::Rule(found.into_iter().map(Some).collect())
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let spec = spec(ins[0].cols(), ins.len() == 2, ScanForm::Whole);
        Kind::One(OneLaunch::along(spec, ins))
    }

    fn samples() -> Vec<Sample> {
        let x = || TensorType::state(5);
        vec![
            Sample::new(Scan, "with factors", vec![x(), x()]),
            Sample::new(Scan, "running sums", vec![x()]),
            Sample::new(Scan, "one token", vec![x(), x()]).bindings(3, 1),
            Sample::new(Scan, "several tiles", vec![TensorType::state(70); 2]).bindings(2, 11),
        ]
    }
}

/// The kernel.
pub(super) fn spec(cols: u64, factors: bool, form: ScanForm) -> impl Fn(DType) -> KernelSpec {
    move |dtype| {
        KernelSpec::Scan(kernel::Scan {
            dtype,
            cols,
            factors,
            form,
        })
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
