//! `x^p` of positive numbers, p a number of the op itself that is no whole one.
//!
//! At 0 it is 0, or infinite where p is below 0; below 0 it is no number, as in PyTorch. Its derivative is `p x^(p−1)`: at 0 it is infinite where p is
//! below 1, and 0 where p is above. Kernels compute `e^(p log x)`, whose relative error is |p log x| times that of the arithmetic.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{map, map_kind, reals};
use crate::ops::{Combine, Mul};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, exact},
};
use crate::types::TensorType;
use odec_program::expr::UnaryOp;

#[derive(Clone, Debug, PartialEq)]
pub struct Power {
    pub exponent: Exact,
}

impl Op for Power {
    const NAME: &'static str = "power";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("exponent", exact(&self.exponent))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Power {
            exponent: given.need("exponent")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x] = reals(Self::NAME, ins)?;
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let p = self.exponent.to_f64();
        map(ins[0], |x| libm::pow(x, p))
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        // p x^(p−1) as a power of its own: x^p · 1/x is no number at 0.
        let (x, d) = (cx.ins[0], cx.d());
        let less = Power {
            exponent: &self.exponent - &Exact::one(),
        };
        let power = cx.b.push1(less, &[x]).expect("one operand");
        let product = cx.b.push1(Mul, &[d, power]).expect("one shape");
        let times = Combine::of([self.exponent.clone()]);
        Vjp::Rule(vec![Some(cx.b.push1(times, &[product]).expect("one term"))])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let p = self.exponent.to_f64();
        map_kind(move |b, x| {
            let log = b.unary(UnaryOp::Log, x);
            let p = b.konst(p);
            let by = b.mul(log, p);
            b.unary(UnaryOp::Exp, by)
        })
    }

    fn samples() -> Vec<Sample> {
        let sample = |name: &'static str, of: i64, by: i64| {
            let exponent = Exact::ratio(of, by);
            Sample::new(Power { exponent }, name, vec![TensorType::state(5)]).range(0.25, 9.0)
        };
        vec![sample("third", 1, 3), sample("below_zero", -4, 3)]
    }
}
