//! Attention and linear attention of operands against equations written out anew, in f64: by scalars, one token and head at a time.
//!
//! Weights are given by their order in the text. Nothing of the ops is used: neither their heads nor their softmax.

use odec_compiler::model::alone::{Alone, alone};
use odec_compiler::model::layers::Sizes;
use odec_graph::{Tensor, run};
use odec_library::shipped;
use odec_program::Bindings;
use std::collections::BTreeMap;

const WIDTH: usize = 16;
const TOKENS: usize = 7;

type Matrix = Vec<Vec<f64>>;

/// Numbers without a pattern from −1 to 1.
fn number(seed: usize, i: usize) -> f64 {
    let x = (seed * 7919 + i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x >> 40) as f64 / (1u64 << 23) as f64 - 1.0
}

fn matrix(rows: usize, columns: usize, seed: usize) -> Matrix {
    let row = |r| {
        (0..columns)
            .map(|c| number(seed, r * columns + c))
            .collect()
    };
    (0..rows).map(row).collect()
}

fn layer(text: &str) -> Alone {
    let sizes = Sizes {
        vocab: None,
        context: TOKENS as u64,
        width: WIDTH as u64,
        grid: None,
    };
    alone(text, sizes, shipped::library()).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// What a layer gives for a state, with parameters in the order of the text.
fn computed(text: &str, x: &Matrix, parameters: &[Matrix]) -> Matrix {
    let layer = layer(text);
    assert_eq!(layer.params.len(), parameters.len(), "{text}");
    let state = Tensor::new(vec![1, TOKENS as u64, WIDTH as u64], x.concat());
    let mut given = BTreeMap::from([("x".to_string(), state)]);
    for (p, value) in layer.params.iter().zip(parameters) {
        given.insert(p.path.clone(), Tensor::new(p.shape.clone(), value.concat()));
    }
    let made = run(&layer.graph, &given, Bindings::new(1, TOKENS as u64));
    let made = made.unwrap_or_else(|e| panic!("{text}: {e}"));
    let rows = made["y"].data.chunks(layer.columns as usize);
    rows.map(<[f64]>::to_vec).collect()
}

fn close(text: &str, got: &Matrix, wanted: &Matrix) {
    assert_eq!(got.len(), wanted.len(), "{text}");
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.len(), wanted.len(), "{text}");
        for (c, (g, w)) in got.iter().zip(wanted).enumerate() {
            assert!(
                (g - w).abs() < 1e-12,
                "{text}: token {i}, column {c}: {g} is not {w}"
            );
        }
    }
}

/// `x wᵀ`.
fn linear(x: &Matrix, w: &Matrix) -> Matrix {
    let product = |row: &Vec<f64>, w: &Vec<f64>| row.iter().zip(w).map(|(a, b)| a * b).sum();
    let row = |row: &Vec<f64>| w.iter().map(|w| product(row, w)).collect();
    x.iter().map(row).collect()
}

/// What an attention is, beside its operands.
struct Rule<'a> {
    heads: usize,
    kv_heads: usize,
    /// What is made of a scaled score, in head h, of query i and key j.
    score: &'a dyn Fn(f64, usize, usize, usize) -> f64,
    /// Whether it sees those up to itself alone, and how many.
    causal: bool,
    window: usize,
    sinks: Option<&'a [f64]>,
}

/// The whole of it, token by token and head by head.
fn attended(rule: &Rule, [q, k, v]: [&Matrix; 3]) -> Matrix {
    let (head, value) = (q[0].len() / rule.heads, v[0].len() / rule.kv_heads);
    let mut out = vec![vec![0.0; value * rule.heads]; q.len()];
    for i in 0..q.len() {
        for h in 0..rule.heads {
            let g = h / (rule.heads / rule.kv_heads);
            let end = if rule.causal { i + 1 } else { q.len() };
            let seen = (0..end).filter(|j| i.saturating_sub(*j) < rule.window);
            let seen: Vec<usize> = seen.collect();
            let weight = |j: &usize| {
                let mut product = 0.0;
                for c in 0..head {
                    product += q[i][h * head + c] * k[*j][g * head + c];
                }
                (rule.score)(product / (head as f64).sqrt(), h, i, *j).exp()
            };
            let weights: Vec<f64> = seen.iter().map(weight).collect();
            let nothing = rule.sinks.map_or(0.0, |sinks| sinks[h].exp());
            let total = nothing + weights.iter().sum::<f64>();
            for (j, w) in seen.iter().zip(&weights) {
                for c in 0..value {
                    out[i][h * value + c] += w / total * v[*j][g * value + c];
                }
            }
        }
    }
    out
}

