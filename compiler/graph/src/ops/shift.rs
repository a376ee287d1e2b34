//! `x + constant`, a constant of the op itself: the epsilon of a norm.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, exact},
};
use crate::types::TensorType;

#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    pub by: Exact,
}

impl Op for Shift {
    const NAME: &'static str = "shift";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("by", exact(&self.by))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Shift {
            by: given.need("by")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let by = self.by.to_f64();
        map(ins[0], |x| x + by)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        Vjp::Rule(vec![Some(cx.d())])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let by = self.by.to_f64();
        map_kind(move |b, x| {
            let by = b.konst(by);
            b.add(x, by)
        })
    }

    fn samples() -> Vec<Sample> {
        let by = Exact::ratio(1, 4);
        vec![Sample::new(
            Shift { by },
            "quarter",
            vec![TensorType::state(1)],
        )]
    }
}
