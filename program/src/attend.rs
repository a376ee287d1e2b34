//! Scalar evaluation of attention kernels.
//!
//! Takes an [`Attend`] spec and a [`Memory`]; gives the very bits that compiled kernels give. What the block
//! structure leaves of the order of summation is little: forward, the running maximum and sum move on once per
//! key block of [`Attend::BLOCK`]; everything else is one chain of fused multiply-adds, over columns for scores, over
//! keys for outputs and query gradients, over queries for key and value gradients, each in order.

use crate::eval::{Evaluator, LANES, Memory, tree};
use crate::expr::{BinaryOp, Body, Expr, ExprId, ReduceOp, UnaryOp};
use crate::kernel::Attend;
use crate::real::Real;
use std::ops::Range;

/// Where the operands of the forward kernel are.
mod forward {
    pub const Q: u32 = 0;
    pub const K: u32 = 1;
    pub const V: u32 = 2;
    pub const O: u32 = 3;
    pub const LSE: u32 = 4;
}

/// Where the operands of the backward kernel are; those of the forward one come first.
mod backward {
    pub const D_O: u32 = 5;
    pub const D_Q: u32 = 6;
    pub const D_K: u32 = 7;
    pub const D_V: u32 = 8;
}

/// One head of one sequence.
struct Head<'a, M> {
    kernel: &'a Attend,
    memory: &'a mut M,
    seq: u64,
    batch: u64,
    number: u64,
}

impl<M> Head<'_, M> {
    /// Element number of the row's statistic.
    fn statistic(&self, row: u64) -> u64 {
        (self.batch * self.seq + row) * self.kernel.heads + self.number
    }

    /// Element number of the row's first column in an operand.
    fn first(&self, operand: u32, row: u64) -> u64 {
        use {backward::*, forward::*};
        let of_keys = [K, V, D_K, D_V].contains(&operand);
        let row = match of_keys {
            true => {
                let rows = (self.batch * self.seq + row) * self.kernel.kv_heads;
                rows + self.number / self.kernel.group()
            }
            false => self.statistic(row),
        };
        row * self.kernel.head
    }

    fn row<T: Real>(&self, operand: u32, row: u64) -> Vec<T>
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        (first..first + self.kernel.head)
            .map(|i| self.memory.load(operand, i))
            .collect()
    }

    fn rows<T: Real>(&self, operand: u32) -> Vec<Vec<T>>
    where
        M: Memory<T>,
    {
        (0..self.seq).map(|r| self.row(operand, r)).collect()
    }

    fn write<T: Real>(&mut self, operand: u32, row: u64, values: &[T])
    where
        M: Memory<T>,
    {
        let first = self.first(operand, row);
        for (i, x) in (first..).zip(values) {
            self.memory.store(operand, i, *x);
        }
    }

    /// Keys that a query row sees.
    fn keys(&self, row: u64) -> Range<usize> {
        let end = if self.kernel.causal {
            row + 1
        } else {
            self.seq
        };
        self.kernel.first_key(row) as usize..end as usize
    }
}

/// Calls `f` for each head of a launch with tiles `0..batch · heads`.
fn each_head<M>(kernel: &Attend, memory: &mut M, dims: [u64; 2], mut f: impl FnMut(Head<M>)) {
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
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    a.iter()
        .zip(b)
        .fold(T::ZERO, |sum, (a, b)| T::fma(*a, *b, sum))
}

/// `to ← to + factor · from` by fused multiply-add.
fn add_scaled<T: Real>(to: &mut [T], factor: T, from: &[T]) {
    for (t, f) in to.iter_mut().zip(from) {
        *t = T::fma(factor, *f, *t);
    }
}

/// `e^x` or `ln x` of many numbers, as kernels compute them.
struct Apply<T> {
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
    fn new(op: UnaryOp) -> Apply<T> {
        let mut body = Body::default();
        let x = body.push(Expr::Acc);
        let root = body.unary(op, x);
        Apply {
            evaluator: Evaluator::new(&body, &[]),
            root,
        }
    }

