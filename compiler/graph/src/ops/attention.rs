//! Scaled dot-product attention over heads, with the log-sum-exp of the scores kept for the derivative.

use crate::exact::Exact;
use crate::op::TypeResult;
use crate::op::{EvalError, Kind, TypeError, Vjp};
use crate::ops::op::{Op, Sample, VjpCx};
use crate::ops::support::{fail, reals, unbroadcast};
use crate::ops::{Add, AttentionBackward, Exp, Mul, PositionSum, Reshape, SumCols};
use crate::tensor::{EvalCx, Tensor, add_scaled, dot};
use crate::text::{ParseError, attrs::Attrs};
use crate::types::TensorType;
use crate::value::Value;
use odec_program::kernel::{Attend, Order, Scores};
use odec_program::{DType, Dim};
use std::ops::Range;
use std::sync::Arc;

/// q `[B, S, heads · head]`, k `[B, S, kv_heads · head]`, v `[B, S, kv_heads · value] → ` o `[B, S, heads · value]`, lse `[B, S, heads]`.
/// Per head `o_i = Σ_j p_ij v_j`, `p_ij = exp(s_ij − lse_i)`, `s_ij = q_i · k_j / √head`, j ≤ i if causal, i − window < j if there is
/// a window. Heads share keys and values in groups (Ainslie et al. 2023). What else becomes of scores: [`Scores`]. A fourth operand, a number for
/// each head, are sinks. Partial: the last operand has a number `[B, S, 1]` for each token, and those whose number is below 0 take no part: they are no
/// keys, and their results are 0. Others: keys and values are of other tokens than queries, `[B, T, ..]`, none of which comes before another (no mask, window
/// or bias); numbers are those of the keys, and all queries take part; one that sees no key gives 0.
/// Distances: a table `[distances, columns]` is behind sinks, whose row `min(|i − j|, distances − 1)` is added to scores; column h is that of head h for
/// j ≤ i, and column `heads + h`, where attention is not causal, for j > i. Never together with partial or others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    pub heads: u64,
    pub kv_heads: u64,
    pub causal: bool,
    pub window: Option<u64>,
    pub softcap: Option<f64>,
    pub alibi: bool,
    pub distances: Option<u64>,
    pub partial: bool,
    pub others: bool,
}

impl Attention {
    /// Every head with keys and values of its own, no window, and scores as they are.
    pub fn new(heads: u64, causal: bool) -> Attention {
        Attention {
            heads,
            kv_heads: heads,
            causal,
            window: None,
            softcap: None,
            alibi: false,
            distances: None,
            partial: false,
            others: false,
        }
    }

    /// The kernel for queries and values of these types; a lowering sets the precision.
    pub(super) fn spec(&self, q: &TensorType, v: &TensorType, sinks: bool) -> Attend {
        let (head, value) = (q.cols() / self.heads, v.cols() / self.kv_heads);
        Attend {
            dtype: DType::F64,
            inputs: DType::F64,
            heads: self.heads,
            kv_heads: self.kv_heads,
            head,
            value: (value != head).then_some(value),
            causal: self.causal,
            room: None,
            window: self.window,
            scale: 1.0 / (head as f64).sqrt(),
            rounds: false,
            scores: Scores {
                softcap: self.softcap,
                alibi: self.alibi,
                distances: self.distances,
                sinks,
            },
            order: Order::Chain,
            partial: self.partial,
            others: self.others,
        }
    }

