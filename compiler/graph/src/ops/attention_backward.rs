//! The derivative of attention, from its result and log-sum-exp: probabilities are recomputed, not stored (Dao et al. 2022).

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Attention;
use crate::ops::attention::{heads, of_keys, shared};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor, add_scaled, dot};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::Dim;

/// q, k, v, o, lse, d_o → d_q, d_k, d_v; with biases behind d_o, d_distances `[B, S, columns]` as well: row n has the sums of `p_ij (d_o_i · v_j − δ_i)`
/// over all pairs n tokens from each other. With `p_ij = exp(s_ij − lse_i)` and `δ_i = d_o_i · o_i`:
/// `d_v_j = Σ_i p_ij d_o_i`, `ds_ij = p_ij (d_o_i · v_j − δ_i)`, `d_q_i = Σ_j ds_ij k_j / √head`,
/// `d_k_j = Σ_i ds_ij q_i / √head`; where scores are bounded, `ds_ij` is multiplied by the derivative of the bound. Sinks are part of o and lse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionBackward {
    pub attention: Attention,
}

impl Op for AttentionBackward {
    const NAME: &'static str = "attention_backward";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        self.attention.attrs()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let attention = Attention::from_attrs(given)?;
        Ok(AttentionBackward { attention })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let (ins, numbers) = self.attention.numbers(ins);
        let (ins, biases) = self.attention.biases(ins);
        self.attention.check_biases(Self::NAME, biases)?;
        let [q, k, v, o, lse, d] = reals(Self::NAME, ins)?;
        self.attention.check_numbers(Self::NAME, numbers, Some(k))?;
        let results = self.attention.check_whole(Self::NAME, [q, k, v])?;
        if let Some(t) = [o, d].into_iter().find(|t| **t != results) {
            return fail(Self::NAME, format!("a result of type {t}, not {results}"));
        }
        if *lse != q.with_cols(self.attention.heads) {
            return fail(Self::NAME, format!("log-sum-exp of type {lse} beside {q}"));
        }
        let of_distances = biases.map(|_| q.with_cols(self.attention.bias_columns()));
        let of_operands = [q, k, v].into_iter().cloned();
        Ok(of_operands.chain(of_distances).collect())
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (ins, numbers) = self.attention.numbers(ins);
        let (ins, biases) = self.attention.biases(ins);
        let biases = biases.copied();
        let &[q, k, v, o, lse, d] = ins else {
            unreachable!("infer counted the operands")
        };
        let [seq, keys] = [q, k].map(|x| x.shape[1] as usize);
        let attention = self.attention;
        let scale = 1.0 / ((q.cols() as u64 / attention.heads) as f64).sqrt();
        let [mut d_q, mut d_k, mut d_v] = [q, k, v].map(|x| Tensor::zeros(x.shape.clone()));
        let columns = attention.bias_columns();
        let mut d_distances = biases
            .map(|_| Tensor::zeros(vec![q.shape[0], q.shape[1], columns]));
        let kept = shared(k, attention.heads, attention.kv_heads);
        for (h, kept) in heads(q, attention.heads).zip(kept) {
            let (of_results, of_values) = (h.of(o), kept.of(v));
            let part = Attention::part(numbers.copied(), kept.first, keys);
            for (n, i) in attention.queries(&part, seq).into_iter().enumerate() {
                let (q_i, d_i) = (&q.data[h.at(i)], &d.data[of_results.at(i)]);
                let delta = dot(d_i, &o.data[of_results.at(i)]);
                for m in attention.seen(n, part.len()) {
                    let j = part[m];
                    let (k_j, v_j) = (&k.data[kept.at(j)], of_values.at(j));
                    let (score, slope) = attention.score((h.head, biases), scale * dot(q_i, k_j), n, m);
                    let p = (score - lse.data[h.number(i)]).exp();
                    let of_score = p * (dot(d_i, &v.data[v_j.clone()]) - delta);
                    if let Some(sums) = &mut d_distances {
                        let row = (h.first + n.abs_diff(m)) * columns as usize;
                        sums.data[row + attention.bias_column(h.head, n, m)] += of_score;
                    }
                    let ds = scale * slope * of_score;
                    add_scaled(&mut d_v.data[v_j], p, d_i);
                    add_scaled(&mut d_q.data[h.at(i)], ds, k_j);
                    add_scaled(&mut d_k.data[kept.at(j)], ds, q_i);
                }
            }
        }
        Ok([d_q, d_k, d_v].into_iter().chain(d_distances).collect())
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("second derivatives of attention have no rule")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::AttendBackward(self.attention.spec(&ins[0], &ins[2], false))
    }

    fn samples() -> Vec<Sample> {
        let of = |attention: Attention, value: u64, name| {
            let Attention {
                heads, kv_heads, ..
            } = attention;
            let (q, lse) = (TensorType::state(12), TensorType::state(heads));
            let [k, v] = [12 / heads, value].map(|columns| q.with_cols(columns * kv_heads));
            let o = q.with_cols(value * heads);
            let ins = vec![q, k, v, o.clone(), lse, o];
            Sample::new(AttentionBackward { attention }, name, ins).tolerance(1e-5)
        };
        let sample = |heads, kv_heads, causal, window, name| {
            let attention = Attention {
                kv_heads,
                window,
                ..Attention::new(heads, causal)
            };
            of(attention, 12 / heads, name)
        };
        let scores = |causal| Attention {
            softcap: Some(0.5),
            alibi: true,
            ..Attention::new(3, causal)
        };
        let some = |attention: Attention, name| {
            let attention = Attention {
                partial: true,
                ..attention
            };
            let mut sample = of(attention, 5, name);
            sample.ins.push(TensorType::state(1));
            sample
        };
        let others = |attention: Attention, value: u64, tokens: u64, name| {
            let attention = Attention {
                others: true,
                ..attention
            };
            of_keys(of(attention, value, name), tokens, attention.partial)
        };
        let some_of = Attention {
            partial: true,
            ..Attention::new(2, false)
        };
        let biased = |attention: Attention, value: u64, rows: u64, name| {
            let attention = Attention {
                distances: Some(rows),
                ..attention
            };
            let mut sample = of(attention, value, name);
            let shape = [rows, attention.bias_columns()].map(Dim::Fixed);
            sample.ins.push(TensorType::real(shape));
            sample
        };
        let capped = Attention {
            softcap: Some(0.5),
            kv_heads: 1,
            ..Attention::new(3, false)
        };
        vec![
            others(Attention::new(3, false), 4, 3, "of others"),
            others(capped, 7, 70, "of others, shared, softcap, wide").bindings(1, 66),
            others(some_of, 6, 131, "of some others").bindings(2, 5),
            some(Attention::new(3, true), "of some").bindings(2, 9),
            some(Attention::new(2, false), "of some, full").bindings(1, 140),
            biased(Attention::new(2, true), 6, 3, "biases").bindings(2, 67),
            biased(scores(false), 5, 9, "biases, full").bindings(1, 70),
            sample(3, 3, true, None, "causal"),
            sample(3, 3, false, None, "full"),
            sample(4, 2, true, None, "shared"),
            sample(2, 1, true, Some(2), "window"),
            sample(3, 3, true, Some(66), "long window").bindings(1, 131),
            of(scores(true), 4, "other scores").bindings(1, 67),
            of(scores(false), 7, "other scores, full, wide values"),
        ]
    }
}
