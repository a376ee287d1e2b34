//! Compares indices with a given one: finds the masked tokens.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::expr::CmpOp;

/// `index[.., 1] → [.., 1]`: 1 where the index is `to`, 0 elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Equals {
    pub to: u64,
}

impl Op for Equals {
    const NAME: &'static str = "equals";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("to", self.to.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Equals {
            to: given.need("to")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [index] = operands(Self::NAME, ins)?;
        if index.elem != Elem::Index || index.cols() != 1 {
            return fail(Self::NAME, format!("needs one index per row, not {index}"));
        }
        Ok(vec![TensorType::real(index.shape.clone())])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let is = |x: &f64| f64::from(u8::from(*x == self.to as f64));
        let data = ins[0].data.iter().map(is).collect();
        Ok(vec![Tensor::new(ins[0].shape.clone(), data)])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let to = self.to as f64;
        Kind::Rows {
            reads: vec![Read::Pointwise],
            rule: Box::new(move |s, xs| {
                let [to, one, zero] = [to, 1.0, 0.0].map(|x| s.body.konst(x));
                s.body.select(CmpOp::Eq, xs[0], to, one, zero)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let index = TensorType::index(TensorType::state(1).shape);
        vec![Sample::new(Equals { to: 1 }, "one of two", vec![index]).indices(2)]
    }
}
