//! The five systems beside plain loops: forward values against an independent implementation of the equations, and
//! gradients against central differences along a random direction. Everything in f64, on one tiny model.

use crate::common::{compile_text, model};
use odec_compiler::model::Built;
use odec_graph::{Tensor, run};
use odec_program::Bindings;
use std::collections::BTreeMap;

pub const WIDTH: usize = 8;
pub const VOCAB: usize = 11;
pub const SEQ: usize = 5;
const STEPS: usize = 2;

pub type Feeds = BTreeMap<String, Tensor>;
/// Tokens × width.
pub type State = Vec<Vec<f64>>;

/// Numbers from −1 to 1, the same on every machine.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

pub fn feeds(built: &Built, seed: u64) -> Feeds {
    let mut r = Random(seed);
    let mut feeds = Feeds::new();
    for p in &built.params {
        let n = p.shape.iter().product::<u64>() as usize;
        let centre = if p.shape.len() == 1 { 1.0 } else { 0.0 };
        let data = (0..n).map(|_| centre + 0.5 * r.next()).collect();
        feeds.insert(p.path.clone(), Tensor::new(p.shape.clone(), data));
    }
    for (name, offset) in [("tokens", 0), ("targets", 1)] {
        let data = (0..SEQ)
            .map(|i| ((i + offset) * 7 % VOCAB) as f64)
            .collect();
        feeds.insert(name.into(), Tensor::new(vec![1, SEQ as u64, 1], data));
    }
    feeds
}

pub const BINDINGS: Bindings = Bindings::new(1, SEQ as u64);

pub fn rmsnorm(x: &State, gain: &Tensor) -> State {
    let row = |r: &Vec<f64>| {
        let scale = (r.iter().map(|v| v * v).sum::<f64>() / r.len() as f64 + 1e-5).sqrt();
        r.iter()
            .zip(&gain.data)
            .map(|(v, g)| v / scale * g)
            .collect()
    };
    x.iter().map(row).collect()
}

/// x Wᵀ.
pub fn linear(x: &State, w: &Tensor) -> State {
    let (rows, cols) = (w.shape[0] as usize, w.shape[1] as usize);
    let out = |r: &Vec<f64>| {
        (0..rows)
            .map(|i| (0..cols).map(|j| r[j] * w.data[i * cols + j]).sum())
            .collect()
    };
    x.iter().map(out).collect()
}

/// Pairs (i, i + head/2) of each head turned by position · 10⁴^(−2i/head).
fn rotated(mut x: State, heads: usize) -> State {
    let head = WIDTH / heads;
    for (p, row) in x.iter_mut().enumerate() {
        for h in 0..heads {
            for i in 0..head / 2 {
                let angle = p as f64 * 10_000f64.powf(-2.0 * i as f64 / head as f64);
                let (a, b) = (row[h * head + i], row[h * head + i + head / 2]);
                row[h * head + i] = a * angle.cos() - b * angle.sin();
                row[h * head + i + head / 2] = b * angle.cos() + a * angle.sin();
            }
        }
    }
    x
}

pub fn att(x: &State, f: &Feeds, prefix: &str) -> State {
    let heads = 2;
    let head = WIDTH / heads;
    let p = |name: &str| &f[&format!("{prefix}.{name}")];
    let x = rmsnorm(x, p("norm.gain"));
    let (q, k) = (
        rotated(linear(&x, p("q.weight")), heads),
        rotated(linear(&x, p("k.weight")), heads),
    );
    let v = linear(&x, p("v.weight"));
    let mut o = vec![vec![0.0; WIDTH]; x.len()];
    for h in 0..heads {
        let cols = h * head..(h + 1) * head;
        for i in 0..x.len() {
            let score = |j: usize| {
                cols.clone().map(|c| q[i][c] * k[j][c]).sum::<f64>() / (head as f64).sqrt()
            };
            let weights: Vec<f64> = (0..=i).map(|j| score(j).exp()).collect();
            let total: f64 = weights.iter().sum();
            for c in cols.clone() {
                o[i][c] = (0..=i).map(|j| weights[j] / total * v[j][c]).sum();
            }
        }
    }
    linear(&o, p("o.weight"))
}

