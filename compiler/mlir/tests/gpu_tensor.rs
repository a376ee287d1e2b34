//! Kernels on tensor cores, run from their PTX on an emulated GPU, against float64, within the bound that
//! [`odec_program::gpu::tensor`] states.
//!
//! The emulator's tensor core adds as inaccurately as any card is known to (`ptx/tensor.rs`), and ends the test where
//! a word is used before its copy was waited for.

mod harness;
mod ptx;

use harness::noise;
use odec_program::expr::{Access, Body, Expr};
use odec_program::gpu::tensor;
use odec_program::kernel::{Attend, Contract, Epilogue, Extent, Layout};
use odec_program::{DType, Kernel, KernelSpec, Target, bf16};
use odec_runtime::device::Device;
use odec_runtime::memory::{Buffer, Words};
use ptx::Emulated;

/// Numbers, and the elements of a type that hold them.
#[derive(Clone)]
struct Data {
    dtype: DType,
    numbers: Vec<f64>,
}

impl Data {
    fn noise(dtype: DType, n: u64, seed: u64) -> Data {
        let mut next = noise(seed);
        let round = |x: f64| match dtype {
            DType::Bf16 => f64::from(bf16::to_f32(bf16::of_f64(x))),
            _ => f64::from(x as f32),
        };
        let numbers = (0..n).map(|_| round(next())).collect();
        Data { dtype, numbers }
    }

    /// Room for a result.
    fn room(n: u64) -> Data {
        Data {
            dtype: DType::F32,
            numbers: vec![f64::NAN; n as usize],
        }
    }

    fn words(&self) -> Vec<u32> {
        let half = |x: &f64| u32::from(bf16::of_f64(*x));
        match self.dtype {
            DType::Bf16 => (self.numbers.chunks(2))
                .map(|p| half(&p[0]) | p.get(1).map_or(0, half) << 16)
                .collect(),
            _ => self.numbers.iter().map(|x| (*x as f32).to_bits()).collect(),
        }
    }

    /// As a contraction reads them.
    fn rounded(&self) -> Vec<f64> {
        let round = |x: &f64| f64::from(bf16::to_f32(bf16::of_f64(*x)));
        self.numbers.iter().map(round).collect()
    }
}

/// Launches a kernel, and gives operand `n` afterwards, f32.
fn run(
    spec: &KernelSpec,
    data: &[Data],
    dims: &[u64],
    coeffs: &[f64],
    results: &[usize],
) -> Vec<Vec<f64>> {
    let kernel = Kernel {
        symbol: spec.symbol(),
        spec: spec.clone(),
    };
    let operands: Vec<Vec<u32>> = data.iter().map(Data::words).collect();
    let mut buffers: Vec<Buffer> = operands
        .iter()
        .map(|o| Buffer::zeroed(4 * o.len() as u64).unwrap())
        .collect();
    for (b, o) in buffers.iter_mut().zip(&operands) {
        b.words().iter().zip(o).for_each(|(w, x)| w.set(*x));
    }
    let words: Vec<Words> = buffers
        .iter_mut()
        .zip(&operands)
        .map(|(b, o)| &b.words()[..o.len()])
        .collect();
    Emulated::new(&[kernel], Target::Sm80).launch(0, &words, dims, coeffs);
    let number = |w: &std::cell::Cell<u32>| f64::from(f32::from_bits(w.get()));
    results
        .iter()
        .map(|n| words[*n].iter().map(number).collect())
        .collect()
}

/// Panics naming the first number that is further from what is wanted than it may be.
fn within(got: &[f64], want: &[(f64, f64)], what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (got, (want, error))) in got.iter().zip(want).enumerate() {
        let off = (got - want).abs();
        assert!(
            off <= *error,
            "{what}: element {i} is {got}, not {want} ± {error}"
        );
    }
}

const SCALE: f64 = 1.25;

/// `(c · scale + bias) · scale + residual`.
fn epilogue(n: u64) -> Epilogue {
    let mut body = Body::default();
    let (acc, bias, residual, scale) = (
        body.push(Expr::Acc),
        body.load(2, Access::PER_COL),
        body.load(3, Access::full(n)),
        body.uniform(0),
    );
    let scaled = body.mul(acc, scale);
    let shifted = body.add(scaled, bias);
    let value = body.fma(shifted, scale, residual);
    Epilogue {
        operands: 2,
        uniforms: 1,
        body,
        value,
    }
}

