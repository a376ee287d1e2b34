//! Linear attention: a matrix for each head that tokens decay, add to and read (Katharopoulos et al. 2020; Yang et al. 2024).
//!
//! The op is closed under its own derivative: gradients of queries, keys and values are linear attention again, with the operands in
//! other places or the tokens in reverse, so no matrix is ever kept. The gradient of the decay follows from these three: for one matrix,
//! `α_t dα_t = Σ_{s ≥ t} (q_s dq_s − k_s dk_s)` in each of its rows (Yang et al. 2024, Section 4.4), and that sum is linear attention to ones.
//!
//! The delta rule is closed as well. What the matrices miss of the values is `o = (I + L)⁻¹ v`, L_ts = q_t k_s between tokens s < t, faded. Its
//! gradient `x = (I + Lᵀ)⁻¹ do` is the same with q and k exchanged and the tokens in reverse, and is that of v; the formula for α holds as it is.

use crate::exact::Exact;
use crate::op::{Before, EvalError, Kind, OneLaunch, TypeError, TypeResult, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::scan::{chunks_given, chunks_said, of_chunks, products, some_chunks};
use crate::ops::support::fail;
use crate::ops::{
    Broadcast, Builder, Combine, Constant, Mul, Recip, Reshape, SumCols, WherePositive,
};
use crate::tensor::{EvalCx, Tensor};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::{Elem, TensorType};
use crate::value::Value;
use odec_program::kernel::{
    Decay, KernelSpec, LinearAttend, LinearAttendPart, MOST_HEAD, MOST_HEADS,
};
use odec_program::{DType, Dim};

/// q, k `[B, S, heads · n]`, v `[B, S, heads · m]`, decay α unless there is none → o like v. Per head `S_t = α_t S_{t−1} + k_tᵀ v_t`,
/// `o_t = q_t S_t`, S an n × m matrix, zero before the first token. `reversed`: `S_t = α_{t+1} S_{t+1} + k_tᵀ v_t`, zero after the last.
/// `continued`: one operand more, the matrices `[B, heads · n, m]` that the last run left (where there are tokens before those of the run), and
/// one result more, those after the last token.
///
/// `delta`: o_t is what the matrix misses of the value, and is added in its place: `o_t = v_t − q_t α_t S_{t−1}`, `S_t = α_t S_{t−1} + k_tᵀ o_t`.
///
/// `chunks` of a sequence, if there are several, are computed beside each other, then joined: o is rounded otherwise. `continued` is then not possible.
///
/// Nothing is normalised. A column of ones in v gives the sum of the weights that a normaliser divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearAttention {
    pub heads: u64,
    pub decay: Decay,
    pub reversed: bool,
    pub continued: bool,
    pub delta: bool,
    pub chunks: u64,
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
            delta: false,
            chunks: 1,
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
            delta: self.delta,
            chunks: self.chunks,
            part: LinearAttendPart::Results,
        }
    }

    /// The launches that make what several chunks are joined from; `kernel` makes that of a part, with so many columns of a value.
    fn of_chunks<K: Fn(DType) -> KernelSpec + 'static>(
        &self,
        spec: &LinearAttend,
        kernel: impl Fn(LinearAttendPart, u64) -> K,
    ) -> Vec<Before> {
        use LinearAttendPart::{Ends, Transitions};
        let (chunks, keys) = (self.chunks, self.heads * spec.key);
        if chunks == 1 {
            return vec![];
        }
        let decays = spec.decays();
        let decay = decays.map(|_| 3);
        let of = |operands: &[usize]| operands.iter().copied().chain(decay).collect();
        let (ends, value) = (kernel(Ends, spec.value), spec.value);
        if self.delta {
            let transitions = kernel(Transitions, spec.key);
            return vec![
                of_chunks("transitions", chunks, of(&[0, 1]), keys * spec.key, transitions),
                of_chunks("ends", chunks, of(&[0, 1, 2]), keys * value, ends),
            ];
        }
        let products = decays.map(|cols| products(chunks, 3, cols));
        let ends = of_chunks("ends", chunks, of(&[1, 2]), keys * value, ends);
        products.into_iter().chain([ends]).collect()
    }

    /// How many operands there are.
    fn arity(&self) -> usize {
        3 + usize::from(self.decay != Decay::None) + usize::from(self.continued)
    }

    fn check(&self, ins: &[TensorType]) -> Result<(), TypeError> {
        let op = Self::NAME;
        some_chunks(op, self.chunks)?;
        if self.chunks > 1 && self.continued {
            return fail(op, "what is continued has no chunks");
        }
        if self.chunks > 1 && self.delta && self.decay == Decay::Value {
            let what = "the delta rule has no chunks where values have decays";
            return fail(op, what);
        }
        if ins.len() != self.arity() {
            let arity = self.arity();
            return fail(op, format!("takes {arity} operands, not {}", ins.len()));
        }
        if let Some(t) = ins.iter().find(|t| t.elem != Elem::Real) {
            return fail(op, format!("needs real operands, not {t}"));
        }
        let (q, k, v) = (&ins[0], &ins[1], &ins[2]);
        for t in [q, k, v] {
            if !t.is_state() {
                return fail(op, format!("needs [B, S, width], not {t}"));
            }
            if self.heads == 0 || !t.cols().is_multiple_of(self.heads) {
                let what = format!("{} columns are not {} heads", t.cols(), self.heads);
                return fail(op, what);
            }
            if self.heads > MOST_HEADS || t.cols() / self.heads > MOST_HEAD {
                let what = format!("{} columns in {} heads are too many", t.cols(), self.heads);
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
        let own = b.push1(Combine::of(coeffs), &[read, added])?;
        let after = self.sums(b, own)?;
        // Where a token forgets everything, nothing can be told of what it forgot. The square of what is almost nothing is zero, so that no
        // quotient overflows.
        let inverse = b.push1(Recip, &[ins[3]])?;
        let slope = b.push1(Mul, &[after, inverse])?;
        let square = b.push1(Mul, &[ins[3], ins[3]])?;
        b.push1(WherePositive, &[square, slope])
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
                let one = ones(self.heads)?;
                (self.heads, [one, one, x])
            }
        };
        let sums = LinearAttention {
            chunks: self.chunks,
            ..LinearAttention::new(heads, Decay::None).turned()
        };
        b.push1(sums, &[q, k, v])
    }

    /// Gradients of all operands.
    fn gradients(self, cx: &mut VjpCx) -> TypeResult<Vec<Option<Value>>> {
        let own = match self.delta {
            true => self.of_delta(cx)?,
            false => self.of_sums(cx)?,
        };
        let decay = match cx.ins.get(3) {
            Some(_) => Some(self.of_decay(cx, own)?),
            None => None,
        };
        Ok(own.into_iter().chain(decay).map(Some).collect())
    }

    /// The op of these operands and the decay.
    fn of(self, cx: &mut VjpCx, at: [Value; 3]) -> TypeResult {
        let alpha = cx.ins.get(3).copied();
        let operands: Vec<Value> = at.into_iter().chain(alpha).collect();
        cx.b.push1(self, &operands)
    }

    /// Gradients of queries, keys and values: those of the matrices transposed, then of what the loss makes of them from the last token on.
    fn of_sums(self, cx: &mut VjpCx) -> TypeResult<[Value; 3]> {
        let ([q, k, v], d) = ([cx.ins[0], cx.ins[1], cx.ins[2]], cx.d());
        let dq = self.transposed().of(cx, [d, v, k])?;
        let dk = self.transposed().turned().of(cx, [v, d, q])?;
        let dv = self.turned().of(cx, [k, q, d])?;
        Ok([dq, dk, dv])
    }

    /// Gradients of queries, keys and values under the delta rule, x being that of the values: `dq_t = −x_t (α_t S_{t−1})ᵀ`, and dk_t is the
    /// same of the matrices that q and x add to from the last token on.
    fn of_delta(self, cx: &mut VjpCx) -> TypeResult<[Value; 3]> {
        let ([q, k, _], o, d) = ([cx.ins[0], cx.ins[1], cx.ins[2]], cx.outs[0], cx.d());
        let x = self.turned().of(cx, [k, q, d])?;
        let sums = LinearAttention {
            delta: false,
            ..self.transposed()
        };
        let weight = self.dot(cx.b, x, o)?;
        let dq = sums.of_others(cx, [x, o, k], weight)?;
        let dk = sums.turned().of_others(cx, [o, x, q], weight)?;
        Ok([dq, dk, x])
    }

    /// What a token does not read of all others: its own part, which is `v` by `weight`, without the sum over all.
    fn of_others(self, cx: &mut VjpCx, [q, k, v]: [Value; 3], weight: Value) -> TypeResult {
        let all = self.of(cx, [q, k, v])?;
        let own = self.split(cx.b, v)?;
        let own = cx.b.push1(Mul, &[weight, own])?;
        let to = cx.b.ty(v).shape.clone();
        let own = cx.b.push1(Reshape::of(to), &[own])?;
        let coeffs = vec![Exact::one(), Exact::int(-1)];
        cx.b.push1(Combine::of(coeffs), &[own, all])
    }

    /// `[B, S, heads, 1]`: the product of two rows in each head.
    fn dot(self, b: &mut Builder, x: Value, y: Value) -> TypeResult {
        let product = b.push1(Mul, &[x, y])?;
        let product = self.split(b, product)?;
        b.push1(SumCols, &[product])
    }

    /// `[B, S, heads · n]` as `[B, S, heads, n]`.
    fn split(self, b: &mut Builder, x: Value) -> TypeResult {
        let mut to = b.ty(x).shape.to_vec();
        let cols = b.ty(x).cols() / self.heads;
        to.pop();
        to.extend([Dim::Fixed(self.heads), Dim::Fixed(cols)]);
        b.push1(Reshape::of(to), &[x])
    }
}

