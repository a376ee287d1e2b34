//! Weights that are functions of time, in planned programs: against a plain loop in f64, with other memory, and prepared once for
//! all tokens that are decoded. (The library's test has them read on and learn.)

use crate::numbers::{self, close, executor, feeds, tokens};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_program::kernel::KernelSpec;
use odec_program::manifest::Manifest;
use odec_program::{Bindings, EntryId};
use odec_runtime::{State, Value};

const AT: Bindings = Bindings::new(2, 4);
const WIDTH: usize = 4;
const EMBED: usize = 2;
const HIDDEN: usize = 3;

fn built(flow: &str, extent: &str, options_: &str, train: &str) -> (Built, Manifest) {
    let text = format!(
        "field f = linear(width, bias) |> sigmoid\nfield clock = concat(id, time(embed: 4)) |> linear(width)\n\
         model m {{\n  input tokens(vocab: 256, context: 4)\n  embed learned(width: {WIDTH})\n  \
         evolve {flow} for {extent} steps {{ {options_} }}\n  output logits(tied)\n  init normal(std: 0.5)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3)\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    let built = source::built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    (built, manifest)
}

fn time_dependent(scale: u64, at: &str) -> String {
    format!("weights of time {{ embed: {EMBED}, hidden: {HIDDEN}, scale: {scale}, at: {at} }}")
}

/// `W x` of a matrix of so many columns.
pub fn times(w: &[f64], x: &[f64]) -> Vec<f64> {
    let rows = w.chunks(x.len());
    rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum())
        .collect()
}

fn plus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

/// Parameters by path.
type Params<'p> = &'p dyn Fn(&str) -> Vec<f64>;

/// `embed: 2`.
pub fn features(t: f64, scale: f64) -> Vec<f64> {
    let angle = |i: usize| t * scale * 10f64.powf(-4.0 * i as f64 / EMBED as f64);
    let waves = (0..EMBED)
        .map(|i| angle(i).sin())
        .chain((0..EMBED).map(|i| angle(i).cos()));
    [t].into_iter().chain(waves).collect()
}

/// `W + Proj (down silu(up e))` of a parameter of `f`.
fn by_mlp(p: Params, name: &str, e: &[f64]) -> Vec<f64> {
    let part = |part: &str| p(&format!("f.linear.{name}.time.{part}"));
    let hidden = plus(&times(&part("up.weight"), e), &part("up.bias"));
    let hidden: Vec<f64> = hidden.iter().map(|z| z / (1.0 + (-z).exp())).collect();
    let hidden = plus(&times(&part("down.weight"), &hidden), &part("down.bias"));
    let own = p(&format!("f.linear.{name}"));
    plus(&own, &times(&part("proj.weight"), &hidden))
}

/// σ(W(t) x + b(t)), token by token.
fn field(p: Params, x: &[f64], t: f64, scale: f64) -> Vec<f64> {
    let e = features(t, scale);
    let weight = p("f.linear.bias.time.weight");
    let bias = plus(&p("f.linear.bias"), &times(&weight, &e));
    sigmoid(x, &by_mlp(p, "weight", &e), &bias)
}

fn sigmoid(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let each = x.chunks(WIDTH).flat_map(|x| plus(&times(weight, x), bias));
    each.map(|z| 1.0 / (1.0 + (-z).exp())).collect()
}

/// Logits of tokens after `steps` of a method whose stages are explicit.
fn logits(p: Params, x: &[i32], evolve: impl Fn(Vec<f64>) -> Vec<f64>) -> Vec<f64> {
    let table = p("embed.token.weight");
    let row = |t: &i32| table[*t as usize * WIDTH..][..WIDTH].to_vec();
    let state = evolve(x.iter().flat_map(row).collect());
    state.chunks(WIDTH).flat_map(|x| times(&table, x)).collect()
}

fn combined(x: &[f64], terms: &[(f64, &Vec<f64>)]) -> Vec<f64> {
    let sum = |i: usize| terms.iter().map(|(c, k)| c * k[i]).sum::<f64>();
    x.iter().enumerate().map(|(i, x)| x + sum(i)).collect()
}

