//! Attention on tensor cores against float64, forward, to kept keys, and backward, within the bounds of
//! [`odec_program::gpu::tensor`].

use super::{Data, launch, rounded};
use odec_program::gpu::tensor;
use odec_program::kernel::{Attend, Scores};
use odec_program::{DType, KernelSpec, Target, bf16};

/// One head of queries of one sequence, and the keys it reads, in float64: rows of `head` numbers.
struct Head {
    q: Vec<Vec<f64>>,
    k: Vec<Vec<f64>>,
    v: Vec<Vec<f64>>,
    causal: bool,
    window: usize,
    /// Queries stand after so many keys.
    past: usize,
    scale: f64,
    scores: Scores,
    /// By how much scores fall with each token between.
    slope: f64,
    sink: Option<f64>,
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
        [q, k, v]: [&Data; 3],
        (sequence, [seq, keys]): (usize, [usize; 2]),
        number: usize,
        spec: &Attend,
    ) -> Head {
        let shared = number / spec.group() as usize;
        let kv_heads = spec.kv_heads as usize;
        Head {
            q: rows(q, sequence * seq, seq, (number, spec.heads as usize), spec),
            k: rows(k, sequence * keys, keys, (shared, kv_heads), spec),
            v: rows(v, sequence * keys, keys, (shared, kv_heads), spec),
            causal: spec.causal,
            window: spec.window.map_or(usize::MAX, |w| w as usize),
            past: 0,
            scale: spec.scale,
            scores: spec.scores,
            slope: match spec.scores.alibi {
                true => 0.5f64.powf(8.0 * (number + 1) as f64 / spec.heads as f64),
                false => 0.0,
            },
            sink: None,
        }
    }

    fn sees(&self, i: usize, j: usize) -> bool {
        let i = self.past + i;
        !self.causal || (j <= i && i - j < self.window)
    }

    /// What becomes of the scaled score of a query and a key, and its derivative.
    fn score(&self, i: usize, j: usize) -> (f64, f64) {
        let scaled = dot(&self.q[i], &self.k[j]) * self.scale;
        let (score, slope) = match self.scores.softcap {
            Some(c) => (c * (scaled / c).tanh(), 1.0 - (scaled / c).tanh().powi(2)),
            None => (scaled, 1.0),
        };
        (score - self.fall(i, j), slope)
    }

    fn fall(&self, i: usize, j: usize) -> f64 {
        self.slope * (self.past + i).abs_diff(j) as f64
    }

    /// Scores of a row, and a bound of what weights are off by, relatively.
    fn scores(&self, i: usize) -> (Vec<(usize, f64)>, f64) {
        let seen: Vec<usize> = (0..self.k.len()).filter(|j| self.sees(i, *j)).collect();
        let score = |j: &usize| (*j, self.score(i, *j).0);
        let falls = seen.iter().map(|j| self.fall(i, *j)).fold(0.0, f64::max);
        let more = self.scores.softcap.unwrap_or(0.0) + falls + self.sink.map_or(0.0, f64::abs);
        let largest = seen
            .iter()
            .map(|j| size(&self.q[i], &self.k[*j]) * self.scale);
        let largest = largest.fold(0.0, f64::max);
        let error =
            (tensor::bound(self.q[i].len() as u64) + 2f64.powi(-21)) * largest + 2f64.powi(-20);
        let error = error + more * 2f64.powi(-20);
        (seen.iter().map(score).collect(), 2.0 * error)
    }

    /// Results, and the statistic, with their bounds.
    fn forward(&self, i: usize) -> (Vec<(f64, f64)>, (f64, f64)) {
        let (scores, error) = self.scores(i);
        let all = || scores.iter().map(|s| s.1).chain(self.sink);
        let max = all().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = all().map(|s| (s - max).exp()).sum();
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

    /// The pairs of a query whose result is `o` with gradient `d_o`.
    fn pairs(&self, i: usize, (o, d_o): (&[f64], &[f64]), lse: f64) -> Vec<Pair> {
        let (scores, error) = self.scores(i);
        let (delta, head) = (dot(o, d_o), o.len() as u64);
        let pair = |(j, score): (usize, f64)| {
            let p = (score - lse).exp();
            let bend = self.score(i, j).1;
            let slope = bend * p * (dot(d_o, &self.v[j]) - delta) * self.scale;
            let rate_off =
                (1.05 * U + tensor::bound(head)) * size(d_o, &self.v[j]) + 1e-5 * size(o, d_o);
            let relative = 2.0 * error + 1.05 * U;
            // The bound's derivative moves by no more than this with its argument.
            let bend_off = self.scores.softcap.map_or(0.0, |c| error / c + 1e-6);
            let rate = dot(d_o, &self.v[j]) - delta;
            Pair {
                i,
                j,
                weight: (p, p * relative),
                slope: (
                    slope,
                    slope.abs() * relative
                        + p * (1.05 * rate_off + bend_off * rate.abs()) * self.scale,
                ),
                q: self.q[i].clone(),
                d_o: d_o.to_vec(),
            }
        };
        scores.into_iter().map(pair).collect()
    }
}