/// A score as it is.
fn plain(score: f64, _: usize, _: usize, _: usize) -> f64 {
    score
}

fn rule(heads: usize, score: &dyn Fn(f64, usize, usize, usize) -> f64) -> Rule<'_> {
    Rule {
        heads,
        kv_heads: heads,
        score,
        causal: true,
        window: usize::MAX,
        sinks: None,
    }
}

/// Maps of these heights, small enough that exponentials stay moderate.
fn maps(heights: &[usize]) -> Vec<Matrix> {
    let mut maps: Vec<Matrix> = (heights.iter().enumerate())
        .map(|(n, rows)| matrix(*rows, WIDTH, n + 2))
        .collect();
    maps.iter_mut().flatten().flatten().for_each(|w| *w *= 0.5);
    maps
}

/// Queries, keys and values by the first three maps.
fn projected(x: &Matrix, maps: &[Matrix]) -> [Matrix; 3] {
    [0, 1, 2].map(|n| linear(x, &maps[n]))
}

/// Press, Smith & Lewis 2022, equation of section 3: slopes 2⁻² , 2⁻⁴, 2⁻⁶, 2⁻⁸ of four heads.
#[test]
fn alibi() {
    let text = "attend(linear, linear, linear(2*width), heads: 4, causal, bias: alibi)";
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 32]));
    let slopes = [0.25, 0.0625, 0.015625, 0.00390625];
    let score = |s: f64, h: usize, i: usize, j: usize| s - slopes[h] * (i - j) as f64;
    let [q, k, v] = projected(&x, &maps);
    let wanted = attended(&rule(4, &score), [&q, &k, &v]);
    close(text, &computed(text, &x, &maps), &wanted);
}

/// Raffel et al. 2020, section 2.1: a learned number of each head and distance; the last one is that of all tokens that are farther away. Where tokens behind
/// are seen, these have numbers of their own.
#[test]
fn distances() {
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 16]));
    let table = matrix(3, 4, 9);
    let number = |i: usize, j: usize, h: usize| {
        let column = if j > i { 2 + h } else { h };
        table[i.abs_diff(j).min(2)][column]
    };
    let score = |s: f64, h: usize, i: usize, j: usize| s + number(i, j, h);
    let [q, k, v] = projected(&x, &maps);
    for causal in [true, false] {
        let word = if causal { ", causal" } else { "" };
        let text = format!("attend(linear, linear, linear, heads: 2{word}, distances: 3)");
        let columns = if causal { 2 } else { 4 };
        let own = table.iter().map(|row| row[..columns].to_vec()).collect();
        let maps = [&maps[..], &[own]].concat();
        let rule = Rule {
            causal,
            ..rule(2, &score)
        };
        let wanted = attended(&rule, [&q, &k, &v]);
        close(&text, &computed(&text, &x, &maps), &wanted);
    }
}

/// Gemma Team 2024, section 2: `c · tanh(s/c)`, here by exponentials; with shared keys, a window and another scale.
#[test]
fn softcap() {
    let text =
        "attend(linear, linear(8), linear(8), heads: 4, causal, window: 3, scale: 1, softcap: 3/4)";
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 8, 8]));
    let score = |s: f64, _: usize, _: usize, _: usize| {
        let (up, down) = ((2.0 * s / 0.75).exp(), (-2.0 * s / 0.75).exp());
        0.75 * (up - down) / (up + down)
    };
    let [q, k, v] = projected(&x, &maps);
    let rule = Rule {
        kv_heads: 2,
        window: 3,
        ..rule(4, &score)
    };
    let wanted = attended(&rule, [&q, &k, &v]);
    close(text, &computed(text, &x, &maps), &wanted);
}

/// OpenAI 2025, section 2.3: a learned score for each head in the denominator.
#[test]
fn sinks() {
    let text = "attend(linear, linear, linear, heads: 2, causal, sinks)";
    let (x, mut maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 16]));
    let [q, k, v] = projected(&x, &maps);
    let sinks = [1.5, -0.25];
    let rule = Rule {
        sinks: Some(&sinks),
        ..rule(2, &plain)
    };
    let wanted = attended(&rule, [&q, &k, &v]);
    maps.push(vec![sinks.to_vec()]);
    close(text, &computed(text, &x, &maps), &wanted);
    let without = attended(&self::rule(2, &plain), [&q, &k, &v]);
    assert!((without[3][0] - wanted[3][0]).abs() > 1e-3);
}

