//! 1 where a whole number given at run time is larger than a fixed one, else 0.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::expr::{Access, CmpOp};
use odec_program::{Coeff, Dim};

/// `n[1]`, an index, to `[]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeds {
    pub than: u32,
}

impl Exceeds {
    /// The type of the number.
    pub fn number() -> TensorType {
        TensorType::index([Dim::Fixed(1)])
    }
}

impl Op for Exceeds {
    const NAME: &'static str = "exceeds";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("than", self.than.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let than = given.need("than")?;
        Ok(Exceeds { than })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match operands(Self::NAME, ins)? {
            [n] if n.elem == Elem::Index && *n.shape == [Dim::Fixed(1)] => {
                Ok(vec![TensorType::scalar()])
            }
            [n] => fail(Self::NAME, format!("needs one whole number, not {n}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let larger = ins[0].data[0] > f64::from(self.than);
        Ok(vec![Tensor::scalar(f64::from(u8::from(larger)))])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let than = f64::from(self.than);
        Kind::Rows {
            reads: vec![Read::Through(vec![Access::SCALAR])],
            rule: Box::new(move |s, xs| {
                let than = s.coeff(Coeff::Value(than));
                let (zero, one) = (s.body.konst(0.0), s.body.konst(1.0));
                s.body.select(CmpOp::Lt, than, xs[0], one, zero)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |than, name, below| {
            Sample::new(Exceeds { than }, name, vec![Self::number()]).indices(below)
        };
        vec![
            sample(3, "some", 9),
            sample(0, "one", 2),
            sample(7, "no", 5),
        ]
    }
}
