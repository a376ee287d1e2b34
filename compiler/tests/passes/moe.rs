//! Mixtures of experts: the layer against loops in f64, who is chosen, what is computed, and the loss of uneven use.

use crate::numbers::{close, executor, feeds, gradient, tokens};
use crate::plain::times;
use crate::source::built;
use crate::systems::options;
use odec_compiler::cost::{Operations, cost};
use odec_compiler::model::Built;
use odec_compiler::passes::{ModelParts, Policy, assemble, build_manifest, run_graph_passes};
use odec_graph::interp::{self, Tensor};
use odec_graph::{OpKind, types::Elem};
use odec_program::Bindings;
use odec_program::manifest::{Manifest, Memory, Precision, added};
use odec_runtime::{State, Value};
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 7);
const WIDTH: usize = 8;
const HIDDEN: usize = 12;
/// Kinds of tokens that occur.
const VOCAB: u64 = 19;

type Tensors = BTreeMap<String, Tensor>;

/// A model of one step along a mixture, whose result is the state after it.
fn model(moe: &str, loss: &str, train: &str) -> (Built, String) {
    let text = format!(
        "field f = {moe}\nmodel small {{\n  input tokens(vocab: 256, context: 16)\n  embed learned(width: {WIDTH})\n  \
         evolve euler(f) for 1 step {{ h = 1 }}\n  output logits\n  init normal(std: 0.7) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  loss {loss}\n\
         batch 2;  steps 10;  {train} }}\n"
    );
    (built(&text), text)
}

fn manifest((built, text): &(Built, String)) -> Manifest {
    assemble(&ModelParts::new(built, text), options())
        .unwrap()
        .manifest
}

fn given(manifest: &Manifest) -> Tensors {
    let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
    feeds(&executor(manifest), AT, &[("tokens", &x), ("targets", &y)])
}

fn param<'t>(f: &'t Tensors, part: &str) -> &'t [f64] {
    &f[&format!("step.0.f.{part}.weight")].data
}

fn states(f: &Tensors) -> Vec<Vec<f64>> {
    let table: Vec<&[f64]> = f["embed.token.weight"].data.chunks(WIDTH).collect();
    let tokens = f["tokens"].data.iter();
    tokens.map(|t| table[*t as usize].to_vec()).collect()
}

/// Experts in the order in which they are chosen: the largest score first, of equal ones the first.
fn chosen(scores: &[f64], top_k: usize) -> Vec<usize> {
    let mut left: Vec<usize> = (0..scores.len()).collect();
    let mut found = Vec::new();
    for _ in 0..top_k {
        let best = left
            .iter()
            .copied()
            .reduce(|a, b| if scores[b] > scores[a] { b } else { a });
        found.extend(best);
        left.retain(|e| Some(*e) != best);
    }
    found
}

/// `Σ w_e down_e(silu(gate_e x) · up_e x)`, or `Σ w_e down_e gelu(up_e x)` without a gate.
fn mixture(f: &Tensors, x: &[f64], top_k: usize) -> Vec<f64> {
    let scores = times(param(f, "router"), x);
    let experts = chosen(&scores, top_k);
    let sum: f64 = experts.iter().map(|e| scores[*e].exp()).sum();
    let mut y = vec![0.0; x.len()];
    for e in experts {
        let own = |part: &str| &param(f, part)[e * HIDDEN * WIDTH..][..HIDDEN * WIDTH];
        let up = times(own("up"), x);
        let hidden: Vec<f64> = match f.contains_key("step.0.f.gate.weight") {
            true => {
                let gate = times(own("gate"), x);
                gate.iter()
                    .zip(&up)
                    .map(|(g, u)| g / (1.0 + (-g).exp()) * u)
                    .collect()
            }
            false => {
                let below = |u: f64| 0.5 * (1.0 + libm::erf(u / 2.0f64.sqrt()));
                up.iter().map(|u| u * below(*u)).collect()
            }
        };
        let out = times(own("down"), &hidden);
        let weight = scores[e].exp() / sum;
        y.iter_mut().zip(out).for_each(|(y, o)| *y += weight * o);
    }
    y
}

fn logits(built: &Built, f: &Tensors) -> Vec<f64> {
    interp::run(&built.forward, f, AT).unwrap()["logits"]
        .data
        .clone()
}

