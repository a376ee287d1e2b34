//! Losses that are sums: each term against its definition in f64, their gradients against differences, the same bits however states
//! are kept and rows are cut.

use crate::numbers::{close, executor, feeds, tokens};
use crate::plain::times;
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::{ModelParts, Options, assemble};
use odec_graph::interp::{self, Tensor};
use odec_program::{Bindings, noise};
use odec_runtime::{State, Value};
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 6);
const KEY: i32 = 77;
const ALL: &str = "smooth(1/10) + 1/2*z_loss + 1/4*kinetic";

const EQUATION: &str = "scheme rest(F, G) { step x { solve z = 1/4*F(z) + G(x) from 0
    by fixed_point(iterations: 25) gradient implicit  return z } }";

pub fn built(flow: &str, options: &str, loss: &str, memory: &str) -> (Built, String) {
    let text = format!(
        "{EQUATION}\nfield att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         field slope = linear\nfield inject = linear\n\
         field layer = increment(lie(att, ffn))\n\
         field gated(x) {{ gate = x |> linear;  learn gain[width] = 1;  return silu(gate) * gain * x |> linear }}\n\
         model small {{\n  input tokens(vocab: 257, context: 64)\n  embed learned(width: 8)\n  \
         evolve {flow} for {options}\n  output rmsnorm |> logits(tied)\n  init normal(std: 0.3) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  loss {loss}\n\
         batch 2;  steps 10;  memory {memory} }}\n"
    );
    (source::built(&text), text)
}

/// One token is the mask.
fn words() -> Vec<i32> {
    let mut x = tokens(AT, 11, 1);
    x[3] = 256;
    x
}

/// Parameters, a text and what comes after each of its tokens.
pub fn given((built, text): &(Built, String)) -> BTreeMap<String, Tensor> {
    let manifest = assemble(&ModelParts::new(built, text), options())
        .unwrap()
        .manifest;
    let (x, y) = (words(), tokens(AT, 11, 5));
    let mut f = feeds(&executor(&manifest), AT, &[("tokens", &x), ("targets", &y)]);
    f.insert(noise::KEY.into(), Tensor::new(vec![1], vec![KEY.into()]));
    f
}

/// All results of the gradient's graph in f64.
pub fn results(built: &Built, feeds: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    interp::run(&built.grad, feeds, AT).unwrap()
}

pub fn scalar(of: &BTreeMap<String, Tensor>, name: &str) -> f64 {
    of[name].data[0]
}

#[track_caller]
pub fn near(what: &str, got: f64, want: f64, within: f64) {
    let off = (got - want).abs() / want.abs();
    assert!(off <= within, "{what}: {got}, not {want} ({off:e})");
}

/// What is made of logits, from the logits.
#[test]
fn terms_of_logits() {
    let model = built("euler(layer)", "2 steps", ALL, "store");
    let f = given(&model);
    let logits = interp::run(&model.0.forward, &f, AT).unwrap()["logits"]
        .data
        .clone();
    let (mut smooth, mut squares, n) = (0.0, 0.0, 12.0);
    for (row, y) in logits.chunks(257).zip(&f["targets"].data) {
        let log_z = row.iter().map(|x| x.exp()).sum::<f64>().ln();
        squares += log_z * log_z / n;
        for (i, x) in row.iter().enumerate() {
            let right = if i == *y as usize { 0.9 } else { 0.0 };
            smooth -= (right + 0.1 / 257.0) * (x - log_z) / n;
        }
    }
    let got = results(&model.0, &f);
    near("smooth", scalar(&got, "loss.smooth"), smooth, 1e-12);
    near("z_loss", scalar(&got, "loss.z_loss"), squares, 1e-12);
    let kinetic = scalar(&got, "loss.kinetic");
    let total = smooth + squares / 2.0 + kinetic / 4.0;
    near("the sum", scalar(&got, "loss"), total, 1e-12);
    // Held-out text is judged by cross-entropy alone.
    let plain = built("euler(layer)", "2 steps", "cross_entropy", "store").0;
    let held_out = |b: &Built| interp::run(&b.loss, &f, AT).unwrap()["loss"].data[0];
    assert_eq!(held_out(&model.0), held_out(&plain));
}

