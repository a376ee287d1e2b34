//! Linear attention: a matrix for each head that tokens decay, add to and read (Katharopoulos et al. 2020; Yang et al. 2024).
//!
//! The op is closed under its own derivative: gradients of queries, keys and values are linear attention again, with the operands in
//! other places or the tokens in reverse, so no matrix is ever kept. The gradient of the decay follows from these three: for one matrix,
//! `α_t dα_t = Σ_{s ≥ t} (q_s dq_s − k_s dk_s)` in each of its rows (Yang et al. 2024, Section 4.4), and that sum is linear attention to ones.

use crate::exact::Exact;
use crate::op::{EvalError, Kind, TypeError, TypeResult, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::fail;
use crate::ops::{Broadcast, Builder, Combine, Constant, Mul, Recip, WherePositive};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use crate::value::Value;
use odec_program::kernel::{Decay, LinearAttend};
use odec_program::{DType, Dim};

/// q, k `[B, S, heads · n]`, v `[B, S, heads · m]`, decay α unless there is none → o like v. Per head `S_t = α_t S_{t−1} + k_tᵀ v_t`,
/// `o_t = q_t S_t`, S an n × m matrix, zero before the first token. `reversed`: `S_t = α_{t+1} S_{t+1} + k_tᵀ v_t`, zero after the last.
/// `continued`: one operand more, the matrices `[B, heads · n, m]` that the last run left (where there are tokens before those of the run), and
/// one result more, those after the last token.
///
/// Nothing is normalised. A column of ones in v gives the sum of the weights that a normaliser divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttention {
    pub heads: u64,
    pub decay: Decay,
    pub reversed: bool,
    pub continued: bool,
}

/// Words of decays, none first.
const DECAYS: [(&str, Decay); 4] = [
    ("none", Decay::None),
    ("head", Decay::Head),
    ("key", Decay::Key),
    ("value", Decay::Value),
];

impl LinearAttention {
    /// From the first token on, from nothing.
    pub const fn new(heads: u64, decay: Decay) -> LinearAttention {
        LinearAttention {
            heads,
            decay,
            reversed: false,
            continued: false,
        }
    }

    /// The kernel for keys and values of these types; a lowering sets the precision.
    fn spec(&self, k: &TensorType, v: &TensorType) -> LinearAttend {
        LinearAttend {
            dtype: DType::F64,
            heads: self.heads,
            key: k.cols() / self.heads,
            value: v.cols() / self.heads,
            decay: self.decay,
            reversed: self.reversed,
            continued: self.continued,
        }
    }

    /// How many operands there are.
    fn arity(&self) -> usize {
        3 + usize::from(self.decay != Decay::None) + usize::from(self.continued)
    }

    fn check(&self, ins: &[TensorType]) -> Result<(), TypeError> {
        let op = Self::NAME;
        if ins.len() != self.arity() {
            let arity = self.arity();
            return fail(op, format!("takes {arity} operands, not {}", ins.len()));
        }
        if let Some(t) = ins.iter().find(|t| t.elem != Elem::Real) {
            return fail(op, format!("needs real operands, not {t}"));
        }
        let (q, k, v) = (&ins[0], &ins[1], &ins[2]);
        for t in [q, k, v] {
            if !matches!(t.shape[..], [Dim::Batch, Dim::Seq, Dim::Fixed(_)]) {
                return fail(op, format!("needs [B, S, width], not {t}"));
            }
            if self.heads == 0 || !t.cols().is_multiple_of(self.heads) {
                let what = format!("{} columns are not {} heads", t.cols(), self.heads);
                return fail(op, what);
            }
        }
        if q != k {
            return fail(op, format!("queries {q} and keys {k} differ"));
        }
        let spec = self.spec(k, v);
        if let (Some(cols), Some(decay)) = (spec.decays(), ins.get(3))
            && *decay != q.with_cols(cols)
        {
            let wanted = q.with_cols(cols);
            return fail(op, format!("a decay of type {decay}, not {wanted}"));
        }
        match ins.last() {
            Some(before) if self.continued && *before != self.matrices(&spec) => {
                let wanted = self.matrices(&spec);
                fail(op, format!("matrices of type {before}, not {wanted}"))
            }
            _ => Ok(()),
        }
    }

