//! A case of attention: its operands in f64, plain f64 attention of them with its gradient, and what the scalar evaluator and compiled kernels make of them.

use crate::harness::{Buffer, Compiled, evaluated, targets};
use crate::tiles::{Machine, machines};
use odec_program::kernel::{Attend, Order, Scores};
use odec_program::real::Real;
use odec_program::{DType, KernelSpec, Target, bf16};

/// The orders in which products are added up in pairs.
pub(super) const IN_PAIRS: [Order; 2] = [Order::Dots, Order::Pairs];

/// batch, seq, heads, head.
pub(super) type Shape = [usize; 4];

/// The four inputs of the pair of kernels, in f64.
#[derive(Clone)]
pub(super) struct Case {
    pub shape: Shape,
    /// Element type of q, k, v and, backward, of o.
    pub inputs: DType,
    pub order: Order,
    pub causal: bool,
    pub kv_heads: usize,
    pub window: Option<u64>,
    pub scale: f64,
    /// Columns of a head of values.
    pub value: usize,
    pub softcap: Option<f64>,
    pub alibi: bool,
    /// Rows of a number for each column of the table, or none.
    pub biases: Vec<f64>,
    /// A number for each head, or none.
    pub sinks: Vec<f64>,
    /// For each token of each sequence, for each key where these are others, whether it takes part, or none.
    pub numbers: Vec<f64>,
    /// Keys of a sequence, where they are of other tokens.
    pub others: Option<usize>,
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub d_o: Vec<f64>,
}

impl Case {
    /// Numbers that f32 holds exactly, so that every kernel starts from the same ones.
    pub fn new(shape: Shape, causal: bool) -> Case {
        Case::sharing(shape, shape[2], causal, None)
    }

    pub fn sharing(shape: Shape, kv_heads: usize, causal: bool, window: Option<u64>) -> Case {
        Case::of(shape, (kv_heads, shape[3]), causal, window)
    }

    /// With values of so many columns.
    pub fn of(shape: Shape, shared: (usize, usize), causal: bool, window: Option<u64>) -> Case {
        Case::made(shape, shared, causal, window, None)
    }

    /// Of so many other tokens' keys, all of which are seen.
    pub fn of_others(shape: Shape, shared: (usize, usize), keys: usize) -> Case {
        Case::made(shape, shared, false, None, Some(keys))
    }

