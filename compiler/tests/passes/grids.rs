//! Models whose tokens stand on grids, in stages: gradients against differences, programs against their graphs and themselves, costs, and that a model
//! learns which picture is which.

use crate::numbers::{close, executor};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{Options, build_manifest};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, DType};
use odec_runtime::{Executor, State, Value};
use std::collections::BTreeMap;

/// Three images of 6 × 5 pixels of two numbers.
const AT: Bindings = Bindings::new(3, 30);
const NUMBERS: usize = 2;
const CLASSES: i32 = 5;

/// Stages of 3 × 3 tokens and of 2 × 2, the last with a class token.
const STAGES: &str =
    "embed conv(kernel: 3, stride: 2, padding: 1, width: 8, bias, norm), positions(grid)
  evolve one: FLOW for 2 steps { OPTIONS }
  embed conv(kernel: 2, width: 12, bias), class_token, positions(learned)
  evolve two: FLOW for 1 step { OPTIONS }
  output layernorm |> classes(5, of: class_token)";

/// One stage, whose tokens become fewer by a linear map of their columns alone.
const NARROW: &str = "embed conv(kernel: 4, stride: 2, padding: 1, width: 8)
  evolve one: FLOW for 1 step { OPTIONS }
  embed linear(width: 4, bias), positions(sinusoidal)
  evolve two: FLOW for 2 steps { OPTIONS }
  output classes(5)";

/// A model with another flow and other lines in its train block.
fn model(stages: &str, flow: &str, options: &str, train: &str) -> (Built, String) {
    let stages = stages.replace("FLOW", flow).replace("OPTIONS", options);
    let text = format!(
        "field att = layernorm |> conv_attention(heads: 2, bias)\n\
         field mix = rmsnorm |> conv2d(kernel: 3, bias) |> gelu\n\
         field plain = rmsnorm |> attention(heads: 2, rope)\n\
         field ffn = layernorm |> gelu(hidden: 12, bias)\nfield layer = increment(lie(att, ffn))\n\
         model small {{\n  input image(size: [6, 5], channels: 2)\n  {stages}\n  init normal(std: 0.5) }}\n\
         train {{ data images(\"none.npz\", classes: 5);  optimizer adamw(lr: 1e-2)\n\
         batch 3;  steps 10;  {train} }}\n"
    );
    let checked = source::checked(&text);
    (checked.built.expect("a model"), text)
}

fn manifest((built, text): &(Built, String), options: Options) -> Manifest {
    build_manifest(built, text, options).unwrap().manifest
}

/// Numbers of pixels, none like another.
fn numbers(at: Bindings) -> Vec<f32> {
    let each = 0..(at.batch * at.seq) as usize * NUMBERS;
    each.map(|i| ((i * i % 37) as f32 * 0.21).sin()).collect()
}

fn classes(at: Bindings) -> Vec<i32> {
    (0..at.batch as i32)
        .map(|i| (3 * i + 2) % CLASSES)
        .collect()
}

/// Parameters that are no zeros and ones, and the inputs, for the interpreter.
fn feeds(e: &mut Executor, at: Bindings) -> BTreeMap<String, Tensor> {
    for (i, x) in e.state_mut(State::Params).f32().iter_mut().enumerate() {
        *x += (i as f32 * 0.37).sin() / 8.0;
    }
    let manifest = e.manifest();
    let params = manifest.params.iter().map(|p| {
        let data = e.of(State::Params, p).iter().collect();
        (p.path.clone(), Tensor::new(p.shape.clone(), data))
    });
    let of = |shape: &[u64], data: Vec<f64>| Tensor::new(shape.to_vec(), data);
    let patches = numbers(at).iter().map(|x| f64::from(*x)).collect();
    let targets = classes(at).iter().map(|x| f64::from(*x)).collect();
    let inputs = [
        ("patches", of(&[at.batch, at.seq, NUMBERS as u64], patches)),
        ("targets", of(&[at.batch, 1, 1], targets)),
    ];
    let inputs = inputs.map(|(name, t)| (name.to_string(), t));
    params.chain(inputs).collect()
}

