//! Causal attention of new tokens to themselves and to all earlier ones, whose keys and values are kept.

use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Sample, TypeError, Vjp, VjpCx};
use crate::ops::Attention;
use crate::ops::attention::{add_scaled, dot, heads};
use crate::ops::support::{fail, reals};
use crate::types::TensorType;
use odec_program::Dim;

/// q `[B, S, heads · head]`, k and v `[B, P, heads · head] → ` o like q: what [`Attention`], causal, gives for the last
/// S of `past + S` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedAttention {
    pub heads: u64,
}

impl CachedAttention {
    fn attention(self) -> Attention {
        Attention {
            heads: self.heads,
            causal: true,
        }
    }
}

impl Op for CachedAttention {
    const NAME: &'static str = "cached_attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![("heads", self.heads.to_string())]
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [q, k, v] = reals(Self::NAME, ins)?;
        self.attention().check(Self::NAME, q, &[])?;
        match k.shape[..] {
            [Dim::Batch, Dim::Fixed(_), Dim::Fixed(c)] if c == q.cols() && k == v => {
                Ok(vec![q.clone()])
            }
            _ => fail(Self::NAME, format!("{k} and {v} are no caches for {q}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let (seq, past) = (q.shape[1] as usize, cx.bindings.past as usize);
        if past + seq > k.shape[1] as usize {
            let what = format!("{seq} tokens after {past} in a cache of {}", k.shape[1]);
            return Err(EvalError {
                op: Self::NAME,
                what,
            });
        }
        let scale = 1.0 / ((q.cols() as u64 / self.heads) as f64).sqrt();
        let mut o = Tensor::zeros(q.shape.clone());
        for (h, kept) in heads(q, self.heads).zip(heads(k, self.heads)) {
            for i in 0..seq {
                let scores: Vec<f64> = (0..=past + i)
                    .map(|j| scale * dot(&q.data[h.at(i)], &k.data[kept.at(j)]))
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (j, s) in scores.iter().enumerate() {
                    let weight = (s - max).exp() / sum;
                    add_scaled(&mut o.data[h.at(i)], weight, &v.data[kept.at(j)]);
                }
            }
        }
        Ok(vec![o])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::AttendCached(self.attention().spec(&ins[0]))
    }

    fn samples() -> Vec<Sample> {
        let cache = TensorType::real([Dim::Batch, Dim::Fixed(70), Dim::Fixed(12)]);
        let ins = vec![TensorType::state(12), cache.clone(), cache];
        vec![
            Sample::new(CachedAttention { heads: 3 }, "from the start", ins.clone()),
            Sample::new(CachedAttention { heads: 2 }, "after 65", ins).after(65),
        ]
    }
}