fn squared(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum()
}

/// Euler steps of a linear field: x' = x + h W x, so each adds h ‖W x‖²/(2·8).
#[test]
fn kinetic_energy_of_a_linear_field() {
    let loss = "cross_entropy + 1/4*kinetic";
    let energy = |f: &BTreeMap<String, Tensor>, h: &[f64]| -> f64 {
        let (table, w) = (
            &f["embed.token.weight"].data,
            &f["slope.linear.weight"].data,
        );
        let mut sum = 0.0;
        for t in &f["tokens"].data {
            let mut x = table[*t as usize * 8..][..8].to_vec();
            for h in h {
                let v = times(w, &x);
                sum += h * squared(&v) / 16.0;
                x.iter_mut().zip(v).for_each(|(x, v)| *x += h * v);
            }
        }
        sum / 12.0
    };
    let model = built(
        "euler(slope)",
        "3 steps { h = 1/(k + 2);  weights shared }",
        loss,
        "store",
    );
    let f = given(&model);
    let want = energy(&f, &[0.5, 1.0 / 3.0, 0.25]);
    near(
        "known",
        scalar(&results(&model.0, &f), "loss.kinetic"),
        want,
        1e-12,
    );

    // Steps that are drawn, up to as many as are drawn.
    let steps = "random(log_normal_poisson(mean: 3), max: 5) steps { h = 1/4;  weights shared }";
    let model = built("euler(slope)", steps, loss, "store");
    for drawn in [1, 4] {
        let mut f = f.clone();
        f.insert("steps".into(), Tensor::new(vec![1], vec![drawn as f64]));
        let got = scalar(&results(&model.0, &f), "loss.kinetic");
        near("drawn", got, energy(&f, &vec![0.25; drawn]), 1e-12);
    }
}

/// Steps that are refused, and attempts after the end, do not count: Σ of what the accepted ones move, as if they were known.
#[test]
fn kinetic_energy_of_adaptive_steps() {
    let loss = "cross_entropy + 1/4*kinetic";
    let energy = |options: &str, flow: &str| {
        let model = built(flow, options, loss, "store");
        let f = given(&model);
        let got = results(&model.0, &f);
        (scalar(&got, "loss.kinetic"), got)
    };
    // First far too large: refused at least once.
    let adaptive =
        "adaptive(rtol: 1e-4, atol: 1e-5, until: 1, max: 24, first: 1) steps { weights shared }";
    let (found, got) = energy(adaptive, "bogacki_shampine(slope)");
    assert!(scalar(&got, "steps.attempts") > scalar(&got, "steps.accepted"));
    assert!(scalar(&got, "steps.attempts") < 24.0);
    let (fine, _) = energy(
        "64 steps { h = 1/64;  weights shared }",
        "bogacki_shampine(slope)",
    );
    // Both are Riemann sums of ½∫‖x'‖²/8 dt; steps of a third or so are off by their variance.
    near("adaptive", found, fine, 0.05);
}

/// The probes' signs, as the program draws them: `stream` is that of the equation.
fn sign(stream: u32, row: usize, col: usize) -> f64 {
    match noise::uniform([KEY as u32, stream, row as u32, col as u32]) < 0.5 {
        true => -1.0,
        false => 1.0,
    }
}

