//! Models whose tokens stand on grids, in stages: gradients against differences, programs against their graphs and themselves, costs, and that a model
//! learns which picture is which.

use crate::numbers::{close, differences, executor};
use crate::pictures::Pictures;
use crate::source;
use crate::systems::options;
use odec_compiler::model::Built;
use odec_compiler::passes::{Options, build_manifest};
use odec_graph::interp::{self, Tensor};
use odec_program::Bindings;
use odec_program::manifest::Manifest;

/// Three images of 6 × 5 pixels of two numbers.
const AT: Bindings = Bindings::new(3, 30);
const PICTURES: Pictures = Pictures {
    numbers: 2,
    classes: 5,
};

/// Stages of 3 × 3 tokens and of 2 × 2, the last with a class token and registers.
const STAGES: &str =
    "embed conv(kernel: 3, stride: 2, padding: 1, width: 8, bias, norm), positions(grid)
  evolve one: FLOW for 2 steps { OPTIONS }
  embed conv(kernel: 2, width: 12, bias), class_token, registers(rows: 2), positions(learned)
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
        let mut feeds = PICTURES.feeds(&mut e, AT);
        let what = format!("{flow}, {loss}");
        differences(&what, &model.0, &mut feeds, AT, 2e-7);
    }
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
                let feeds = PICTURES.feeds(&mut e, at);
                let got = PICTURES.run(&mut e, at);
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

#[test]
fn programs_give_the_same_bits() {
    PICTURES.same_bits(AT, &|train, options| {
        let model = model(STAGES, "lie(att, ffn)", "weights per step", train);
        executor(&manifest(&model, options))
    });
}

#[test]
fn a_model_learns_which_picture_is_which() {
    let model = model(STAGES, "lie(att, ffn)", "h = 1;  weights per step", "");
    PICTURES.are_told_apart(&mut executor(&manifest(&model, options())), AT);
}
