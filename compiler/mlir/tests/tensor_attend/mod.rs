//! Attention on tensor cores against float64, forward, to kept keys, and backward, within the bounds of
//! [`odec_program::gpu::tensor`].

use super::{Data, run, within};
use odec_program::gpu::tensor;
use odec_program::kernel::Attend;
use odec_program::{DType, KernelSpec, bf16};

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
        kv_heads: heads,
        head,
        causal,
        window: None,
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
