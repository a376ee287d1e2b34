//! Expected results of kernels on tensor cores in f64, with error bounds ([`odec_program::gpu::tensor`]).
//!
//! Takes a contraction's or attention's operands; gives each element that it writes with its bound. Work is shared among threads:
//! shapes are real ones.

use super::{Wanted, numbers};
use crate::device::memory::Words;
use crate::system::pool::default_threads;
use odec_program::eval::Evaluator;
use odec_program::gpu::tensor;
use odec_program::kernel::{Attend, Contract, Signature};
use odec_program::{DType, KernelSpec, bf16};
use odec_reference::Operands;
use std::ops::Range;

/// u, half the distance of numbers in bf16.
const U: f64 = bf16::UNIT;

/// Results by operand. Kernels that run elsewhere have none.
pub fn of(
    spec: &KernelSpec,
    words: &[Words],
    dims: &[u64],
    coeffs: &[f64],
) -> Vec<(usize, Wanted)> {
    match spec {
        KernelSpec::Contract(c) => {
            let out = words.len() - 1;
            vec![(
                out,
                contraction(
                    c,
                    &spec.signature(),
                    words,
                    [dims[0], dims[1], dims[2]],
                    coeffs,
                ),
            )]
        }
        KernelSpec::Attend(a) => {
            let [batch, seq, keys] = a.lengths(dims);
            let (o, lse) = forward(a, words, [batch, seq, 0], keys);
            vec![(3, o), (4, lse)]
        }
        KernelSpec::AttendCached(a) => {
            // Several sequences are not read on tensor cores.
            vec![(
                3,
                forward(a, words, [1, dims[0], dims[1]], dims[0] + dims[1]).0,
            )]
        }
        KernelSpec::AttendBackward(a) => {
            let [q, k, v] = backward(a, words, a.lengths(dims));
            vec![(6, q), (7, k), (8, v)]
        }
        _ => vec![],
    }
}

/// The results of `0..count`, in order, by threads that share the range.
fn shared<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let each = count.div_ceil(default_threads().max(1)).max(1);
    std::thread::scope(|scope| {
        let part = |range: Range<usize>| {
            let f = &f;
            scope.spawn(move || range.map(f).collect::<Vec<T>>())
        };
        let parts: Vec<_> = (0..count)
            .step_by(each)
            .map(|n| part(n..count.min(n + each)))
            .collect();
        let joined = parts.into_iter().map(|p| p.join());
        joined
            .flat_map(|p| p.unwrap_or_else(|e| std::panic::resume_unwind(e)))
            .collect()
    })
}

fn rounded(x: f64) -> f64 {
    f64::from(bf16::to_f32(bf16::of_f64(x)))
}

