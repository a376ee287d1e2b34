//! Models of images: graphs against a plain loop in f64, gradients against differences, programs against their graphs and themselves, and
//! that a model learns which picture is which.

use crate::numbers::{close, executor};
use crate::plain::{Params, nats, swiglu, times};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{Options, build_manifest};
use odec_graph::interp::{self, Tensor};
use odec_program::manifest::{Manifest, named};
use odec_program::{Bindings, DType, EntryId};
use odec_runtime::{Executor, State, Value};
use std::collections::BTreeMap;

/// Three images of six patches, 2 × 3 of them, of twelve numbers each.
const AT: Bindings = Bindings::new(3, 6);
const NUMBERS: usize = 12;
const WIDTH: usize = 8;
const CLASSES: i32 = 5;

/// A model of two steps, with other lines in its evolve and its train block.
fn model(flow: &str, options: &str, train: &str) -> (Built, String) {
    let text = format!(
        "field f = swiglu(hidden: 10)\nfield att = rmsnorm |> attention(heads: 2)\n\
         field ffn = layernorm |> gelu(hidden: 12, bias)\nfield layer = increment(lie(att, ffn))\n\
         model small {{\n  input patches(image: [4, 6], patch: 2, channels: 3)\n  \
         embed linear(width: {WIDTH}, bias), positions(learned)\n  evolve {flow} for 2 steps {{ {options} }}\n  \
         output classes({CLASSES})\n  init normal(std: 0.5) }}\n\
         train {{ data images(\"none.npz\", classes: {CLASSES});  optimizer adamw(lr: 1e-2)\n\
         batch 3;  steps 10;  {train} }}\n"
    );
    let checked = source::checked(&text);
    (checked.built.expect("a model"), text)
}

fn manifest((built, text): &(Built, String), options: Options) -> Manifest {
    build_manifest(built, text, options).unwrap().manifest
}

/// Numbers of patches, none like another.
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

fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// The logits of an image from its patches: a linear map, positions, two Euler steps, the mean, another linear map.
fn looped(p: &Params, patches: &[f64]) -> Vec<f64> {
    let count = patches.len() / NUMBERS;
    let mut mean = vec![0.0; WIDTH];
    for (n, patch) in patches.chunks(NUMBERS).enumerate() {
        let mapped = times(&p["embed.linear.weight"], patch);
        let mut x = plus(&mapped, &p["embed.linear.bias"]);
        x = plus(&x, &p["embed.position.weight"][n * WIDTH..][..WIDTH]);
        for step in 0..2 {
            x = plus(&x, &swiglu(p, &format!("step.{step}.f"), &x));
        }
        mean = plus(&mean, &x);
    }
    mean.iter_mut().for_each(|x| *x /= count as f64);
    let mapped = times(&p["output.classes.weight"], &mean);
    plus(&mapped, &p["output.classes.bias"])
}

#[test]
fn a_model_of_images_is_a_plain_loop() {
    let model = model("euler(f)", "h = 1", "");
    let mut e = executor(&manifest(&model, options()));
    // An image may be looked at in part: the mean is over what is there.
    for at in [AT, Bindings::new(2, 4), Bindings::new(1, 1)] {
        let feeds = feeds(&mut e, at);
        let params = feeds.iter().map(|(path, t)| (path.clone(), t.data.clone()));
        let params: Params = params.collect();
        let images = feeds["patches"].data.chunks(at.seq as usize * NUMBERS);
        let logits: Vec<Vec<f64>> = images.map(|image| looped(&params, image)).collect();
        let forward = interp::run(&model.0.forward, &feeds, at).unwrap();
        assert_eq!(forward["logits"].shape, [at.batch, 1, CLASSES as u64]);
        for (got, want) in forward["logits"].data.iter().zip(logits.iter().flatten()) {
            assert!((got - want).abs() < 1e-12, "{got}, not {want}");
        }
        let all = logits.iter().zip(classes(at)).map(|(z, y)| nats(z, y));
        let want = all.sum::<f64>() / at.batch as f64;
        let got = interp::run(&model.0.loss, &feeds, at).unwrap()["loss"].data[0];
        assert!((got - want).abs() < 1e-12, "{got}, not {want}");
    }
}

