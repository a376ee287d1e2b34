//! Causal attention of new tokens to themselves and to all earlier ones, from the KV cache.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Attention;
use crate::ops::attention::{heads, shared};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, index};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::{Dim, Size};
use odec_program::kernel::Attend;
use std::sync::Arc;

/// q `[B, S, heads · head]`, k `[B, P, kv_heads · head]`, v `[B, P, kv_heads · value] → ` o `[B, S, heads · value]`: what [`Attention`], causal,
/// gives for the last S of `past + S` tokens. Of several sequences S is 1, and behind v are the positions of their tokens, `[B, S, 1]`: each sequence has
/// a past of its own. Behind these may be sinks, and biases by distance. Attention that is not causal is to all P rows, has no positions, and k and v may be `[1, P, ..]`: all
/// sequences read the same. Partial, the very last are numbers of all tokens that are kept, `[B, P, 1]`; where all are read, these say which keys take part,
/// and all queries do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    pub attention: Attention,
    /// There may be several sequences; else there is one, and attention is causal.
    pub each: bool,
    /// Whether k and v are caches of recent tokens alone, and positions are counted from their first: attention has a window. Nothing in it depends on more than
    /// the distance between tokens.
    pub recent: bool,
}

impl CachedAttention {
    /// Whether each sequence has a position of its own: operand 3.
    pub fn has_places(&self) -> bool {
        self.each && self.attention.causal
    }

    /// The number of the operand of sinks, if there are.
    fn sinks(&self) -> usize {
        3 + usize::from(self.has_places())
    }
}

