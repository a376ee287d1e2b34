//! Selects `a` where a scalar flag is positive, else `b`: the state after a step that was taken, or not.
//!
//! Of the two sides only the one that is chosen is looked at, so what only the other one needs, need not be computed: the
//! compiler's `predication` lets a run pass over it.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::Constant;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals, spread, unbroadcast, wider};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;
use odec_program::expr::CmpOp;

/// `flag[], a, b`, the narrower of `a` and `b` broadcast into the wider. A flag that is no number chooses `b`. The derivative by
/// the flag is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Select;

impl Op for Select {
    const NAME: &'static str = "select";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![]
    }

    fn from_attrs(_: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Select)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [flag, a, b] = reals(Self::NAME, ins)?;
        if *flag != TensorType::scalar() {
            return fail(Self::NAME, format!("needs one flag for all, not {flag}"));
        }
        Ok(vec![wider(Self::NAME, a, b)?])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let full = |t: &Tensor| (t.shape.len(), t.data.len());
        let wide = ins[1..].iter().max_by_key(|t| full(t)).expect("two sides");
        let chosen = if ins[0].data[0] > 0.0 { ins[1] } else { ins[2] };
        Ok(vec![spread(chosen, &wide.shape)])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (flag, d) = (cx.ins[0], cx.d());
        let zero = Constant {
            value: Exact::zero(),
        };
        let zero = cx.b.push1(zero, &[]).expect("a constant has no operands");
        let mut side = |i: usize, sides: [_; 2]| {
            let held = cx.b.push1(Select, &[flag, sides[0], sides[1]]);
            let to = cx.in_type(i);
            unbroadcast(cx.b, held.expect("a number and the result"), &to)
        };
        let (a, b) = (side(1, [d, zero]), side(2, [zero, d]));
        Vjp::Rule(vec![None, Some(a), Some(b)])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Rows {
            reads: vec![Read::Pointwise; 3],
            rule: Box::new(|s, xs| {
                let zero = s.body.konst(0.0);
                s.body.select(CmpOp::Lt, zero, xs[0], xs[1], xs[2])
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let (flag, state) = (TensorType::scalar(), TensorType::state(5));
        let column = TensorType::real([Dim::Fixed(5)]);
        let sample = |name, a: &TensorType, b: &TensorType| {
            Sample::new(Select, name, vec![flag.clone(), a.clone(), b.clone()])
        };
        vec![
            sample("state", &state, &state),
            sample("not", &state, &state).range(-1.0, -0.25),
            sample("made", &state, &flag).range(0.25, 1.0),
            sample("column", &column, &column),
            sample("number", &flag, &flag),
        ]
    }
}
