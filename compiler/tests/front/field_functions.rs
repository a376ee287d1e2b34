//! Functions of fields, and Hopfield networks, against what they mean, written out here in f64; what is said of wrong ones.

use odec_compiler::model::CompileError;
use odec_compiler::model::alone::{Alone, alone};
use odec_compiler::model::layers::{DEFINITIONS, Group, Sizes};
use odec_graph::{Tensor, run};
use odec_library::shipped;
use odec_program::Bindings;
use std::collections::{BTreeMap, BTreeSet};

const WIDTH: u64 = 8;

fn made(text: &str, width: u64) -> Result<Alone, CompileError> {
    let sizes = Sizes {
        vocab: Some(11),
        context: 6,
        width,
        grid: None,
    };
    alone(text, sizes, shipped::library())
}

/// What is said of a field that is not valid.
fn said(text: &str) -> String {
    match made(text, WIDTH) {
        Err(CompileError::Source(messages)) => {
            let messages = messages.into_iter().map(|d| d.message);
            messages.collect::<Vec<_>>().join("; ")
        }
        Err(CompileError::Internal(e)) => panic!("{text}: {e}"),
        Ok(_) => panic!("{text} is valid"),
    }
}

/// What a field gives for one text of tokens, a row each, with parameters by their paths.
fn applied(text: &str, rows: &[Vec<f64>], params: &[(&str, &[Vec<f64>])]) -> Vec<Vec<f64>> {
    let width = rows[0].len() as u64;
    let layer = made(text, width).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let at = Bindings::new(1, rows.len() as u64);
    let tensor = |shape: Vec<u64>, rows: &[Vec<f64>]| Tensor::new(shape, rows.concat());
    let x = tensor(vec![1, at.seq, width], rows);
    let mut feeds = BTreeMap::from([("x".to_string(), x)]);
    for (path, rows) in params {
        let shape = vec![rows.len() as u64, rows[0].len() as u64];
        feeds.insert(path.to_string(), tensor(shape, rows));
    }
    let y = run(&layer.graph, &feeds, at).unwrap_or_else(|e| panic!("{text}: {e}"));
    let y = &y["y"].data;
    y.chunks(layer.columns as usize)
        .map(<[f64]>::to_vec)
        .collect()
}

/// Numbers without a pattern, the same on every machine, from −1 to 1.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    fn rows(&mut self, n: usize, width: usize) -> Vec<Vec<f64>> {
        let row = |s: &mut Self| (0..width).map(|_| s.next()).collect();
        (0..n).map(|_| row(self)).collect()
    }
}

fn close(what: &str, found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (f, w) in found.iter().zip(wanted) {
        let near = (f - w).abs() <= 1e-13 * w.abs().max(1.0);
        assert!(near, "{what}: {f} instead of {w}");
    }
}

/// Of a row, element by element.
type Each = fn(f64) -> f64;
/// Of all columns of a head.
type Head = fn(&[f64]) -> Vec<f64>;

const EACH: &[(&str, Each)] = &[
    ("exp", f64::exp),
    ("log(exp)", |x| x),
    ("log(softplus)", |x| (1.0 + x.exp()).ln().ln()),
    ("sqrt(square)", f64::abs),
    ("rsqrt(exp)", |x| (-x / 2.0).exp()),
    ("reciprocal(exp)", |x| (-x).exp()),
    ("square", |x| x * x),
    ("abs", f64::abs),
    ("maximum(1/4)", |x| x.max(0.25)),
    ("maximum(1/4, id)", |x| x.max(0.25)),
    ("minimum(id, -1/4)", |x| x.min(-0.25)),
    ("minimum(abs, square)", |x| x.abs().min(x * x)),
    ("sin", f64::sin),
    ("cos", f64::cos),
    ("tanh", f64::tanh),
    ("sigmoid", |x| 1.0 / (1.0 + (-x).exp())),
    ("silu", |x| x / (1.0 + (-x).exp())),
    ("softplus", |x| (1.0 + x.exp()).ln()),
    ("elu", |x| if x > 0.0 { x } else { x.exp_m1() }),
    (
        "elu(alpha: 3)",
        |x| if x > 0.0 { x } else { 3.0 * x.exp_m1() },
    ),
    ("leaky_relu", |x| if x > 0.0 { x } else { 0.01 * x }),
    (
        "leaky_relu(slope: 1/5)",
        |x| if x > 0.0 { x } else { 0.2 * x },
    ),
    ("relu", |x| x.max(0.0)),
    ("relu(exp)", f64::exp),
    ("gelu", |x| 0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))),
    ("gelu(approximate: tanh)", |x| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
        0.5 * x * (1.0 + inner.tanh())
    }),
    ("exp |> square |> log", |x| 2.0 * x),
];

