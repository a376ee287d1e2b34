//! Attention: the specification that its three kernels share, its signature and its meaning.
//!
//! The meaning is the very bits that compiled kernels give. What the block
//! structure leaves of the order of summation is little: forward, the running maximum and sum move on once per
//! key block of [`Attend::BLOCK`]; everything else is one chain of fused multiply-adds, over columns for scores, over
//! keys for outputs and query gradients, over queries for key and value gradients, each in order.

use super::signature::{Count, Dimension, Mode, OperandAccess, Pairs, Signature, Work};
use super::validate::{self, MOST_HEAD, MOST_HEADS};
use super::{Indices, Kind, Launch, Sample};
use crate::DType;
use crate::eval::{Evaluator, Memory};
use crate::expr::{BinaryOp, Body, Expr, ExprId, UnaryOp};
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Fused scaled-dot-product attention over [batch, seq, heads · head] tensors (keys and values: kv_heads · head); no
/// seq × seq matrix exists in memory.
///
/// dims: `[batch, seq]`.
/// Forward: operands q, k, v, o, lse; `lse` is [batch, seq, heads], the natural log of the sum of
/// exponentials of scaled scores. tiles: `batch · heads · ceil(seq / BLOCK)`, one per block of query rows
/// (index = (b · heads + h) · blocks + block).
/// Backward: operands q, k, v, o, lse, d_o, d_q, d_k, d_v. tiles: `batch · kv_heads`.
/// Cached (causal, one sequence): dims `[seq, past]`, operands q, k, v, o; k and v hold `past + seq` rows, query row i has
/// the position `past + i`. tiles: `heads · ceil(seq / QUERIES)`. The result is bit for bit that of the forward kernel for
/// these rows of the whole sequence.
/// Elements of q, k, v (and of o where the backward kernel reads it) are `inputs`, all others `dtype`, as is arithmetic.
/// `scale` multiplies the scores (1/√head as a rounded constant). The order of every sum is that of this file,
/// except on tensor cores ([`crate::gpu::tensor`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attend {
    pub dtype: DType,
    pub inputs: DType,
    pub heads: u64,
    /// Heads of keys and values, a divisor of `heads`: query head h reads number `h · kv_heads / heads`.
    pub kv_heads: u64,
    /// Columns of one head.
    pub head: u64,
    pub causal: bool,
    /// Most keys that a query sees: its own and those right before it. Causal attention only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    pub scale: f64,
}

impl Attend {
    /// Query rows and key rows of a block.
    pub const BLOCK: u64 = 64;
    /// Query rows of a tile of the cached kernel.
    pub const QUERIES: u64 = 16;

    /// Query heads that share a head of keys and values.
    pub fn group(&self) -> u64 {
        self.heads / self.kv_heads
    }

    /// The first of `keys` that a query at this position sees.
    pub fn first_key(&self, position: u64) -> u64 {
        self.window.map_or(0, |w| (position + 1).saturating_sub(w))
    }

    /// Head columns rounded up to whole vectors.
    pub fn padded_head(&self) -> u64 {
        self.head.next_multiple_of(16)
    }

    /// Columns of queries, and of keys and values.
    fn widths(&self) -> (u64, u64) {
        (self.heads * self.head, self.kv_heads * self.head)
    }

    /// An operand of rows as wide as queries.
    pub(super) fn wide(&self, name: &'static str, mode: Mode, dims: Dims) -> OperandAccess {
        self.operand(name, mode, Count::rows(dims, self.widths().0))
    }

    /// An operand of rows as wide as keys and values.
    pub(super) fn narrow(&self, name: &'static str, mode: Mode, dims: Dims) -> OperandAccess {
        self.operand(name, mode, Count::rows(dims, self.widths().1))
    }

    /// Keys or values of all tokens so far, which are as many as the sum of dims.
    pub(super) fn kept(&self, name: &'static str, dims: Dims) -> OperandAccess {
        let each = self.widths().1;
        self.operand(name, Mode::Read, Count::Sum { dims, each })
    }