/// How the factors of a case lie.
struct Lies {
    a: DType,
    a_transposed: bool,
    layout: Layout,
    accumulate: bool,
    finish: bool,
}

fn contraction([m, n, k]: [u64; 3], lies: &Lies) {
    let dynamic = |x: u64, d: bool| match d {
        true => Extent::Dynamic,
        false => Extent::Static(x),
    };
    let spec = Contract {
        dtype: DType::F32,
        a: lies.a,
        b: DType::Bf16,
        m: dynamic(m, !lies.a_transposed),
        n: Extent::Static(n),
        k: dynamic(k, lies.a_transposed),
        a_transposed: lies.a_transposed,
        layout: lies.layout,
        accumulate: lies.accumulate,
        blocking: Target::Sm80.blocking(DType::F32),
        epilogue: lies.finish.then(|| epilogue(n)),
    };
    assert!(tensor::contract::runs(&spec));
    let (a, b) = (
        Data::noise(lies.a, m * k, 1),
        Data::noise(DType::Bf16, k * n, 2),
    );
    let (bias, residual) = (
        Data::noise(DType::F32, n, 3),
        Data::noise(DType::F32, m * n, 4),
    );
    let before = Data::noise(DType::F32, m * n, 5);
    let mut data = vec![a.clone(), b.clone()];
    if lies.finish {
        data.extend([bias.clone(), residual.clone()]);
    }
    data.push(match lies.accumulate {
        true => before.clone(),
        false => Data::room(m * n),
    });
    let coeffs = vec![SCALE; usize::from(lies.finish)];
    let out = data.len() - 1;
    let got = run(
        &KernelSpec::Contract(spec),
        &data,
        &[m, n, k],
        &coeffs,
        &[out],
    )
    .remove(0);
    let a = a.rounded();
    let want = (0..m * n).map(|at| {
        let (i, j) = (at / n, at % n);
        let start = match lies.accumulate {
            true => before.numbers[at as usize],
            false => 0.0,
        };
        let (mut sum, mut size) = (start, start.abs());
        for l in 0..k {
            let x = a[if lies.a_transposed {
                l * m + i
            } else {
                i * k + l
            } as usize];
            let y = b.numbers[match lies.layout {
                Layout::Columns => j * k + l,
                _ => l * n + j,
            } as usize];
            sum += x * y;
            size += (x * y).abs();
        }
        let error = tensor::bound(k) * size;
        if !lies.finish {
            return (sum, error);
        }
        let value =
            (sum * SCALE + bias.numbers[j as usize]) * SCALE + residual.numbers[at as usize];
        // The epilogue's own three roundings.
        (
            value,
            error * SCALE * SCALE + 8.0 * f64::from(f32::EPSILON) * (size + 2.0),
        )
    });
    let want: Vec<(f64, f64)> = want.collect();
    let what = format!(
        "{m} × {n} × {k}, {:?}, {}, {:?}",
        lies.a, lies.a_transposed, lies.layout
    );
    within(&got, &want, &what);
}

#[test]
fn contractions_of_bf16() {
    let mut number = 0;
    // Several blocks and more tiles than stages; a few rows; extents that are multiples of eight, of four, odd.
    for sizes in [[130, 72, 136], [3, 8, 16], [33, 68, 44], [17, 37, 35]] {
        for a_transposed in [false, true] {
            for layout in [Layout::Columns, Layout::Rows] {
                number += 1;
                let lies = Lies {
                    a: [DType::Bf16, DType::F32][(number / 2) % 2],
                    a_transposed,
                    layout,
                    accumulate: number % 3 == 0,
                    finish: number % 4 == 1,
                };
                contraction(sizes, &lies);
            }
        }
    }
}