/// Runs a model with parameters that all matter, and compares logits with a loop in f64.
fn check(
    flow: &str,
    extent: &str,
    scale: u64,
    at: &str,
    step: impl Fn(Params, Vec<f64>) -> Vec<f64>,
) {
    let options_ = match extent.starts_with("adaptive") {
        true => time_dependent(scale, at),
        false => format!("h = 1/2;  {}", time_dependent(scale, at)),
    };
    let (_, m) = built(flow, extent, &options_, "memory store");
    let mut e = executor(&m);
    for (n, p) in m.params.iter().enumerate() {
        let count = p.shape.iter().product::<u64>() as usize;
        let drawn = |i: usize| (((i * 37 + n * 11) % 29) as f32 - 14.0) / 20.0;
        let drawn: Vec<f32> = (0..count).map(drawn).collect();
        let at = p.offset as usize / 4;
        e.state_mut(State::Params).f32()[at..at + count].copy_from_slice(&drawn);
    }
    let x = tokens(AT, 256, 1);
    let got = e
        .run("forward", AT, &[("tokens", Value::I32(&x))], &[])
        .unwrap();
    let got = got.reals("logits").unwrap().f32().to_vec();
    let all = feeds(&e, AT, &[]);
    let p = |path: &str| all[path].data.clone();
    let want = logits(&p, &x, |state| step(&p, state));
    close(flow, &got, &want, 2e-4);
}

#[test]
fn vectors_have_maps_like_those_of_matrices() {
    check("euler(f)", "3", 3, "right, vectors: mlp", |p, mut x| {
        for k in 1..=3 {
            let e = features(0.5 * f64::from(k), 3.0);
            let f = sigmoid(&x, &by_mlp(p, "weight", &e), &by_mlp(p, "bias", &e));
            x = combined(&x, &[(0.5, &f)]);
        }
        x
    });
}

#[test]
fn weights_are_those_of_the_time() {
    for (at, ahead) in [("left", 0.0), ("right", 0.5)] {
        check("euler(f)", "3", 3, at, |p, mut x| {
            for k in 0..3 {
                let f = field(p, &x, 0.5 * k as f64 + ahead, 3.0);
                x = combined(&x, &[(0.5, &f)]);
            }
            x
        });
    }
    check("kutta3(f)", "2", 3, "left", |p, mut x| {
        for k in 0..2 {
            let (t, h) = (0.5 * k as f64, 0.5);
            let k1 = field(p, &x, t, 3.0);
            let k2 = field(p, &combined(&x, &[(h / 2.0, &k1)]), t + h / 2.0, 3.0);
            let k3 = field(p, &combined(&x, &[(-h, &k1), (2.0 * h, &k2)]), t + h, 3.0);
            x = combined(&x, &[(h / 6.0, &k1), (h * 2.0 / 3.0, &k2), (h / 6.0, &k3)]);
        }
        x
    });
}

/// The predictor of a method with a history is at the end of the step, and first steps are those of another method.
#[test]
fn weights_beside_a_history_are_those_of_the_time() {
    check("abm4(f)", "5", 3, "left", |p, mut x| {
        let h = 0.5;
        let mut rates: Vec<Vec<f64>> = Vec::new();
        for k in 0..5 {
            let t = h * k as f64;
            let f = field(p, &x, t, 3.0);
            x = match &rates[..] {
                [.., third, second, first] => {
                    let by = |c: [f64; 4], newest: &Vec<f64>, older: [&Vec<f64>; 3]| {
                        let terms = [(h / 24.0 * c[0], newest)].into_iter();
                        let older = older.into_iter().zip(&c[1..]);
                        let terms = terms.chain(older.map(|(f, c)| (h / 24.0 * c, f)));
                        combined(&x, &terms.collect::<Vec<_>>())
                    };
                    let end = by([55.0, -59.0, 37.0, -9.0], &f, [first, second, third]);
                    let end = field(p, &end, t + h, 3.0);
                    by([9.0, 19.0, -5.0, 1.0], &end, [&f, first, second])
                }
                _ => {
                    let k2 = field(p, &combined(&x, &[(h / 2.0, &f)]), t + h / 2.0, 3.0);
                    let k3 = field(p, &combined(&x, &[(h / 2.0, &k2)]), t + h / 2.0, 3.0);
                    let k4 = field(p, &combined(&x, &[(h, &k3)]), t + h, 3.0);
                    let sixth = h / 6.0;
                    let terms = [
                        (sixth, &f),
                        (2.0 * sixth, &k2),
                        (2.0 * sixth, &k3),
                        (sixth, &k4),
                    ];
                    combined(&x, &terms)
                }
            };
            rates.push(f);
        }
        x
    });
}