    /// Operands but the numbers of those that take part, and these.
    pub(super) fn numbers<'t, T>(&self, ins: &'t [T]) -> (&'t [T], Option<&'t T>) {
        match ins.split_last() {
            Some((numbers, others)) if self.partial => (others, Some(numbers)),
            _ => (ins, None),
        }
    }

    /// Whether there are sinks behind so many operands.
    pub(super) fn has_sinks<T>(&self, ins: &[T], behind: usize) -> bool {
        self.biases(self.numbers(ins).0).0.len() > behind
    }

    /// The tokens of a sequence that take part, of so many from `first` on.
    pub(super) fn part(numbers: Option<&Tensor>, first: usize, tokens: usize) -> Vec<usize> {
        let takes = |i: &usize| numbers.is_none_or(|of| of.data[first + i] >= 0.0);
        (0..tokens).filter(takes).collect()
    }

    /// Those queries of so many that take part, where `part` are the keys that do: the same tokens, or all of others.
    pub(super) fn queries(&self, part: &[usize], seq: usize) -> Vec<usize> {
        match self.others {
            true => (0..seq).collect(),
            false => part.to_vec(),
        }
    }

    /// The keys that a query at position `i` of `seq` sees.
    pub(super) fn seen(&self, i: usize, seq: usize) -> Range<usize> {
        let first = self
            .window
            .map_or(0, |w| (i + 1).saturating_sub(w as usize));
        first..if self.causal { i + 1 } else { seq }
    }

    /// What becomes of a scaled score of query `i` and key `j` in a head, and the derivative of that.
    pub(super) fn score(
        &self,
        (head, biases): (usize, Option<&Tensor>),
        scaled: f64,
        i: usize,
        j: usize,
    ) -> (f64, f64) {
        let (mut score, mut slope) = (scaled, 1.0);
        if let Some(c) = self.softcap {
            let tanh = libm::tanh(scaled / c);
            (score, slope) = (c * tanh, 1.0 - tanh * tanh);
        }
        if self.alibi {
            let steep = libm::exp2(-8.0 * (head + 1) as f64 / self.heads as f64);
            score -= steep * i.abs_diff(j) as f64;
        }
        if let Some(biases) = biases {
            score += biases.data[self.bias(biases, head, i, j)];
        }
        (score, slope)
    }

    /// The element of the table that is the bias of a head for query `i` and key `j`.
    fn bias(&self, biases: &Tensor, head: usize, i: usize, j: usize) -> usize {
        let row = i.abs_diff(j).min(biases.rows() - 1);
        row * biases.cols() + self.bias_column(head, i, j)
    }

    /// The column of a head for query `i` and key `j`, in the table of biases and in its gradient by distance.
    pub(super) fn bias_column(&self, head: usize, i: usize, j: usize) -> usize {
        let behind = if j > i { self.heads as usize } else { 0 };
        behind + head
    }

    /// Columns of the table of biases: those of keys before queries, and of keys behind them.
    pub fn bias_columns(&self) -> u64 {
        self.heads * if self.causal { 1 } else { 2 }
    }

    /// Whether it matters how far a key is from a query.
    pub fn compares_places(&self) -> bool {
        self.alibi || self.distances.is_some()
    }

    /// Operands but the table of biases, and this; the numbers of those that take part are not among them.
    pub(super) fn biases<'t, T>(&self, ins: &'t [T]) -> (&'t [T], Option<&'t T>) {
        match ins.split_last() {
            Some((biases, others)) if self.distances.is_some() => (others, Some(biases)),
            _ => (ins, None),
        }
    }

    /// The result of query `i`, whose row is `q`, from the rows of keys and values that it sees, which have so many columns, and the statistic.
    pub(super) fn row<'k>(
        &self,
        ((head, biases), sink): ((usize, Option<&Tensor>), Option<f64>),
        i: usize,
        (q, values): (&[f64], usize),
        seen: Range<usize>,
        rows: impl Fn(usize) -> (&'k [f64], &'k [f64]),
    ) -> (Vec<f64>, f64) {
        let scale = 1.0 / (q.len() as f64).sqrt();
        let score = |j| self.score((head, biases), scale * dot(q, rows(j).0), i, j).0;
        let scores: Vec<f64> = seen.clone().map(score).collect();
        let least = sink.unwrap_or(f64::NEG_INFINITY);
        let max = scores.iter().copied().fold(least, f64::max);
        let own = sink.map_or(0.0, |sink| (sink - max).exp());
        let sum = own + scores.iter().map(|s| (s - max).exp()).sum::<f64>();
        let mut o = vec![0.0; values];
        for (j, s) in seen.zip(&scores) {
            add_scaled(&mut o, (s - max).exp() / sum, rows(j).1);
        }
        (o, max + sum.ln())
    }

    /// Types of queries, keys and values that go together; the type of results. Keys and values may be any that have those columns.
    pub(super) fn check(
        &self,
        op: &'static str,
        [q, k, v]: [&TensorType; 3],
    ) -> Result<TensorType, TypeError> {
        if !q.is_state() {
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
        if self.others && (self.causal || self.compares_places()) {
            return fail(op, "tokens of other sequences or grids have no order among its own");
        }
        if self.partial && (self.window.is_some() || self.compares_places()) {
            return fail(op, "distances count where some tokens take no part");
        }
        if self.softcap.is_some_and(|c| !(c.is_finite() && c > 0.0)) {
            return fail(op, "scores are bounded by no positive number");
        }
        let keys = q.cols() / self.heads * self.kv_heads;
        if k.rank() == 0 || k.cols() != keys {
            return fail(op, format!("keys of type {k}, not of {keys} columns"));
        }
        if *v != k.with_cols(v.cols()) || !v.cols().is_multiple_of(self.kv_heads) {
            return fail(op, format!("values of type {v} for keys of type {k}"));
        }
        Ok(q.with_cols(v.cols() / self.kv_heads * self.heads))
    }

    /// The same where keys and values are those of whole sequences: of the same tokens, or, where their order does not count, of others.
    pub(super) fn check_whole(
        &self,
        op: &'static str,
        [q, k, v]: [&TensorType; 3],
    ) -> Result<TensorType, TypeError> {
        let fits = match self.others {
            true => k.is_state(),
            false => *k == q.with_cols(k.cols()),
        };
        if !fits {
            return fail(op, format!("keys of type {k} for queries of type {q}"));
        }
        self.check(op, [q, k, v])
    }

    /// Operands with or without sinks; the numbers are like one column of keys.
    pub(super) fn operands<'t>(
        &self,
        op: &'static str,
        ins: &'t [TensorType],
    ) -> Result<[&'t TensorType; 3], TypeError> {
        let (ins, numbers) = self.numbers(ins);
        self.check_numbers(op, numbers, ins.get(1))?;
        let (ins, biases) = self.biases(ins);
        self.check_biases(op, biases)?;
        let [q, k, v] = match ins {
            [_, _, _, sinks] => {
                if *sinks != TensorType::real([Dim::Fixed(self.heads)]) {
                    return fail(op, format!("sinks of type {sinks} of {} heads", self.heads));
                }
                reals(op, &ins[..3])?
            }
            _ => reals(op, ins)?,
        };
        Ok([q, k, v])
    }

    /// One for each row of an operand.
    pub(super) fn check_numbers(
        &self,
        op: &'static str,
        numbers: Option<&TensorType>,
        of: Option<&TensorType>,
    ) -> Result<(), TypeError> {
        match numbers {
            Some(numbers) if Some(numbers) != of.map(|t| t.with_cols(1)).as_ref() => {
                fail(op, format!("numbers of type {numbers}"))
            }
            _ => Ok(()),
        }
    }

    /// A row for each distance.
    pub(super) fn check_biases(
        &self,
        op: &'static str,
        biases: Option<&TensorType>,
    ) -> Result<(), TypeError> {
        let Some(rows) = self.distances else {
            return Ok(());
        };
        let shape = [rows, self.bias_columns()].map(Dim::Fixed);
        match biases {
            Some(biases) if rows > 0 && *biases == TensorType::real(shape) => Ok(()),
            _ => fail(op, format!("needs biases of {rows} distances")),
        }
    }

    /// The attributes that are not as in [`Attention::new`].
    pub(super) fn more(&self) -> Vec<(&'static str, String)> {
        let kv_heads =
            (self.kv_heads < self.heads).then(|| ("kv_heads", self.kv_heads.to_string()));
        let window = self.window.map(|w| ("window", w.to_string()));
        let softcap = self.softcap.map(|c| ("softcap", c.to_string()));
        let alibi = self.alibi.then(|| ("alibi", "true".to_string()));
        let distances = self.distances.map(|n| ("distances", n.to_string()));
        let partial = self.partial.then(|| ("partial", "true".to_string()));
        let others = self.others.then(|| ("others", "true".to_string()));
        [kv_heads, window, softcap, alibi, distances, partial, others]
            .into_iter()
            .flatten()
            .collect()
    }

    /// The same, read.
    pub(super) fn with_more(self, given: &mut Attrs) -> Result<Attention, ParseError> {
        Ok(Attention {
            kv_heads: given.optional("kv_heads")?.unwrap_or(self.heads),
            window: given.optional("window")?,
            softcap: given.optional("softcap")?,
            alibi: given.optional("alibi")?.unwrap_or(false),
            distances: given.optional("distances")?,
            partial: given.optional("partial")?.unwrap_or(false),
            others: given.optional("others")?.unwrap_or(false),
            ..self
        })
    }
}

