//! The derivative of attention, from its result and log-sum-exp: probabilities are recomputed, not stored (Dao et al. 2022).

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::Attention;
use crate::ops::attention::{add_scaled, dot, heads, shared};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;

/// q, k, v, o, lse, d_o → d_q, d_k, d_v. With `p_ij = exp(s_ij − lse_i)` and `δ_i = d_o_i · o_i`:
/// `d_v_j = Σ_i p_ij d_o_i`, `ds_ij = p_ij (d_o_i · v_j − δ_i)`, `d_q_i = Σ_j ds_ij k_j / √head`,
/// `d_k_j = Σ_i ds_ij q_i / √head`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let [q, k, v, o, lse, d] = reals(Self::NAME, ins)?;
        self.attention.check(Self::NAME, q, &[k, v], &[o, d])?;
        if *lse != q.with_cols(self.attention.heads) {
            return fail(Self::NAME, format!("log-sum-exp of type {lse} beside {q}"));
        }
        Ok(vec![q.clone(), k.clone(), v.clone()])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let &[q, k, v, o, lse, d] = ins else {
            unreachable!("infer counted the operands")
        };
        let seq = q.shape[1] as usize;
        let scale = 1.0 / ((q.cols() as u64 / self.attention.heads) as f64).sqrt();
        let mut d_q = Tensor::zeros(q.shape.clone());
        let mut d_k = Tensor::zeros(k.shape.clone());
        let mut d_v = d_k.clone();
        let Attention {
            heads: count,
            kv_heads,
            ..
        } = self.attention;
        for (h, kept) in heads(q, count).zip(shared(k, count, kv_heads)) {
            for i in 0..seq {
                let (q_i, d_i) = (&q.data[h.at(i)], &d.data[h.at(i)]);
                let delta = dot(d_i, &o.data[h.at(i)]);
                for j in self.attention.seen(i, seq) {
                    let k_j = &k.data[kept.at(j)];
                    let p = (scale * dot(q_i, k_j) - lse.data[h.number(i)]).exp();
                    let ds = scale * p * (dot(d_i, &v.data[kept.at(j)]) - delta);
                    add_scaled(&mut d_v.data[kept.at(j)], p, d_i);
                    add_scaled(&mut d_q.data[h.at(i)], ds, k_j);
                    add_scaled(&mut d_k.data[kept.at(j)], ds, q_i);
                }
            }
        }
        Ok(vec![d_q, d_k, d_v])
    }

    fn vjp(&self, _: &mut VjpCx) -> Vjp {
        Vjp::NotDifferentiable("second derivatives of attention have no rule")
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::AttendBackward(self.attention.spec(&ins[0]))
    }

    fn samples() -> Vec<Sample> {
        let sample = |heads, kv_heads, causal, window, name| {
            let attention = Attention {
                heads,
                kv_heads,
                causal,
                window,
            };
            let (q, lse) = (TensorType::state(12), TensorType::state(heads));
            let k = q.with_cols(12 / heads * kv_heads);
            let ins = vec![q.clone(), k.clone(), k, q.clone(), lse, q];
            Sample::new(AttentionBackward { attention }, name, ins).tolerance(1e-5)
        };
        vec![
            sample(3, 3, true, None, "causal"),
            sample(3, 3, false, None, "full"),
            sample(4, 2, true, None, "shared"),
            sample(2, 1, true, Some(2), "window"),
            sample(3, 3, true, Some(66), "long window").bindings(1, 131),
        ]
    }
}