fn contraction(
    c: &Contract,
    signature: &Signature,
    words: &[Words],
    [m, n, k]: [u64; 3],
    coeffs: &[f64],
) -> Wanted {
    let (rows, cols, len) = (m as usize, n as usize, k as usize);
    let factors = words[..c.factors()].chunks(2).map(|factors| {
        let a = numbers(factors[0], c.a, rows * len)
            .into_iter()
            .map(rounded);
        let b = numbers(factors[1], c.b, len * cols);
        // By rows of k, so that rows of the result are added up along memory.
        let column = |l: usize, j: usize| b[c.element(l as u64, j as u64, n, k) as usize];
        let b = (0..len * cols).map(|i| column(i / cols, i % cols));
        (a.collect(), b.collect())
    });
    let factors: Vec<(Vec<f64>, Vec<f64>)> = factors.collect();
    let out = words.len() - 1;
    let before = c
        .accumulate
        .then(|| numbers(words[out], c.dtype, rows * cols));
    let parts = c.parts.0 as usize;
    let piece = c.parts.length(k) as usize;
    let row = |i: usize| {
        let (i, part) = (i / parts, i % parts);
        let start = |j: usize| before.as_ref().map_or(0.0, |c| c[i * cols + j]);
        let mut sums: Vec<(f64, f64)> = (0..cols).map(|j| (start(j), start(j).abs())).collect();
        let inner = (part * piece).min(len)..((part + 1) * piece).min(len);
        let each = |f| inner.clone().map(move |l| (f, l));
        for ((a, b), l) in factors.iter().flat_map(each) {
            let x = a[if c.a_transposed {
                l * rows + i
            } else {
                i * len + l
            }];
            for ((sum, size), y) in sums.iter_mut().zip(&b[l * cols..(l + 1) * cols]) {
                *sum += x * y;
                *size += (x * y).abs();
            }
        }
        let bound = tensor::bound(k * u64::from(c.terms.0));
        sums.iter_mut().for_each(|(_, size)| *size *= bound);
        sums
    };
    let sums = shared(rows * parts, row);
    let stored = |x| stored(x, c.rounds);
    let Some(e) = &c.epilogue else {
        return sums.into_iter().flatten().map(stored).collect();
    };
    // As far as the epilogue moves when its sum is moved by the bound, twice, and its own roundings.
    let memory = Operands::of(signature, words);
    let mut body = Evaluator::<f32>::new(&e.body, coeffs);
    let mut wanted = Wanted::with_capacity(rows * cols);
    for (i, sums) in sums.iter().enumerate() {
        let mut at = |f: fn(&(f64, f64)) -> f64| -> Vec<f64> {
            let moved: Vec<f32> = sums.iter().map(|s| f(s) as f32).collect();
            body.row(&memory, i as u64, [m, 1], 0..n, &moved);
            (0..cols)
                .map(|j| f64::from(body.value(e.value, j)))
                .collect()
        };
        let (mid, low, high) = (at(|s| s.0), at(|s| s.0 - s.1), at(|s| s.0 + s.1));
        for ((mid, low), high) in mid.iter().zip(low).zip(high) {
            let moved = (low - mid).abs().max((high - mid).abs());
            let bound =
                2.0 * moved + 16.0 * f64::from(f32::EPSILON) * mid.abs() + f64::MIN_POSITIVE;
            wanted.push(stored((*mid, bound)));
        }
    }
    wanted
}

