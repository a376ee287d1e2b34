//! Scaled dot-product attention over heads, with the log-sum-exp of the scores kept for the derivative.

use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::AttentionBackward;
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use odec_program::kernel::Attend;
use odec_program::{DType, Dim};
use std::ops::Range;

/// q `[B, S, heads · head]`, k, v `[B, S, kv_heads · head] → ` o like q, lse `[B, S, heads]`. Per head
/// `o_i = Σ_j p_ij v_j`, `p_ij = exp(s_ij − lse_i)`, `s_ij = q_i · k_j / √head`, j ≤ i if causal, i − window < j if there is
/// a window. Heads share keys and values in groups (Ainslie et al. 2023).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    pub heads: u64,
    pub kv_heads: u64,
    pub causal: bool,
    pub window: Option<u64>,
}

impl Attention {
    /// Every head with keys and values of its own, and no window.
    pub fn new(heads: u64, causal: bool) -> Attention {
        Attention {
            heads,
            kv_heads: heads,
            causal,
            window: None,
        }
    }

    /// The kernel for q of type `q`; a lowering sets the precision.
    pub(super) fn spec(&self, q: &TensorType) -> Attend {
        let head = q.cols() / self.heads;
        Attend {
            dtype: DType::F64,
            inputs: DType::F64,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head,
            causal: self.causal,
            window: self.window,
            scale: 1.0 / (head as f64).sqrt(),
        }
    }

    /// The keys that a query at position `i` of `seq` sees.
    pub(super) fn seen(&self, i: usize, seq: usize) -> Range<usize> {
        let first = self
            .window
            .map_or(0, |w| (i + 1).saturating_sub(w as usize));
        first..if self.causal { i + 1 } else { seq }
    }

    pub(super) fn check(
        &self,
        op: &'static str,
        q: &TensorType,
        keys: &[&TensorType],
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
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            let what = format!(
                "{} heads cannot share {} of keys",
                self.heads, self.kv_heads
            );
            return fail(op, what);
        }
        if self.window == Some(0) || (self.window.is_some() && !self.causal) {
            return fail(op, "a window without tokens, or one that looks ahead");
        }
        let narrow = q.with_cols(q.cols() / self.heads * self.kv_heads);
        if let Some(t) = keys.iter().find(|t| **t != &narrow) {
            return fail(op, format!("keys or values of type {t}, not {narrow}"));
        }
        match others.iter().find(|t| **t != q) {
            Some(t) => fail(op, format!("operands of different types, {q} and {t}")),
            None => Ok(()),
        }
    }
}

/// One (batch, head) of [B, S, heads · head] tensors: where each position's columns lie.
pub(super) fn heads(q: &Tensor, heads: u64) -> impl Iterator<Item = Head> {
    shared(q, heads, heads)
}

/// The same in tensors of keys or values, of which there are `kv_heads`: one for each of `heads`.
pub(super) fn shared(k: &Tensor, heads: u64, kv_heads: u64) -> impl Iterator<Item = Head> {
    let (batch, seq, cols) = (k.shape[0] as usize, k.shape[1] as usize, k.cols());
    let (heads, count) = (heads as usize, kv_heads as usize);
    (0..batch * heads).map(move |n| Head {
        first: n / heads * seq,
        head: n % heads * count / heads,
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
        .into_iter()
        .chain((self.kv_heads < self.heads).then(|| ("kv_heads", self.kv_heads.to_string())))
        .chain(self.window.map(|w| ("window", w.to_string())))
        .collect()
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let heads = given.need("heads")?;
        Ok(Attention {
            heads,
            causal: given.need("causal")?,
            kv_heads: given.optional("kv_heads")?.unwrap_or(heads),
            window: given.optional("window")?,
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [q, k, v] = reals(Self::NAME, ins)?;
        self.check(Self::NAME, q, &[k, v], &[])?;
        Ok(vec![q.clone(), q.with_cols(self.heads)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let seq = q.shape[1] as usize;
        let scale = 1.0 / ((q.cols() as u64 / self.heads) as f64).sqrt();
        let mut o = Tensor::zeros(q.shape.clone());
        let mut lse = Tensor::zeros(vec![q.shape[0], q.shape[1], self.heads]);
        for (h, kept) in heads(q, self.heads).zip(shared(k, self.heads, self.kv_heads)) {
            for i in 0..seq {
                let seen = self.seen(i, seq);
                let scores: Vec<f64> = seen
                    .clone()
                    .map(|j| scale * dot(&q.data[h.at(i)], &k.data[kept.at(j)]))
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|s| (s - max).exp()).sum();
                lse.data[h.number(i)] = max + sum.ln();
                for (j, s) in seen.zip(&scores) {
                    let weight = (s - max).exp() / sum;
                    add_scaled(&mut o.data[h.at(i)], weight, &v.data[kept.at(j)]);
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
        let sample = |heads, kv_heads, causal, window, name| {
            let op = Attention {
                heads,
                kv_heads,
                causal,
                window,
            };
            let k = q.with_cols(12 / heads * kv_heads);
            Sample::new(op, name, vec![q.clone(), k.clone(), k]).tolerance(1e-5)
        };
        vec![
            sample(3, 3, true, None, "causal"),
            sample(2, 2, false, None, "full"),
            sample(1, 1, true, None, "long").bindings(1, 70),
            sample(4, 2, true, None, "shared"),
            sample(3, 1, false, None, "one of all"),
            sample(2, 2, true, Some(2), "window"),
            sample(2, 1, true, Some(66), "long window").bindings(1, 131),
            sample(1, 1, true, Some(3), "narrow window").bindings(1, 131),
        ]
    }
}