impl Op for CachedAttention {
    const NAME: &'static str = "cached_attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = self.attention.attrs();
        attrs.retain(|(name, value)| *name != "causal" || value == "false");
        attrs.extend(self.each.then(|| ("each", "true".to_string())));
        attrs.extend(self.recent.then(|| ("recent", "true".to_string())));
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let heads = given.need("heads")?;
        let causal = given.optional("causal")?.unwrap_or(true);
        let each = given.optional("each")?.unwrap_or(false);
        let recent = given.optional("recent")?.unwrap_or(false);
        let attention = Attention::new(heads, causal).with_more(given)?;
        Ok(CachedAttention {
            attention,
            each,
            recent,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let mut others = ins.to_vec();
        if self.has_places() {
            let places = (others.len() > 3).then(|| others.remove(3));
            let wanted = ins.first().map(|q| TensorType::index(q.with_cols(1).shape));
            if places.is_none() || places != wanted {
                return fail(Self::NAME, "needs the position of each sequence's token");
            }
        }
        let [q, k, v] = self.attention.operands(Self::NAME, &others)?;
        let o = self.attention.check(Self::NAME, [q, k, v])?;
        let (causal, each) = (self.attention.causal, self.each);
        if self.recent && self.attention.window.is_none() {
            return fail(Self::NAME, "without a window, all keys are read");
        }
        if self.attention.others {
            return fail(Self::NAME, "kept keys are of a number of their own");
        }
        match k.shape[..] {
            [Dim::Batch, Dim::Fixed(_), Dim::Fixed(_)] if causal => Ok(vec![o]),
            [Dim::Fixed(1), Dim::Fixed(_), Dim::Fixed(_)]
                if each && !causal && !self.attention.compares_places() =>
            {
                Ok(vec![o])
            }
            _ => fail(Self::NAME, format!("{k} and {v} are no caches for {q}")),
        }
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (ins, numbers) = self.attention.numbers(ins);
        let (ins, biases) = self.attention.biases(ins);
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let seq = q.shape[1] as usize;
        let causal = self.attention.causal;
        let refused = |what| EvalError {
            op: Self::NAME,
            what,
        };
        let places = self.has_places().then(|| ins[3]);
        if places.is_some() && seq != 1 {
            return Err(refused(format!("{seq} tokens of each sequence, not one")));
        }
        let past = match self.recent {
            true => cx.bindings.recent(),
            false => cx.bindings.past,
        };
        let mut pasts = vec![past as usize; q.shape[0] as usize];
        if let Some(places) = places {
            for (past, place) in pasts.iter_mut().zip(&places.data) {
                *past = index(Self::NAME, *place, k.shape[1] as usize)?;
            }
        }
        if let Some(past) = pasts.iter().find(|p| *p + seq > k.shape[1] as usize)
            && causal
        {
            let what = format!("{seq} tokens after {past} in a cache of {}", k.shape[1]);
            return Err(refused(what));
        }
        let attention = self.attention;
        let values = v.cols() / attention.kv_heads as usize;
        let columns = values as u64 * attention.heads;
        let mut o = Tensor::zeros(vec![q.shape[0], q.shape[1], columns]);
        // Those of one sequence serve all.
        let kept = shared(k, attention.heads, attention.kv_heads).cycle();
        for (n, (h, kept)) in heads(q, attention.heads).zip(kept).enumerate() {
            let past = pasts[n / attention.heads as usize];
            let all = match causal {
                true => past + seq,
                false => k.shape[1] as usize,
            };
            let (of_values, of_results) = (kept.of(v), h.of(&o));
            let sink = ins.get(self.sinks()).map(|sinks| sinks.data[h.head]);
            let of = ((h.head, biases.copied()), sink);
            let part = Attention::part(numbers.copied(), kept.first, all);
            let rows = |j: usize| (&k.data[kept.at(part[j])], &v.data[of_values.at(part[j])]);
            for i in 0..seq {
                // Where queries see all keys, all queries take part.
                let at = match causal {
                    true => part.iter().position(|row| *row == past + i),
                    false => Some(past + i),
                };
                let Some(at) = at else { continue };
                let query = (&q.data[h.at(i)], values);
                let seen = attention.seen(at, part.len());
                let (row, _) = attention.row(of, at, query, seen, rows);
                o.data[of_results.at(i)].copy_from_slice(&row);
            }
        }
        Ok(vec![o])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("it serves decoding, which is not trained")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let room = match ins[1].shape.get(1) {
            Some(Dim::Fixed(rows)) if self.each => Some(*rows),
            _ => None,
        };
        let sinks = self.attention.has_sinks(ins, self.sinks());
        let spec = self.attention.spec(&ins[0], &ins[2], sinks);
        let past = match self.recent {
            true => Size::RECENT,
            false => Size::PAST,
        };
        Kind::AttendCached(Attend { room, ..spec }, past)
    }

    fn samples() -> Vec<Sample> {
        let of = |attention: Attention, value: u64, name| {
            let (head, kv_heads) = (12 / attention.heads, attention.kv_heads);
            let [k, v] = [head, value].map(|columns| {
                let columns = Dim::Fixed(columns * kv_heads);
                TensorType::real([Dim::Batch, Dim::Fixed(70), columns])
            });
            let ins = vec![TensorType::state(12), k, v];
            let op = CachedAttention {
                attention,
                each: false,
                recent: false,
            };
            Sample::new(op, name, ins)
        };
        let each = |attention: Attention, name| {
            let mut sample = of(attention, 12 / attention.heads, name);
            if attention.causal {
                let places = TensorType::index(sample.ins[0].with_cols(1).shape);
                sample.ins.push(places);
            } else {
                for i in [1, 2] {
                    Arc::make_mut(&mut sample.ins[i].shape)[0] = Dim::Fixed(1);
                }
            }
            let op = CachedAttention {
                attention,
                each: true,
                recent: false,
            };
            let sample = Sample {
                op: op.into(),
                ..sample
            };
            // Positions below this, in rooms that have more rows.
            match attention.causal {
                true => sample.indices(67),
                false => sample,
            }
        };
        let windowed = Attention {
            kv_heads: 1,
            window: Some(5),
            ..Attention::new(2, true)
        };
        let sample = |heads, kv_heads, window, name| {
            let attention = Attention {
                kv_heads,
                window,
                ..Attention::new(heads, true)
            };
            of(attention, 12 / heads, name)
        };
        let scores = Attention {
            softcap: Some(0.5),
            alibi: true,
            ..Attention::new(3, true)
        };
        let mut sinks = of(scores, 4, "other scores and sinks").after(63);
        sinks.ins.push(TensorType::real([Dim::Fixed(3)]));
        let distant = Attention {
            distances: Some(40),
            ..Attention::new(2, true)
        };
        let recent = |mut sample: Sample, attention: Attention| {
            sample.op = CachedAttention {
                attention,
                each: false,
                recent: true,
            }
            .into();
            sample.dropping(64)
        };
        let biased = |mut sample: Sample| {
            sample.ins.push(TensorType::real([40, 2].map(Dim::Fixed)));
            sample
        };
        let some = Attention {
            partial: true,
            ..Attention::new(3, false)
        };
        let mut some = each(some, "some of one").bindings(4, 1);
        let numbers = some.ins[1].per_row();
        some.ins.push(numbers);
        vec![
            some,
            biased(of(distant, 6, "biases").after(63)),
            biased(each(distant, "several, biases").bindings(2, 1)).after(60),
            sample(3, 3, None, "from the start"),
            sample(2, 2, None, "after 65").after(65),
            sample(4, 2, None, "shared").after(65),
            sample(2, 2, Some(5), "window").after(62),
            recent(of(windowed, 6, "window behind dropped ones").after(128), windowed),
            of(Attention::new(2, true), 9, "wide values").after(65),
            sinks.tolerance(1e-5),
            each(Attention::new(2, true), "several")
                .bindings(3, 1)
                .after(66),
            each(windowed, "several, window").bindings(2, 1).after(66),
            each(Attention::new(3, false), "all of one")
                .bindings(4, 1)
                .after(3),
        ]
    }
}