/// Of every parameter some elements, moved both ways.
#[test]
fn gradients_are_differences() {
    let cases = [
        (STAGES, "lie(att, ffn)", "cross_entropy"),
        (STAGES, "strang(ffn, mix)", "smooth(1/10) + 1/4*kinetic"),
        (NARROW, "heun(att)", "cross_entropy"),
        (NARROW, "lie(plain, mix)", "cross_entropy"),
    ];
    for (stages, flow, loss) in cases {
        let model = model(stages, flow, "h = 1/2", &format!("loss {loss}"));
        let mut e = executor(&manifest(&model, options()));
        let mut feeds = feeds(&mut e, AT);
        let grads = interp::run(&model.0.grad, &feeds, AT).unwrap();
        for p in &model.0.params {
            let n = feeds[&p.path].data.len();
            for i in [0, n / 2, n - 1] {
                let mut at = |by: f64| {
                    feeds.get_mut(&p.path).unwrap().data[i] += by;
                    interp::run(&model.0.grad, &feeds, AT).unwrap()["loss"].data[0]
                };
                let h = 1e-4;
                let (above, below) = (at(h), at(-2.0 * h));
                at(h);
                let want = (above - below) / (2.0 * h);
                let got = grads[&format!("grad.{}", p.path)].data[i];
                let off = (got - want).abs();
                assert!(off < 2e-7, "{flow}: {}[{i}]: {got}, not {want}", p.path);
            }
        }
    }
}

/// Loss and gradients of a program, as f64 numbers.
fn run(e: &mut Executor, at: Bindings) -> Vec<f64> {
    let (x, y) = (numbers(at), classes(at));
    let wide: Vec<f64> = x.iter().map(|x| f64::from(*x)).collect();
    let patches = match e.real() {
        DType::F64 => Value::F64(&wide),
        _ => Value::F32(&x),
    };
    let io = [("patches", patches), ("targets", Value::I32(&y))];
    let logits = e.run("forward", at, &io[..1], &[]).unwrap();
    let mut out: Vec<f64> = logits.reals("logits").unwrap().iter().collect();
    e.state_mut(State::Grads).fill(std::iter::repeat(f64::NAN));
    let loss = e.run("grad", at, &io, &[]).unwrap();
    out.push(loss.scalar("loss").unwrap());
    out.extend(e.state(State::Grads).iter());
    out
}

const FLOWS: [(&str, &str, &str); 5] = [
    (STAGES, "lie(att, ffn)", "h = 1;  weights per step"),
    (STAGES, "strang(mix, att)", "h = 1/2;  weights shared"),
    (STAGES, "heun(layer)", "h = 1"),
    (NARROW, "lie(plain, mix)", "h = 1"),
    (
        NARROW,
        "euler(att)",
        "weights of time { embed: 4, hidden: 4 }",
    ),
];