#[track_caller]
fn agrees(built: &Built, f: &Tensors, top_k: usize) {
    let got = logits(built, f);
    let want = states(f).into_iter().flat_map(|x| {
        let y = mixture(f, &x, top_k);
        let end: Vec<f64> = x.iter().zip(y).map(|(x, y)| x + y).collect();
        times(&f["output.logits.weight"].data, &end)
    });
    let want: Vec<f64> = want.collect();
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((got - want).abs() < 1e-11, "{got}, not {want}");
    }
}

#[test]
fn a_mixture_is_its_equation() {
    for (moe, top_k) in [
        ("moe(experts: 5, top_k: 2, hidden: 12)", 2),
        ("moe(experts: 4, top_k: 4, hidden: 12)", 4),
        ("moe(experts: 3, top_k: 1, hidden: 12, activation: gelu)", 1),
        ("moe(experts: 1, top_k: 1, hidden: 12)", 1),
    ] {
        let model = model(moe, "cross_entropy", "");
        let mut f = given(&manifest(&model));
        agrees(&model.0, &f, top_k);
        // All scores are equal: the first experts are chosen, by all tokens, and some have none.
        let router = f.get_mut("step.0.f.router.weight").unwrap();
        router.data.fill(0.0);
        agrees(&model.0, &f, top_k);
    }
}

/// Programs against the meaning of their graphs, and themselves: whoever is chosen, and where all go to the same.
#[test]
fn programs_compute_mixtures() {
    for train in ["", "memory revolve(slots: 1)"] {
        let model = model(
            "moe(experts: 5, top_k: 2, hidden: 12)",
            "cross_entropy + 1/4*load_balance",
            train,
        );
        let manifest = manifest(&model);
        let mut e = executor(&manifest);
        let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
        let f = given(&manifest);
        let want = interp::run(&model.0.grad, &f, AT).unwrap();
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let out = e.run("grad", AT, &io, &[]).unwrap();
        for name in ["loss", "loss.load_balance"] {
            let got = out.scalar(name).unwrap() as f32;
            close(name, &[got], &want[name].data, 1e-5);
        }
        let mut seen = 0;
        for p in manifest.trained() {
            let name = format!("grad.{}", p.path);
            close(&name, e.of(State::Grads, p).f32(), &want[&name].data, 1e-3);
            seen += usize::from(p.shape.len() == 3);
        }
        assert_eq!(seen, 3);
        let (again, mut other) = (gradient(&mut e, AT, VOCAB), executor(&manifest));
        assert_eq!(again, gradient(&mut other, AT, VOCAB));
        let decode = e.run("forward", AT, &io[..1], &[]).unwrap();
        let want = logits(&model.0, &f);
        let got = decode.reals("logits").unwrap().iter();
        let got: Vec<f32> = got.map(|x| x as f32).collect();
        close("logits", &got, &want, 1e-4);
    }
}

/// `precision bf16` rounds the factors of mixtures as those of linear maps. Programs mean their rounded graphs, and rows that wait for the backward pass
/// take half.
#[test]
fn mixtures_round_their_factors() {
    let model = |precision| {
        let moe = "moe(experts: 5, top_k: 2, hidden: 12)";
        model(moe, "cross_entropy", precision)
    };
    let rounded = Policy {
        precision: Precision::Bf16,
        memory: Memory::Store,
        weights: None,
        copied: false,
    };
    let (built, text) = model("precision bf16");
    let graph = run_graph_passes(&built.grad, rounded).unwrap();
    let mut stored = 0;
    for (_, node) in graph.nodes() {
        let (factors, rounded) = match &node.op {
            OpKind::GroupedMatMul(m) => ([0, 2], m.rounded),
            OpKind::GroupedOuter(m) => ([1, 2], m.rounded),
            _ => continue,
        };
        assert!(rounded, "{:?}", node.op);
        let half = |i: &usize| graph.ty(node.operands[*i]).elem == Elem::Bf16;
        stored += factors.iter().filter(|i| half(i)).count();
    }
    assert!(stored >= 3, "{stored} factors are stored in bf16");
    let manifest = manifest(&(built, text));
    let f = given(&manifest);
    let want = interp::run(&graph, &f, AT).unwrap();
    let (x, y) = (tokens(AT, VOCAB, 1), tokens(AT, VOCAB, 5));
    let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let mut e = executor(&manifest);
    let loss = e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap();
    close("loss", &[loss as f32], &want["loss"].data, 1e-4);
    for p in manifest.trained() {
        let name = format!("grad.{}", p.path);
        close(&name, e.of(State::Grads, p).f32(), &want[&name].data, 2e-2);
    }
    let plain = executor(&self::manifest(&model("")))
        .run("grad", AT, &io, &[])
        .unwrap()
        .scalar("loss")
        .unwrap();
    assert!(plain != loss, "nothing was rounded");
}