/// A sample whose keys and values are of so many tokens of a grid, with a number for each of these where only some take part.
pub(super) fn of_keys(mut sample: Sample, tokens: u64, partial: bool) -> Sample {
    for t in &mut sample.ins[1..3] {
        Arc::make_mut(&mut t.shape)[1] = Dim::Fixed(tokens);
    }
    let numbers = partial.then(|| sample.ins[1].per_row());
    sample.ins.extend(numbers);
    sample
}

/// One (batch, head) of [B, S, heads · head] tensors: where each position's columns lie.
pub(super) fn heads(q: &Tensor, heads: u64) -> impl Iterator<Item = Head> + Clone {
    shared(q, heads, heads)
}

/// The same in tensors of keys or values, of which there are `kv_heads`: one for each of `heads`.
pub(super) fn shared(
    k: &Tensor,
    heads: u64,
    kv_heads: u64,
) -> impl Iterator<Item = Head> + Clone {
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
    /// Rows before those of its sequence.
    pub first: usize,
    /// The head's number.
    pub head: usize,
    count: usize,
    width: usize,
}

impl Head {
    /// The columns of this head at position `i`, in a tensor like that which it was made of.
    pub(super) fn at(&self, i: usize) -> std::ops::Range<usize> {
        let start = ((self.first + i) * self.count + self.head) * self.width;
        start..start + self.width
    }
    /// The same in a tensor of heads of other widths.
    pub(super) fn of(self, like: &Tensor) -> Head {
        Head {
            width: like.cols() / self.count,
            ..self
        }
    }
    /// The place of this head's number at position `i`, in a tensor like lse.
    pub(super) fn number(&self, i: usize) -> usize {
        (self.first + i) * self.count + self.head
    }
}

