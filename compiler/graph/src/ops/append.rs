//! Appends rows of new tokens to the cache of earlier ones.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use odec_program::Dim;

/// `cache[B, P, C]`, `x[B, S, C] → [B, P, C]`: rows `past .. past + S` are those of x, the others stay. The cache may be `[1, P, C]`, where B is 1.
/// Of several sequences S is 1, and the third operand are the places of their rows, `[B, S, 1]`: each has one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Append {
    /// There may be several sequences, of a token each: S is 1. Else there is one.
    pub each: bool,
    /// Whether the cache has rows of recent tokens alone, which only windows read: the places of rows are counted without those that were dropped.
    pub recent: bool,
}

impl Op for Append {
    const NAME: &'static str = "append";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let given = [("each", self.each), ("recent", self.recent)];
        let given = given.into_iter().filter(|(_, is)| *is);
        given.map(|(name, is)| (name, is.to_string())).collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let each = given.optional("each")?.unwrap_or(false);
        let recent = given.optional("recent")?.unwrap_or(false);
        Ok(Append { each, recent })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (cache, x) = match self.each {
            false => operands::<2>(Self::NAME, ins).map(|[cache, x]| (cache, x))?,
            true => {
                let [cache, x, places] = operands(Self::NAME, ins)?;
                if *places != TensorType::index(x.with_cols(1).shape) {
                    return fail(Self::NAME, format!("{places} are no places of {x}"));
                }
                (cache, x)
            }
        };
        if cache.elem != x.elem || x.elem == Elem::Index {
            return fail(Self::NAME, format!("{x} is not what {cache} holds"));
        }
        let state = matches!(x.shape[..], [Dim::Batch, Dim::Seq | Dim::Source, Dim::Fixed(_)]);
        match cache.shape[..] {
            [sequences, Dim::Fixed(_), Dim::Fixed(c)] if state && c == x.cols() => {
                match sequences {
                    Dim::Batch => Ok(vec![cache.clone()]),
                    Dim::Fixed(1) if !self.each => Ok(vec![cache.clone()]),
                    _ => fail(Self::NAME, format!("{x} are several, and {cache} is one")),
                }
            }
            _ => fail(Self::NAME, format!("{x} has no place in {cache}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (cache, x) = (ins[0], ins[1]);
        let past = match self.recent {
            true => cx.bindings.recent(),
            false => cx.bindings.past,
        };
        let positions = cache.shape[1];
        if !self.each && past + x.shape[1] > positions {
            let what = format!(
                "{} tokens after {past} in a cache of {positions}",
                x.shape[1]
            );
            return Err(EvalError {
                op: Self::NAME,
                what,
            });
        }
        if self.each && x.shape[1] != 1 {
            let what = format!("{} tokens of each sequence, not one", x.shape[1]);
            return Err(EvalError {
                op: Self::NAME,
                what,
            });
        }
        let cols = x.cols();
        let (kept, new) = (positions as usize * cols, x.shape[1] as usize * cols);
        let mut out = cache.clone();
        let texts = out.data.chunks_exact_mut(kept);
        for (n, (to, from)) in texts.zip(x.data.chunks_exact(new)).enumerate() {
            let place = match self.each {
                true => index(Self::NAME, ins[2].data[n], positions as usize)?,
                false => past as usize,
            };
            to[place * cols..][..new].copy_from_slice(from);
        }
        Ok(vec![out])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, _: &[TensorType]) -> Kind {
        Kind::Append {
            each: self.each,
            recent: self.recent,
        }
    }

    fn samples() -> Vec<Sample> {
        let cache = TensorType::real([Dim::Batch, Dim::Fixed(6), Dim::Fixed(5)]);
        let ins = vec![cache, TensorType::state(5)];
        let one = Append::default();
        let several = Append {
            each: true,
            ..one
        };
        let recent = Append {
            recent: true,
            ..one
        };
        let places = TensorType::index(TensorType::state(1).shape);
        let each = [ins.clone(), vec![places]].concat();
        vec![
            Sample::new(recent, "behind dropped ones", ins.clone())
                .after(66)
                .dropping(64),
            Sample::new(one, "after two", ins).after(2),
            Sample::new(several, "of three", each)
                .bindings(3, 1)
                .after(4)
                .indices(5),
        ]
    }
}