impl Op for LinearAttention {
    const NAME: &'static str = "linear_attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![("heads", self.heads.to_string())];
        let decay = DECAYS.into_iter().skip(1).find(|(_, d)| *d == self.decay);
        attrs.extend(decay.map(|(word, _)| ("decay", word.to_string())));
        let flags = [
            ("delta", self.delta),
            ("reversed", self.reversed),
            ("continued", self.continued),
        ];
        let said = flags.into_iter().filter(|(_, on)| *on);
        attrs.extend(said.map(|(name, on)| (name, on.to_string())));
        attrs.extend(chunks_said(self.chunks));
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
            delta: given.optional("delta")?.unwrap_or(false),
            chunks: chunks_given(given)?,
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
                let fade = |state: &mut [f64]| {
                    let each = state.iter_mut().enumerate();
                    each.for_each(|(at, s)| *s *= decay(at / m, at % m));
                };
                let columns = row * m..row * m + m;
                let query = &q.data[row * n..row * n + n];
                let mut written = v.data[columns.clone()].to_vec();
                if !self.reversed {
                    fade(state);
                }
                if self.delta {
                    let seen = read(query, state, m);
                    written.iter_mut().zip(seen).for_each(|(v, o)| *v -= o);
                }
                for (at, s) in state.iter_mut().enumerate() {
                    *s += k.data[row * n + at / m] * written[at % m];
                }
                o.data[columns].copy_from_slice(&match self.delta {
                    true => written,
                    false => read(query, state, m),
                });
                if self.reversed {
                    fade(state);
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
        let spec = self.spec(&ins[1], &ins[2]);
        let kernel = |part, value| {
            let spec = LinearAttend {
                part,
                value,
                ..spec.clone()
            };
            move |dtype| {
                KernelSpec::LinearAttend(LinearAttend {
                    dtype,
                    ..spec.clone()
                })
            }
        };
        let launch = OneLaunch {
            before: self.of_chunks(&spec, kernel),
            ..OneLaunch::along(kernel(LinearAttendPart::Results, spec.value), ins)
        };
        Kind::One(match self.continued {
            true => launch.carried(),
            false => launch,
        })
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
        let chunks = |op, chunks| LinearAttention { chunks, ..op };
        let delta = |heads, decay| LinearAttention {
            delta: true,
            ..of(heads, decay)
        };
        vec![
            sample(of(2, Decay::None), "sums", 3, 2).range(-1.0, 1.0),
            sample(of(2, Decay::Head), "decay of heads", 2, 5),
            sample(of(2, Decay::Key), "decay of keys", 3, 2),
            sample(of(1, Decay::Value), "decay of values", 2, 3),
            sample(of(2, Decay::Key), "decay of both signs", 3, 2).range(-1.0, 1.0),
            sample(of(1, Decay::Head), "long", 4, 20).bindings(1, 70),
            sample(of(2, Decay::Key).turned(), "reversed", 2, 3),
            sample(of(2, Decay::Value).turned(), "values, reversed", 2, 3),
            sample(continued(2, Decay::Key), "from the start", 2, 17),
            sample(continued(2, Decay::Key), "after four", 2, 17).after(4),
            sample(continued(3, Decay::None), "sums, after one", 2, 3).after(1),
            sample(chunks(of(2, Decay::None), 3), "sums in chunks", 3, 2).range(-1.0, 1.0),
            sample(chunks(of(2, Decay::Head), 3), "heads, in chunks", 2, 5).bindings(2, 7),
            sample(chunks(of(2, Decay::Key), 8), "keys, more chunks than tokens", 3, 2),
            sample(chunks(of(1, Decay::Value), 4), "values, in chunks", 4, 70).bindings(1, 11),
            sample(chunks(of(2, Decay::Key).turned(), 3), "keys, in chunks, reversed", 2, 3).bindings(2, 8),
            sample(chunks(of(2, Decay::Value).turned(), 3), "values, in chunks, reversed", 2, 3).bindings(1, 7),
            sample(delta(2, Decay::None), "delta rule", 3, 2).range(-1.0, 1.0),
            sample(delta(2, Decay::Head), "delta rule, heads", 2, 5),
            sample(delta(2, Decay::Key), "delta rule, keys", 3, 2),
            sample(delta(1, Decay::Value), "delta rule, values", 2, 3),
            sample(delta(2, Decay::Key).turned(), "delta rule, reversed", 2, 3),
            sample(chunks(delta(2, Decay::None), 3), "delta rule, in chunks", 3, 2).bindings(2, 7).range(-1.0, 1.0),
            sample(chunks(delta(2, Decay::Head), 8), "delta rule, more chunks than tokens", 2, 5),
            sample(chunks(delta(2, Decay::Key).turned(), 3), "delta rule, in chunks, reversed", 2, 3).bindings(2, 8),
        ]
    }
}

/// A query by a matrix of `m` columns.
fn read(query: &[f64], matrix: &[f64], m: usize) -> Vec<f64> {
    let mut o = vec![0.0; m];
    for (q, row) in query.iter().zip(matrix.chunks_exact(m)) {
        o.iter_mut().zip(row).for_each(|(o, s)| *o += q * s);
    }
    o
}