/// The work is that of the chosen experts and the router: as much as two experts alone, and two in eight of all.
#[test]
fn only_the_chosen_are_computed() {
    let work = |moe: &str| -> Operations {
        let model = model(moe, "cross_entropy", "");
        let manifest = build_manifest(&model.0, &model.1, options())
            .unwrap()
            .manifest;
        cost(&model.0, &manifest.program, options())
            .unwrap()
            .forward
    };
    let of = |experts: u64, top_k: u64| {
        let text = format!("moe(experts: {experts}, top_k: {top_k}, hidden: 12)");
        work(&text).contractions
    };
    // A sequence of 16.
    let tokens = 16;
    let router = |experts: u64| tokens * experts * WIDTH as u64;
    let expert = tokens * 3 * (WIDTH * HIDDEN) as u64;
    let rest = of(2, 2) - router(2) - 2 * expert;
    for (experts, top_k) in [(8, 1), (8, 2), (8, 8), (64, 2)] {
        let want = rest + router(experts) + top_k * expert;
        assert_eq!(of(experts, top_k), want, "{experts} {top_k}");
    }
}

/// Of E experts used alike, and of one that takes all.
#[test]
fn uneven_use_is_a_loss() {
    let model = model(
        "moe(experts: 4, top_k: 2, hidden: 12)",
        "cross_entropy + load_balance",
        "",
    );
    let mut f = given(&manifest(&model));
    let balance =
        |f: &Tensors| interp::run(&model.0.grad, f, AT).unwrap()["loss.load_balance"].data[0];
    let want = |f: &Tensors| {
        let scores: Vec<Vec<f64>> = states(f)
            .iter()
            .map(|x| times(param(f, "router"), x))
            .collect();
        let (mut used, mut shares) = ([0.0; 4], [0.0; 4]);
        for s in &scores {
            let sum: f64 = s.iter().map(|s| s.exp()).sum();
            chosen(s, 2)
                .into_iter()
                .for_each(|e| used[e] += 0.5 / scores.len() as f64);
            s.iter()
                .zip(&mut shares)
                .for_each(|(s, p)| *p += s.exp() / sum / scores.len() as f64);
        }
        4.0 * used.iter().zip(shares).map(|(f, p)| f * p).sum::<f64>()
    };
    assert!((balance(&f) - want(&f)).abs() < 1e-12);
    // The router decides nothing: shares are equal, whoever is chosen.
    f.get_mut("step.0.f.router.weight").unwrap().data.fill(0.0);
    assert!((balance(&f) - 1.0).abs() < 1e-12);
    // The first expert's score is larger by far for every token: it takes half of the choices, and the whole softmax.
    let table = f.get_mut("embed.token.weight").unwrap();
    table.data.iter_mut().for_each(|x| *x = x.abs() + 1.0);
    f.get_mut("step.0.f.router.weight").unwrap().data[..WIDTH].fill(50.0);
    assert!((balance(&f) - 2.0).abs() < 1e-9, "{}", balance(&f));
}

/// The part of all choices that each expert is, whatever the loss: the mean over evaluations, where their number is known.
#[test]
fn shares_of_experts_are_results() {
    let path = "moe.share.step.0.f.router";
    let moe = "moe(experts: 4, top_k: 2, hidden: 12)";
    for loss in ["cross_entropy", "cross_entropy + load_balance"] {
        let model = model(moe, loss, "");
        let f = given(&manifest(&model));
        let shares = |text: &str| interp::run(&built(text).grad, &f, AT).unwrap().remove(path);
        let mut used = [0.0; 4];
        let states = states(&f);
        for x in &states {
            let scores = times(param(&f, "router"), x);
            let own = 0.5 / states.len() as f64;
            chosen(&scores, 2).into_iter().for_each(|e| used[e] += own);
        }
        let got = shares(&model.1).unwrap();
        assert_eq!(got.shape, [4]);
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&got.data, &used), "{got:?}, not {used:?}");
        // Heun's second evaluation is at x + f(x).
        let heun = shares(&model.1.replace("euler", "heun")).unwrap();
        let (mut both, mut b) = (used, [0.0; 4]);
        for x in &states {
            let step = mixture(&f, x, 2);
            let y: Vec<f64> = x.iter().zip(step).map(|(x, k)| x + k).collect();
            let scores = times(param(&f, "router"), &y);
            let own = 0.5 / states.len() as f64;
            chosen(&scores, 2).into_iter().for_each(|e| b[e] += own);
        }
        both.iter_mut()
            .zip(b)
            .for_each(|(a, b)| *a = (*a + b) / 2.0);
        assert!(near(&heun.data, &both), "{heun:?}, not {both:?}");
    }
    // What is evaluated until it is solved has no number of evaluations.
    let solving = "scheme solved(F) { step x { solve z = x + h*F(z) from x by fixed_point(tol: 1e-3, max: 5)\n return z } }\n";
    let text = model(moe, "cross_entropy", "").1;
    let text = format!("{solving}{}", text.replace("euler(f)", "solved(f)"));
    let outputs = built(&text).grad;
    assert!(outputs.outputs().iter().all(|(name, _)| name != path));
}

