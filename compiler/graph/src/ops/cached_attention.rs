//! Causal attention of new tokens to themselves and to all earlier ones, from the KV cache.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Attention;
use crate::ops::attention::{add_scaled, dot, heads, shared};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// q `[B, S, heads · head]`, k and v `[B, P, kv_heads · head] → ` o like q: what [`Attention`], causal, gives for the last
/// S of `past + S` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedAttention {
    pub attention: Attention,
}

impl Op for CachedAttention {
    const NAME: &'static str = "cached_attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = self.attention.attrs();
        attrs.retain(|(name, _)| *name != "causal");
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let heads = given.need("heads")?;
        let attention = Attention {
            heads,
            causal: true,
            kv_heads: given.optional("kv_heads")?.unwrap_or(heads),
            window: given.optional("window")?,
        };
        Ok(CachedAttention { attention })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [q, k, v] = reals(Self::NAME, ins)?;
        self.attention.check(Self::NAME, q, &[], &[])?;
        let narrow = q.cols() / self.attention.heads * self.attention.kv_heads;
        match k.shape[..] {
            [Dim::Batch, Dim::Fixed(_), Dim::Fixed(c)]
                if c == narrow && k == v && self.attention.causal =>
            {
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
        let Attention {
            heads: count,
            kv_heads,
            ..
        } = self.attention;
        let scale = 1.0 / ((q.cols() as u64 / count) as f64).sqrt();
        let mut o = Tensor::zeros(q.shape.clone());
        for (h, kept) in heads(q, count).zip(shared(k, count, kv_heads)) {
            for i in 0..seq {
                let seen = self.attention.seen(past + i, past + seq);
                let scores: Vec<f64> = seen
                    .clone()
                    .map(|j| scale * dot(&q.data[h.at(i)], &k.data[kept.at(j)]))
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                for (j, s) in seen.zip(&scores) {
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
        Kind::AttendCached(self.attention.spec(&ins[0]))
    }

    fn samples() -> Vec<Sample> {
        let sample = |heads, kv_heads, window, name| {
            let attention = Attention {
                heads,
                kv_heads,
                causal: true,
                window,
            };
            let kept = Dim::Fixed(12 / heads * kv_heads);
            let cache = TensorType::real([Dim::Batch, Dim::Fixed(70), kept]);
            let ins = vec![TensorType::state(12), cache.clone(), cache];
            Sample::new(CachedAttention { attention }, name, ins)
        };
        vec![
            sample(3, 3, None, "from the start"),
            sample(2, 2, None, "after 65").after(65),
            sample(4, 2, None, "shared").after(65),
            sample(2, 2, Some(5), "window").after(62),
        ]
    }
}