    /// A number for each row and head of queries.
    pub(super) fn statistic(&self, mode: Mode, dims: Dims) -> OperandAccess {
        self.operand("lse", mode, Count::rows(dims, self.heads))
    }

    fn operand(&self, name: &'static str, mode: Mode, extent: Count) -> OperandAccess {
        OperandAccess::new(name, self.dtype, mode, [extent])
    }

    /// `products` multiply-adds for each column of a head, and each pair of a query and a key that it sees.
    pub(super) fn work(
        &self,
        products: u64,
        sequences: Option<usize>,
        past: Option<usize>,
    ) -> Work {
        Work::attention(Count::Pairs(Pairs {
            sequences,
            queries: usize::from(sequences.is_some()),
            past,
            causal: self.causal,
            window: self.window,
            each: products * self.widths().0,
        }))
    }

    /// The signature of a kernel whose first so many operands are in the type of inputs.
    pub(super) fn signature(&self, mut operands: Vec<OperandAccess>, inputs: usize) -> Signature {
        operands[..inputs]
            .iter_mut()
            .for_each(|o| o.dtype = self.inputs);
        Signature {
            dtype: self.dtype,
            operands,
            dims: vec![Dimension::any("batch"), Dimension::any("seq")],
            coeffs: 0,
            scratch: vec![Count::fixed(self.forward_scratch())],
            work: self.work(2, Some(0), None),
        }
    }

    /// Elements of scratch of a forward tile (the emitter documents the layout).
    fn forward_scratch(&self) -> u64 {
        let (b, d) = (Self::BLOCK, self.padded_head());
        // q block, transposed k block, v block, o accumulator, scores, running max and sum
        4 * b * d + b * b + 4 * b + 64
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        validate::sums(self.dtype)?;
        validate::reads(self.dtype, self.inputs)?;
        if !(1..=MOST_HEADS).contains(&self.heads) || !(1..=MOST_HEAD).contains(&self.head) {
            return Err(format!("{} heads of {} columns", self.heads, self.head));
        }
        if self.kv_heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(format!(
                "{} heads do not share {} of keys",
                self.heads, self.kv_heads
            ));
        }
        match self.window {
            Some(0) => return Err("its window is empty".into()),
            Some(_) if !self.causal => return Err("its window looks ahead".into()),
            // However far it reaches, nothing is as large as it.
            Some(_) | None => {}
        }
        match self.scale.is_finite() {
            true => Ok(()),
            false => Err("its scale is not finite".into()),
        }
    }

    pub(super) fn headline(&self) -> String {
        let mut mask = String::from(if self.causal { "causal" } else { "full" });
        if let Some(w) = self.window {
            mask += &format!(", window {w}");
        }
        if self.kv_heads < self.heads {
            mask += &format!(", {} heads of keys", self.kv_heads);
        }
        let (heads, head, scale) = (self.heads, self.head, self.scale);
        format!("{heads} heads × {head}, {mask}, scale {scale}")
    }

    /// Shared and own keys, masks of each kind, in every type.
    pub(super) fn samples_at(dims: &[u64]) -> Vec<Sample<Attend>> {
        let sample = |(dtype, inputs, kv_heads, causal, window)| {
            let spec = Attend {
                dtype,
                inputs,
                heads: 4,
                kv_heads,
                head: 3,
                causal,
                window,
                scale: 0.6,
            };
            Sample::new(spec, dims, &[])
        };
        let of = [
            (DType::F32, DType::F32, 4, true, None),
            (DType::F32, DType::Bf16, 2, true, Some(2)),
            (DType::F64, DType::F64, 1, true, None),
        ];
        of.map(sample).into()
    }
}

/// Numbers of dims.
type Dims = &'static [usize];

pub(super) struct AttendKind;

impl Kind for AttendKind {
    type Spec = Attend;
    const NAME: &'static str = "attend";

    fn dtype(a: &Attend) -> DType {
        a.dtype
    }

    fn validate(a: &Attend) -> Result<(), String> {
        a.validate()
    }