/// A query and a key that it sees: weight and slope of the score, with what they may be off by.
struct Pair {
    i: usize,
    j: usize,
    weight: (f64, f64),
    slope: (f64, f64),
    q: Vec<f64>,
    d_o: Vec<f64>,
}

/// `seq` rows from `first` on of a head of so many.
fn rows(
    d: &Data,
    first: usize,
    seq: usize,
    (number, of): (usize, usize),
    a: &Attend,
) -> Vec<Vec<f64>> {
    let rows = d.numbers.chunks(a.head as usize).skip(first * of + number);
    rows.step_by(of).take(seq).map(<[f64]>::to_vec).collect()
}

fn attend(heads: u64, kv_heads: u64, head: u64, causal: bool, window: Option<u64>) -> Attend {
    Attend {
        dtype: DType::F32,
        inputs: DType::Bf16,
        heads,
        kv_heads,
        head,
        causal,
        room: None,
        window,
        scale: 1.0 / (head as f64).sqrt(),
        rounds: false,
        value: None,
        scores: Default::default(),
        order: Default::default(),
        partial: false,
        others: false,
    }
}

/// Batch, sequence, heads, heads of keys, columns; causal; window: several tiles, ragged and whole, every width that
/// is asked for.
const SHAPES: [([u64; 5], bool, Option<u64>); 10] = [
    ([1, 70, 2, 2, 32], true, None),
    ([2, 5, 1, 1, 16], false, None),
    ([1, 130, 1, 1, 64], true, None),
    ([1, 66, 1, 1, 96], false, None),
    ([1, 65, 1, 1, 128], true, None),
    ([2, 67, 4, 2, 16], true, None),
    ([1, 35, 3, 1, 16], false, None),
    ([1, 200, 2, 1, 16], true, Some(66)),
    ([2, 81, 2, 2, 16], true, Some(3)),
    ([1, 75, 2, 1, 80], true, Some(40)),
];

/// Batch, queries, keys of other tokens, heads, heads of keys, columns: more keys and fewer, ragged and whole.
const OTHERS: [[u64; 6]; 5] = [
    [2, 70, 5, 2, 2, 32],
    [1, 3, 130, 2, 1, 16],
    [2, 67, 129, 4, 2, 16],
    [1, 65, 64, 1, 1, 128],
    [1, 33, 100, 2, 1, 96],
];

/// A spec; sequences, and queries and keys of each.
type Shape = (Attend, usize, [usize; 2]);

fn shapes() -> impl Iterator<Item = Shape> {
    let own = SHAPES
        .into_iter()
        .map(|([batch, seq, heads, kv_heads, head], causal, window)| {
            let spec = attend(heads, kv_heads, head, causal, window);
            (spec, batch as usize, [seq as usize; 2])
        });
    let of = |[batch, seq, keys, heads, kv_heads, head]: [u64; 6]| {
        let spec = Attend {
            others: true,
            ..attend(heads, kv_heads, head, false, None)
        };
        (spec, batch as usize, [seq as usize, keys as usize])
    };
    own.chain(OTHERS.into_iter().map(of))
}

fn dims(spec: &Attend, batch: usize, [seq, keys]: [usize; 2]) -> Vec<u64> {
    let dims = [batch, seq].into_iter().chain(spec.others.then_some(keys));
    dims.map(|n| n as u64).collect()
}

/// Some of them, whose scores are bounded and fall with distance, with and without sinks.
fn scored() -> impl Iterator<Item = Shape> {
    let of = |(n, softcap, alibi, sinks)| {
        let (spec, batch, tokens) = shapes().nth(n).expect("a case");
        let scores = Scores {
            softcap,
            alibi,
            sinks,
            distances: None,
        };
        (Attend { scores, ..spec }, batch, tokens)
    };
    [
        (0, Some(2.0), true, true),
        (6, Some(0.75), true, false),
        (7, None, true, false),
        (5, Some(4.0), false, false),
        (8, None, false, true),
        (10, Some(2.0), false, true),
        (12, None, false, true),
    ]
    .into_iter()
    .map(of)
}

/// A sink for each head.
fn sinks(spec: &Attend) -> Option<Data> {
    let sinks = (spec.scores.sinks).then(|| Data::noise(DType::F32, spec.heads, 12));
    sinks.map(|mut d| {
        d.numbers.iter_mut().for_each(|x| *x *= 2.0);
        d
    })
}

