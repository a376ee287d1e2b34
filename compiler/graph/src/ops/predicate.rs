//! The condition of a region: where it is not positive, no derivative leaves the region ([`super::RegionBegin`]).

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, map, map_kind, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;

/// The operand itself, `[]`; its derivative is 0. Once derivatives are taken it is nothing (`simplify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicate {
    pub region: u32,
}

impl Op for Predicate {
    const NAME: &'static str = "predicate";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("region", self.region.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let region = given.need("region")?;
        Ok(Predicate { region })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        match reals(Self::NAME, ins)? {
            [x] if x.rank() == 0 => Ok(vec![x.clone()]),
            [x] => fail(Self::NAME, format!("needs one number, not {x}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| x)
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|_, x| x)
    }

    fn samples() -> Vec<Sample> {
        let predicate = Predicate { region: 0 };
        vec![Sample::new(predicate, "number", vec![TensorType::scalar()])]
    }
}
