//! Models of the library made tiny, planned for a target.

use odec_compiler::model::compile;
use odec_compiler::passes::{Options, build_manifest};
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Sources, parse};
use odec_library::shipped;
use odec_program::Target;
use odec_program::manifest::Manifest;

/// Files of the library, and what is changed in them beyond their sizes: with [`of_images`] they have every kind of kernel, entry and number.
const MODELS: &[(&str, &str, &str)] = &[
    ("prenorm", "", ""),
    ("prenorm", "batch 4;", "batch 4;  accumulate 2;"),
    ("prenorm", "\ntrain {\n", "\ntrain {\n  precision bf16\n"),
    ("prenorm", "\ntrain {\n", "\ntrain {\n  precision f64\n"),
    ("encoder_masked", "", ""),
    ("recurrent_depth", "", ""),
    ("grouped", "", ""),
    ("neural_ode", "", ""),
    ("deq_layer", "", ""),
    ("prenorm_dropout", "", ""),
    ("diffeqformer", "", ""),
    ("universal", "", ""),
    ("iiet", "", ""),
    ("learned_multistep", "", ""),
    ("mixtral", "", ""),
    ("mixtral", "\ntrain {\n", "\ntrain {\n  precision bf16\n"),
    ("prenorm", "attention(heads: 2, causal, rope)", ALONG),
    (
        "prenorm",
        "for 2 steps { h = 1;  weights per step }",
        ROUTED,
    ),
    (
        "prenorm",
        "for 2 steps { h = 1;  weights per step }",
        CAPACITIES,
    ),
];

/// Every kernel along tokens but attention.
const ALONG: &str = "concat(scan(linear |> sigmoid, linear), cumsum(linear(6)), shift(by: 2), conv(linear(6), kernel: 3, causal, depthwise), \
     linear_attention(linear(6), linear(6), linear(8), heads: 2, decay: linear(6) |> sigmoid), \
     linear_attention(linear(6), linear(6) |> normalize(heads: 2), linear(8), heads: 2, delta: linear(2) |> sigmoid)) |> linear(width)";
/// Rows that belong to no group.
const ROUTED: &str = "for routed(linear(2), max: 2, choice: token) steps { weights shared }";
const CAPACITIES: &str =
    "for routed(linear(2), max: 2, choice: expert, capacity: [1, 1/2]) steps { weights shared }";

const SIZES: [(&str, &str); 12] = [
    ("image: 28", "image: 8"),
    ("width: 64", "width: 16"),
    ("width: 256", "width: 16"),
    ("width: 128", "width: 16"),
    ("heads: 4", "heads: 2"),
    ("heads: 8", "heads: 2"),
    ("hidden: 704", "hidden: 24"),
    ("hidden: 352", "hidden: 24"),
    ("context: 256", "context: 16"),
    ("for 6 steps", "for 2 steps"),
    ("batch 8", "batch 4"),
    ("data/shakespeare.txt", "corpus.txt"),
];

/// The corpus that the models name, written to the working directory.
pub fn corpus() {
    let line = "the quick brown fox jumps over the lazy dog\n";
    std::fs::write("corpus.txt", line.repeat(100)).unwrap();
}

/// All of them for a target; those of f64 for processors alone.
pub fn all(target: Target) -> Vec<Manifest> {
    let wanted = MODELS
        .iter()
        .filter(|m| !(target.is_gpu() && m.2.contains("f64")));
    wanted.map(|m| planned(m, target)).collect()
}

/// A model that reads no text.
pub fn of_images(target: Target) -> Manifest {
    planned(&("vit", "patch: 7", "patch: 4"), target)
}

fn planned((name, from, to): &(&str, &str, &str), target: Target) -> Manifest {
    let mut text = shipped::text(name).to_string();
    for (from, to) in SIZES {
        text = text.replace(from, to);
    }
    assert!(text.contains(from), "{name} has no `{from}`");
    text = text.replacen(from, to, 1);
    let mut sources = Sources::with(shipped::library());
    let main = sources.add(*name, &text);
    let (file, errors) = parse(main, &text);
    assert_eq!(errors, [], "{name}");
    let checked = compile(&file, main, &mut sources, &mut NoFiles);
    let built = checked.unwrap_or_else(|e| panic!("{name}: {e:?}")).built;
    let built = built.expect("a model");
    let assembled = build_manifest(&built, &text, Options::of(target, built.real()));
    assembled.unwrap_or_else(|e| panic!("{name}: {e}")).manifest
}