    fn signature(a: &Attend) -> Signature {
        let operands = vec![
            a.wide("q", Mode::Read, &[0, 1]),
            a.narrow("k", Mode::Read, &[0, 1]),
            a.narrow("v", Mode::Read, &[0, 1]),
            a.wide("o", Mode::Write, &[0, 1]),
            a.statistic(Mode::Write, &[0, 1]),
        ];
        a.signature(operands, 3)
    }

    fn tiles(a: &Attend, dims: &[u64]) -> u64 {
        dims[0] * a.heads * dims[1].div_ceil(Attend::BLOCK)
    }

    fn headline(a: &Attend) -> String {
        a.headline()
    }

    fn run<T: Real>(a: &Attend, m: &mut (impl Memory<T> + Indices), at: Launch) {
        eval_attend::<T>(a, m, [at.dims[0], at.dims[1]]);
    }

    fn samples() -> Vec<Sample<Attend>> {
        let mut all = Attend::samples_at(&[2, 5]);
        let mut full = all[0].clone();
        full.spec.causal = false;
        all.push(full);
        all
    }
}

/// Where the operands are; the backward kernel has others after these.
pub(super) const Q: u32 = 0;
pub(super) const K: u32 = 1;
pub(super) const V: u32 = 2;
pub(super) const O: u32 = 3;
pub(super) const LSE: u32 = 4;
/// Operands with a row for each head of keys; the last two are gradients.
pub(super) const OF_KEYS: [u32; 4] = [K, V, 7, 8];

/// One head of one sequence.
pub(super) struct Head<'a, M> {
    kernel: &'a Attend,
    pub(super) memory: &'a mut M,
    seq: u64,
    batch: u64,
    pub(super) number: u64,
}

impl<M> Head<'_, M> {
    /// Element number of the row's statistic.
    pub(super) fn statistic(&self, row: u64) -> u64 {
        (self.batch * self.seq + row) * self.kernel.heads + self.number
    }

    /// Element number of the row's first column in an operand.
    fn first(&self, operand: u32, row: u64) -> u64 {
        let row = match OF_KEYS.contains(&operand) {
            true => {
                let rows = (self.batch * self.seq + row) * self.kernel.kv_heads;
                rows + self.number / self.kernel.group()
            }
            false => self.statistic(row),
        };
        row * self.kernel.head
    }

    pub(super) fn row<T: Real>(&self, operand: u32, row: u64) -> Vec<T>
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        (first..first + self.kernel.head)
            .map(|i| self.memory.load(operand, i))
            .collect()
    }

    pub(super) fn rows<T: Real>(&self, operand: u32) -> Vec<Vec<T>>
    where
        M: Memory<T>,
    {
        (0..self.seq).map(|r| self.row(operand, r)).collect()
    }

    pub(super) fn write<T: Real>(&mut self, operand: u32, row: u64, values: &[T])
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        for (i, x) in (first..).zip(values) {
            self.memory.store(operand, i, *x);
        }
    }

    /// Keys that a query row sees.
    pub(super) fn keys(&self, row: u64) -> Range<usize> {
        let end = if self.kernel.causal {
            row + 1
        } else {
            self.seq
        };
        self.kernel.first_key(row) as usize..end as usize
    }
}

/// Calls `f` for each head of a launch with tiles `0..batch · heads`.
pub(super) fn each_head<M>(
    kernel: &Attend,
    memory: &mut M,
    dims: [u64; 2],
    mut f: impl FnMut(Head<M>),
) {
    for batch in 0..dims[0] {
        for number in 0..kernel.heads {
            f(Head {
                kernel,
                memory,
                seq: dims[1],
                batch,
                number,
            });
        }
    }
}

/// `Σ a_i · b_i` by fused multiply-add, in order, from zero.
pub(super) fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter()
        .zip(b)
        .fold(T::ZERO, |sum, (a, b)| T::fma(*a, *b, sum))
}

/// `to ← to + factor · from` by fused multiply-add.
pub(super) fn add_scaled<T: Real>(to: &mut [T], factor: T, from: &[T]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t = T::fma(factor, *f, *t);
    }
}

/// `e^x` or `ln x` of many numbers, as kernels compute them.
pub(super) struct Apply<T> {
    evaluator: Evaluator<T>,
    root: ExprId,
}