/// `−Σ exp(sink − lse) · (d · o)` over all queries of a head: the gradient of the sinks.
fn of_sinks(cx: &mut VjpCx, sinks: Value, d: Value, heads: u64) -> TypeResult {
    let (o, lse) = (cx.outs[0], cx.outs[1]);
    let b = &mut *cx.b;
    let minus = |b: &mut crate::ops::Builder, x| crate::nn::combine(b, &[(Exact::int(-1), x)]);
    let product = b.push1(Mul, &[d, o])?;
    let columns = b.ty(o).cols() / heads;
    let tokens = b.ty(o).tokens();
    let rows = |last: u64| vec![Dim::Batch, tokens, Dim::Fixed(heads), Dim::Fixed(last)];
    let split = Reshape::of(rows(columns));
    let split = b.push1(split, &[product])?;
    let delta = b.push1(SumCols, &[split])?;
    let to = vec![Dim::Batch, tokens, Dim::Fixed(heads)];
    let delta = b.push1(Reshape::of(to), &[delta])?;
    let below = minus(b, lse)?;
    let shifted = b.push1(Add, &[below, sinks])?;
    let weight = b.push1(Exp, &[shifted])?;
    let taken = b.push1(Mul, &[weight, delta])?;
    let taken = minus(b, taken)?;
    let to = b.ty(sinks).clone();
    Ok(unbroadcast(b, taken, &to))
}

impl Op for Attention {
    const NAME: &'static str = "attention";

    fn attrs(&self) -> Vec<(&'static str, String)> {
        let mut attrs = vec![
            ("heads", self.heads.to_string()),
            ("causal", self.causal.to_string()),
        ];
        attrs.extend(self.more());
        attrs
    }