#[test]
fn programs_agree_with_the_interpreter() {
    for (stages, flow, evolve) in FLOWS {
        for (train, within) in [("", 1e-4), ("precision bf16", 0.25), ("accumulate 3", 1e-4)] {
            let model = model(stages, flow, evolve, train);
            let manifest = manifest(&model, options());
            let mut e = executor(&manifest);
            for at in [Bindings::new(1, 30)] {
                let feeds = feeds(&mut e, at);
                let got = run(&mut e, at);
                let forward = interp::run(&model.0.forward, &feeds, at).unwrap();
                let want = interp::run(&model.0.grad, &feeds, at).unwrap();
                let got: Vec<f32> = got.iter().map(|x| *x as f32).collect();
                let (logits, rest) = got.split_at(forward["logits"].data.len());
                let what = |name: &str| format!("{flow}, {train}: {name}");
                close(&what("logits"), logits, &forward["logits"].data, within);
                close(&what("loss"), &rest[..1], &want["loss"].data, within);
                let largest = |t: &Tensor| t.data.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                let all = want.values().map(largest).fold(0.0, f64::max);
                let half = train == "precision bf16";
                let (mut error, mut size) = (0.0, 0.0);
                for p in &manifest.params {
                    let name = format!("grad.{}", p.path);
                    let first = 1 + p.offset as usize / 4;
                    let grad = &rest[first..first + p.elements() as usize];
                    // What is added to all keys alike changes nothing: a derivative that is zero but for rounding.
                    let own = largest(&want[&name]);
                    let scale = if own < 1e-9 * all { all } else { own };
                    for (got, want) in grad.iter().zip(&want[&name].data) {
                        let off = (f64::from(*got) - want).abs();
                        assert!(
                            half || off / scale < within,
                            "{}: {got}, not {want}",
                            what(&name)
                        );
                        error += off * off;
                        size += want * want;
                    }
                }
                // Of what cancels, bf16 leaves little; the gradient as a whole is held to the bound of the float64 references.
                let error = f64::sqrt(error / size);
                assert!(error < 0.15, "{flow}, {train}: {error}");
            }
        }
    }
}

/// However launches are joined, states are kept and batches are read: the same bits.
#[test]
fn programs_give_the_same_bits() {
    let bits = |e: &mut Executor, at| {
        let all = run(e, at).into_iter().map(f64::to_bits);
        all.collect::<Vec<u64>>()
    };
    for precision in ["", "precision bf16", "precision f64"] {
        let of = |train: &str, options| {
            let train = format!("{precision};  {train}");
            let train = train.trim_start_matches(';');
            let model = model(STAGES, "lie(att, ffn)", "weights per step", train);
            executor(&manifest(&model, options))
        };
        let mut plain = of("", options());
        let whole = bits(&mut plain, AT);
        let off = Options {
            fusion: Fusion::Off,
            ..options()
        };
        assert!(
            bits(&mut of("", off), AT) == whole,
            "{precision}: not joined"
        );
        let mut kept = of("memory revolve(slots: 1)", options());
        assert!(bits(&mut kept, AT) == whole, "{precision}: computed again");
        // Images do not meet: each has the logits that it has alone.
        let first = bits(&mut plain, Bindings::new(1, 30));
        let each = CLASSES as usize;
        assert!(first[..each] == whole[..each], "{precision}: alone");
    }
}

/// Three pictures with a class each are told apart after some steps.
#[test]
fn a_model_learns_which_picture_is_which() {
    let model = model(STAGES, "lie(att, ffn)", "h = 1;  weights per step", "");
    let mut e = executor(&manifest(&model, options()));
    let (x, y) = (numbers(AT), classes(AT));
    let io = [("patches", Value::F32(&x)), ("targets", Value::I32(&y))];
    let mut losses = Vec::new();
    for t in 1..=30 {
        let made = e.run("grad", AT, &io, &[]).unwrap();
        losses.push(made.scalar("loss").unwrap());
        let scalars = [
            (named::LR, 1e-2),
            (named::BIAS1, 1.0 / (1.0 - 0.9f64.powi(t))),
            (named::BIAS2, 1.0 / (1.0 - 0.95f64.powi(t))),
        ];
        e.run("update", AT, &[], &scalars).unwrap();
    }
    assert!(losses[29] < losses[0] / 4.0, "{losses:?}");
    let logits = e.run("forward", AT, &io[..1], &[]).unwrap();
    let logits: Vec<f64> = logits.reals("logits").unwrap().iter().collect();
    let told = logits.chunks(CLASSES as usize).map(|z| {
        let best = |a: usize, b: usize| if z[b] > z[a] { b } else { a };
        (0..z.len()).reduce(best).unwrap() as i32
    });
    assert_eq!(told.collect::<Vec<i32>>(), y);
}