/// A row of the result is the same whatever other rows there are: reading a text in pieces changes no bit.
#[test]
fn rows_do_not_depend_on_one_another() {
    let (n, k) = (40, 48);
    let spec = Contract {
        dtype: DType::F32,
        a: DType::F32,
        b: DType::Bf16,
        m: Extent::Dynamic,
        n: Extent::Static(n),
        k: Extent::Static(k),
        a_transposed: false,
        layout: Layout::Columns,
        accumulate: false,
        blocking: Target::Sm80.blocking(DType::F32),
        epilogue: None,
    };
    let spec = KernelSpec::Contract(spec);
    let (a, b) = (
        Data::noise(DType::F32, 20 * k, 1),
        Data::noise(DType::Bf16, k * n, 2),
    );
    let rows = |range: std::ops::Range<u64>| {
        let numbers = a.numbers[(range.start * k) as usize..(range.end * k) as usize].to_vec();
        let count = range.end - range.start;
        let some = Data {
            dtype: DType::F32,
            numbers,
        };
        let data = [some, b.clone(), Data::room(count * n)];
        run(&spec, &data, &[count, n, k], &[], &[2]).remove(0)
    };
    let whole = rows(0..20);
    let bits = |x: Vec<f64>| x.into_iter().map(f64::to_bits).collect::<Vec<_>>();
    let pieces = [rows(0..1), rows(1..18), rows(18..20)].concat();
    assert_eq!(bits(whole), bits(pieces));
}

/// One head of one sequence in float64: rows of `head` numbers.
struct Head {
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    causal: bool,
    /// Queries stand after so many keys.
    past: usize,
    scale: f64,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn size(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum()
}

/// `Σ f · row`, columns apart, and the same of absolute values.
fn combine(parts: &[(f64, &Vec<f64>)], head: usize) -> (Vec<f64>, Vec<f64>) {
    let column = |c: usize| parts.iter().map(move |(f, row)| f * row[c]);
    let sums = (0..head).map(|c| column(c).sum()).collect();
    (
        sums,
        (0..head).map(|c| column(c).map(f64::abs).sum()).collect(),
    )
}

/// u, half the distance of numbers in bf16.
const U: f64 = bf16::UNIT;

impl Head {
    fn new(
        data: [&Data; 3],
        number: usize,
        of: usize,
        head: usize,
        spec: &Attend,
        past: usize,
    ) -> Head {
        let rows = |d: &Data| -> Vec<Vec<f64>> {
            let rows = d.numbers.chunks(head);
            rows.skip(number).step_by(of).map(<[f64]>::to_vec).collect()
        };
        let [q, k, v] = data.map(rows);
        Head {
            q,
            k,
            v,
            causal: spec.causal,
            past,
            scale: spec.scale,
        }
    }

    fn sees(&self, i: usize, j: usize) -> bool {
        !self.causal || j <= self.past + i
    }

    /// Scaled scores of a row, and a bound of what weights are off by, relatively.
    fn scores(&self, i: usize) -> (Vec<(usize, f64)>, f64) {
        let seen: Vec<usize> = (0..self.k.len()).filter(|j| self.sees(i, *j)).collect();
        let score = |j: &usize| (*j, dot(&self.q[i], &self.k[*j]) * self.scale);
        let largest = seen
            .iter()
            .map(|j| size(&self.q[i], &self.k[*j]) * self.scale);
        let largest = largest.fold(0.0, f64::max);
        let error =
            (tensor::bound(self.q[i].len() as u64) + 2f64.powi(-21)) * largest + 2f64.powi(-20);
        (seen.iter().map(score).collect(), 2.0 * error)
    }