/// E(z) = F z/4 + G x has the Jacobian W = F/4: the term is the mean of ‖W ε‖²/8, its gradient by W that of W ε εᵀ · 2/8.
#[test]
fn jacobian_of_a_linear_equation() {
    let steps = "1 step { weights shared }";
    let with = built(
        "rest(slope, inject)",
        steps,
        "cross_entropy + 3*jacobian",
        "store",
    );
    let plain = built("rest(slope, inject)", steps, "cross_entropy", "store");
    let f = given(&with);
    let w: Vec<f64> = f["slope.linear.weight"]
        .data
        .iter()
        .map(|w| w / 4.0)
        .collect();
    let (mut term, mut slope) = (0.0, vec![0.0; 64]);
    for row in 0..12 {
        let probe: Vec<f64> = (0..8).map(|c| sign(2, row, c)).collect();
        let v = times(&w, &probe);
        term += squared(&v) / 8.0 / 12.0;
        for (i, d) in slope.iter_mut().enumerate() {
            *d += 3.0 * 2.0 / 4.0 * v[i / 8] * probe[i % 8] / 8.0 / 12.0;
        }
    }
    let (got, without) = (results(&with.0, &f), results(&plain.0, &f));
    near("jacobian", scalar(&got, "loss.jacobian"), term, 1e-8);
    near(
        "cross_entropy",
        scalar(&got, "loss.cross_entropy"),
        scalar(&without, "loss"),
        1e-12,
    );
    let of = |r: &BTreeMap<String, Tensor>| r["grad.slope.linear.weight"].data.clone();
    for ((a, b), want) in of(&got).iter().zip(of(&without)).zip(slope) {
        assert!((a - b - want).abs() < 1e-7, "{a} − {b}, not {want}");
    }
}

/// An equation with attention in it: the estimate over many probes is the Frobenius norm of the scaled Jacobian, whose columns are
/// differences of E itself.
#[test]
fn jacobian_of_attention() {
    let at = Bindings::new(1, 3);
    let steps = "1 step { weights shared }";
    let with = built(
        "rest(layer, inject)",
        steps,
        "cross_entropy + jacobian",
        "store",
    );
    let mut f = given(&with);
    for name in ["tokens", "targets"] {
        let t = f.get_mut(name).unwrap();
        *t = Tensor::new(vec![1, 3, 1], t.data[..3].to_vec());
    }
    let (mut sum, mut square, n) = (0.0, 0.0, 100);
    for key in 0..n {
        f.insert(
            noise::KEY.into(),
            Tensor::new(vec![1], vec![f64::from(key)]),
        );
        let t = scalar(&interp::run(&with.0.grad, &f, at).unwrap(), "loss.jacobian");
        (sum, square) = (sum + t, square + t * t);
    }
    let mean = sum / f64::from(n);
    let error = ((square / f64::from(n) - mean * mean) / f64::from(n)).sqrt();
    let want = frobenius(&with.0, &f, at);
    // Four standard errors, and the truncation of the central difference.
    assert!(
        (mean - want).abs() < 4.0 * error + 1e-3 * want,
        "{mean} ± {error}, not {want}"
    );
    assert!(error < 0.08 * want, "{error} of {want}");
}

/// `Σ ‖s⁻¹ (E(z + t s eⱼ) − E(z − t s eⱼ))/(2t)‖²` over all directions eⱼ, per number, from the graph's own solution and equation.
fn frobenius(built: &Built, f: &BTreeMap<String, Tensor>, at: Bindings) -> f64 {
    let solution = &built.grad.solutions()[0];
    let ([z], [e]) = (&solution.pair.z[..], &solution.pair.f[..]) else {
        panic!("one unknown");
    };
    let at_z = {
        let mut b = odec_graph::Builder::extend(built.grad.clone());
        b.output("z", *z);
        interp::run(&b.finish(), f, at).unwrap()["z"].clone()
    };
    let mut b = odec_graph::Builder::extend(built.grad.clone());
    let ty = b.ty(*z).clone();
    let input = b
        .push1(
            odec_graph::ops::Input {
                name: "z".into(),
                ty,
            },
            &[],
        )
        .unwrap();
    let made = odec_graph::replay::replay(&mut b, &[*z], &[input], &[*e], "test").unwrap();
    let mut alone = odec_graph::Builder::extend(b.finish());
    alone.output("e", made[0]);
    let graph = alone.finish();
    let size: Vec<f64> = at_z
        .data
        .chunks(8)
        .map(|z| (squared(z) / 8.0 + 1e-8).sqrt())
        .collect();
    let mut sum = 0.0;
    for j in 0..24 {
        let t = 1e-5 * size[j / 8];
        let side = |t: f64| {
            let mut f = f.clone();
            let mut z = at_z.clone();
            z.data[j] += t;
            f.insert("z".into(), z);
            interp::run(&graph, &f, at).unwrap()["e"].data.clone()
        };
        for (i, (a, b)) in side(t).iter().zip(side(-t)).enumerate() {
            sum += ((a - b) / (2e-5 * size[i / 8])).powi(2) / 24.0;
        }
    }
    sum
}