    fn all(&mut self, xs: &[T]) -> Vec<T> {
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
struct Query<'a, T> {
    kernel: &'a Attend,
    exp: Apply<T>,
    log: Apply<T>,
}

impl<'a, T: Real> Query<'a, T> {
    fn new(kernel: &'a Attend) -> Self {
        let (exp, log) = (Apply::new(UnaryOp::Exp), Apply::new(UnaryOp::Log));
        Query { kernel, exp, log }
    }

    fn attend(&mut self, q: &[T], k: &[Vec<T>], v: &[Vec<T>], seen: Range<usize>) -> (Vec<T>, T) {
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
    use forward::*;
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

/// Runs a whole launch of the cached kernel. `dims` are `[seq, past]`.
pub fn eval_attend_cached<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: [u64; 2]) {
    use forward::*;
    let [seq, past] = dims;
    let mut query = Query::<T>::new(kernel);
    // One sequence of all rows: queries are read and written by their own numbers, keys and values by their positions.
    each_head(kernel, memory, [1, past + seq], |mut head| {
        let (k, v) = (head.rows::<T>(K), head.rows::<T>(V));
        for i in 0..seq {
            let q = head.row::<T>(Q, i);
            let (o, _) = query.attend(&q, &k, &v, head.keys(past + i));
            head.write(O, i, &o);
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

/// Runs a whole launch of the backward kernel. `dims` are `[batch, seq]`. With P the softmax of the scores and
/// δ = Σ dO ∘ O per row: dV = Pᵀ·dO, dS = scale · P ∘ (dO·Vᵀ − δ), dQ = dS·K, dK = dSᵀ·Q. Heads that share keys add to
/// their gradients one after the other.
pub fn eval_attend_backward<T: Real>(kernel: &Attend, memory: &mut impl Memory<T>, dims: [u64; 2]) {
    use backward::*;
    use forward::*;
    let op = T::binary;
    let mut exp = Apply::new(UnaryOp::Exp);
    let scale = T::of(kernel.scale);
    each_head(kernel, memory, dims, |mut head| {
        let [q, k, v, o, d_o] = [Q, K, V, O, D_O].map(|operand| head.rows::<T>(operand));
        let zero = vec![vec![T::ZERO; kernel.head as usize]; q.len()];
        let (mut d_k, mut d_v) = match head.number % kernel.group() {
            0 => (zero.clone(), zero),
            _ => (head.rows::<T>(D_K), head.rows::<T>(D_V)),
        };
        for i in 0..q.len() {
            let lse = head.memory.load(LSE, head.statistic(i as u64));
            let delta = row_product(&o[i], &d_o[i]);
            let keys = head.keys(i as u64);
            let score = |k: &Vec<T>| op(BinaryOp::Mul, dot(k, &q[i]), scale);
            let shifted: Vec<T> = k[keys.clone()]
                .iter()
                .map(|k| op(BinaryOp::Sub, score(k), lse))
                .collect();
            let mut d_q = vec![T::ZERO; kernel.head as usize];
            for (j, p) in keys.zip(exp.all(&shifted)) {
                let away = op(BinaryOp::Sub, dot(&v[j], &d_o[i]), delta);
                let slope = op(BinaryOp::Mul, op(BinaryOp::Mul, p, away), scale);
                add_scaled(&mut d_v[j], p, &d_o[i]);
                add_scaled(&mut d_k[j], slope, &q[i]);
                add_scaled(&mut d_q, slope, &k[j]);
            }
            head.write(D_Q, i as u64, &d_q);
        }
        for (r, (d_k, d_v)) in d_k.iter().zip(&d_v).enumerate() {
            head.write(D_K, r as u64, d_k);
            head.write(D_V, r as u64, d_v);
        }
    });
}

/// `Σ x ∘ y` over the 16 virtual lanes of a row reduction, products fused into the lanes' sums.
fn row_product<T: Real>(x: &[T], y: &[T]) -> T {
    let mut lanes = [T::ZERO; LANES];
    for (c, (x, y)) in x.iter().zip(y).enumerate() {
        lanes[c % LANES] = T::fma(*x, *y, lanes[c % LANES]);
    }
    tree(ReduceOp::Sum, lanes)
}
