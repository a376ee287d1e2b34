//! Models of vectors and their losses, and rows before the input: what is made of them, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::Built;
use odec_graph::{OpKind, TensorType};
use odec_program::manifest::{Form, Loss, Vectors};
use odec_program::{Dim, names};

const MODEL: &str = "field att = rmsnorm |> attention(heads: 2)
model m {
  input  vectors(width: 7, context: 9)
  embed  linear(width: 6), positions(learned)
  evolve euler(att) for 1 step
  output rmsnorm |> linear(3, bias)
}
train {
  data   vectors(\"a.npz\", inputs: \"in\", mean: -2, std: 1/4, held_out: 20%)
  loss   mse
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";

/// The model with some parts of it changed.
#[track_caller]
fn changed(parts: &[(&str, &str)]) -> Outcome {
    common::changed(MODEL, parts)
}

/// The type of what the loss compares with.
fn targets(built: &Built) -> TensorType {
    let mut nodes = built.loss.nodes();
    let found = nodes.find_map(|(_, n)| match &n.op {
        OpKind::Input(i) if i.name == names::TARGETS => Some(i.ty.clone()),
        _ => None,
    });
    found.expect("targets")
}

fn told(built: &Built) -> &Vectors {
    match &built.train.as_ref().expect("a train block").data.form {
        Form::Vectors(v) => v,
        other => panic!("{other:?}"),
    }
}

fn shape(built: &Built, path: &str) -> Vec<u64> {
    let found = built.params.iter().find(|p| p.path == path);
    found.unwrap_or_else(|| panic!("no {path}")).shape.clone()
}

#[test]
fn numbers_are_compared_at_each_position() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let each = TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(3)]);
    assert_eq!(targets(built), each);
    let (name, made) = &built.forward.outputs()[0];
    assert_eq!(
        (name.as_str(), built.forward.ty(*made)),
        (names::VALUES, &each)
    );
    let wanted = Vectors {
        inputs: "in".into(),
        targets: "y".into(),
        positions: 9,
        width: 7,
        columns: 3,
        whole: false,
        events: false,
        classes: false,
        mean: -2.0,
        std: 0.25,
        leading: 0,
    };
    assert_eq!(told(built), &wanted);
    let train = built.train.as_ref().expect("a train block");
    assert_eq!((train.loss, train.data.held_out_percent), (Loss::Mse, 20));
    assert_eq!(shape(built, "output.linear.weight"), [3, 6]);
    assert_eq!(shape(built, "output.linear.bias"), [3]);
    assert!(built.decode.is_none());
    // The same without a train block: the mean square.
    let (model, _) = MODEL.split_once("train {").expect("a train block");
    let alone = compile_text(model);
    let alone = alone.built();
    assert_eq!(
        odec_graph::print::text(&alone.loss),
        odec_graph::print::text(&built.loss)
    );
}

#[test]
fn outputs_say_what_is_compared() {
    let whole = |n| TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(n)]);
    for (output, loss, wanted) in [
        ("linear(3, bias, of: mean)", "mse", whole(3)),
        (
            "linear(5, of: positions)",
            "mse + 1/8*kinetic",
            TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(5)]),
        ),
        (
            "linear(1)",
            "bce",
            TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(1)]),
        ),
        (
            "state",
            "1/2*mse",
            TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(6)]),
        ),
        ("state(of: mean)", "mse", whole(6)),
    ] {
        let outcome = changed(&[
            ("linear(3, bias)", output),
            ("loss   mse", &format!("loss   {loss}")),
        ]);
        let built = outcome.built();
        assert_eq!(targets(built), wanted, "{output}");
        let v = told(built);
        assert_eq!(
            (v.columns, v.whole),
            (wanted.cols(), wanted.shape[1] != Dim::Seq)
        );
        assert_eq!(v.events, loss == "bce");
        let train = built.train.as_ref().expect("a train block");
        assert_eq!(train.loss == Loss::Bce, loss == "bce");
        let said = built.named.objective.lines(train.loss, built.unit);
        assert_eq!(said.is_empty(), ["mse", "bce"].contains(&loss), "{said:?}");
    }
}

