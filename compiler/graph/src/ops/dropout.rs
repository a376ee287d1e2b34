//! `x / (1 − p)` where a random number is at least p, else 0 (Srivastava et al. 2014, "Dropout", scaled as it is trained).
//!
//! The numbers are [`odec_program::noise`]'s: of a key that is drawn for every run, the stream, the row and the column. So the
//! derivative drops the same elements, and so does a state that is computed again.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, Read, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{
    ParseError,
    attrs::{Attrs, exact},
};
use crate::types::{Elem, TensorType};
use odec_program::expr::{Access, CmpOp, Expr};
use odec_program::{Coeff, Dim, noise};

/// `x[.., C], key[1] → [.., C]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dropout {
    /// Part of the elements that become zero, in [0, 1).
    pub rate: Exact,
    /// Which of a run's masks this is. From 2 on, for 0 and 1 would be part of the kernel.
    pub stream: u32,
}

/// Keys are whole numbers below this.
pub const KEYS: usize = 1 << noise::BITS;

impl Dropout {
    /// The type of the key.
    pub fn key() -> TensorType {
        TensorType::index([Dim::Fixed(1)])
    }

    /// What a random number is compared with, and what is kept is multiplied by.
    fn numbers(&self) -> (f64, f64) {
        let (rate, steps) = (self.rate.to_f64(), KEYS as f64);
        // Random numbers are multiples of 2⁻²⁴: none lies between the rate and the next one, which f32 has too.
        ((rate * steps).ceil() / steps, 1.0 / (1.0 - rate))
    }
}

impl Op for Dropout {
    const NAME: &'static str = "dropout";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![
            ("rate", exact(&self.rate)),
            ("stream", self.stream.to_string()),
        ]
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Ok(Dropout {
            rate: given.need("rate")?,
            stream: given.need("stream")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [x, key] = operands(Self::NAME, ins)?;
        if x.elem != Elem::Real || x.rank() == 0 || *key != Self::key() {
            return fail(
                Self::NAME,
                format!("needs rows and a key, not {x} and {key}"),
            );
        }
        let rate = self.rate.to_f64();
        if !(0.0..1.0).contains(&rate) || self.stream < 2 || self.stream as usize >= KEYS {
            let what = format!("rate {} of stream {} has no mask", self.rate, self.stream);
            return fail(Self::NAME, what);
        }
        Ok(vec![x.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, key) = (ins[0], index(Self::NAME, ins[1].data[0], KEYS)?);
        let (rate, scale) = self.numbers();
        let mut out = x.clone();
        let cols = x.cols();
        for (r, row) in out.data.chunks_exact_mut(cols).enumerate() {
            for (c, x) in row.iter_mut().enumerate() {
                let at = [key as u32, self.stream, r as u32, c as u32];
                *x = if noise::uniform(at) < rate {
                    0.0
                } else {
                    *x * scale
                };
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
        let (rate, scale) = self.numbers();
        let stream = self.stream;
        Kind::Rows {
            reads: vec![Read::Pointwise, Read::Through(vec![Access::SCALAR])],
            rule: Box::new(move |s, xs| {
                let stream = s.coeff(Coeff::Value(stream.into()));
                let row = s.body.push(Expr::RowIndex);
                let col = s.body.push(Expr::ColIndex);
                let random = s.body.push(Expr::Random([xs[1], stream, row, col]));
                let (rate, scale, zero) =
                    (s.body.konst(rate), s.body.konst(scale), s.body.konst(0.0));
                let kept = s.body.mul(xs[0], scale);
                s.body.select(CmpOp::Lt, random, rate, zero, kept)
            }),
        }
    }

    fn samples() -> Vec<Sample> {
        let ins = |cols| vec![TensorType::state(cols), Self::key()];
        let dropout = |rate, stream| Dropout { rate, stream };
        vec![
            Sample::new(dropout(Exact::ratio(1, 4), 2), "quarter", ins(19)).indices(KEYS as u64),
            Sample::new(dropout(Exact::ratio(9, 10), 77), "most", ins(1)).indices(KEYS as u64),
            Sample::new(dropout(Exact::zero(), 3), "none", ins(5)).indices(KEYS as u64),
        ]
    }
}