/// Elements of queries, and of keys.
fn sizes(spec: &Attend, batch: usize, [seq, keys]: [usize; 2]) -> [u64; 2] {
    [(seq, spec.heads), (keys, spec.kv_heads)]
        .map(|(tokens, heads)| (batch * tokens) as u64 * heads * spec.head)
}

#[test]
fn attention_forward() {
    forward(Target::Sm80);
}

#[test]
fn attention_forward_by_warpgroups() {
    forward(Target::Sm90a);
}

fn forward(target: Target) {
    for (n, (spec, batch, tokens)) in shapes().chain(scored()).enumerate() {
        let [seq, _] = tokens;
        // Every other result is rounded.
        let spec = Attend {
            rounds: n % 2 == 1,
            ..spec
        };
        let result = match spec.rounds {
            true => DType::Bf16,
            false => DType::F32,
        };
        let sinks = sinks(&spec);
        let [n, narrow] = sizes(&spec, batch, tokens);
        let mut data: Vec<Data> = [(n, 1), (narrow, 2), (narrow, 3)]
            .map(|(n, seed)| Data::noise(DType::Bf16, n, seed))
            .to_vec();
        // Scores of different sizes: maxima move.
        data[0].numbers.iter_mut().for_each(|x| *x *= 4.0);
        let heads = spec.heads as usize;
        let statistics = (batch * seq * heads) as u64;
        data.extend([Data::room_for(result, n), Data::room(statistics)]);
        data.extend(sinks.clone());
        let kernel = KernelSpec::Attend(spec.clone());
        let dims = dims(&spec, batch, tokens);
        let mut launched = launch(target, &kernel, &data, &dims, &[]);
        for (sequence, number) in each_head(&spec, batch) {
            let mut one = Head::new(
                [&data[0], &data[1], &data[2]],
                (sequence, tokens),
                number,
                &spec,
            );
            one.sink = sinks.as_ref().map(|d| d.numbers[number]);
            for i in 0..seq {
                let (mut o, lse) = one.forward(i);
                let row = (sequence * seq + i) * heads + number;
                let first = row * spec.head as usize;
                if spec.rounds {
                    o = o.into_iter().map(rounded).collect();
                }
                launched.expect(3, first, &o);
                launched.expect(4, row, &[lse]);
            }
        }
        launched.check(&format!("{spec:?}"));
    }
}

/// What tensor maps bring is what threads copy: the emulator adds alike in both kinds of products, so both targets give the same bits. Several
/// sequences, heads that share keys, a window, keys of other tokens; heads narrower and wider than a box.
#[test]
fn boxes_bring_what_copies_do() {
    for n in [3, 5, 8, 12] {
        let (spec, batch, tokens) = shapes().nth(n).unwrap();
        let [n, narrow] = sizes(&spec, batch, tokens);
        let mut data: Vec<Data> = [(n, 1), (narrow, 2), (narrow, 3)]
            .map(|(n, seed)| Data::noise(DType::Bf16, n, seed))
            .to_vec();
        let statistics = (batch * tokens[0]) as u64 * spec.heads;
        data.extend([Data::room(n), Data::room(statistics)]);
        let dims = dims(&spec, batch, tokens);
        let kernel = KernelSpec::Attend(spec);
        let results = |target: Target| {
            let got = launch(target, &kernel, &data, &dims, &[]);
            let got = [3, 4].map(|n| got.operand(n)).concat();
            got.into_iter().map(f64::to_bits).collect::<Vec<_>>()
        };
        assert_eq!(results(Target::Sm80), results(Target::Sm90a));
    }
}

/// Sequences, and the numbers of heads.
fn each_head(spec: &Attend, batch: usize) -> impl Iterator<Item = (usize, usize)> {
    let heads = spec.heads as usize;
    (0..batch * heads).map(move |n| (n / heads, n % heads))
}

/// Reading a text in pieces gives the bits of reading it whole.
#[test]
fn attention_to_kept_keys() {
    for target in Target::GPUS {
        pieces(target, attend(1, 1, 32, true, None));
    }
}

/// So do scores that fall with distance.
#[test]
fn attention_to_kept_keys_with_other_scores() {
    let scores = Scores {
        softcap: Some(2.0),
        alibi: true,
        sinks: true,
        distances: None,
    };
    for target in Target::GPUS {
        let spec = attend(1, 1, 32, true, None);
        pieces(target, Attend { scores, ..spec });
    }
}

/// So does a window, wherever the tiles of the piece begin.
#[test]
fn attention_to_kept_keys_of_a_window() {
    for target in Target::GPUS {
        pieces(target, attend(1, 1, 16, true, Some(61)));
    }
}