    fn made(
        shape: Shape,
        (kv_heads, value): (usize, usize),
        causal: bool,
        window: Option<u64>,
        others: Option<usize>,
    ) -> Case {
        let n: usize = shape.iter().product();
        let keys = others.unwrap_or(shape[1]);
        let narrow = shape[0] * keys * kv_heads * shape[3];
        let [values, results] = [narrow, n].map(|n| n / shape[3] * value);
        let mut state = 0x2545_F491_4F6C_DD1D_u64 ^ n as u64;
        let mut noise = |size: f64, n: usize| -> Vec<f64> {
            let mut next = || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                f64::from(((state >> 40) as f64 / (1u64 << 24) as f64 * 2.0 - 1.0) as f32)
            };
            (0..n).map(|_| f64::from((size * next()) as f32)).collect()
        };
        let (q, k) = (noise(2.5, n), noise(2.5, narrow));
        let (v, d_o) = (noise(1.0, values), noise(1.0, results));
        let scale = f64::from((1.0 / (shape[3] as f64).sqrt()) as f32);
        Case {
            shape,
            inputs: DType::F32,
            order: Order::Chain,
            causal,
            kv_heads,
            window,
            scale,
            value,
            softcap: None,
            alibi: false,
            biases: vec![],
            sinks: vec![],
            numbers: vec![],
            others,
            q,
            k,
            v,
            d_o,
        }
    }

    /// With bounded scores that fall with distance, and sinks of different weight.
    pub fn scored(self) -> Case {
        let sinks = (0..self.shape[2]).map(|h| 0.75 * h as f64 - 0.5).collect();
        Case {
            softcap: Some(2.5),
            alibi: true,
            sinks,
            ..self
        }
    }

    /// With a bias for each of so many distances and each head.
    pub fn biased(self, distances: usize) -> Case {
        let n = distances * self.bias_columns();
        let biases = (0..n).map(|n| (n * n % 11) as f64 / 4.0 - 1.25).collect();
        Case { biases, ..self }
    }

    fn bias_columns(&self) -> usize {
        self.shape[2] * if self.causal { 1 } else { 2 }
    }

    /// The element of the table that is added to a score, and the gradient by distance that its gradient is added to.
    fn of_distance(&self, [b, s, h]: [usize; 3], j: usize) -> [usize; 2] {
        let (columns, far) = (self.bias_columns(), s.abs_diff(j));
        let column = h + if j > s { self.shape[2] } else { 0 };
        let last = (self.biases.len() / columns).saturating_sub(1);
        [far.min(last), b * self.shape[1] + far].map(|row| row * columns + column)
    }

    /// With tokens that take no part: of the first sequence about two of three, of a second one all, of a third none but the last.
    pub fn of_some(self) -> Case {
        let (batch, keys) = (self.shape[0], self.keys());
        let number = |n: usize| match (n / keys, n * n % 7 % 3) {
            (0, 0) => 0.0,
            (2, _) if n % keys == keys - 1 => 3.5,
            (_, 1) => f64::NAN,
            _ => -1.0,
        };
        Case {
            numbers: (0..batch * keys).map(number).collect(),
            ..self
        }
    }

    /// Of a key, and of the query of that token where it is the same.
    pub fn takes_part(&self, b: usize, s: usize) -> bool {
        let number = self.numbers.get(b * self.keys() + s);
        number.is_none_or(|x| *x >= 0.0)
    }

    fn asks(&self, b: usize, s: usize) -> bool {
        self.others.is_some() || self.takes_part(b, s)
    }

    /// Keys of a sequence.
    fn keys(&self) -> usize {
        self.others.unwrap_or(self.shape[1])
    }

    fn dims(&self) -> Vec<u64> {
        let dims = self.shape[..2].iter().copied().chain(self.others);
        dims.map(|n| n as u64).collect()
    }

    /// With q, k and v that bf16 holds.
    pub fn rounded(mut self) -> Case {
        let round = |x: &mut f64| *x = f64::from(bf16::to_f32(bf16::of_f64(*x)));
        for x in [&mut self.q, &mut self.k, &mut self.v] {
            x.iter_mut().for_each(round);
        }
        self
    }

    /// The same in bf16, multiplied in pairs.
    pub fn in_pairs(self, order: Order) -> Case {
        Case {
            inputs: DType::Bf16,
            order,
            ..self.rounded()
        }
    }

    /// The targets that this machine runs it on, some with instructions emulated.
    pub fn targets(&self) -> Vec<Target> {
        if self.order == Order::Chain {
            return targets();
        }
        let of = |m: &Machine| m.of.pairs().is_some_and(|(order, _)| order == self.order);
        machines()
            .into_iter()
            .filter(of)
            .map(|m| m.target)
            .collect()
    }

    pub fn rows(&self) -> usize {
        self.shape[0] * self.shape[1] * self.shape[2]
    }

    pub fn at(&self, b: usize, s: usize, h: usize) -> usize {
        let [_, seq, heads, _] = self.shape;
        (b * seq + s) * heads + h
    }

    /// The same for keys and values.
    pub fn key_at(&self, b: usize, s: usize, h: usize) -> usize {
        let heads = self.shape[2];
        (b * self.keys() + s) * self.kv_heads + h * self.kv_heads / heads
    }

    /// What becomes of the scaled score of a pair in a head, and its derivative.
    pub fn shaped(&self, scaled: f64, h: usize, s: usize, j: usize) -> (f64, f64) {
        let (capped, slope) = match self.softcap {
            Some(c) => (c * (scaled / c).tanh(), 1.0 / (scaled / c).cosh().powi(2)),
            None => (scaled, 1.0),
        };
        let steep = 0.5f64.powf(8.0 * (h + 1) as f64 / self.shape[2] as f64);
        let between = s.max(j) - s.min(j);
        let fall = if self.alibi {
            steep * between as f64
        } else {
            0.0
        };
        let bias = self.biases.get(self.of_distance([0, s, h], j)[0]);
        (capped - fall + bias.unwrap_or(&0.0), slope)
    }

    /// The scaled score of a query and a key.
    pub fn scaled(&self, q: &[f64], k: &[f64], [b, s, h]: [usize; 3], j: usize) -> f64 {
        let d = self.shape[3];
        let (x, y) = (
            &q[self.at(b, s, h) * d..][..d],
            &k[self.key_at(b, j, h) * d..][..d],
        );
        self.scale * x.iter().zip(y).map(|(a, b)| a * b).sum::<f64>()
    }

    /// Weights of all keys for the query at (b, s, h), 0 of those that it does not see, and the logarithm of their sum.
    pub fn weights(&self, q: &[f64], k: &[f64], b: usize, s: usize, h: usize) -> (Vec<f64>, f64) {
        let sees = |j: usize| {
            self.takes_part(b, j)
                && (!self.causal || j <= s)
                && self.window.is_none_or(|w| j as u64 + w > s as u64)
        };
        let score = |j: usize| match sees(j) {
            true => self.shaped(self.scaled(q, k, [b, s, h], j), h, s, j).0,
            false => f64::NEG_INFINITY,
        };
        let scores: Vec<f64> = (0..self.keys()).map(score).collect();
        let sink = self.sinks.get(h);
        let all = || scores.iter().chain(sink).copied();
        let max = all().fold(f64::NEG_INFINITY, f64::max);
        if max == f64::NEG_INFINITY {
            return (vec![0.0; self.keys()], max);
        }
        let sum: f64 = all().map(|x| (x - max).exp()).sum();
        let lse = max + sum.ln();
        (scores.iter().map(|x| (x - lse).exp()).collect(), lse)
    }

    /// o and lse.
    pub fn forward(&self, q: &[f64], k: &[f64], v: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let ([batch, seq, heads, _], d) = (self.shape, self.value);
        let (mut o, mut lse) = (vec![0.0; self.rows() * d], vec![0.0; self.rows()]);
        for (b, s, h) in places(batch, seq, heads) {
            if !self.asks(b, s) {
                continue;
            }
            let at = self.at(b, s, h);
            let (weights, l) = self.weights(q, k, b, s, h);
            lse[at] = l;
            for (j, w) in weights.iter().enumerate() {
                for c in 0..d {
                    o[at * d + c] += w * v[self.key_at(b, j, h) * d + c];
                }
            }
        }
        (o, lse)
    }

    /// Gradients of `Σ o · d_o` with respect to q, k, v, and of biases by distance.
    pub fn backward(&self) -> [Vec<f64>; 4] {
        let ([batch, seq, heads, d], value) = (self.shape, self.value);
        let [mut dq, mut dk, mut dv] = [&self.q, &self.k, &self.v].map(|x| vec![0.0; x.len()]);
        let mut d_distances = vec![0.0; self.of_distances()];
        for (b, s, h) in places(batch, seq, heads) {
            if !self.asks(b, s) {
                continue;
            }
            let at = self.at(b, s, h) * d;
            let (weights, _) = self.weights(&self.q, &self.k, b, s, h);
            let d_o = &self.d_o[self.at(b, s, h) * value..][..value];
            let slope = |j: usize| -> f64 {
                let v = &self.v[self.key_at(b, j, h) * value..][..value];
                v.iter().zip(d_o).map(|(a, b)| a * b).sum()
            };
            let slopes: Vec<f64> = (0..weights.len()).map(slope).collect();
            let mean: f64 = weights.iter().zip(&slopes).map(|(w, x)| w * x).sum();
            for (j, w) in weights.iter().enumerate() {
                let scaled = self.scaled(&self.q, &self.k, [b, s, h], j);
                let bend = self.shaped(scaled, h, s, j).1;
                let of_bias = w * (slopes[j] - mean);
                let ds = self.scale * bend * of_bias;
                if !self.biases.is_empty() && *w != 0.0 {
                    d_distances[self.of_distance([b, s, h], j)[1]] += of_bias;
                }
                let other = self.key_at(b, j, h);
                for c in 0..d {
                    dq[at + c] += ds * self.k[other * d + c];
                    dk[other * d + c] += ds * self.q[at + c];
                }
                for c in 0..value {
                    dv[other * value + c] += w * d_o[c];
                }
            }
        }
        [dq, dk, dv, d_distances]
    }

    /// `Σ o · d_o`.
    pub fn loss(&self) -> f64 {
        let (o, _) = self.forward(&self.q, &self.k, &self.v);
        o.iter().zip(&self.d_o).map(|(a, b)| a * b).sum()
    }

    /// The gradient of the table of biases: its last row has that of all distances from its own on.
    pub fn d_table(&self) -> Vec<f64> {
        let mut sums = vec![0.0; self.biases.len()];
        let (columns, by_distance) = (self.bias_columns(), &self.backward()[3]);
        for (n, x) in by_distance.iter().enumerate() {
            let (row, column) = (n / columns % self.shape[1], n % columns);
            sums[row.min(self.biases.len() / columns - 1) * columns + column] += x;
        }
        sums
    }

    /// Numbers that gradients by distance are: none without biases.
    fn of_distances(&self) -> usize {
        match self.biases.is_empty() {
            true => 0,
            false => self.shape[0] * self.shape[1] * self.bias_columns(),
        }
    }

    /// The table of biases, if it is an operand.
    pub fn table<T: Real>(&self) -> Option<Buffer<T>> {
        let real = || Buffer::Real(self.biases.iter().map(|x| T::of(*x)).collect());
        (!self.biases.is_empty()).then(real)
    }

    /// What the backward kernel has behind other gradients.
    fn behind_gradients<T: Real>(&self) -> Vec<Buffer<T>> {
        let of_distances = self
            .table()
            .map(|table| [Buffer::nan(self.of_distances()), table]);
        of_distances
            .into_iter()
            .flatten()
            .chain(self.numbers())
            .collect()
    }

    /// Gradients by distance among the operands of the backward kernel.
    fn d_distances<T: Real>(&self, operands: &[Buffer<T>]) -> Buffer<T> {
        match self.biases.is_empty() {
            true => Buffer::nan(0),
            false => operands[9].clone(),
        }
    }

    pub fn specs<T: Real>(&self) -> [KernelSpec; 2] {
        let spec = Attend {
            dtype: T::DTYPE,
            inputs: match self.inputs {
                DType::Bf16 => DType::Bf16,
                _ => T::DTYPE,
            },
            heads: self.shape[2] as u64,
            kv_heads: self.kv_heads as u64,
            head: self.shape[3] as u64,
            causal: self.causal,
            room: None,
            window: self.window,
            scale: self.scale,
            rounds: false,
            value: (self.value != self.shape[3]).then_some(self.value as u64),
            order: self.order,
            scores: Scores {
                softcap: self.softcap,
                alibi: self.alibi,
                distances: (!self.biases.is_empty())
                    .then(|| (self.biases.len() / self.bias_columns()) as u64),
                sinks: false,
            },
            partial: !self.numbers.is_empty(),
            others: self.others.is_some(),
        };
        let mut forward = spec.clone();
        forward.scores.sinks = !self.sinks.is_empty();
        [
            KernelSpec::Attend(forward),
            KernelSpec::AttendBackward(spec),
        ]
    }

    /// What the backward kernel reads of a result: it, or δ.
    pub fn fourth<T: Real>(&self, spec: &Attend, o: &Buffer<T>) -> Buffer<T> {
        let o = o.clone().in_type(self.inputs);
        if !spec.reads_delta() {
            return o;
        }
        let d_o = Buffer::<T>::Real(self.d_o.iter().map(|x| T::of(*x)).collect());
        let [o, d_o] = [o, d_o.in_type(self.inputs)].map(|x| x.numbers());
        let rows = o.chunks(self.value).zip(d_o.chunks(self.value));
        let delta = |(o, d_o): (&[T], &[T])| {
            let products = o.iter().zip(d_o).map(|(o, d_o)| o.to_f64() * d_o.to_f64());
            T::of(products.sum())
        };
        Buffer::Real(rows.map(delta).collect())
    }

    /// The operand of who takes part, of tokens of all sequences, if it is one.
    pub fn numbers<T: Real>(&self) -> Option<Buffer<T>> {
        let real = || Buffer::Real(self.numbers.iter().map(|x| T::of(*x)).collect());
        (!self.numbers.is_empty()).then(real)
    }

    /// o, lse, dq, dk, dv of the scalar evaluator, and gradients of biases by distance.
    pub fn evaluate<T: Real>(&self) -> [Buffer<T>; 6] {
        let specs = self.specs::<T>();
        let KernelSpec::AttendBackward(back) = &specs[1] else {
            unreachable!()
        };
        let dims = self.dims();
        let real = |x: &[f64]| Buffer::Real(x.iter().map(|x| T::of(*x)).collect::<Vec<T>>());
        let input = |x: &[f64]| real(x).in_type(self.inputs);
        let mut memory = vec![
            input(&self.q),
            input(&self.k),
            input(&self.v),
            Buffer::nan(self.d_o.len()),
            Buffer::nan(self.rows()),
        ];
        if !self.sinks.is_empty() {
            memory.push(real(&self.sinks));
        }
        memory.extend(self.table());
        memory.extend(self.numbers());
        memory = evaluated(&specs[0], &memory, &dims, &[]);
        memory.truncate(5);
        let o = memory[3].clone();
        memory[3] = self.fourth(back, &o);
        memory.push(input(&self.d_o));
        let like = [&self.q, &self.k, &self.v].map(|x| Buffer::nan(x.len()));
        memory.extend(like);
        memory.extend(self.behind_gradients());
        memory = evaluated(&specs[1], &memory, &dims, &[]);
        memory[3] = o;
        let d_distances = self.d_distances(&memory);
        let [o, lse, dq, dk, dv] = [3, 4, 6, 7, 8].map(|operand| memory[operand].clone());
        [o, lse, dq, dk, dv, d_distances]
    }

    /// The same of the compiled kernels; both launched in `parts` parts, the last first.
    pub fn run<T: Real>(&self, compiled: &Compiled, parts: u64) -> [Buffer<T>; 6] {
        let real = |x: &[f64]| Buffer::Real(x.iter().map(|x| T::of(*x)).collect::<Vec<T>>());
        let dims = self.dims();
        let [forward, backward] = self.specs::<T>();
        let split = |spec: &KernelSpec| -> Vec<_> {
            let tiles = spec.tiles(&dims);
            (0..parts)
                .rev()
                .map(|p| tiles * p / parts..tiles * (p + 1) / parts)
                .collect()
        };
        let [q, k, v] = [&self.q, &self.k, &self.v].map(|x| real(x).in_type(self.inputs));
        let d_o = real(&self.d_o).in_type(self.inputs);
        let mut operands = vec![
            q.clone(),
            k.clone(),
            v.clone(),
            Buffer::nan(self.d_o.len()),
            Buffer::nan(self.rows()),
        ];
        if !self.sinks.is_empty() {
            operands.push(real(&self.sinks));
        }
        operands.extend(self.table());
        operands.extend(self.numbers());
        let got = compiled.run(0, &operands, &[], &dims, &[], &split(&forward));
        let (o, lse) = (got[3].clone(), got[4].clone());
        let [dq, dk, dv] = [&self.q, &self.k, &self.v].map(|x| Buffer::nan(x.len()));
        let KernelSpec::AttendBackward(back) = &backward else {
            unreachable!()
        };
        let fourth = self.fourth(back, &o);
        let mut operands = vec![q, k, v, fourth, lse.clone(), d_o, dq, dk, dv];
        operands.extend(self.behind_gradients());
        let got = compiled.run(1, &operands, &[], &dims, &[], &split(&backward));
        let d_distances = self.d_distances(&got);
        let [dq, dk, dv] = [6, 7, 8].map(|n| got[n].clone());
        [o, lse, dq, dk, dv, d_distances]
    }
}

pub(super) fn places(
    batch: usize,
    seq: usize,
    heads: usize,
) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..batch).flat_map(move |b| (0..seq).flat_map(move |s| (0..heads).map(move |h| (b, s, h))))
}

/// Largest difference, relative to the largest element (gradients of a single key vanish: 0.1 at least).
pub(super) fn distance<T: Real>(got: &Buffer<T>, want: &[f64]) -> f64 {
    let size = want.iter().fold(0.1, |m: f64, x| m.max(x.abs()));
    let far = got.real().iter().zip(want).map(|(g, w)| match g.to_f64() {
        // As infinite, where a query sees nothing.
        g if g == *w => 0.0,
        g => (g - w).abs(),
    });
    far.fold(0.0, |m, x| if x > m || x.is_nan() { x } else { m }) / size
}
