//! Models of images: graphs against a plain loop in f64, gradients against differences, programs against their graphs and themselves, and
//! that a model learns which picture is which.

use crate::numbers::{close, differences, executor};
use crate::pictures::Pictures;
use crate::plain::{Params, nats, swiglu, times};
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::{Options, build_manifest};
use odec_graph::interp;
use odec_program::manifest::Manifest;
use odec_program::{Bindings, EntryId};

/// Three images of six patches, 2 × 3 of them, of twelve numbers each.
const AT: Bindings = Bindings::new(3, 6);
const NUMBERS: usize = 12;
const WIDTH: usize = 8;
const CLASSES: usize = 5;
const PICTURES: Pictures = Pictures {
    numbers: NUMBERS,
    classes: CLASSES,
};

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
        let feeds = PICTURES.feeds(&mut e, at);
        let params = feeds.iter().map(|(path, t)| (path.clone(), t.data.clone()));
        let params: Params = params.collect();
        let images = feeds["patches"].data.chunks(at.seq as usize * NUMBERS);
        let logits: Vec<Vec<f64>> = images.map(|image| looped(&params, image)).collect();
        let forward = interp::run(&model.0.forward, &feeds, at).unwrap();
        assert_eq!(forward["logits"].shape, [at.batch, 1, CLASSES as u64]);
        for (got, want) in forward["logits"].data.iter().zip(logits.iter().flatten()) {
            assert!((got - want).abs() < 1e-12, "{got}, not {want}");
        }
        let all = logits
            .iter()
            .zip(PICTURES.targets(at))
            .map(|(z, y)| nats(z, y));
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
        let mut feeds = PICTURES.feeds(&mut e, AT);
        let what = format!("{flow}, {loss}");
        differences(&what, &model.0, &mut feeds, AT, 1e-7);
    }
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
                let feeds = PICTURES.feeds(&mut e, at);
                let got = PICTURES.run(&mut e, at);
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

#[test]
fn programs_give_the_same_bits() {
    let program = |train: &str, options| {
        let model = model("lie(att, ffn)", "weights per step", train);
        executor(&manifest(&model, options))
    };
    PICTURES.same_bits(AT, &program);
    for precision in ["", "precision bf16", "precision f64"] {
        let piece = Options {
            piece: 64,
            ..options()
        };
        let [whole, cut] =
            [options(), piece].map(|o| PICTURES.bits(&mut program(precision, o), AT));
        let logits = AT.batch as usize * PICTURES.classes;
        assert!(cut[..logits] == whole[..logits], "{precision}: in pieces");
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
        let loss = PICTURES.run(&mut executor(&m), AT)[AT.batch as usize * PICTURES.classes];
        assert!(loss.is_finite(), "{train}");
    }
}

#[test]
fn a_model_learns_which_picture_is_which() {
    let model = model("lie(att, ffn)", "h = 1;  weights per step", "");
    PICTURES.are_told_apart(&mut executor(&manifest(&model, options())), AT);
}
