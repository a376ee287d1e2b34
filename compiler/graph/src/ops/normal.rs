//! A standard normal number for every element, times the element.
//!
//! The numbers are [`odec_program::noise::normal`]'s: of a key that is drawn for every run, the stream, the row and the column, so a
//! state that is computed again has the same.

use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::dropout::{Dropout, KEYS};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::expr::{Access, Expr};
use odec_program::{Coeff, noise};

/// `x[.., C], key[1] → [.., C]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Normal {
    /// Which of a run's tables of numbers this is, as in [`Dropout`].
    pub stream: u32,
}

impl Op for Normal {
    const NAME: &'static str = "normal";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("stream", self.stream.to_string())]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let stream = given.need("stream")?;
        Ok(Normal { stream })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, key] = operands(Self::NAME, ins)?;
        if x.elem != Elem::Real || x.rank() == 0 || *key != Dropout::key() {
            let what = format!("needs rows and a key, not {x} and {key}");
            return fail(Self::NAME, what);
        }
        if self.stream < 2 || self.stream as usize >= KEYS {
            return fail(Self::NAME, format!("there is no stream {}", self.stream));
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, key) = (ins[0], index(Self::NAME, ins[1].data[0], KEYS)?);
        let mut out = x.clone();
        let cols = x.cols();
        for (r, row) in out.data.chunks_exact_mut(cols).enumerate() {
            for (c, x) in row.iter_mut().enumerate() {
                *x *= noise::normal([key as u32, self.stream, r as u32, c as u32]);
            }
        }
        Ok(vec![out])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let (key, d) = (cx.ins[1], cx.d());
        let d = cx.b.push1(self.clone(), &[d, key]).expect("one shape");
        Vjp::Rule(vec![Some(d), None])
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        let stream = self.stream;
        Kind::Rows {
            reads: vec![Read::Pointwise, Read::Through(vec![Access::SCALAR])],
            rule: Box::new(move |s, xs| {
                let stream = s.coeff(Coeff::Value(stream.into()));
                let row = s.body.push(Expr::RowIndex);
                let col = s.body.push(Expr::ColIndex);
                let random = s.body.push(Expr::Random([xs[1], stream, row, col]));
                let normal = noise::normal_of(s.body, random);
                s.body.mul(xs[0], normal)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, stream, cols| {
            let ins = vec![TensorType::state(cols), Dropout::key()];
            Sample::new(Normal { stream }, name, ins).indices(KEYS as u64)
        };
        vec![sample("narrow", 2, 1), sample("wide", 77, 19)]
    }
}