/// Of every parameter some elements, moved both ways.
#[test]
fn gradients_are_differences() {
    let flows = [
        ("euler(f)", "cross_entropy"),
        ("strang(ffn, att)", "cross_entropy"),
        ("heun(att)", "smooth(1/10) + 1/2*z_loss + 1/4*kinetic"),
    ];
    for (flow, loss) in flows {
        let model = model(flow, "h = 1/2", &format!("loss {loss}"));
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
                assert!(off < 1e-7, "{flow}: {}[{i}]: {got}, not {want}", p.path);
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

const FLOWS: [(&str, &str); 5] = [
    ("lie(att, ffn)", "h = 1;  weights per step"),
    ("strang(ffn, att)", "h = 1/2;  weights shared"),
    ("heun(layer)", "h = 1"),
    ("euler(att)", "weights of time { embed: 4, hidden: 4 }"),
    ("lie(f, att)", "h = 1"),
];

#[test]
fn programs_agree_with_the_interpreter() {
    for (flow, evolve) in FLOWS {
        for (train, within) in [("", 1e-4), ("precision bf16", 0.1), ("accumulate 3", 1e-4)] {
            let model = model(flow, evolve, train);
            let manifest = manifest(&model, options());
            let mut e = executor(&manifest);
            for at in [Bindings::new(1, 6), Bindings::new(1, 2)] {
                let feeds = feeds(&mut e, at);
                let got = run(&mut e, at);
                let forward = interp::run(&model.0.forward, &feeds, at).unwrap();
                let want = interp::run(&model.0.grad, &feeds, at).unwrap();
                let got: Vec<f32> = got.iter().map(|x| *x as f32).collect();
                let (logits, rest) = got.split_at(forward["logits"].data.len());
                let what = |name: &str| format!("{flow}, {train}: {name}");
                close(&what("logits"), logits, &forward["logits"].data, within);
                close(&what("loss"), &rest[..1], &want["loss"].data, within);
                for p in &manifest.params {
                    let name = format!("grad.{}", p.path);
                    let first = 1 + p.offset as usize / 4;
                    let grad = &rest[first..first + p.elements() as usize];
                    let scale = want[&name].data.iter();
                    let scale = scale.fold(0.0f64, |m, x| m.max(x.abs()));
                    for (got, want) in grad.iter().zip(&want[&name].data) {
                        let off = (f64::from(*got) - want).abs() / scale;
                        assert!(off < within, "{}: {got}, not {want}", what(&name));
                    }
                }
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
            let model = model(
                "lie(att, ffn)",
                "weights per step",
                train.trim_start_matches(';'),
            );
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
        let cut = Options {
            piece: 64,
            ..options()
        };
        let mut cut = of("", cut);
        let logits = AT.batch as usize * CLASSES as usize;
        assert!(
            bits(&mut cut, AT)[..logits] == whole[..logits],
            "{precision}: in pieces"
        );
        // Images do not meet: each has the logits that it has alone.
        let first = bits(&mut plain, Bindings::new(1, 6));
        let each = CLASSES as usize;
        assert!(first[..each] == whole[..each], "{precision}: alone");
    }
}

/// What else may be said of a model, of images as of texts.
#[test]
fn other_lines_go_with_images() {
    for (flow, evolve, train) in [
        ("lie(att, ffn)", "h = 1", "constrain spectral(max: 1.0)"),
        (
            "lie(att, ffn)",
            "h = 1",
            "from \"run\";  tune lora(rank: 2)",
        ),
        (
            "lie(att, ffn)",
            "h = 1",
            "memory revolve(slots: 1);  precision bf16",
        ),
        (
            "lie(att, ffn)",
            "weights shared",
            "loss cross_entropy + 1/8*kinetic",
        ),
        ("lie(att, ffn)", "h = 1", "loss cross_entropy + 1/64*drift"),
    ] {
        let model = model(flow, evolve, train);
        let m = manifest(&model, options());
        assert!(!m.program.entries.contains_key(&EntryId::Decode));
        let loss = run(&mut executor(&m), AT)[AT.batch as usize * CLASSES as usize];
        assert!(loss.is_finite(), "{train}");
    }
}

/// Three pictures with a class each are told apart after some steps.
#[test]
fn a_model_learns_which_picture_is_which() {
    let model = model("lie(att, ffn)", "h = 1;  weights per step", "");
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
