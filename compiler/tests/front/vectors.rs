//! Models of vectors and their losses, and rows before the input: what is made of them, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::Built;
use odec_graph::{OpKind, TensorType};
use odec_program::manifest::{Form, Loss, Target, Vectors};
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

/// What the output without a label is compared with.
fn first(built: &Built) -> &Target {
    &told(built).targets[0]
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
        positions: 9,
        width: 7,
        targets: vec![Target {
            output: String::new(),
            array: "y".into(),
            columns: 3,
            whole: false,
            events: false,
            classes: false,
        }],
        mean: -2.0,
        std: 0.25,
        leading: 0,
        flow: None,
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
        let v = first(built);
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
        let v = first(built);
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
    assert_eq!((v.positions, v.leading, first(built).whole), (9, 1, true));
    // Without positions, and read by their mean.
    let embed = (", positions(learned)", ", class_token");
    let outcome = changed(&[embed, ("linear(3, bias)", "linear(3, of: mean)")]);
    assert_eq!(outcome.built().config.context, 10);
}

/// Outputs beside the first one.
const SEVERAL: (&str, &str) = (
    "linear(3, bias)\n",
    "linear(3, bias)\n  output kind: rmsnorm |> classes(4)\n  output on: linear(1, of: mean)\n",
);

/// Each output has a result, parameters, targets and terms of its own.
#[test]
fn several_outputs_are_compared_with_an_array_each() {
    let loss = "loss   mse + 1/4*cross_entropy(of: kind) + 1/8*bce(of: on) + 1/16*kinetic";
    let outcome = changed(&[SEVERAL, ("loss   mse", loss)]);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let names = |of: &odec_graph::Graph| -> Vec<String> {
        let all = of.outputs().iter().map(|(name, _)| name.clone());
        all.filter(|name| !name.starts_with("grad.")).collect()
    };
    assert_eq!(
        names(&built.forward),
        ["values", "kind.logits", "on.values"]
    );
    // Evaluation has what each output is compared by, training all terms.
    assert_eq!(
        names(&built.loss),
        ["loss", "loss.mse", "loss.kind.cross_entropy", "loss.on.bce"]
    );
    assert_eq!(
        names(&built.grad),
        [
            "loss",
            "loss.mse",
            "loss.kind.cross_entropy",
            "loss.on.bce",
            "loss.kinetic"
        ]
    );
    assert_eq!(shape(built, "kind.output.classes.weight"), [4, 6]);
    assert_eq!(shape(built, "kind.output.norm.gain"), [6]);
    assert_eq!(shape(built, "on.output.linear.weight"), [1, 6]);
    assert_eq!(built.config.kinds("targets"), 3);
    assert_eq!(built.config.kinds("kind.targets"), 4);
    let train = built.train.as_ref().expect("a train block");
    let also = [("kind", Loss::Class), ("on", Loss::Bce)];
    let also = also.map(|(label, loss)| (label.to_string(), loss));
    assert_eq!((train.loss, &train.also), (Loss::Mse, &also.into()));
    let of = |t: &Target| {
        (
            t.input(),
            t.array.clone(),
            t.columns,
            [t.whole, t.events, t.classes],
        )
    };
    let targets: Vec<_> = told(built).targets.iter().map(of).collect();
    let wanted = [
        ("targets", "y", 3, [false, false, false]),
        ("kind.targets", "kind", 4, [true, false, true]),
        ("on.targets", "on", 1, [true, true, false]),
    ];
    let wanted = wanted.map(|(input, array, n, is)| (input.to_string(), array.to_string(), n, is));
    assert_eq!(targets, wanted);
    let lines = built.named.objective.lines(train.loss, built.unit);
    assert!(
        lines[0]
            .1
            .starts_with("mse + 1/4 kind.cross_entropy + 1/8 on.bce + 1/16 kinetic, ")
    );
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
            "a mean of registers",
            &[
                (embed, "linear(width: 6), registers(rows: 2)"),
                (output, "linear(3, of: mean)"),
            ],
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
        (
            "no loss of several outputs",
            &[SEVERAL, ("  loss   mse\n", "")],
        ),
        (
            "no term of an output",
            &[SEVERAL, ("loss   mse", "loss   mse + bce(of: on)")],
        ),
        (
            "no term of the first output",
            &[
                SEVERAL,
                ("loss   mse", "loss   bce(of: on) + cross_entropy(of: kind)"),
            ],
        ),
        (
            "an output that there is not",
            &[("loss   mse", "loss   mse + bce(of: one)")],
        ),
        (
            "an output of a term of states",
            &[("loss   mse", "loss   mse + kinetic(of: kind)")],
        ),
        (
            "classes compared as numbers",
            &[
                SEVERAL,
                ("loss   mse", "loss   mse + mse(of: kind) + bce(of: on)"),
            ],
        ),
        (
            "two terms of one output",
            &[
                SEVERAL,
                ("loss   mse", "loss   mse + mse(of: on) + bce(of: on)"),
            ],
        ),
        (
            "two outputs of one label",
            &[(
                "linear(3, bias)\n",
                "linear(3, bias)\n  output on: linear(1)\n  output on: linear(2)\n",
            )],
        ),
        (
            "two outputs without a label",
            &[("linear(3, bias)\n", "linear(3, bias)\n  output linear(1)\n")],
        ),
        (
            "a label of gradients",
            &[(
                "linear(3, bias)\n",
                "linear(3, bias)\n  output grad: linear(1)\n",
            )],
        ),
        (
            "the array of another output",
            &[
                (
                    "linear(3, bias)\n",
                    "linear(3, bias)\n  output y: linear(1)\n",
                ),
                ("loss   mse", "loss   mse + mse(of: y)"),
            ],
        ),
        (
            "several outputs of images",
            &[
                (input, "patches(image: 8, patch: 2)"),
                (
                    "linear(3, bias)\n",
                    "classes(10)\n  output also: classes(2)\n",
                ),
                (data, "images(\"a.npz\", classes: 10)"),
                (
                    "loss   mse",
                    "loss   cross_entropy + cross_entropy(of: also)",
                ),
            ],
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
