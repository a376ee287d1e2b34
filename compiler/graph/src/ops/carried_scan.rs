//! Recurrences along tokens that go on where the last run left them.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::scan::{run, sequences, spec, tokens};
use crate::ops::support::fail;
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::kernel::ScanForm;

/// a, b `[B, S, C]` (or b alone) and the carry `[B, 1, C] → ` h like b, and the carry that takes the other's place: what [`Scan`](super::Scan) gives for
/// the last S of `past + S` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedScan;

impl Op for CarriedScan {
    const NAME: &'static str = "carried_scan";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(CarriedScan)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let Some((carry, given)) = ins.split_last() else {
            return fail(Self::NAME, "takes 2 or 3 operands, not 0");
        };
        let h = tokens(Self::NAME, given)?;
        let row = TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(h.cols())]);
        match *carry == row {
            true => Ok(vec![h, row]),
            false => fail(Self::NAME, format!("{h} is carried on in {row}, not {carry}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (given, left) = (&ins[..ins.len() - 1], ins[ins.len() - 1]);
        let mut carry = match cx.bindings.past {
            0 => Tensor::zeros(left.shape.clone()),
            _ => left.clone(),
        };
        let mut h = Tensor::zeros(given[0].shape.clone());
        let rows = carry.data.chunks_exact_mut(h.cols());
        for (first, row) in sequences(&h).zip(rows) {
            run(given, &mut h, first, row);
        }
        Ok(vec![h, carry])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let spec = spec(ins[0].cols(), ins.len() == 3, ScanForm::Carried, 1);
        Kind::One(OneLaunch::along(spec, ins).carried())
    }

    fn samples() -> Vec<Sample> {
        let x = || TensorType::state(5);
        let carry = || TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(5)]);
        vec![
            Sample::new(CarriedScan, "from the start", vec![x(), x(), carry()]),
            Sample::new(CarriedScan, "after two", vec![x(), x(), carry()]).after(2),
            Sample::new(CarriedScan, "running sums", vec![x(), carry()]).after(2),
        ]
    }
}