    fn from_attrs(given: &mut Attrs) -> Result<Self, ParseError> {
        Attention::new(given.need("heads")?, given.need("causal")?).with_more(given)
    }

    fn infer(&self, ins: &[TensorType]) -> Result<Vec<TensorType>, TypeError> {
        let [q, k, v] = self.operands(Self::NAME, ins)?;
        let o = self.check_whole(Self::NAME, [q, k, v])?;
        Ok(vec![o, q.with_cols(self.heads)])
    }

    fn eval(&self, ins: &[&Tensor], _: &EvalCx) -> Result<Vec<Tensor>, EvalError> {
        let (ins, numbers) = self.numbers(ins);
        let (ins, biases) = self.biases(ins);
        let (q, k, v) = (ins[0], ins[1], ins[2]);
        let [seq, keys] = [q, k].map(|x| x.shape[1] as usize);
        let values = v.cols() / self.kv_heads as usize;
        let columns = values as u64 * self.heads;
        let mut o = Tensor::zeros(vec![q.shape[0], q.shape[1], columns]);
        let mut lse = Tensor::zeros(vec![q.shape[0], q.shape[1], self.heads]);
        for (h, kept) in heads(q, self.heads).zip(shared(k, self.heads, self.kv_heads)) {
            let (of_values, of_results) = (kept.of(v), h.of(&o));
            let sink = ins.get(3).map(|sinks| sinks.data[h.head]);
            let part = Attention::part(numbers.copied(), kept.first, keys);
            let own = self.queries(&part, seq);
            let rows = |j: usize| (&k.data[kept.at(part[j])], &v.data[of_values.at(part[j])]);
            for (n, i) in own.into_iter().enumerate() {
                let seen = self.seen(n, part.len());
                let query = (&q.data[h.at(i)], values);
                let (row, l) = self.row(((h.head, biases.copied()), sink), n, query, seen, rows);
                o.data[of_results.at(i)].copy_from_slice(&row);
                lse.data[h.number(i)] = l;
            }
        }
        Ok(vec![o, lse])
    }

    fn vjp(&self, cx: &mut VjpCx) -> Vjp {
        let &[Some(d), None] = cx.d_outs else {
            return Vjp::NotDifferentiable("its log-sum-exp serves the derivative only");
        };
        let op = AttentionBackward { attention: *self };
        let (own, numbers) = self.numbers(cx.ins);
        let (own, biases) = self.biases(own);
        let (sinks, numbers, biases) = (own.get(3).copied(), numbers.copied(), biases.copied());
        let ins = [cx.ins[0], cx.ins[1], cx.ins[2], cx.outs[0], cx.outs[1], d];
        let ins: Vec<Value> = ins.into_iter().chain(biases).chain(numbers).collect();
        let found = cx.b.push(op, &ins).expect("the types of the forward op");
        let mut found: Vec<Option<Value>> = found.into_iter().map(Some).collect();
        let of_distances = found.drain(3..).next().flatten();
        if let Some(sinks) = sinks {
            let d = of_sinks(cx, sinks, d, self.heads).expect("a number for each head");
            found.push(Some(d));
        }
        if let (Some(d), Some(positions)) = (of_distances, self.distances) {
            let sum = PositionSum {
                positions,
                beyond: true,
            };
            let d = cx.b.push1(sum, &[d]).expect("a row for each distance");
            found.push(Some(d));
        }
        // Who takes part is no matter of degree.
        found.extend(numbers.map(|_| None));
        Vjp::Rule(found)
    }

    fn kind(&self, ins: &[TensorType]) -> Kind {
        let sinks = self.has_sinks(ins, 3);
        Kind::Attend(self.spec(&ins[0], &ins[2], sinks))
    }