    /// Results, and the statistic, with their bounds.
    fn forward(&self, i: usize) -> (Vec<(f64, f64)>, (f64, f64)) {
        let (scores, error) = self.scores(i);
        let max = scores.iter().fold(f64::NEG_INFINITY, |m, s| m.max(s.1));
        let total: f64 = scores.iter().map(|s| (s.1 - max).exp()).sum();
        let parts: Vec<(f64, &Vec<f64>)> = (scores.iter())
            .map(|(j, s)| ((s - max).exp() / total, &self.v[*j]))
            .collect();
        let (o, sizes) = combine(&parts, self.v[0].len());
        let off = 1.05 * U + 2.0 * error + tensor::bound(scores.len() as u64);
        let o = o
            .into_iter()
            .zip(sizes)
            .map(|(o, s)| (o, off * s + 1e-6 * o.abs()));
        (
            o.collect(),
            (
                max + total.ln(),
                error + 1e-6 * (max.abs() + total.ln().abs()),
            ),
        )
    }
}

fn attend(inputs: DType, heads: u64, head: u64, causal: bool) -> Attend {
    Attend {
        dtype: DType::F32,
        inputs,
        heads,
        head,
        causal,
        scale: 1.0 / (head as f64).sqrt(),
    }
}

/// Sequences, heads and columns: several tiles, ragged and whole, every width that is asked for.
const SHAPES: [([u64; 4], bool); 5] = [
    ([1, 70, 2, 32], true),
    ([2, 5, 1, 16], false),
    ([1, 130, 1, 64], true),
    ([1, 66, 1, 96], false),
    ([1, 65, 1, 128], true),
];

#[test]
fn attention_forward() {
    for ([batch, seq, heads, head], causal) in SHAPES {
        let spec = attend(DType::Bf16, heads, head, causal);
        let n = batch * seq * heads * head;
        let mut data: Vec<Data> = (1..4).map(|s| Data::noise(DType::Bf16, n, s)).collect();
        // Scores of different sizes: maxima move.
        data[0].numbers.iter_mut().for_each(|x| *x *= 4.0);
        data.extend([Data::room(n), Data::room(batch * seq * heads)]);
        let kernel = KernelSpec::Attend(spec.clone());
        let got = run(&kernel, &data, &[batch, seq], &[], &[3, 4]);
        each_head([batch, seq, heads, head], |at, of| {
            let part = |n: usize| Data {
                dtype: DType::Bf16,
                numbers: data[n].numbers[at.0..at.1].to_vec(),
            };
            let (q, k, v) = (part(0), part(1), part(2));
            let one = Head::new([&q, &k, &v], of, heads as usize, head as usize, &spec, 0);
            for i in 0..seq as usize {
                let (o, lse) = one.forward(i);
                let row = (at.0 / head as usize) + i * heads as usize + of;
                let first = row * head as usize;
                let what = format!("{spec:?}, query {i}");
                within(&got[0][first..first + head as usize], &o, &what);
                within(&got[1][row..row + 1], &[lse], &what);
            }
        });
    }
}

/// Calls `f` with the elements of each sequence, and each head's number.
fn each_head([batch, seq, heads, head]: [u64; 4], mut f: impl FnMut((usize, usize), usize)) {
    let length = (seq * heads * head) as usize;
    for b in 0..batch as usize {
        for number in 0..heads as usize {
            f((b * length, (b + 1) * length), number);
        }
    }
}

/// Reading a text in pieces gives the bits of reading it whole.
#[test]
fn attention_to_kept_keys() {
    let (seq, head) = (132u64, 32u64);
    let spec = attend(DType::Bf16, 1, head, true);
    let n = seq * head;
    let inputs: Vec<Data> = (1..4).map(|s| Data::noise(DType::Bf16, n, s)).collect();
    let whole = [inputs.clone(), vec![Data::room(n), Data::room(seq)]].concat();
    let whole = run(
        &KernelSpec::Attend(spec.clone()),
        &whole,
        &[1, seq],
        &[],
        &[3],
    )
    .remove(0);
    for (from, to) in [(0, 3), (60, 70), (131, 132)] {
        let part = |d: &Data, from: u64, to: u64| Data {
            dtype: d.dtype,
            numbers: d.numbers[(from * head) as usize..(to * head) as usize].to_vec(),
        };
        let data = vec![
            part(&inputs[0], from, to),
            part(&inputs[1], 0, to),
            part(&inputs[2], 0, to),
            Data::room((to - from) * head),
        ];
        let kernel = KernelSpec::AttendCached(spec.clone());
        let got = run(&kernel, &data, &[to - from, from], &[], &[3]).remove(0);
        let want = &whole[(from * head) as usize..(to * head) as usize];
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        assert!(got.iter().zip(want).all(same), "{from}..{to}");
    }
}

#[test]
fn attention_backward() {
    for ([batch, seq, heads, head], causal) in SHAPES {
        let spec = attend(DType::Bf16, heads, head, causal);
        let n = batch * seq * heads * head;
        let mut data: Vec<Data> = [1, 2, 3, 8]
            .map(|s| Data::noise(DType::Bf16, n, s))
            .to_vec();
        let d_o = Data::noise(DType::F32, n, 9);
        let width = head as usize;
        let mut lse = vec![0.0; (batch * seq * heads) as usize];
        let mut heads_of = vec![];
        each_head([batch, seq, heads, head], |at, of| {
            let part = |n: usize| Data {
                dtype: DType::Bf16,
                numbers: data[n].numbers[at.0..at.1].to_vec(),
            };
            let (q, k, v) = (part(0), part(1), part(2));
            let one = Head::new([&q, &k, &v], of, heads as usize, width, &spec, 0);
            for i in 0..seq as usize {
                lse[at.0 / width + i * heads as usize + of] = f64::from(one.forward(i).1.0 as f32);
            }
            heads_of.push((at.0, of, one));
        });
        data.push(Data {
            dtype: DType::F32,
            numbers: lse.clone(),
        });
        data.extend([d_o.clone(), Data::room(n), Data::room(n), Data::room(n)]);
        let kernel = KernelSpec::AttendBackward(spec.clone());
        let got = run(&kernel, &data, &[batch, seq], &[], &[6, 7, 8]);
        for (start, of, one) in heads_of {
            let first = |i: usize| start + (i * heads as usize + of) * width;
            let row = |d: &Data, i: usize| d.numbers[first(i)..first(i) + width].to_vec();
            let count = seq as usize;
            let rows = |d: &Data| -> Vec<Vec<f64>> { (0..count).map(|i| row(d, i)).collect() };
            let (o, d_o) = (rows(&data[3]), rows(&d_o));
            // Weights, slopes, and what they may be off by.
            let mut pairs = vec![];
            for i in 0..count {
                let (scores, error) = one.scores(i);
                let delta = dot(&o[i], &d_o[i]);
                for (j, score) in scores {
                    let p = (score - lse[start / width + i * heads as usize + of]).exp();
                    let rate = dot(&d_o[i], &one.v[j]);
                    let slope = p * (rate - delta) * spec.scale;
                    let weight_off = p * (2.0 * error + 1.05 * U);
                    let rate_off = (1.05 * U + tensor::bound(head)) * size(&d_o[i], &one.v[j])
                        + 1e-5 * size(&o[i], &d_o[i]);
                    let off =
                        slope.abs() * (2.0 * error + 1.05 * U) + p * 1.05 * rate_off * spec.scale;
                    pairs.push((i, j, (p, weight_off), (slope, off)));
                }
            }
            let last = tensor::bound(seq);
            // Σ factor · row, of the factors of one row or column of pairs.
            let gradient = |mine: Vec<((f64, f64), &Vec<f64>)>, rounded: f64| -> Vec<(f64, f64)> {
                (0..width)
                    .map(|c| {
                        let value = mine.iter().map(|((f, _), r)| f * r[c]).sum();
                        let off = mine.iter().map(|((f, off), r)| {
                            (off * (1.0 + U) + f.abs() * (rounded + 1.1 * last)) * r[c].abs()
                        });
                        (value, off.sum::<f64>() + 1e-9)
                    })
                    .collect()
            };
            for i in 0..count {
                let what = format!("{spec:?}, row {i}");
                let of_row = pairs.iter().filter(|x| x.0 == i);
                let d_q = gradient(of_row.map(|x| (x.3, &one.k[x.1])).collect(), 0.0);
                within(
                    &got[0][first(i)..first(i) + width],
                    &d_q,
                    &format!("dQ, {what}"),
                );
                let of_key = || pairs.iter().filter(|x| x.1 == i);
                let d_k = gradient(of_key().map(|x| (x.3, &one.q[x.0])).collect(), 0.0);
                within(
                    &got[1][first(i)..first(i) + width],
                    &d_k,
                    &format!("dK, {what}"),
                );
                let d_v = gradient(of_key().map(|x| (x.2, &d_o[x.0])).collect(), 1.05 * U);
                within(
                    &got[2][first(i)..first(i) + width],
                    &d_v,
                    &format!("dV, {what}"),
                );
            }
        }
    }
}
