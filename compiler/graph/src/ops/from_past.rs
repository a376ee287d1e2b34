//! A table of positions, read from the first position of a run on.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// `table[P, C] → [P, C]`: row i is row `past + i` of the table; the last `past` rows are zero (and never read).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FromPast;

impl Op for FromPast {
    const NAME: &'static str = "from_past";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(FromPast)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [table] = reals(Self::NAME, ins)?;
        match table.shape[..] {
            [Dim::Fixed(_), Dim::Fixed(_)] => Ok(vec![table.clone()]),
            _ => fail(Self::NAME, format!("{table} is no table of positions")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let table = ins[0];
        let skipped = (cx.bindings.past as usize * table.cols()).min(table.data.len());
        let mut data = table.data[skipped..].to_vec();
        data.resize(table.data.len(), 0.0);
        Ok(vec![Tensor::new(table.shape.clone(), data)])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::FromPast
    }

    fn samples() -> Vec<Sample> {
        let table = TensorType::real([Dim::Fixed(6), Dim::Fixed(4)]);
        vec![Sample::new(FromPast, "after two", vec![table]).after(2)]
    }
}