pub fn ffn(x: &State, f: &Feeds, prefix: &str) -> State {
    let p = |name: &str| &f[&format!("{prefix}.{name}")];
    let x = rmsnorm(x, p("norm.gain"));
    let (gate, up) = (linear(&x, p("gate.weight")), linear(&x, p("up.weight")));
    let hidden = |(g, u): (&Vec<f64>, &Vec<f64>)| {
        g.iter()
            .zip(u)
            .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
            .collect()
    };
    linear(
        &gate.iter().zip(&up).map(hidden).collect(),
        p("down.weight"),
    )
}

/// Σ c x.
pub fn sum(terms: &[(f64, &State)]) -> State {
    let entry = |i: usize, j: usize| terms.iter().map(|(c, x)| c * x[i][j]).sum();
    (0..SEQ)
        .map(|i| (0..WIDTH).map(|j| entry(i, j)).collect())
        .collect()
}

/// The change a whole pre-norm layer makes.
pub fn layer(x: &State, f: &Feeds, step: &str) -> State {
    let y = sum(&[(1.0, x), (1.0, &att(x, f, &format!("{step}.att")))]);
    let z = sum(&[(1.0, &y), (1.0, &ffn(&y, f, &format!("{step}.ffn")))]);
    sum(&[(1.0, &z), (-1.0, x)])
}

fn one_step(system: &str, x: &State, f: &Feeds, step: &str) -> State {
    let a = |x: &State| att(x, f, &format!("{step}.att"));
    let l = |x: &State| layer(x, f, step);
    match system {
        "prenorm" => sum(&[(1.0, x), (1.0, &l(x))]),
        "macaron" => {
            let y = sum(&[(1.0, x), (0.5, &ffn(x, f, &format!("{step}.ffn.1")))]);
            let z = sum(&[(1.0, &y), (1.0, &a(&y))]);
            sum(&[(1.0, &z), (0.5, &ffn(&z, f, &format!("{step}.ffn.2")))])
        }
        "rk2" => {
            let k1 = l(x);
            let k2 = l(&sum(&[(1.0, x), (1.0, &k1)]));
            sum(&[(1.0, x), (0.5, &k1), (0.5, &k2)])
        }
        "rk4" => {
            let k1 = l(x);
            let k2 = l(&sum(&[(1.0, x), (0.5, &k1)]));
            let k3 = l(&sum(&[(1.0, x), (0.5, &k2)]));
            let k4 = l(&sum(&[(1.0, x), (1.0, &k3)]));
            let sixth = 1.0 / 6.0;
            sum(&[
                (1.0, x),
                (sixth, &k1),
                (2.0 * sixth, &k2),
                (2.0 * sixth, &k3),
                (sixth, &k4),
            ])
        }
        "iie" => (0..3).fold(sum(&[(1.0, x), (1.0, &l(x))]), |y, _| {
            sum(&[(1.0, x), (1.0, &l(&y))])
        }),
        other => panic!("no reference for {other}"),
    }
}

/// The systems: name, flow, options.
pub const SYSTEMS: [(&str, &str, &str); 5] = [
    ("prenorm", "lie(att, ffn)", "h = 1;  weights per step"),
    ("macaron", "strang(ffn, att)", "h = 1;  weights per use"),
    ("rk2", "heun(layer)", "h = 1;  weights per step"),
    ("rk4", "rk4(layer)", "h = 1;  weights per step"),
    ("iie", "iie(layer, r: 3)", "h = 1;  weights per step"),
];

fn built(flow: &str, options: &str) -> Built {
    let outcome = compile_text(&model(flow, STEPS as u64, options));
    outcome.checked().built.clone().expect("a model")
}