/// What is known of a result once it is stored. Rounding moves it by half a unit, and to a neighbour where it was near the middle.
fn stored((x, bound): (f64, f64), rounds: bool) -> (f64, f64) {
    match rounds {
        true => (x, bound + U * (x.abs() + bound)),
        false => (x, bound),
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn size(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum()
}

/// Rows of one operand of attention: of a row of tokens and a head, `head` numbers.
struct Rows {
    numbers: Vec<f64>,
    heads: usize,
    head: usize,
}

impl Rows {
    fn of(words: Words, dtype: DType, rows: u64, heads: u64, a: &Attend) -> Rows {
        let count = (rows * heads * a.head) as usize;
        Rows {
            numbers: numbers(words, dtype, count),
            heads: heads as usize,
            head: a.head as usize,
        }
    }

    fn row(&self, token: usize, head: usize) -> &[f64] {
        let first = (token * self.heads + head) * self.head;
        &self.numbers[first..first + self.head]
    }
}

/// Keys that a query at a position sees, of so many.
fn seen(a: &Attend, position: usize, keys: usize) -> Range<usize> {
    let end = if a.causal { position + 1 } else { keys };
    a.first_key(position as u64) as usize..end
}

/// A query: its head, position and numbers, and the sink of its head.
struct Query<'a> {
    head: usize,
    position: usize,
    numbers: &'a [f64],
    sink: Option<f64>,
}

/// Scores of a query with those of its keys that have these numbers, their derivatives by scaled products, and how far a weight may be
/// off, relatively.
fn scores<'a>(
    a: &Attend,
    q: &Query,
    keys: impl Iterator<Item = (usize, &'a [f64])>,
) -> (Vec<(f64, f64)>, f64) {
    let (mut scores, mut largest, mut fall) = (vec![], 0.0f64, 0.0f64);
    let steep = match a.scores.alibi {
        true => (a.slope_exponent() * (q.head + 1) as f64).exp(),
        false => 0.0,
    };
    for (j, k) in keys {
        let scaled = dot(q.numbers, k) * a.scale;
        let (score, slope) = match a.scores.softcap {
            Some(c) => (c * (scaled / c).tanh(), 1.0 - (scaled / c).tanh().powi(2)),
            None => (scaled, 1.0),
        };
        let falls = steep * q.position.abs_diff(j) as f64;
        scores.push((score - falls, slope));
        largest = largest.max(size(q.numbers, k) * a.scale);
        fall = fall.max(falls);
    }
    let error = (tensor::bound(a.head) + 2f64.powi(-21)) * largest + 2f64.powi(-20);
    let more = a.scores.softcap.unwrap_or(0.0) + fall + q.sink.map_or(0.0, f64::abs);
    (scores, 2.0 * (error + more * 2f64.powi(-20)))
}

/// Results and statistics; queries stand behind `past` keys, and each sequence has `keys` rows of these.
fn forward(
    a: &Attend,
    words: &[Words],
    [batch, seq, past]: [u64; 3],
    keys: u64,
) -> (Wanted, Wanted) {
    let q = Rows::of(words[0], a.inputs, batch * seq, a.heads, a);
    let [k, v] = [1, 2].map(|n| Rows::of(words[n], a.inputs, batch * keys, a.kv_heads, a));
    let (heads, keys) = (a.heads as usize, keys as usize);
    // They are the last operand.
    let sinks = (a.scores.sinks).then(|| numbers(words[words.len() - 1], a.dtype, heads));
    let row = |n: usize| {
        let (token, head) = (n / heads, n % heads);
        let (sequence, i) = (token / seq as usize, token % seq as usize);
        let kv = head / a.group() as usize;
        let seen = seen(a, past as usize + i, keys);
        let key = |j: usize| sequence * keys + j;
        let of_keys = seen.clone().map(|j| (j, k.row(key(j), kv)));
        let query = Query {
            head,
            position: past as usize + i,
            numbers: q.row(token, head),
            sink: sinks.as_ref().map(|sinks| sinks[head]),
        };
        let (scores, error) = scores(a, &query, of_keys);
        let scores: Vec<f64> = scores.into_iter().map(|(score, _)| score).collect();
        let all = || scores.iter().copied().chain(query.sink);
        let max = all().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = all().map(|s| (s - max).exp()).sum();
        let mut o = vec![(0.0, 0.0); a.head as usize];
        for (j, s) in seen.zip(&scores) {
            let p = (s - max).exp() / total;
            for ((sum, size), x) in o.iter_mut().zip(v.row(key(j), kv)) {
                *sum += p * x;
                *size += (p * x).abs();
            }
        }
        let off = 1.05 * U + 2.0 * error + tensor::bound(scores.len() as u64);
        let o: Wanted = o
            .into_iter()
            .map(|(o, s)| (o, off * s + 1e-6 * o.abs() + f64::MIN_POSITIVE))
            .map(|o| stored(o, a.rounds))
            .collect();
        let lse = (
            max + total.ln(),
            error + 1e-6 * (max.abs() + total.ln().abs()),
        );
        (o, lse)
    };
    let (o, lse): (Vec<Wanted>, Wanted) = shared((batch * seq) as usize * heads, row)
        .into_iter()
        .unzip();
    (o.concat(), lse)
}

/// A sum of rows, and what it may be off by.
fn add(to: &mut [(f64, f64)], (factor, off): (f64, f64), by: &[f64]) {
    for ((sum, size), x) in to.iter_mut().zip(by) {
        *sum += factor * x;
        *size += off * x.abs();
    }
}

/// Gradients of queries, keys and values.
fn backward(a: &Attend, words: &[Words], [batch, seq, keys]: [u64; 3]) -> [Wanted; 3] {
    let (rows, rows_of_keys) = (batch * seq, batch * keys);
    let [q, d_o] = [0, 5].map(|n| Rows::of(words[n], a.inputs, rows, a.heads, a));
    let [k, v] = [1, 2].map(|n| Rows::of(words[n], a.inputs, rows_of_keys, a.kv_heads, a));
    let (heads, kv_heads, group) = (a.heads as usize, a.kv_heads as usize, a.group() as usize);
    // On tensor cores inputs are rounded.
    let [delta, lse] = [3, 4].map(|n| numbers(words[n], a.dtype, rows as usize * heads));
    let (seq, keys, head) = (seq as usize, keys as usize, a.head as usize);
    let last = tensor::bound(keys.max(seq * group) as u64);
    // Of one sequence, the heads of queries that share keys.
    let part = |n: usize| {
        let (sequence, kv) = (n / kv_heads, n % kv_heads);
        let zero = |rows: usize| vec![(0.0, 1e-9); rows * head];
        let mut d_q = vec![zero(seq); group];
        let (mut d_k, mut d_v) = (zero(keys), zero(keys));
        for (member, d_q) in d_q.iter_mut().enumerate() {
            let number = kv * group + member;
            for i in 0..seq {
                let token = sequence * seq + i;
                let (q, d_o) = (q.row(token, number), d_o.row(token, number));
                let seen = seen(a, i, keys);
                let query = Query {
                    head: number,
                    position: i,
                    numbers: q,
                    sink: None,
                };
                let key = |j: usize| sequence * keys + j;
                let of_keys = seen.clone().map(|j| (j, k.row(key(j), kv)));
                let (scores, error) = scores(a, &query, of_keys);
                // The bound's derivative moves by no more than this with its argument.
                let bend_off = a.scores.softcap.map_or(0.0, |c| error / c + 1e-6);
                let delta = delta[token * heads + number];
                let relative = 2.0 * error + 1.05 * U;
                for (j, (score, bend)) in seen.zip(scores) {
                    let (key, value) = (k.row(key(j), kv), v.row(key(j), kv));
                    let p = (score - lse[token * heads + number]).exp();
                    let rate = dot(d_o, value) - delta;
                    let slope = bend * p * rate * a.scale;
                    let rate_off =
                        (1.05 * U + tensor::bound(a.head)) * size(d_o, value) + 1e-6 * delta.abs();
                    let slope_off = slope.abs() * relative
                        + p * (1.05 * rate_off + bend_off * rate.abs()) * a.scale;
                    let off = |f: f64, off: f64, rounded: f64| {
                        off * (1.0 + U) + f.abs() * (rounded + 1.1 * last)
                    };
                    let slope_off = off(slope, slope_off, 0.0);
                    add(&mut d_q[i * head..(i + 1) * head], (slope, slope_off), key);
                    add(&mut d_k[j * head..(j + 1) * head], (slope, slope_off), q);
                    let weight_off = off(p, p * relative, 1.05 * U);
                    add(&mut d_v[j * head..(j + 1) * head], (p, weight_off), d_o);
                }
            }
        }
        (d_q, d_k, d_v)
    };
    let parts = shared(batch as usize * kv_heads, part);
    let numbers = [rows * a.heads, rows_of_keys * a.kv_heads];
    let [of_queries, of_keys] = numbers.map(|n| vec![(0.0, 0.0); n as usize * head]);
    let mut all = [of_queries, of_keys.clone(), of_keys];
    for (n, (d_q, d_k, d_v)) in parts.into_iter().enumerate() {
        let (sequence, kv) = (n / kv_heads, n % kv_heads);
        let mut put = |operand: usize, of: usize, number: usize, from: &Wanted| {
            let tokens = from.len() / head;
            for (i, row) in from.chunks(head).enumerate() {
                let first = ((sequence * tokens + i) * of + number) * head;
                all[operand][first..first + head].copy_from_slice(row);
            }
        };
        for (member, d_q) in d_q.iter().enumerate() {
            put(0, heads, kv * group + member, d_q);
        }
        put(1, kv_heads, kv, &d_k);
        put(2, kv_heads, kv, &d_v);
    }
    all
}