/// Ye et al. 2024, equation 1: the difference of two attentions to the same values, which are twice as wide as queries and keys.
#[test]
fn differential() {
    let text = "attend(linear(8), linear(8), linear, heads: 2, causal) - 4/5*attend(linear(8), linear(8), linear, heads: 2, causal)";
    let (x, mut maps) = (matrix(TOKENS, WIDTH, 1), maps(&[8, 8, 16, 8, 8, 16]));
    maps[5] = maps[2].clone();
    let first = projected(&x, &maps[..3]);
    let second = projected(&x, &maps[3..]);
    let [first, second] = [&first, &second].map(|[q, k, v]| attended(&rule(2, &plain), [q, k, v]));
    let differ =
        |(a, b): (&Vec<f64>, &Vec<f64>)| a.iter().zip(b).map(|(a, b)| a - 0.8 * b).collect();
    let wanted = first.iter().zip(&second).map(differ).collect();
    close(text, &computed(text, &x, &maps), &wanted);
}

/// Su et al. 2021, equation 34, of half of each head's columns, with positions divided by four.
#[test]
fn rotary() {
    let text = "attend(linear |> rotary(heads: 2, base: 100, share: 1/2, scaling: 4), linear |> rotary(heads: 2, base: 100, share: 1/2, scaling: 4), linear, heads: 2, causal)";
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 16]));
    let [mut q, mut k, v] = projected(&x, &maps);
    let turn = |x: &mut Matrix| {
        for (p, row) in x.iter_mut().enumerate() {
            for head in row.chunks_mut(8) {
                // Four of eight columns: pairs 0 and 1.
                for i in 0..2 {
                    let angle = p as f64 / 4.0 / 100f64.powf(i as f64 / 2.0);
                    let (a, b) = (head[i], head[i + 4]);
                    head[i] = a * angle.cos() - b * angle.sin();
                    head[i + 4] = b * angle.cos() + a * angle.sin();
                }
            }
        }
    };
    turn(&mut q);
    turn(&mut k);
    let wanted = attended(&rule(2, &plain), [&q, &k, &v]);
    close(text, &computed(text, &x, &maps), &wanted);
}

/// Longer contexts: each way to stretch angles against its published formula, and pairs that are neighbours.
#[test]
fn stretched_positions() {
    let (base, scale, trained) = (100f64, 4f64, 6f64);
    let tau = std::f64::consts::TAU;
    // Peng et al. 2023, definition 1: turns in the trained context from `slow` to `fast`.
    let mixed = |w: f64, slow: f64, fast: f64| {
        let gamma = ((trained * w / tau - slow) / (fast - slow)).clamp(0.0, 1.0);
        (1.0 - gamma) * w / scale + gamma * w
    };
    // The released code of LLaMA 3.1, by wavelengths.
    let llama = |w: f64| {
        let (low, high) = (0.25, 0.75);
        let wavelength = tau / w;
        match wavelength {
            l if l < trained / high => w,
            l if l > trained / low => w / scale,
            l => {
                let smooth = (trained / l - low) / (high - low);
                (1.0 - smooth) * w / scale + smooth * w
            }
        }
    };
    type Angle<'a> = (&'a str, Box<dyn Fn(f64) -> f64 + 'a>, f64);
    let ways: [Angle; 4] = [
        ("interpolation: linear", Box::new(|w| w / scale), 1.0),
        // bloc97 2023: base′ = base · scale^(d/(d − 2)), d = 8, so that w′ = w · scale^(−2i/6), w = base^(−2i/8).
        (
            "interpolation: ntk",
            Box::new(|w: f64| w * scale.powf(w.ln() / base.ln() * 8.0 / 6.0)),
            1.0,
        ),
        (
            "interpolation: yarn, trained: 6, slow: 1/4, fast: 2",
            Box::new(move |w| mixed(w, 0.25, 2.0)),
            0.1 * scale.ln() + 1.0,
        ),
        (
            "interpolation: llama3, trained: 6, slow: 1/4, fast: 3/4",
            Box::new(llama),
            1.0,
        ),
    ];
    for (how, angle, magnitude) in ways {
        for interleaved in [false, true] {
            let word = if interleaved { ", interleaved" } else { "" };
            let rotary = format!("rotary(heads: 2, base: 100, scaling: 4, {how}{word})");
            let text =
                format!("attend(linear |> {rotary}, linear |> {rotary}, linear, heads: 2, causal)");
            let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 16]));
            let [mut q, mut k, v] = projected(&x, &maps);
            let turn = |x: &mut Matrix| {
                for (p, row) in x.iter_mut().enumerate() {
                    for head in row.chunks_mut(8) {
                        for i in 0..4 {
                            let theta = p as f64 * angle(base.powf(-2.0 * i as f64 / 8.0));
                            let [s, c] = [theta.sin(), theta.cos()].map(|x| magnitude * x);
                            let (m, n) = match interleaved {
                                true => (2 * i, 2 * i + 1),
                                false => (i, i + 4),
                            };
                            let (a, b) = (head[m], head[n]);
                            head[m] = a * c - b * s;
                            head[n] = b * c + a * s;
                        }
                    }
                }
            };
            turn(&mut q);
            turn(&mut k);
            let wanted = attended(&rule(2, &plain), [&q, &k, &v]);
            close(&text, &computed(&text, &x, &maps), &wanted);
            if !interleaved {
                // The same words, as arguments of a word.
                let text =
                    format!("attention(heads: 2, causal, rope(base: 100, scaling: 4, {how}))");
                let o = matrix(WIDTH, WIDTH, 30);
                let maps = [&maps[..], std::slice::from_ref(&o)].concat();
                close(&text, &computed(&text, &x, &maps), &linear(&wanted, &o));
            }
        }
    }
}

