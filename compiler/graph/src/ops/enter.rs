//! A value as a step that may not be made reads it: itself, and no derivative comes back from a step whose flag is not positive.
//!
//! So everything in the derivative of such a step, too, is only read by [`Hold`]s that do not choose it.

use crate::exact::Exact;
use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Read, Sample, TypeError, Vjp, VjpCx};
use crate::ops::support::{fail, map, reals};
use crate::ops::{Constant, Hold};
use crate::types::TensorType;

/// `x`, `flag[]` → `x`. Once derivatives are taken it is nothing (`simplify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enter;

impl Op for Enter {
    const NAME: &'static str = "enter";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, flag] = reals(Self::NAME, ins)?;
        if *flag != TensorType::scalar() {
            return fail(Self::NAME, format!("needs one flag for all, not {flag}"));
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        map(ins[0], |x| x)
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (flag, d) = (cx.ins[1], cx.d());
        let zero = Constant {
            value: Exact::zero(),
        };
        let zero = cx.b.push1(zero, &[]).expect("a constant has no operands");
        let d = cx.b.push1(Hold, &[flag, d, zero]).expect("a number");
        Vjp::Rule(vec![Some(d), None])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 2],
            rule: Box::new(|_, xs| xs[0]),
        }
    }

    fn samples() -> Vec<Sample> {
        let ins = |cols| vec![TensorType::state(cols), TensorType::scalar()];
        vec![Sample::new(Enter, "made", ins(5)).range(0.25, 1.0)]
    }
}