    fn samples() -> Vec<Sample> {
        let q = TensorType::state(12);
        let of = |op: Attention, value: u64, name| {
            let k = q.with_cols(12 / op.heads * op.kv_heads);
            let v = q.with_cols(value * op.kv_heads);
            Sample::new(op, name, vec![q.clone(), k, v]).tolerance(1e-5)
        };
        let sample = |heads, kv_heads, causal, window, name| {
            let op = Attention {
                kv_heads,
                window,
                ..Attention::new(heads, causal)
            };
            of(op, 12 / heads, name)
        };
        let capped = Attention {
            softcap: Some(0.25),
            ..Attention::new(3, true)
        };
        let alibi = Attention {
            alibi: true,
            ..Attention::new(2, true)
        };
        let both = Attention {
            softcap: Some(0.5),
            causal: false,
            ..alibi
        };
        let sinks = |op: Attention, name| {
            let mut sample = of(op, 12 / op.heads, name);
            sample.ins.push(TensorType::real([Dim::Fixed(op.heads)]));
            sample
        };
        let biased = |op: Attention, mut sample: Sample| {
            let rows = op.distances.unwrap_or(1);
            let shape = [rows, op.bias_columns()].map(Dim::Fixed);
            sample.ins.push(TensorType::real(shape));
            sample
        };
        let distant = |rows, op: Attention| Attention {
            distances: Some(rows),
            ..op
        };
        let near = distant(3, Attention::new(2, true));
        let far = distant(80, Attention { kv_heads: 1, ..both });
        let windowed = Attention {
            window: Some(5),
            ..distant(4, Attention::new(2, true))
        };
        let some_causal = Attention {
            partial: true,
            ..Attention::new(3, true)
        };
        let some_full = Attention {
            causal: false,
            softcap: Some(0.5),
            ..some_causal
        };
        let some = |mut sample: Sample| {
            sample.ins.push(q.per_row());
            sample
        };
        // As many tokens whatever a run's sequence has.
        let grid = |mut sample: Sample| {
            let states = sample.ins.iter_mut().filter(|t| t.is_state());
            states.for_each(|t| Arc::make_mut(&mut t.shape)[1] = Dim::Fixed(7));
            sample
        };
        let full = Attention {
            others: true,
            ..Attention::new(3, false)
        };
        let capped_full = Attention {
            softcap: Some(0.5),
            kv_heads: 1,
            ..full
        };
        let some_others = Attention {
            partial: true,
            ..full
        };
        vec![
            of_keys(of(full, 4, "of others"), 3, false),
            of_keys(
                of(capped_full, 7, "of others, shared, softcap, wide"),
                70,
                false,
            )
            .bindings(1, 66),
            of_keys(sinks(full, "of others, sinks"), 5, false),
            of_keys(of(some_others, 4, "of some others"), 131, true).bindings(2, 5),
            of_keys(sinks(some_others, "of some others, sinks"), 9, true),
            sample(3, 3, true, None, "causal"),
            sample(2, 2, false, None, "full"),
            sample(1, 1, true, None, "long").bindings(1, 70),
            sample(4, 2, true, None, "shared"),
            sample(3, 1, false, None, "one of all"),
            sample(2, 2, true, Some(2), "window"),
            sample(2, 1, true, Some(66), "long window").bindings(1, 131),
            sample(1, 1, true, Some(3), "narrow window").bindings(1, 131),
            of(capped, 4, "softcap"),
            of(alibi, 6, "alibi").bindings(1, 70),
            of(both, 6, "both").bindings(1, 66),
            of(Attention::new(2, true), 10, "wide values"),
            of(Attention::new(4, true), 1, "narrow values").bindings(1, 66),
            sinks(Attention::new(3, true), "sinks"),
            sinks(both, "sinks and both"),
            sinks(Attention::new(1, true), "one sink").bindings(1, 66),
            grid(sinks(Attention::new(3, false), "grid")),
            biased(near, of(near, 6, "biases")).bindings(2, 7),
            biased(far, sinks(far, "biases, sinks, full")).bindings(1, 67),
            biased(windowed, of(windowed, 5, "biases, window")).bindings(1, 70),
            some(of(some_causal, 4, "of some")).bindings(2, 9),
            some(of(some_full, 6, "of some, full, softcap")).bindings(1, 140),
            some(sinks(some_causal, "of some, sinks")).bindings(1, 131),
        ]
    }
}