/// OLMo Team 2024, section 3.3.1: queries and keys under RMSNorm.
#[test]
fn normed_queries_and_keys() {
    let text = "attend(linear |> rmsnorm(eps: 1e-6), linear |> rmsnorm(eps: 1e-6), linear, heads: 4, causal)";
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[16, 16, 16]));
    let gains = [matrix(1, WIDTH, 20), matrix(1, WIDTH, 21)];
    let [q, k, v] = projected(&x, &maps);
    let normed = |x: &Matrix, gain: &Matrix| -> Matrix {
        let row = |row: &Vec<f64>| {
            let mean = row.iter().map(|x| x * x).sum::<f64>() / WIDTH as f64;
            let size = (mean + 1e-6).sqrt();
            row.iter()
                .zip(&gain[0])
                .map(|(x, g)| x / size * g)
                .collect()
        };
        x.iter().map(row).collect()
    };
    let (q, k) = (normed(&q, &gains[0]), normed(&k, &gains[1]));
    let wanted = attended(&rule(4, &plain), [&q, &k, &v]);
    let [wq, wk, wv] = [0, 1, 2].map(|n| maps[n].clone());
    let [gq, gk] = gains;
    let got = computed(text, &x, &[wq, gq, wk, gk, wv]);
    close(text, &got, &wanted);
}

/// Yang et al. 2024, arXiv:2412.06464, equation 10: each head forgets by α, takes β of what the key gave away, and adds β of the value.
#[test]
fn delta_rule() {
    let text = "linear_attention(linear(8), linear(8) |> normalize(heads: 2), linear, heads: 2, decay: linear(2) |> sigmoid, delta: linear(2) |> sigmoid)";
    let (x, maps) = (matrix(TOKENS, WIDTH, 1), maps(&[8, 8, 16, 2, 2]));
    let [q, mut k, v] = projected(&x, &maps);
    for head in k.iter_mut().flat_map(|row| row.chunks_mut(4)) {
        let length = head.iter().map(|k| k * k).sum::<f64>().sqrt();
        head.iter_mut().for_each(|k| *k /= length);
    }
    let share = |w: &Matrix| {
        let mut rows = linear(&x, w);
        let each = rows.iter_mut().flatten();
        each.for_each(|s| *s = 1.0 / (1.0 + (-*s).exp()));
        rows
    };
    let (alpha, beta) = (share(&maps[3]), share(&maps[4]));
    let mut wanted = vec![vec![0.0; 16]; TOKENS];
    for h in 0..2 {
        let mut s = [[0.0; 8]; 4];
        for t in 0..TOKENS {
            let (a, b) = (alpha[t][h], beta[t][h]);
            let key = &k[t][h * 4..][..4];
            for j in 0..8 {
                let given: f64 = (0..4).map(|i| key[i] * a * s[i][j]).sum();
                for (i, row) in s.iter_mut().enumerate() {
                    row[j] = a * row[j] - b * key[i] * given + b * key[i] * v[t][h * 8 + j];
                }
                wanted[t][h * 8 + j] = (0..4).map(|i| q[t][h * 4 + i] * s[i][j]).sum();
            }
        }
    }
    close(text, &computed(text, &x, &maps), &wanted);
}
