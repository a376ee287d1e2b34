//! The squared error of each element relative to its tolerance (Hairer, Nørsett & Wanner 1993, II.4, eq. 4.10).

use crate::exact::Exact;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, exact},
};
use crate::types::TensorType;
use odec_program::Coeff;
use odec_program::expr::{BinaryOp, UnaryOp};

/// `e, x, y → (e / (atol + rtol·max(|x|, |y|)))²`, of one shape. Step sizes are no part of what is differentiated: the derivative
/// is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledError {
    pub rtol: Exact,
    pub atol: Exact,
}

impl Op for ScaledError {
    const NAME: &'static str = "scaled_error";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let (rtol, atol) = (exact(&self.rtol), exact(&self.atol));
        vec![("rtol", rtol), ("atol", atol)]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(ScaledError {
            rtol: given.need("rtol")?,
            atol: given.need("atol")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [e, x, y] = reals(Self::NAME, ins)?;
        if e != x || x != y {
            return fail(Self::NAME, format!("{e}, {x} and {y} differ"));
        }
        Ok(vec![e.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (rtol, atol) = (self.rtol.to_f64(), self.atol.to_f64());
        let states = ins[1].data.iter().zip(&ins[2].data);
        let each = ins[0].data.iter().zip(states).map(|(e, (x, y))| {
            let ratio = e / (atol + rtol * x.abs().max(y.abs()));
            ratio * ratio
        });
        Ok(vec![Tensor::new(ins[0].shape.clone(), each.collect())])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::Zero
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let (rtol, atol) = (self.rtol.to_f64(), self.atol.to_f64());
        Kind::Rows {
            reads: vec![Read::Pointwise; 3],
            rule: Box::new(move |s, xs| {
                let (rtol, atol) = (s.coeff(Coeff::Value(rtol)), s.coeff(Coeff::Value(atol)));
                let [x, y] = [xs[1], xs[2]].map(|x| {
                    let minus = s.body.unary(UnaryOp::Neg, x);
                    s.body.binary(BinaryOp::Max, x, minus)
                });
                let size = s.body.binary(BinaryOp::Max, x, y);
                let scale = s.body.fma(rtol, size, atol);
                let ratio = s.body.binary(BinaryOp::Div, xs[0], scale);
                s.body.mul(ratio, ratio)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let op = ScaledError {
            rtol: Exact::ratio(1, 8),
            atol: Exact::ratio(1, 3),
        };
        vec![Sample::new(op, "states", vec![TensorType::state(5); 3])]
    }
}