/// Bounds are on each expert's matrix, and factors are below each other.
#[test]
fn matrices_of_experts_are_bounded_and_adapted() {
    let moe = "moe(experts: 3, top_k: 2, hidden: 12)";
    let bounded = manifest(&model(moe, "cross_entropy", "constrain spectral(max: 1/8)"));
    let mut e = executor(&bounded);
    let path = "step.0.f.up.weight";
    let find = |m: &Manifest, path: &str| m.params.iter().find(|p| p.path == path).unwrap().clone();
    let (w, u) = (
        find(&bounded, path),
        find(&bounded, &format!("{path}{}", added::SPECTRAL)),
    );
    assert_eq!((&w.shape[..], &u.shape[..]), (&[3, 12, 8][..], &[36][..]));
    let values =
        |e: &odec_runtime::Executor, p| e.of(State::Params, p).iter().collect::<Vec<f64>>();
    let (before, vectors) = (values(&e, &w), values(&e, &u));
    let still = [("lr", 0.0), ("bias1", 1.0), ("bias2", 1.0)];
    e.run("update", Bindings::new(1, 1), &[], &still).unwrap();
    let (after, turned) = (values(&e, &w), values(&e, &u));
    for n in 0..3 {
        let part = |v: &[f64], size: usize| v[n * size..][..size].to_vec();
        let (m, u) = (part(&before, 96), part(&vectors, 12));
        let mut v: Vec<f64> = (0..8)
            .map(|c| (0..12).map(|r| m[r * 8 + c] * u[r]).sum())
            .collect();
        let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
        let size = length(&v);
        v.iter_mut().for_each(|x| *x /= size);
        let s = times(&m, &v);
        let sigma = length(&s);
        let scale = (0.125 / sigma).min(1.0);
        let want: Vec<f64> = m.iter().map(|w| w * scale).collect();
        let got: Vec<f32> = part(&after, 96).iter().map(|x| *x as f32).collect();
        close("W", &got, &want, 1e-5);
        let want: Vec<f64> = s.iter().map(|s| s / sigma).collect();
        let got: Vec<f32> = part(&turned, 12).iter().map(|x| *x as f32).collect();
        close("u", &got, &want, 1e-5);
    }
    let tuned = model(moe, "cross_entropy", "from \"run\";  tune lora(rank: 2)");
    let adapted = manifest(&tuned);
    let shape = |end: &str| find(&adapted, &format!("{path}{end}")).shape;
    assert_eq!(
        [shape(added::LORA_A), shape(added::LORA_B)],
        [[2, 8], [36, 2]]
    );
    // What the factors add is what is added to the matrix itself.
    let mut f = given(&adapted);
    let b = f.get_mut(&format!("{path}{}", added::LORA_B)).unwrap();
    b.data
        .iter_mut()
        .enumerate()
        .for_each(|(i, b)| *b = (i as f64).sin());
    let with = logits(&tuned.0, &f);
    let (a, b) = [added::LORA_A, added::LORA_B]
        .map(|end| f[&format!("{path}{end}")].data.clone())
        .into();
    let w = &mut f.get_mut(path).unwrap().data;
    for (i, w) in w.iter_mut().enumerate() {
        *w += (0..2)
            .map(|r| b[i / 8 * 2 + r] * a[r * 8 + i % 8])
            .sum::<f64>();
    }
    let plain = model(moe, "cross_entropy", "");
    for (with, want) in with.iter().zip(logits(&plain.0, &f)) {
        assert!((with - want).abs() < 1e-11, "{with}, not {want}");
    }
}
