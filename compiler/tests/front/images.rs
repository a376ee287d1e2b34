//! Models of images and of vectors: what is made of their ends, what runs are told, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::inputs::Unit;
use odec_graph::{OpKind, TensorType, print};
use odec_program::manifest::{Form, Images, Loss};
use odec_program::{Dim, names};

const MODEL: &str = "field att = rmsnorm |> attention(heads: 2)
model vit {
  input  patches(image: [8, 12], patch: 4, channels: 3)
  embed  linear(width: 6, bias), positions(learned)
  evolve euler(att) for 1 step
  output rmsnorm |> classes(5)
}
train {
  data   images(\"a.npz\", classes: 5, mean: 1/2, std: 1/4, crop: 2, flip)
  loss   cross_entropy
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";

/// The model with one part of it changed.
#[track_caller]
fn changed(from: &str, to: &str) -> Outcome {
    common::changed(MODEL, &[(from, to)])
}

/// Name and type of each input of a graph.
fn inputs(graph: &odec_graph::Graph) -> Vec<(String, TensorType)> {
    let nodes = graph.nodes().filter_map(|(_, n)| match &n.op {
        OpKind::Input(i) => Some((i.name.clone(), i.ty.clone())),
        _ => None,
    });
    nodes.collect()
}

#[test]
fn images_are_read_as_patches_and_judged_by_their_class() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "", "nothing is said of later tokens");
    let built = outcome.built();
    let patches = TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(48)]);
    let classes = TensorType::index([Dim::Batch, Dim::Fixed(1), Dim::Fixed(1)]);
    let wanted = [(names::PATCHES, patches), (names::TARGETS, classes)];
    let wanted = wanted.map(|(name, ty)| (name.to_string(), ty));
    assert_eq!(inputs(&built.forward), wanted[..1]);
    assert_eq!(inputs(&built.loss), wanted);
    let (name, logits) = &built.forward.outputs()[0];
    let logits = built.forward.ty(*logits).clone();
    let of_image = TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(5)]);
    assert_eq!((name.as_str(), logits), (names::LOGITS, of_image));
    assert!(built.decode.is_none());
    let config = &built.config;
    assert_eq!((config.vocab, config.context, config.width), (5, 6, 6));
    let shape = |path: &str| {
        let found = built.params.iter().find(|p| p.path == path);
        found.unwrap_or_else(|| panic!("no {path}")).shape.clone()
    };
    assert_eq!(shape("embed.linear.weight"), [6, 48]);
    assert_eq!(shape("embed.linear.bias"), [6]);
    assert_eq!(shape("embed.position.weight"), [6, 6]);
    assert_eq!(shape("output.classes.weight"), [5, 6]);
    assert_eq!(shape("output.classes.bias"), [5]);
    assert_eq!(built.params.len(), 11);
    assert_eq!(built.summary.embedding, 48 * 6 + 6 + 36);
    let train = built.train.as_ref().expect("a train block");
    let told = Images {
        height: 8,
        width: 12,
        channels: 3,
        patch: 4,
        classes: 5,
        mean: 0.5,
        std: 0.25,
        crop: 2,
        flip: true,
        leading: 0,
        flow: None,
    };
    assert_eq!(train.data.form, Form::Images(told));
    assert_eq!((train.data.held_out_percent, train.loss), (10, Loss::Class));
}

/// One channel, no shift and no scale where nothing is said; a square of which one side is written.
#[test]
fn what_is_meant_where_nothing_is_said() {
    let text = MODEL.replace("[8, 12], patch: 4, channels: 3", "8, patch: 2");
    let text = text.replace(", mean: 1/2, std: 1/4, crop: 2, flip", "");
    let text = text
        .replace("  loss   cross_entropy\n", "")
        .replace(", bias)", ")");
    let outcome = compile_text(&text);
    let built = outcome.built();
    let train = built.train.as_ref().expect("a train block");
    let Form::Images(of) = &train.data.form else {
        panic!("{:?}", train.data.form)
    };
    let sizes = [of.height, of.width, of.channels, of.patch];
    assert_eq!((sizes, of.mean, of.std), ([8, 8, 1, 2], 0.0, 1.0));
    assert_eq!((of.crop, of.flip), (0, false));
    assert_eq!(train.loss, Loss::Class);
    assert_eq!((built.config.context, built.params[0].shape[1]), (16, 4));
    assert!(built.params.iter().all(|p| p.path != "embed.linear.bias"));
    // The same model without a train block.
    let (model, _) = text.split_once("train {").expect("a train block");
    let alone = compile_text(model);
    assert_eq!(alone.rendered(), "");
    let alone = alone.built();
    assert_eq!(alone.config, built.config);
    assert_eq!(print::text(&alone.loss), print::text(&built.loss));
}