/// The time of adaptive steps is found while the program runs.
#[test]
fn adaptive_steps_take_weights_of_their_times() {
    let (tol, until) = (1e-3, 1.0);
    let extent = "adaptive(rtol: 1e-3, atol: 1e-3, until: 1, max: 30)";
    check("bogacki_shampine(f)", extent, 5, "left", |p, mut x| {
        let (mut t, mut h, mut attempts) = (0.0, until, 0);
        while t < until {
            attempts += 1;
            let rest = until - t;
            let now = if 1.01 * h > rest { rest } else { h };
            let f = |x: &[f64], c: f64| field(p, x, t + c * now, 5.0);
            let k1 = f(&x, 0.0);
            let k2 = f(&combined(&x, &[(now / 2.0, &k1)]), 0.5);
            let k3 = f(&combined(&x, &[(now * 0.75, &k2)]), 0.75);
            let y = combined(
                &x,
                &[
                    (now * 2.0 / 9.0, &k1),
                    (now / 3.0, &k2),
                    (now * 4.0 / 9.0, &k3),
                ],
            );
            let k4 = f(&y, 1.0);
            let low = [
                (7.0 / 24.0, &k1),
                (0.25, &k2),
                (1.0 / 3.0, &k3),
                (0.125, &k4),
            ];
            let low = combined(&x, &low.map(|(c, k)| (now * c, k)));
            let scaled = y
                .iter()
                .zip(&low)
                .zip(&x)
                .map(|((y, z), x)| ((y - z) / (tol + tol * x.abs().max(y.abs()))).powi(2));
            let error = (scaled.sum::<f64>() / x.len() as f64).sqrt();
            if error < 1.0 {
                t = if now == rest { until } else { t + now };
                x = y;
            }
            h = now * (0.9 * error.powf(-1.0 / 3.0)).clamp(0.2, 5.0);
        }
        assert!(attempts > 3, "the steps are not adapted: {attempts}");
        x
    });
}

/// Bits of loss and gradients.
fn gradient(flow: &str, options_: &str, policy: &str) -> Vec<u64> {
    let (_, m) = built(flow, "6", options_, &format!("memory {policy}"));
    numbers::gradient(&mut executor(&m), AT, 256)
}

#[test]
fn revolving_changes_no_bit() {
    for (flow, options_) in [
        (
            "kutta3(f)",
            format!("h = 1/6;  {}", time_dependent(10, "left")),
        ),
        ("kutta3(clock)", "weights shared".to_string()),
    ] {
        let stored = gradient(flow, &options_, "store");
        for slots in [3, 1] {
            let revolved = gradient(flow, &options_, &format!("revolve(slots: {slots})"));
            assert!(stored == revolved, "{flow}, {slots} slots: other bits");
        }
    }
}

/// What follows from parameters alone is computed once, whatever the number of tokens.
#[test]
fn decoding_computes_no_weights() {
    let (built, m) = built(
        "kutta3(f)",
        "2",
        &time_dependent(10, "left"),
        "memory store",
    );
    let contractions = |entry: EntryId| {
        let instrs = m.program.entries[&entry].instrs.iter();
        let spec = |k: u32| &m.program.kernels[k as usize].spec;
        instrs
            .filter(|i| matches!(spec(i.kernel), KernelSpec::Contract(_)))
            .count()
    };
    // One application for each evaluation, and the logits.
    assert_eq!(contractions(EntryId::Decode), 2 * 3 + 1);
    // Of the times 0, 1/2, 1, 3/2 and 2, three maps for the matrix and one for the bias.
    assert_eq!(contractions(EntryId::Prepare), 5 * 4);
    assert!(built.decode.is_some());
}