#[test]
fn values() {
    for (system, flow, options) in SYSTEMS {
        let built = built(flow, options);
        let f = feeds(&built, 7);
        check_values(system, &built, &f, STEPS, &mut |k, x| {
            one_step(system, x, &f, &format!("step.{k}"))
        });
    }
}

/// The gradient of every parameter against central differences along a random direction.
pub fn check_gradients(what: &str, built: &Built, f: &Feeds) {
    let grads = run(&built.grad, f, BINDINGS).expect("it runs");
    let mut r = Random(5);
    let direction: BTreeMap<&str, Vec<f64>> = built
        .params
        .iter()
        .map(|p| {
            (
                p.path.as_str(),
                f[&p.path].data.iter().map(|_| r.next()).collect(),
            )
        })
        .collect();
    let exact: f64 = built
        .params
        .iter()
        .flat_map(|p| {
            grads[&format!("grad.{}", p.path)]
                .data
                .iter()
                .zip(&direction[p.path.as_str()])
        })
        .map(|(g, d)| g * d)
        .sum();
    let at = |eps: f64| {
        let mut moved = f.clone();
        for (path, d) in &direction {
            let t = moved.get_mut(*path).expect("a parameter");
            t.data.iter_mut().zip(d).for_each(|(x, d)| *x += eps * d);
        }
        run(&built.loss, &moved, BINDINGS).expect("it runs")["loss"].data[0]
    };
    let eps = 1e-4;
    let (one, two) = (
        (at(eps) - at(-eps)) / (2.0 * eps),
        (at(2.0 * eps) - at(-2.0 * eps)) / (4.0 * eps),
    );
    let estimate = (4.0 * one - two) / 3.0;
    assert!(
        (exact - estimate).abs() < 1e-8 * (1.0 + exact.abs()),
        "{what}: {exact} and {estimate}"
    );
}

/// Logits and loss of a model whose steps are `step(k, x)`, against the graphs.
pub fn check_values(
    what: &str,
    built: &Built,
    f: &Feeds,
    steps: usize,
    step: &mut dyn FnMut(usize, &State) -> State,
) {
    let table = &f["embed.token.weight"];
    let token = |t: &f64| table.data[*t as usize * WIDTH..][..WIDTH].to_vec();
    let mut x: State = f["tokens"].data.iter().map(token).collect();
    for k in 0..steps {
        x = step(k, &x);
    }
    let logits = linear(&rmsnorm(&x, &f["output.norm.gain"]), table);
    let got = run(&built.forward, f, BINDINGS).expect("it runs");
    for (a, b) in logits.iter().flatten().zip(&got["logits"].data) {
        assert!(
            (a - b).abs() < 1e-12 * (1.0 + a.abs()),
            "{what}: {a} and {b}"
        );
    }
    let nats = |(i, row): (usize, &Vec<f64>)| {
        row.iter().map(|l| l.exp()).sum::<f64>().ln() - row[f["targets"].data[i] as usize]
    };
    let loss = logits.iter().enumerate().map(nats).sum::<f64>() / SEQ as f64;
    let got = run(&built.loss, f, BINDINGS).expect("it runs")["loss"].data[0];
    assert!((loss - got).abs() < 1e-12, "{what}: {loss} and {got}");
}

#[test]
fn gradients() {
    for (system, flow, options) in SYSTEMS {
        let built = built(flow, options);
        check_gradients(system, &built, &feeds(&built, 11));
    }
}

/// A parameter that the loss does not depend on still has a gradient: zeros.
#[test]
fn unused_parameters_have_zero_gradients() {
    let text = model("euler(att - att + ffn)", 1, "");
    let built = compile_text(&text)
        .checked()
        .built
        .clone()
        .expect("a model");
    let f = feeds(&built, 3);
    let grads = run(&built.grad, &f, BINDINGS).expect("it runs");
    assert_eq!(grads.len(), built.params.len() + 1);
    assert!(
        grads["grad.step.0.ffn.up.weight"]
            .data
            .iter()
            .any(|g| *g != 0.0)
    );
}
