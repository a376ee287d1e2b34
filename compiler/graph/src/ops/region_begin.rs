//! A value as read by a conditional step: the value itself, whose derivative is 0 where the step is not taken.
//!
//! So everything in the derivative of such a step, too, is only read by [`Select`]s that do not choose it. The flag may be computed
//! from what the step has made (whether its error is small enough), so it is said later, by the [`super::Predicate`] of the same region.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Constant, Select};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;

/// The operand itself. Once derivatives are taken it is nothing (`simplify`). A region without a flag is always made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionBegin {
    pub region: u32,
}

impl Op for RegionBegin {
    const NAME: &'static str = "region_begin";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("region", self.region.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let region = given.need("region")?;
        Ok(RegionBegin { region })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| x)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let Some(flag) = cx.flags.get(&self.region) else {
            return Vjp::Rule(vec![Some(cx.d())]);
        };
        let value = Exact::zero();
        let zero = cx.b.push1(Constant { value }, &[]).expect("no operands");
        let d =
            cx.b.push1(Select, &[*flag, cx.d(), zero])
                .expect("a number");
        Vjp::Rule(vec![Some(d)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        map_kind(|_, x| x)
    }

    fn samples() -> Vec<Sample> {
        let begin = RegionBegin { region: 0 };
        vec![Sample::new(begin, "made", vec![TensorType::state(5)])]
    }
}
