//! A tensor read over a wider shape: the transpose of summing.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, map_kind, reals, spread, unbroadcast};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `[.., 1]`, `[C]` or `[]` → `to`.
#[derive(Clone, Debug, PartialEq)]
pub struct Broadcast {
    pub to: TensorType,
}

impl Op for Broadcast {
    const NAME: &'static str = "broadcast";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Broadcast {
            to: given.result()?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        if self.to.elem != Elem::Real || x.fit(&self.to).is_none() {
            return fail(Self::NAME, format!("{x} does not broadcast to {}", self.to));
        }
        Ok(vec![self.to.clone()])
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        Ok(vec![spread(ins[0], &self.to.concrete(cx.bindings))])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (d, to) = (cx.d(), cx.in_type(0));
        Vjp::Rule(vec![Some(unbroadcast(cx.b, d, &to))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|_, x| x)
    }

    fn samples() -> Vec<Sample> {
        let op = |to: TensorType| Broadcast { to };
        let vector = |n| TensorType::real([Dim::Fixed(n)]);
        vec![
            Sample::new(
                op(TensorType::state(5)),
                "per_row",
                vec![TensorType::state(1)],
            ),
            Sample::new(op(TensorType::state(5)), "per_column", vec![vector(5)]),
            Sample::new(
                op(TensorType::state(1)),
                "to_rows",
                vec![TensorType::scalar()],
            ),
            Sample::new(op(TensorType::state(1)), "one_column", vec![vector(1)]),
        ]
    }
}