#[test]
fn terms_that_fit_classes() {
    for (loss, lines) in [
        ("cross_entropy", 0),
        ("smooth(1/10)", 2),
        ("smooth(1/10) + 1e-4*z_loss", 3),
        ("cross_entropy + 1/8*kinetic", 3),
    ] {
        let outcome = changed("loss   cross_entropy", &format!("loss   {loss}"));
        let built = outcome.built();
        let train = built.train.as_ref().expect("a train block");
        assert_eq!(train.loss, Loss::Class, "{loss}");
        let said = built.named.objective.lines(train.loss, built.unit);
        assert_eq!(said.len(), lines, "{said:?}");
        let of_images = |l: &(String, String)| l.1.contains("the mean over images");
        assert_eq!(said.iter().filter(|l| of_images(l)).count(), lines.min(1));
    }
}

#[test]
fn vectors_are_classified_as_well() {
    let (model, _) = MODEL.split_once("train {").expect("a train block");
    let input = "patches(image: [8, 12], patch: 4, channels: 3)";
    assert!(model.contains(input));
    let outcome = compile_text(&model.replace(input, "vectors(width: 7, context: 9)"));
    let built = outcome.built();
    let ty = TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(7)]);
    assert_eq!(inputs(&built.forward), [(names::VECTORS.to_string(), ty)]);
    assert_eq!((built.config.context, built.config.vocab), (9, 5));
    assert!(built.decode.is_none());
    let outcome = changed("loss   cross_entropy", "loss   smooth(1/10)");
    let objective = &outcome.built().named.objective;
    let over = |unit| objective.lines(Loss::Class, unit)[0].1.clone();
    assert!(over(Unit::Patch).ends_with("the mean over images, or over their patches"));
    assert!(over(Unit::Vector).ends_with("the mean over sequences, or over their vectors"));
}

/// Each mistake is said where it is made, before anything runs.
#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let input = "patches(image: [8, 12], patch: 4, channels: 3)";
    let data = "images(\"a.npz\", classes: 5, mean: 1/2, std: 1/4, crop: 2, flip)";
    let tokens = "tokens(vocab: 256, context: 6)";
    let text = "text(\"a.txt\", tokenizer: bytes)";
    let mut cases = Cases::default();
    for (name, from, to) in [
        ("sides that are not cut", "patch: 4", "patch: 5"),
        ("no patch fits", "[8, 12], patch: 4", "[7, 9], patch: 4"),
        ("three sides", "[8, 12]", "[8, 12, 3]"),
        ("no side", "[8, 12]", "[]"),
        ("a side of nothing", "[8, 12]", "[0, 12]"),
        ("no number", "[8, 12]", "\"8\""),
        ("no patch", ", patch: 4", ""),
        (
            "a patch too large",
            "[8, 12], patch: 4, channels: 3",
            "65536, patch: 65536",
        ),
        (
            "too many patches",
            "[8, 12], patch: 4, channels: 3",
            "65536, patch: 1",
        ),
        (
            "a table for patches",
            "linear(width: 6, bias)",
            "learned(width: 6)",
        ),
        ("logits of patches", "classes(5)", "logits"),
        ("tied logits of patches", "classes(5)", "logits(tied)"),
        ("no classes", "classes(5)", "classes"),
        ("as many as none", "classes(5)", "classes(0)"),
        ("tokens that are mapped", input, tokens),
        ("text for patches", data, text),
        ("tokens for patches", data, "tokens(\"a.bin\")"),
        ("images for vectors", input, "vectors(width: 7, context: 6)"),
        ("other classes", "classes: 5,", "classes: 4,"),
        ("no file", "\"a.npz\", ", ""),
        ("no spread", "std: 1/4", "std: 0"),
        ("a mean beyond", "mean: 1/2", "mean: 128"),
        ("a shift beyond", "crop: 2", "crop: 8"),
        ("no shift", "crop: 2", "crop: -1"),
        (
            "hidden patches",
            "loss   cross_entropy",
            "loss   masked(rate: 15%)",
        ),
        (
            "hidden patches and more",
            "loss   cross_entropy",
            "loss   1/8*z_loss + masked(rate: 15%)",
        ),
        (
            "no loss of classes",
            "loss   cross_entropy",
            "loss   z_loss",
        ),
        (
            "kinds of tokens in a field",
            "attention(heads: 2)",
            "linear(vocab)",
        ),
    ] {
        let outcome = changed(from, to);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    let of_texts = MODEL
        .replace(input, tokens)
        .replace("linear(width: 6, bias)", "learned(width: 6)");
    cases.add("images for texts", compile_text(&of_texts).rendered());
    let of_texts = of_texts.replace(data, text);
    cases.add("classes of texts", compile_text(&of_texts).rendered());
    insta::assert_snapshot!(cases);
}
