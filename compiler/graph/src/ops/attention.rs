//! Scaled dot-product attention over heads, with the log-sum-exp of the scores kept for the derivative.

use crate::interp::{EvalCx, Tensor};
use crate::op::{EvalError, Kind, Op, Sample, TypeError, Vjp, VjpCx};
use crate::ops::AttentionBackward;
use crate::ops::support::{fail, reals};
use crate::types::TensorType;
use odec_program::kernel::Attend;
use odec_program::{DType, Dim};

/// q, k, v `[B, S, heads · head] → ` o of the same shape, lse `[B, S, heads]`. Per head
/// `o_i = Σ_j p_ij v_j`, `p_ij = exp(s_ij − lse_i)`, `s_ij = q_i · k_j / √head`, j ≤ i if causal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    pub heads: u64,
    pub causal: bool,
}

impl Attention {
    /// The kernel for q of type `q`; a lowering sets the precision.
    pub(super) fn spec(&self, q: &TensorType) -> Attend {
        let head = q.cols() / self.heads;
        Attend {
            dtype: DType::F64,
            inputs: DType::F64,
            heads: self.heads,
            head,
            causal: self.causal,
            scale: 1.0 / (head as f64).sqrt(),
        }
    }

    pub(super) fn check(
        &self,
        op: &'static str,
        q: &TensorType,
        others: &[&TensorType],
    ) -> Result<(), TypeError> {
        if !matches!(q.shape[..], [Dim::Batch, Dim::Seq, Dim::Fixed(_)]) {
            return fail(op, format!("needs [B, S, width], not {q}"));
        }
        if self.heads == 0 || !q.cols().is_multiple_of(self.heads) {
            return fail(
                op,
                format!(
                    "{} columns do not split into {} heads",
                    q.cols(),
                    self.heads
                ),
            );
        }
        match others.iter().find(|t| **t != q) {
            Some(t) => fail(op, format!("operands of different types, {q} and {t}")),
            None => Ok(()),
        }
    }
}

/// One (batch, head) of [B, S, heads · head] tensors: where each position's columns lie.
pub(super) fn heads(q: &Tensor, heads: u64) -> impl Iterator<Item = Head> {
    let (batch, seq, cols) = (q.shape[0] as usize, q.shape[1] as usize, q.cols());
    let count = heads as usize;
    (0..batch * count).map(move |n| Head {
        first: n / count * seq,
        head: n % count,
        count,
        width: cols / count,
    })
}

#[derive(Clone, Copy)]
pub(super) struct Head {
    first: usize,
    head: usize,
    count: usize,
    width: usize,
}

impl Head {
    /// The columns of this head at position `i`, in a tensor like q.
    pub(super) fn at(&self, i: usize) -> std::ops::Range<usize> {
        let start = ((self.first + i) * self.count + self.head) * self.width;
        start..start + self.width
    }
    /// The place of this head's number at position `i`, in a tensor like lse.
    pub(super) fn number(&self, i: usize) -> usize {
        (self.first + i) * self.count + self.head
    }
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// `y += c x`.
pub(super) fn add_scaled(y: &mut [f64], c: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += c * x);
}

impl Op for Attention {
    const NAME: &'static str = "attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        vec![
            ("heads", self.heads.to_string()),
            ("causal", self.causal.to_string()),
        ]
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [q, k, v] = reals(Self::NAME, ins)?;
        self.check(Self::NAME, q, &[k, v])?;
        Ok(vec![q.clone(), q.with_cols(self.heads)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let seq = q.shape[1] as usize;
        let scale = 1.0 / ((q.cols() as u64 / self.heads) as f64).sqrt();
        let mut o = Tensor::zeros(q.shape.clone());
        let mut lse = Tensor::zeros(vec![q.shape[0], q.shape[1], self.heads]);
        for h in heads(q, self.heads) {
            for i in 0..seq {
                let seen = if self.causal { i + 1 } else { seq };
                let scores: Vec<f64> = (0..seen)
                    .map(|j| scale * dot(&q.data[h.at(i)], &k.data[h.at(j)]))
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                lse.data[h.number(i)] = max + sum.ln();
                for (j, s) in scores.iter().enumerate() {
                    add_scaled(
                        &mut o.data[h.at(i)],
                        (s - max).exp() / sum,
                        &v.data[h.at(j)],
                    );
                }
            }
        }
        Ok(vec![o, lse])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let &[Some(d), None] = cx.d_outs else {
            return Vjp::NotDifferentiable("its log-sum-exp serves the derivative only");
        };
        let op = AttentionBackward { attention: *self };
        let ins = [cx.ins[0], cx.ins[1], cx.ins[2], cx.outs[0], cx.outs[1], d];
        let d = cx.b.push(op, &ins).expect("the types of the forward op");
        Vjp::Rule(d.into_iter().map(Some).collect())
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::Attend(self.spec(&ins[0]))
    }

    fn samples() -> Vec<Sample> {
        let q = TensorType::state(12);
        let sample = |heads, causal, name| {
            Sample::new(Attention { heads, causal }, name, vec![q.clone(); 3]).tolerance(1e-5)
        };
        vec![
            sample(3, true, "causal"),
            sample(2, false, "full"),
            sample(1, true, "long").bindings(1, 70),
        ]
    }
}