struct NoMemory;

impl<T> Memory<T> for NoMemory {
    fn load(&self, _: u32, _: u64) -> T {
        unreachable!("a body without loads")
    }
    fn store(&mut self, _: u32, _: u64, _: T) {}
}

impl<T: Real> Apply<T> {
    pub(super) fn new(op: UnaryOp) -> Apply<T> {
        let mut body = Body::default();
        let x = body.push(Expr::Acc);
        let root = body.unary(op, x);
        Apply {
            evaluator: Evaluator::new(&body, &[]),
            root,
        }
    }

    pub(super) fn all(&mut self, xs: &[T]) -> Vec<T> {
        self.evaluator.row(&NoMemory, 0, 1, 0..xs.len() as u64, xs);
        (0..xs.len())
            .map(|i| self.evaluator.value(self.root, i))
            .collect()
    }

    fn one(&mut self, x: T) -> T {
        self.all(&[x])[0]
    }
}

/// What a query row makes of the keys and values that it sees, all of them: the row of O and its statistic.
pub(super) struct Query<'a, T> {
    kernel: &'a Attend,
    exp: Apply<T>,
    log: Apply<T>,
}

impl<'a, T: Real> Query<'a, T> {
    pub(super) fn new(kernel: &'a Attend) -> Self {
        let (exp, log) = (Apply::new(UnaryOp::Exp), Apply::new(UnaryOp::Log));
        Query { kernel, exp, log }
    }

    pub(super) fn attend(
        &mut self,
        q: &[T],
        k: &[Vec<T>],
        v: &[Vec<T>],
        seen: Range<usize>,
    ) -> (Vec<T>, T) {
        let op = T::binary;
        let scale = T::of(self.kernel.scale);
        let mut max = T::of(f64::NEG_INFINITY);
        let mut sum = T::ZERO;
        let mut o = vec![T::ZERO; self.kernel.head as usize];
        for keys in blocks(seen) {
            let score = |j: usize| op(BinaryOp::Mul, dot(&k[j], q), scale);
            let scores: Vec<T> = keys.clone().map(score).collect();
            let before = max;
            max = scores.iter().fold(max, |max, s| op(BinaryOp::Max, max, *s));
            let shrink = self.exp.one(op(BinaryOp::Sub, before, max));
            let shifted: Vec<T> = scores.iter().map(|s| op(BinaryOp::Sub, *s, max)).collect();
            let weights = self.exp.all(&shifted);
            let total = weights
                .iter()
                .fold(T::ZERO, |sum, p| op(BinaryOp::Add, sum, *p));
            sum = T::fma(sum, shrink, total);
            o.iter_mut()
                .for_each(|x| *x = op(BinaryOp::Mul, *x, shrink));
            for (j, p) in keys.zip(weights) {
                add_scaled(&mut o, p, &v[j]);
            }
        }
        let inverse = op(BinaryOp::Div, T::of(1.0), sum);
        o.iter_mut()
            .for_each(|x| *x = op(BinaryOp::Mul, *x, inverse));
        let lse = op(BinaryOp::Add, max, self.log.one(sum));
        (o, lse)
    }
}

/// Runs a whole launch of the forward kernel. `dims` are `[batch, seq]`.
pub fn eval_attend<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: [u64; 2]) {
    let mut query = Query::<T>::new(kernel);
    each_head(kernel, memory, dims, |mut head| {
        let (q, k, v) = (head.rows::<T>(Q), head.rows::<T>(K), head.rows::<T>(V));
        for i in 0..head.seq {
            let (o, lse) = query.attend(&q[i as usize], &k, &v, head.keys(i));
            head.write(O, i, &o);
            let at = head.statistic(i);
            head.memory.store(LSE, at, lse);
        }
    });
}

/// Keys in blocks, which begin at multiples of [`Attend::BLOCK`] wherever the keys begin.
fn blocks(keys: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let size = Attend::BLOCK as usize;
    let first = keys.start / size * size;
    (first..keys.end)
        .step_by(size)
        .map(move |j| j.max(keys.start)..(j + size).min(keys.end))
}