    /// The type of all heads' matrices.
    fn matrices(&self, spec: &LinearAttend) -> TensorType {
        let rows = Dim::Fixed(self.heads * spec.key);
        TensorType::real([Dim::Batch, rows, Dim::Fixed(spec.value)])
    }

    /// The same of transposed matrices.
    fn transposed(self) -> LinearAttention {
        let decay = match self.decay {
            Decay::Key => Decay::Value,
            Decay::Value => Decay::Key,
            other => other,
        };
        LinearAttention { decay, ..self }
    }

    /// The same from the other end of the text.
    fn turned(self) -> LinearAttention {
        LinearAttention {
            reversed: !self.reversed,
            ..self
        }
    }

    /// The gradient of the decay, from those of queries, keys and values.
    fn of_decay(self, cx: &mut VjpCx, [dq, dk, dv]: [Value; 3]) -> TypeResult {
        let (ins, o, d) = (cx.ins, cx.outs[0], cx.d());
        let b = &mut *cx.b;
        // What a token reads of its matrix, and what it adds to it, as the loss sees both.
        let [read, added] = match self.decay {
            Decay::Value => [[o, d], [ins[2], dv]],
            _ => [[ins[0], dq], [ins[1], dk]],
        };
        let (read, added) = (b.push1(Mul, &read)?, b.push1(Mul, &added)?);
        let coeffs = vec![Exact::one(), Exact::int(-1)];
        let own = b.push1(Combine { coeffs }, &[read, added])?;
        let after = self.sums(b, own)?;
        // Where a token forgets everything, nothing can be told of what it forgot.
        let inverse = b.push1(Recip, &[ins[3]])?;
        let slope = b.push1(Mul, &[after, inverse])?;
        b.push1(WherePositive, &[ins[3], slope])
    }

    /// Sums over a token and all after it: for each column, or for all columns of a head where the decay is the head's.
    fn sums(self, b: &mut Builder, x: Value) -> TypeResult {
        let ty = b.ty(x).clone();
        let mut ones = |cols| {
            let value = Exact::one();
            let one = b.push1(Constant { value }, &[])?;
            let to = ty.with_cols(cols);
            b.push1(Broadcast { to }, &[one])
        };
        let (heads, [q, k, v]) = match self.decay {
            Decay::Head => (self.heads, [ones(ty.cols())?, x, ones(self.heads)?]),
            _ => {
                let one = ones(1)?;
                (1, [one, one, x])
            }
        };
        let sums = LinearAttention::new(heads, Decay::None).turned();
        b.push1(sums, &[q, k, v])
    }

    /// Gradients of all operands.
    fn gradients(self, cx: &mut VjpCx) -> TypeResult<Vec<Option<Value>>> {
        let (d, alpha) = (cx.d(), cx.ins.get(3));
        let (q, k, v) = (cx.ins[0], cx.ins[1], cx.ins[2]);
        let mut run = |op: LinearAttention, at: [Value; 3]| {
            let operands: Vec<Value> = at.into_iter().chain(alpha.copied()).collect();
            cx.b.push1(op, &operands)
        };
        // The matrices transposed, then what the loss makes of them from the last token on.
        let dq = run(self.transposed(), [d, v, k])?;
        let dk = run(self.transposed().turned(), [v, d, q])?;
        let dv = run(self.turned(), [k, q, d])?;
        let mut found = vec![dq, dk, dv];
        if alpha.is_some() {
            found.push(self.of_decay(cx, [dq, dk, dv])?);
        }
        Ok(found.into_iter().map(Some).collect())
    }
}