/// Holds gradients of the loss by these parameters against differences of it, along the gradients themselves.
#[track_caller]
pub fn are_differences(built: &Built, f: &BTreeMap<String, Tensor>, paths: &[&str]) {
    let got = results(built, f);
    for path in paths {
        let g = &got[&format!("grad.{path}")].data;
        let size = squared(g).sqrt();
        let along = |t: f64| {
            let mut f = f.clone();
            let p = f.get_mut(*path).unwrap();
            let moved = p.data.iter_mut().zip(g);
            moved.for_each(|(p, g)| *p += t * g / size);
            scalar(&results(built, &f), "loss")
        };
        let slope = (along(1e-5) - along(-1e-5)) / 2e-5;
        near(path, slope, size, 1e-7);
    }
}

/// The gradient of a sum of terms through which everything is differentiated.
#[test]
fn gradients_are_differences() {
    let model = built("heun(layer)", "2 steps { h = 1/2 }", ALL, "store");
    let paths = [
        "embed.token.weight",
        "step.0.att.q.weight",
        "step.1.ffn.up.weight",
    ];
    are_differences(&model.0, &given(&model), &paths);
}

/// Bits of the total and of the gradients; the terms.
pub fn run(model: &(Built, String), options: Options) -> (Vec<u32>, BTreeMap<String, f64>, u64) {
    let made = assemble(&ModelParts::new(&model.0, &model.1), options).unwrap();
    let arena = made
        .memory
        .iter()
        .find(|m| m.entry == "grad")
        .unwrap()
        .arena;
    let mut e = executor(&made.manifest);
    let (x, y) = (words(), tokens(AT, 11, 5));
    let key = [KEY];
    let mut io = vec![("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    if e.has_input(odec_program::EntryId::Grad, noise::KEY) {
        io.push((noise::KEY, Value::I32(&key)));
    }
    let out = e.run("grad", AT, &io, &[]).unwrap();
    let terms = out
        .shapes()
        .map(|(n, _)| (n.to_string(), out.scalar(n).unwrap()));
    let terms: BTreeMap<String, f64> = terms.collect();
    let grads = e.state(State::Grads).f32().to_vec();
    let total = terms["loss"] as f32;
    let bits = grads.iter().chain([&total]).map(|x| x.to_bits());
    (bits.collect(), terms, arena)
}

#[test]
fn programs_compute_the_terms() {
    let steps = "3 steps { weights shared }";
    for (flow, loss) in [
        ("heun(layer)", ALL.to_string()),
        ("rest(layer, inject)", format!("{ALL} + jacobian")),
        ("heun(layer)", "masked(rate: 1/4) + 1/4*kinetic".into()),
    ] {
        let model = built(flow, steps, &loss, "store");
        let (bits, terms, _) = run(&model, options());
        let f = given(&model);
        let want = results(&model.0, &f);
        for (name, t) in &terms {
            close(name, &[*t as f32], &want[name].data, 1e-3);
        }
        let revolved = run(&built(flow, steps, &loss, "revolve(slots: 1)"), options());
        assert!(bits == revolved.0, "{flow}, {loss}: other bits");
    }
}

/// Terms of logits are made where the logits are: cut in pieces, and no whole matrix more.
#[test]
fn logits_are_still_taken_in_pieces() {
    let pieces = |piece| Options { piece, ..options() };
    let arena = |loss: &str| {
        let model = built("euler(layer)", "2 steps", loss, "store");
        let (whole, cut) = (run(&model, pieces(u64::MAX)), run(&model, pieces(8 << 10)));
        assert!(whole.0 == cut.0, "{loss}");
        (whole.2, cut.2)
    };
    let (plain, summed) = (arena("cross_entropy"), arena(ALL));
    assert!(
        plain.1 < plain.0 && summed.1 < plain.1 + (plain.0 - plain.1) / 4,
        "{plain:?} {summed:?}"
    );
}
