//! `Σ cᵢ xᵢ`: stage combinations, residuals and gradient sums. Coefficients are exact and travel to the kernel as
//! launch arguments (0 and ±1 excepted), so that one kernel serves every stage of every step.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::fail;
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, list},
};
use crate::types::{Elem, TensorType};
use odec_program::Coeff;
use odec_program::expr::{BinaryOp, UnaryOp};
use std::sync::Arc;

/// Inputs of one type; as many coefficients as inputs, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Combine {
    pub coeffs: Arc<[Exact]>,
}

impl Combine {
    pub fn of(coeffs: impl Into<Arc<[Exact]>>) -> Combine {
        Combine {
            coeffs: coeffs.into(),
        }
    }
}

impl Op for Combine {
    const NAME: &'static str = "combine";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("coeffs", list(&self.coeffs))]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let coeffs: Vec<Exact> = given.need("coeffs")?;
        Ok(Combine::of(coeffs))
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        if ins.is_empty() || ins.len() != self.coeffs.len() {
            return fail(
                Self::NAME,
                format!(
                    "{} coefficients for {} inputs",
                    self.coeffs.len(),
                    ins.len()
                ),
            );
        }
        if ins[0].elem != Elem::Real {
            return fail(Self::NAME, format!("needs real operands, not {}", ins[0]));
        }
        match ins.iter().find(|t| **t != ins[0]) {
            Some(t) => fail(
                Self::NAME,
                format!("inputs of different types, {} and {t}", ins[0]),
            ),
            None => Ok(vec![ins[0].clone()]),
        }
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let mut out = Tensor::zeros(ins[0].shape.clone());
        for (c, x) in self.coeffs.iter().zip(ins).filter(|(c, _)| !c.is_zero()) {
            let c = c.to_f64();
            out.data
                .iter_mut()
                .zip(&x.data)
                .for_each(|(o, x)| *o += c * x);
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let d = cx.d();
        let scaled = |c: &Exact, cx: &mut VjpCx| {
            if c.is_one() {
                return d;
            }
            cx.b.push1(Combine::of([c.clone()]), &[d])
                .expect("one input, one coefficient")
        };
        Vjp::Rule(
            self.coeffs
                .iter()
                .map(|c| (!c.is_zero()).then(|| scaled(c, cx)))
                .collect(),
        )
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        // Rounded where a body is written: the kind alone is asked for often.
        let coeffs = self.coeffs.clone();
        Kind::Rows {
            reads: vec![Read::Pointwise; ins.len()],
            rule: Box::new(move |s, xs| {
                let mut sum = None;
                let coeffs = coeffs.iter().map(Exact::to_f64);
                for (c, x) in coeffs.zip(xs).filter(|(c, _)| *c != 0.0) {
                    sum = Some(match (sum, c) {
                        (None, 1.0) => *x,
                        (None, -1.0) => s.body.unary(UnaryOp::Neg, *x),
                        (None, c) => {
                            let c = s.coeff(Coeff::Value(c));
                            s.body.mul(c, *x)
                        }
                        (Some(acc), 1.0) => s.body.add(acc, *x),
                        (Some(acc), -1.0) => s.body.binary(BinaryOp::Sub, acc, *x),
                        (Some(acc), c) => {
                            let c = s.coeff(Coeff::Value(c));
                            s.body.fma(c, *x, acc)
                        }
                    });
                }
                sum.unwrap_or_else(|| s.body.konst(0.0))
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let op = |coeffs: &[(i64, i64)]| Combine {
            coeffs: coeffs.iter().map(|(n, d)| Exact::ratio(*n, *d)).collect(),
        };
        let state = TensorType::state(5);
        vec![
            Sample::new(
                op(&[(1, 1), (1, 2), (-1, 3)]),
                "stage",
                vec![state.clone(); 3],
            ),
            Sample::new(
                op(&[(-1, 1), (0, 1), (-1, 1), (1, 1)]),
                "structural",
                vec![state.clone(); 4],
            ),
            Sample::new(op(&[(2, 7)]), "scaled", vec![state]),
        ]
    }
}