impl Op for LinearAttention {
    const NAME: &'static str = "linear_attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("heads", self.heads.to_string())];
        let decay = DECAYS.into_iter().skip(1).find(|(_, d)| *d == self.decay);
        attrs.extend(decay.map(|(word, _)| ("decay", word.to_string())));
        let flags = [("reversed", self.reversed), ("continued", self.continued)];
        let said = flags.into_iter().filter(|(_, on)| *on);
        attrs.extend(said.map(|(name, on)| (name, on.to_string())));
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        let heads = given.need("heads")?;
        let decay = match given.optional::<String>("decay")? {
            None => Decay::None,
            Some(_) => given.choice("decay", &DECAYS)?,
        };
        Ok(LinearAttention {
            heads,
            decay,
            reversed: given.optional("reversed")?.unwrap_or(false),
            continued: given.optional("continued")?.unwrap_or(false),
        })
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        self.check(ins)?;
        let matrices = self
            .continued
            .then(|| self.matrices(&self.spec(&ins[1], &ins[2])));
        Ok([ins[2].clone()].into_iter().chain(matrices).collect())
    }

    fn eval(&self, ins: &[&Tensor], cx: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let [batch, seq, heads] = [k.shape[0], k.shape[1], self.heads].map(|n| n as usize);
        let (n, m) = (k.cols() / heads, v.cols() / heads);
        let mut o = Tensor::zeros(v.shape.clone());
        let shape = vec![batch as u64, (heads * n) as u64, m as u64];
        let mut matrices = match ins.last() {
            Some(before) if self.continued && cx.bindings.past > 0 => (*before).clone(),
            _ => Tensor::zeros(shape),
        };
        for (number, state) in matrices.data.chunks_exact_mut(n * m).enumerate() {
            let (b, h) = (number / heads, number % heads);
            for t in 0..seq {
                let t = if self.reversed { seq - 1 - t } else { t };
                let row = (b * seq + t) * heads + h;
                let decay = |i: usize, j: usize| match self.decay {
                    Decay::None => 1.0,
                    Decay::Head => ins[3].data[row],
                    Decay::Key => ins[3].data[row * n + i],
                    Decay::Value => ins[3].data[row * m + j],
                };
                for (at, s) in state.iter_mut().enumerate() {
                    let (i, j) = (at / m, at % m);
                    let before = if self.reversed { *s } else { decay(i, j) * *s };
                    *s = before + k.data[row * n + i] * v.data[row * m + j];
                    o.data[row * m + j] += q.data[row * n + i] * *s;
                    if self.reversed {
                        *s *= decay(i, j);
                    }
                }
            }
        }
        Ok(match self.continued {
            true => vec![o, matrices],
            false => vec![o],
        })
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        if self.reversed || self.continued {
            return Vjp::NotDifferentiable(
                "read in reverse it serves derivatives, continued it serves decoding",
            );
        }
        Vjp::Rule(self.gradients(cx).expect("the types of the op"))
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        Kind::LinearAttend(self.spec(&ins[1], &ins[2]))
    }

    fn samples() -> Vec<Sample> {
        let ins = |op: LinearAttention, n: u64, m: u64| {
            let (keys, values) = (
                TensorType::state(op.heads * n),
                TensorType::state(op.heads * m),
            );
            let mut ins = vec![keys.clone(), keys, values];
            let spec = op.spec(&ins[1], &ins[2]);
            ins.extend(spec.decays().map(TensorType::state));
            ins.extend(op.continued.then(|| op.matrices(&spec)));
            ins
        };
        // Decays are from 0 to 1.
        let sample = |op: LinearAttention, name, n, m| {
            Sample::new(op, name, ins(op, n, m)).range(0.1, 1.0)
        };
        let of = LinearAttention::new;
        let continued = |heads, decay| LinearAttention {
            continued: true,
            ..of(heads, decay)
        };
        vec![
            sample(of(2, Decay::None), "sums", 3, 2).range(-1.0, 1.0),
            sample(of(2, Decay::Head), "decay of heads", 2, 5),
            sample(of(2, Decay::Key), "decay of keys", 3, 2),
            sample(of(1, Decay::Value), "decay of values", 2, 3),
            sample(of(1, Decay::Head), "long", 4, 20).bindings(1, 70),
            sample(of(2, Decay::Key).turned(), "reversed", 2, 3),
            sample(of(2, Decay::Value).turned(), "values, reversed", 2, 3),
            sample(continued(2, Decay::Key), "from the start", 2, 17),
            sample(continued(2, Decay::Key), "after four", 2, 17).after(4),
            sample(continued(3, Decay::None), "sums, after one", 2, 3).after(1),
        ]
    }
}
