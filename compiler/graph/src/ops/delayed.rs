//! Rows of earlier tokens while a text is read in pieces, of which a ring is kept.

use crate::op::{EvalError, Kind, OneLaunch, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::shift_tokens::check;
use crate::ops::support::{fail, index, operands};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::{Delay, KernelSpec};
use odec_program::{DType, Dim, Size};

/// x `[B, S, C]` and a carry `[B, reach, C]`, reach the longest distance → `[B, S, K · C]`, what [`ShiftTokens`](super::ShiftTokens) gives for the
/// last S of `past + S` tokens, and the carry that takes the other's place: a ring, in which the row of the token after n others is row n mod reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delayed {
    pub by: Vec<u32>,
    /// There may be several sequences, each at a place of its own: S is 1, and behind x are the places, `[B, S, 1]`. Else all have the same past.
    pub each: bool,
}

impl Delayed {
    fn spec(&self, cols: u64) -> Delay {
        Delay {
            dtype: DType::F64,
            cols,
            by: self.by.clone(),
            places: self.each,
        }
    }
}

impl Op for Delayed {
    const NAME: &'static str = "delayed";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("by", format!("{:?}", self.by))];
        attrs.extend(self.each.then(|| ("each", "true".to_string())));
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let by: Vec<i32> = given.need("by")?;
        let each = given.optional("each")?.unwrap_or(false);
        match by.into_iter().map(u32::try_from).collect() {
            Ok(by) => Ok(Delayed { by, each }),
            Err(_) => given.refuse("by", "tokens that are not there yet"),
        }
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (x, ring) = match self.each {
            false => operands::<2>(Self::NAME, ins).map(|[x, ring]| (x, ring))?,
            true => {
                let [x, places, ring] = operands(Self::NAME, ins)?;
                if *places != TensorType::index(x.with_cols(1).shape) {
                    return fail(Self::NAME, format!("{places} are no places of {x}"));
                }
                (x, ring)
            }
        };
        let by: Vec<i32> = (self.by.iter())
            .map(|by| i32::try_from(*by).unwrap_or(i32::MAX))
            .collect();
        check(Self::NAME, x, &by)?;
        let spec = self.spec(x.cols());
        let shape = [Dim::Batch, Dim::Fixed(spec.reach()), Dim::Fixed(x.cols())];
        let kept = TensorType::real(shape);
        match x.cols().checked_mul(by.len() as u64) {
            _ if spec.reach() == 0 => fail(Self::NAME, "reads no earlier token"),
            _ if *ring != kept => fail(Self::NAME, format!("keeps {kept}, not {ring}")),
            Some(cols) => Ok(vec![x.with_cols(cols), kept]),
            None => fail(Self::NAME, "too many columns"),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (x, mut ring) = (ins[0], ins[1 + usize::from(self.each)].clone());
        let (seq, cols) = (x.shape[1] as usize, x.cols());
        let mut pasts = vec![cx.bindings.past as usize; x.shape[0] as usize];
        if self.each {
            if seq != 1 {
                let what = format!("{seq} tokens of each sequence, not one");
                let op = Self::NAME;
                return Err(EvalError { op, what });
            }
            for (past, place) in pasts.iter_mut().zip(&ins[1].data) {
                *past = index(Self::NAME, *place, usize::MAX)?;
            }
        }
        let reach = ring.shape[1] as usize;
        let mut data = Vec::with_capacity(x.data.len() * self.by.len());
        let texts = x.data.chunks_exact(seq * cols);
        let rings = ring.data.chunks_exact_mut(reach * cols);
        for ((text, ring), past) in texts.zip(rings).zip(pasts) {
            for (row, token) in text.chunks_exact(cols).zip(past..) {
                for by in self.by.iter().map(|by| *by as usize) {
                    match by {
                        0 => data.extend_from_slice(row),
                        by if by > token => data.extend(std::iter::repeat_n(0.0, cols)),
                        by => data.extend_from_slice(&ring[(token - by) % reach * cols..][..cols]),
                    }
                }
                ring[token % reach * cols..][..cols].copy_from_slice(row);
            }
        }
        let shape = vec![x.shape[0], x.shape[1], (cols * self.by.len()) as u64];
        Ok(vec![Tensor::new(shape, data), ring])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let spec = self.spec(ins[0].cols());
        let kernel = move |dtype| {
            KernelSpec::Delay(Delay {
                dtype,
                ..spec.clone()
            })
        };
        let mut launch = OneLaunch::along(kernel, ins);
        if self.each {
            // A token of each, at a place of its own.
            launch.dims[1] = Size::ONE;
        }
        Kind::One(launch.carried())
    }

    fn samples() -> Vec<Sample> {
        let sample = |name, by: &[u32]| {
            let op = Delayed {
                by: by.to_vec(),
                each: false,
            };
            let shape = [Dim::Batch, Dim::Fixed(op.spec(5).reach()), Dim::Fixed(5)];
            Sample::new(
                op,
                name,
                vec![TensorType::state(5), TensorType::real(shape)],
            )
        };
        let mut each = sample("several", &[4, 1]).bindings(3, 1).after(9).indices(9);
        each.ins.insert(1, TensorType::index(TensorType::state(1).shape));
        each.op = Delayed {
            by: vec![4, 1],
            each: true,
        }
        .into();
        vec![
            each,
            sample("from the start", &[3, 1]).bindings(2, 4),
            sample("the last one", &[1]).bindings(2, 3).after(2),
            sample("dilated", &[4, 2, 0]).bindings(2, 6).after(3),
        ]
    }
}