/// A sequence may be of one of several classes.
#[test]
fn classes_of_sequences_are_whole_numbers() {
    for (output, loss) in [
        ("classes(3)", "cross_entropy"),
        ("classes(3)", "smooth(1/8)"),
    ] {
        let loss = format!("loss   {loss}");
        let outcome = changed(&[("linear(3, bias)", output), ("loss   mse", &loss)]);
        let built = outcome.built();
        let one = TensorType::index([Dim::Batch, Dim::Fixed(1), Dim::Fixed(1)]);
        assert_eq!(targets(built), one);
        let v = told(built);
        assert_eq!((v.columns, v.whole, v.classes), (3, true, true));
        let train = built.train.as_ref().expect("a train block");
        assert_eq!(train.loss, Loss::Class);
        assert_eq!(built.config.vocab, 3);
    }
}

#[test]
fn a_class_token_is_a_row_more() {
    let embed = (
        "linear(width: 6), positions",
        "linear(width: 6), class_token, positions",
    );
    let outcome = changed(&[embed, ("linear(3, bias)", "linear(3, of: class_token)")]);
    let built = outcome.built();
    assert_eq!(built.config.context, 10);
    assert_eq!(shape(built, "embed.class_token"), [6]);
    assert_eq!(shape(built, "embed.position.weight"), [10, 6]);
    let paths: Vec<&str> = built
        .params
        .iter()
        .map(|p| p.path.as_str())
        .take(3)
        .collect();
    assert_eq!(
        paths,
        [
            "embed.linear.weight",
            "embed.class_token",
            "embed.position.weight"
        ]
    );
    let v = told(built);
    assert_eq!((v.positions, v.leading, v.whole), (9, 1, true));
    // Without positions, and read by their mean.
    let embed = (", positions(learned)", ", class_token");
    let outcome = changed(&[embed, ("linear(3, bias)", "linear(3, of: mean)")]);
    assert_eq!(outcome.built().config.context, 10);
}

/// Each mistake is said where it is made, before anything runs.
#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let (output, data) = (
        "linear(3, bias)",
        "vectors(\"a.npz\", inputs: \"in\", mean: -2, std: 1/4, held_out: 20%)",
    );
    let (input, embed) = (
        "vectors(width: 7, context: 9)",
        "linear(width: 6), positions(learned)",
    );
    let mut cases = Cases::default();
    for (name, parts) in [
        ("no loss of numbers", &[("  loss   mse\n", "")][..]),
        (
            "cross-entropy of numbers",
            &[("loss   mse", "loss   cross_entropy")],
        ),
        (
            "logits of numbers",
            &[("loss   mse", "loss   mse + 1e-4*z_loss")],
        ),
        ("two losses", &[("loss   mse", "loss   mse + bce")]),
        (
            "hidden classes",
            &[
                (output, "classes(3)"),
                ("loss   mse", "loss   masked(rate: 15%)"),
            ],
        ),
        ("numbers of classes", &[(output, "classes(3)")]),
        (
            "numbers of images",
            &[(input, "patches(image: 8, patch: 2)")],
        ),
        ("a word that is none", &[(output, "linear(3, of: last)")]),
        ("no class token", &[(output, "linear(3, of: class_token)")]),
        (
            "a target for the class token",
            &[(embed, "linear(width: 6), class_token")],
        ),
        (
            "a class token of tokens",
            &[
                (input, "tokens(vocab: 256, context: 9)"),
                (embed, "learned(width: 6), class_token"),
                (output, "logits"),
                (data, "tokens(\"a.bin\")"),
                ("loss   mse", "loss   cross_entropy"),
            ],
        ),
        (
            "numbers for tokens",
            &[
                (input, "tokens(vocab: 256, context: 9)"),
                (embed, "learned(width: 6)"),
                (data, "tokens(\"a.bin\")"),
            ],
        ),
        (
            "the class token last",
            &[(embed, "linear(width: 6), positions(learned), class_token")],
        ),
        ("no file", &[("\"a.npz\", ", "")]),
        ("no name", &[("inputs: \"in\"", "inputs: x")]),
    ] {
        let outcome = changed(parts);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}