fn mean(x: &[f64]) -> f64 {
    x.iter().sum::<f64>() / x.len() as f64
}

fn variance(x: &[f64]) -> f64 {
    let m = mean(x);
    x.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / x.len() as f64
}

fn lse(x: &[f64]) -> f64 {
    x.iter().map(|x| x.exp()).sum::<f64>().ln()
}

fn largest(x: &[f64]) -> f64 {
    x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

const HEADS: &[(&str, Head)] = &[
    ("sum", |x| vec![x.iter().sum()]),
    ("mean", |x| vec![mean(x)]),
    ("var", |x| vec![variance(x)]),
    ("max", |x| vec![largest(x)]),
    ("min", |x| {
        vec![x.iter().copied().fold(f64::INFINITY, f64::min)]
    }),
    ("logsumexp", |x| vec![lse(x)]),
    ("softmax", |x| {
        x.iter().map(|y| (y - lse(x)).exp()).collect()
    }),
    ("log_softmax", |x| x.iter().map(|y| y - lse(x)).collect()),
    ("rms_normalize", |x| {
        let square = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().map(|x| x / (square + 1e-5).sqrt()).collect()
    }),
    ("standardize", |x| {
        let deviation = (variance(x) + 1e-5).sqrt();
        x.iter().map(|y| (y - mean(x)) / deviation).collect()
    }),
    ("normalize", |x| {
        let length = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        x.iter().map(|x| x / length).collect()
    }),
];

#[test]
fn functions_are_what_they_mean() {
    let rows: Vec<Vec<f64>> = Numbers(1)
        .rows(3, WIDTH as usize)
        .into_iter()
        .map(|row| row.into_iter().map(|x| 3.0 * x).collect())
        .collect();
    for (text, f) in EACH {
        let wanted: Vec<f64> = rows.concat().into_iter().map(f).collect();
        close(text, &applied(text, &rows, &[]).concat(), &wanted);
    }
    for (name, f) in HEADS {
        let wanted: Vec<f64> = rows.iter().flat_map(|row| f(row)).collect();
        close(name, &applied(name, &rows, &[]).concat(), &wanted);
        let text = format!("{name}(heads: 4)");
        let wanted = rows.iter().flat_map(|row| row.chunks(2).flat_map(f));
        let wanted: Vec<f64> = wanted.collect();
        close(&text, &applied(&text, &rows, &[]).concat(), &wanted);
    }
    // Every function is among them.
    let tried = EACH
        .iter()
        .map(|(t, _)| *t)
        .chain(HEADS.iter().map(|(t, _)| *t));
    let tried: BTreeSet<&str> = tried.filter_map(|t| t.split(['(', ' ']).next()).collect();
    for d in DEFINITIONS.iter().filter(|d| d.group != Group::Layers) {
        assert!(tried.contains(d.name), "{} is not compared", d.name);
    }
}

#[test]
fn columns_are_taken_and_repeated() {
    let rows = Numbers(2).rows(2, WIDTH as usize);
    let of = |text: &str| applied(text, &rows, &[]);
    for ((row, part), rest) in rows
        .iter()
        .zip(of("columns(to: width/2)"))
        .zip(of("columns(from: 5)"))
    {
        assert_eq!((&row[..4], &row[5..]), (&part[..], &rest[..]));
    }
    assert_eq!(
        of("columns(from: 2, to: 4) |> columns(to: 2)"),
        of("columns(from: 2, to: 4)")
    );
    assert_eq!(of("concat(columns(to: 3), columns(from: 3))"), rows);
    for (row, wide) in rows.iter().zip(of("broadcast(mean, to: 5)")) {
        assert_eq!(wide, [mean(row); 5]);
    }
}

/// Norms of heads: each by itself, one gain for all.
#[test]
fn heads_are_normed_by_themselves() {
    let rows = Numbers(3).rows(2, WIDTH as usize);
    let gain = Numbers(4).rows(1, 4);
    let wanted = rows.iter().flat_map(|row| {
        let head = |x: &[f64]| -> Vec<f64> {
            let size = (x.iter().map(|x| x * x).sum::<f64>() / 4.0 + 1e-5).sqrt();
            x.iter().zip(&gain[0]).map(|(x, g)| x / size * g).collect()
        };
        row.chunks(4).flat_map(head).collect::<Vec<f64>>()
    });
    let wanted: Vec<f64> = wanted.collect();
    let layer = made("rmsnorm(heads: 2)", WIDTH).expect("it is valid");
    assert_eq!(layer.params[0].shape, [4]);
    let feeds = BTreeMap::from([
        (
            "x".to_string(),
            Tensor::new(vec![1, 2, WIDTH], rows.concat()),
        ),
        ("norm.gain".to_string(), Tensor::new(vec![4], gain.concat())),
    ]);
    let y = run(&layer.graph, &feeds, Bindings::new(1, 2)).expect("safe");
    close("rmsnorm(heads: 2)", &y["y"].data, &wanted);
}

/// A number is a column that all tokens have, and a column for each head stands for all of its columns.
#[test]
fn numbers_and_columns_of_heads() {
    let rows = vec![vec![0.5, -1.0, 2.0, 4.0], vec![-0.25, 3.0, 1.0, -2.0]];
    let column = |row: &[f64], c: usize| row[c];
    let heads = |row: &[f64]| [row[0] + row[1], row[2] + row[3]];
    for (text, wanted) in [
        (
            "concat(id, 1/2)",
            Box::new(|row: &[f64]| [row, &[0.5]].concat()) as Box<dyn Fn(&[f64]) -> Vec<f64>>,
        ),
        (
            "broadcast(sum(heads: 2), to: width, heads: 2)",
            Box::new(move |row: &[f64]| heads(row).iter().flat_map(|s| [*s, *s]).collect()),
        ),
        (
            "id/broadcast(sum(heads: 2), to: width, heads: 2)",
            Box::new(move |row: &[f64]| {
                (0..4).map(|c| column(row, c) / heads(row)[c / 2]).collect()
            }),
        ),
    ] {
        let wanted: Vec<f64> = rows.iter().flat_map(|row| wanted(row)).collect();
        close(text, &applied(text, &rows, &[]).concat(), &wanted);
    }
    // Half of what was before is kept.
    let text = "scan(1/2, id)";
    let found = applied(text, &rows, &[]);
    let second = rows[0].iter().zip(&rows[1]).map(|(a, b)| a / 2.0 + b);
    let wanted: Vec<f64> = rows[0].iter().copied().chain(second).collect();
    close(text, &found.concat(), &wanted);
}

#[test]
fn mistakes_are_said() {
    let cases = [
        ("softmax(heads: 3)", "3 heads do not divide the width 8"),
        ("rmsnorm(heads: 16)", "16 heads do not divide the width 8"),
        ("exp(id, id)", "`exp` takes fewer values"),
        (
            "maximum(1, 2)",
            "`maximum` is applied to two values, or to one and a number",
        ),
        (
            "maximum(id, columns(to: 3))",
            "`maximum` is applied to values of width 8 and 3",
        ),
        ("gelu(bias)", "`bias` is not a layer"),
        ("elu(alpha: 0)", "0 is out of range"),
        (
            "columns(from: 3, to: 3)",
            "there are no columns 3 to 3 in a value of width 8",
        ),
        (
            "columns(to: 9)",
            "there are no columns 0 to 9 in a value of width 8",
        ),
        (
            "broadcast(to: 4)",
            "`broadcast` repeats one column, and this value has 8",
        ),
        ("hopfield(energy)", "`hopfield` needs `patterns`"),
        (
            "hopfield(patterns: 4, causal)",
            "`hopfield` has no argument `causal`",
        ),
        ("hopfeld(patterns: 4)", "`hopfeld` is not a layer"),
    ];
    for (text, wanted) in cases {
        assert_eq!(said(text), wanted, "{text}");
    }
}

/// One update and the energy, as published (Ramsauer et al. 2021, eq. 2 and 3).
fn hopfield(patterns: &[Vec<f64>], beta: f64, x: &[f64]) -> (Vec<f64>, f64) {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let near: Vec<f64> = patterns.iter().map(|p| beta * dot(p, x)).collect();
    let top = largest(&near);
    let shares: Vec<f64> = near.iter().map(|n| (n - top).exp()).collect();
    let total: f64 = shares.iter().sum();
    let column = |c: usize| {
        let parts = patterns.iter().zip(&shares).map(|(p, s)| p[c] * s / total);
        parts.sum()
    };
    let longest = patterns.iter().map(|p| dot(p, p)).fold(0.0, f64::max);
    let count = patterns.len() as f64;
    let energy = -(total.ln() + top) / beta + dot(x, x) / 2.0 + count.ln() / beta + longest / 2.0;
    ((0..x.len()).map(column).collect(), energy)
}

#[test]
fn a_hopfield_network_is_what_it_means() {
    let rows = Numbers(5).rows(5, WIDTH as usize);
    let patterns = Numbers(6).rows(6, WIDTH as usize);
    let trained: &[(&str, &[Vec<f64>])] = &[("stored.weight", &patterns)];
    for (text, beta) in [
        ("hopfield(patterns: 6, beta: 2, energy)", 2.0),
        ("hopfield(patterns: 6, energy)", 1.0 / 8f64.sqrt()),
    ] {
        for (x, found) in rows.iter().zip(applied(text, &rows, trained)) {
            let (mut wanted, energy) = hopfield(&patterns, beta, x);
            wanted.push(energy);
            close(text, &found, &wanted);
        }
    }
    let energies = applied("hopfield_energy(patterns: 6, beta: 2)", &rows, trained);
    for (x, found) in rows.iter().zip(energies) {
        close("hopfield_energy", &found, &[hopfield(&patterns, 2.0, x).1]);
    }
    // The tokens as patterns.
    for (text, beta, causal) in [
        ("hopfield_attention(beta: 2, causal)", 2.0, true),
        ("hopfield_attention(beta: 1/3)", 1.0 / 3.0, false),
        ("hopfield_attention", 1.0 / 8f64.sqrt(), false),
    ] {
        for (i, found) in applied(text, &rows, &[]).iter().enumerate() {
            let seen = if causal { i + 1 } else { rows.len() };
            close(text, found, &hopfield(&rows[..seen], beta, &rows[i]).0);
        }
    }
}

/// The energy never rises along updates, is not below 0, and the state comes to rest (theorem 1 and 2).
#[test]
fn the_energy_falls_along_updates() {
    let patterns = Numbers(7).rows(12, 16);
    let trained: &[(&str, &[Vec<f64>])] = &[("stored.weight", &patterns)];
    for beta in ["1/4", "1", "8"] {
        let text = format!("hopfield(patterns: 12, beta: {beta}, energy)");
        let mut states = Numbers(8).rows(4, 16);
        let mut before: Option<Vec<f64>> = None;
        let mut first = Vec::new();
        for _ in 0..300 {
            let made = applied(&text, &states, trained);
            let energies: Vec<f64> = made.iter().map(|row| row[16]).collect();
            assert!(energies.iter().all(|e| *e >= 0.0), "{energies:?}");
            match &before {
                Some(before) => {
                    let mut pairs = before.iter().zip(&energies);
                    assert!(
                        pairs.all(|(b, e)| *e <= b + 1e-12),
                        "{before:?} {energies:?}"
                    );
                }
                None => first.clone_from(&energies),
            }
            before = Some(energies);
            states = made.into_iter().map(|row| row[..16].to_vec()).collect();
        }
        let last = before.expect("updates");
        let mut fallen = first.iter().zip(&last).map(|(a, b)| a - b);
        assert!(fallen.all(|f| f > 0.1), "{first:?} {last:?}");
        let next = applied(&text, &states, trained);
        let mut moved = states
            .concat()
            .into_iter()
            .zip(next.iter().flat_map(|row| &row[..16]));
        assert!(moved.all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

/// Patterns of ±1, of whose elements 30 % have the wrong sign.
#[test]
fn patterns_are_recovered_from_noise() {
    let (width, count) = (128usize, 16usize);
    let sign = |x: f64| if x < 0.0 { -1.0 } else { 1.0 };
    let rows = Numbers(9).rows(count, width);
    let rows = rows
        .into_iter()
        .map(|row| row.into_iter().map(sign).collect());
    let patterns: Vec<Vec<f64>> = rows.collect();
    let mut numbers = Numbers(10);
    let noisy: Vec<Vec<f64>> = patterns
        .iter()
        .map(|p| {
            let mut order: Vec<(f64, usize)> = (0..width).map(|i| (numbers.next(), i)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            let mut row = p.clone();
            for (_, i) in &order[..width * 3 / 10] {
                row[*i] = -row[*i];
            }
            row
        })
        .collect();
    let trained: &[(&str, &[Vec<f64>])] = &[("stored.weight", &patterns)];
    let update = "hopfield(patterns: 16, beta: 2)";
    let found = applied(update, &noisy, trained);
    let again = applied(update, &found, trained);
    for ((p, noise), x) in patterns.iter().zip(&noisy).zip(&again) {
        let wrong = p.iter().zip(noise).filter(|(p, x)| p != x).count();
        assert_eq!(wrong, 38);
        let mut pairs = p.iter().zip(x);
        assert!(pairs.all(|(p, x)| (p - x).abs() < 1e-6), "{x:?}");
    }
}