fn pieces(target: Target, spec: Attend) {
    let (seq, head) = (132u64, spec.head);
    let n = seq * head;
    let inputs: Vec<Data> = (1..4).map(|s| Data::noise(DType::Bf16, n, s)).collect();
    let sinks: Vec<Data> = sinks(&spec).into_iter().collect();
    let whole = [
        inputs.clone(),
        vec![Data::room(n), Data::room(seq)],
        sinks.clone(),
    ]
    .concat();
    let kernel = KernelSpec::Attend(spec.clone());
    let whole = launch(target, &kernel, &whole, &[1, seq], &[]).operand(3);
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
        let data = [data, sinks.clone()].concat();
        let kernel = KernelSpec::AttendCached(spec.clone());
        let got = launch(target, &kernel, &data, &[to - from, from], &[]).operand(3);
        let want = &whole[(from * head) as usize..(to * head) as usize];
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits();
        assert!(got.iter().zip(want).all(same), "{from}..{to}");
    }
}

#[test]
fn attention_backward() {
    backward(Target::Sm80);
}

#[test]
fn attention_backward_by_warpgroups() {
    backward(Target::Sm90a);
}

fn backward(target: Target) {
    for (mut spec, batch, tokens) in shapes().chain(scored()) {
        let [seq, keys] = tokens;
        let sinks = sinks(&spec);
        spec.scores.sinks = false;
        let [n, narrow] = sizes(&spec, batch, tokens);
        let mut data: Vec<Data> = [(n, 1), (narrow, 2), (narrow, 3)]
            .map(|(n, seed)| Data::noise(DType::Bf16, n, seed))
            .to_vec();
        let [o, d_o] = [8, 9].map(|seed| Data::noise(DType::Bf16, n, seed));
        let (width, heads) = (spec.head as usize, spec.heads as usize);
        let mut lse = vec![0.0; batch * seq * heads];
        let mut heads_of = vec![];
        for (sequence, number) in each_head(&spec, batch) {
            let mut one = Head::new(
                [&data[0], &data[1], &data[2]],
                (sequence, tokens),
                number,
                &spec,
            );
            one.sink = sinks.as_ref().map(|d| d.numbers[number]);
            for i in 0..seq {
                let row = (sequence * seq + i) * heads + number;
                lse[row] = f64::from(one.forward(i).1.0 as f32);
            }
            heads_of.push((sequence, number, one));
        }
        let in_f32 = |numbers| Data {
            dtype: DType::F32,
            numbers,
        };
        let of_rows = o.numbers.chunks(width).zip(d_o.numbers.chunks(width));
        let delta = of_rows.map(|(o, d_o)| f64::from(dot(o, d_o) as f32));
        data.extend([
            in_f32(delta.collect()),
            in_f32(lse.clone()),
            d_o.clone(),
            Data::room(n),
            Data::room(narrow),
            Data::room(narrow),
        ]);
        let kernel = KernelSpec::AttendBackward(spec.clone());
        let dims = dims(&spec, batch, tokens);
        let mut launched = launch(target, &kernel, &data, &dims, &[]);
        let group = spec.group() as usize;
        let last = tensor::bound(keys.max(seq * group) as u64);
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
        let mut expect = |operand: usize, i: usize, head: (usize, usize), want: &[(f64, f64)]| {
            let first = (i * head.1 + head.0) * width;
            launched.expect(operand + 6, first, want);
        };
        // Heads that share keys add to one gradient.
        for members in heads_of.chunks(group) {
            let sequence = members[0].0;
            let own: Vec<Vec<Vec<f64>>> = (members.iter())
                .map(|(_, number, _)| rows(&d_o, sequence * seq, seq, (*number, heads), &spec))
                .collect();
            let mut pairs = vec![];
            for ((_, number, one), d_o) in members.iter().zip(&own) {
                let o = rows(&o, sequence * seq, seq, (*number, heads), &spec);
                let begin = pairs.len();
                for i in 0..seq {
                    let lse = lse[(sequence * seq + i) * heads + number];
                    pairs.extend(one.pairs(i, (&o[i], &d_o[i]), lse));
                }
                for i in 0..seq {
                    let of_row = pairs[begin..].iter().filter(|x| x.i == i);
                    let d_q = gradient(of_row.map(|x| (x.slope, &one.k[x.j])).collect(), 0.0);
                    expect(0, sequence * seq + i, (*number, heads), &d_q);
                }
            }
            let head = (members[0].1 / group, spec.kv_heads as usize);
            for j in 0..keys {
                let of_key = || pairs.iter().filter(|x| x.j == j);
                let d_k = gradient(of_key().map(|x| (x.slope, &x.q)).collect(), 0.0);
                expect(1, sequence * keys + j, head, &d_k);
                let d_v = gradient(of_key().map(|x| (x.weight, &x.d_o)).collect(), 1.05 * U);
                expect(2, sequence * keys + j, head, &d_v);
            }
        }
        launched.check(&format!("{spec:?}"));
    }
}
