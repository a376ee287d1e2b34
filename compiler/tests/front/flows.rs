//! Models of the velocity between noise and images: what is made of them, what runs are told, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_compiler::model::Built;
use odec_graph::{Graph, OpKind, TensorType, print};
use odec_program::manifest::{Flow, Form, Images, Init, Loss, Times};
use odec_program::{Dim, names};

const MODEL: &str = "field att = rmsnorm |> attention(heads: 2)
model m {
  input  patches(image: [4, 6], patch: 2)
  embed  linear(width: 6), time_token, label_token(classes: 5), positions(learned)
  evolve euler(att) for 1 step
  output rmsnorm |> linear(4)
}
train {
  data   images(\"a.npz\", classes: 5, mean: 1/2, std: 1/4)
  loss   velocity
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";

/// Where its data are.
const IMAGES: &str = "images(\"a.npz\", classes: 5, mean: 1/2, std: 1/4)";

/// The model with some parts of it changed.
#[track_caller]
fn changed(parts: &[(&str, &str)]) -> Outcome {
    common::changed(MODEL, parts)
}

fn told(built: &Built) -> &Images {
    match &built.train.as_ref().expect("a train block").data.form {
        Form::Images(images) => images,
        other => panic!("{other:?}"),
    }
}

/// Name and type of each input of a graph, in the order of names.
fn inputs(graph: &Graph) -> Vec<(String, TensorType)> {
    let nodes = graph.nodes().filter_map(|(_, n)| match &n.op {
        OpKind::Input(i) => Some((i.name.clone(), i.ty.clone())),
        _ => None,
    });
    let mut all: Vec<_> = nodes.collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn the_velocity_of_each_patch_depends_on_time_and_class() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let each = TensorType::real([Dim::Batch, Dim::Seq, Dim::Fixed(4)]);
    let one = |n| TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(n)]);
    let wanted = [
        (names::LABEL, one(5)),
        (names::PATCHES, each.clone()),
        (names::TARGETS, each.clone()),
        (names::TIME, one(1)),
    ];
    let wanted = wanted.map(|(name, ty)| (name.to_string(), ty));
    assert_eq!(inputs(&built.loss), wanted);
    let [label, patches, _, time] = wanted;
    assert_eq!(inputs(&built.forward), [label, patches, time]);
    let (name, made) = &built.forward.outputs()[0];
    assert_eq!(
        (name.as_str(), built.forward.ty(*made)),
        (names::VALUES, &each)
    );
    // Six patches, and two rows before them.
    assert_eq!((built.config.context, built.config.vocab), (8, 4));
    let shapes: Vec<(&str, &[u64])> = (built.params.iter().take(4))
        .map(|p| (p.path.as_str(), &p.shape[..]))
        .collect();
    let wanted: [(&str, &[u64]); 4] = [
        ("embed.linear.weight", &[6, 4]),
        ("embed.time_token.weight", &[6, 6]),
        ("embed.label_token.weight", &[6, 5]),
        ("embed.position.weight", &[8, 6]),
    ];
    assert_eq!(shapes, wanted);
    assert!(built.decode.is_none());
    assert_eq!(built.train.as_ref().unwrap().loss, Loss::Velocity);
    assert_eq!(told(built).leading, 2);
}

const ROWS: &str = "time_token, label_token(classes: 5)";
const CONDITION: &str = "condition(time_token, label_token(classes: 5))";
const FIELD: &str = "field att = rmsnorm |> attention(heads: 2)";
const GATED: &str =
    "field att = (condition |> silu |> linear(bias, zero))*(rmsnorm |> attention(heads: 2))";

#[test]
fn a_condition_stands_in_no_row_and_is_read_by_fields() {
    let outcome = changed(&[(ROWS, CONDITION), (FIELD, GATED)]);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    assert_eq!((built.config.context, told(built).leading), (6, 0));
    assert!(told(built).flow.expect("a flow").labelled);
    let names: Vec<String> = inputs(&built.forward).into_iter().map(|(n, _)| n).collect();
    assert_eq!(names, [names::LABEL, names::PATCHES, names::TIME]);
    let param = |path: &str| {
        let found = built.params.iter().find(|p| p.path == path);
        found.unwrap_or_else(|| panic!("{path}")).clone()
    };
    assert_eq!(param("embed.time_token.weight").shape, [6, 6]);
    assert_eq!(param("embed.position.weight").shape, [6, 6]);
    for path in ["step.0.att.linear.weight", "step.0.att.linear.bias"] {
        assert_eq!(param(path).init, Init::Zeros);
    }
    // One of the two may be a row.
    let both = changed(&[
        (ROWS, "label_token(classes: 5), condition(time_token)"),
        (FIELD, GATED),
    ]);
    assert_eq!(told(both.built()).leading, 1);
    // What stands before the output reads it as well.
    let end = changed(&[
        (ROWS, CONDITION),
        ("output rmsnorm", "output ((1 + condition)*rmsnorm)"),
    ]);
    assert_eq!(end.rendered(), "");
    // Where values have names it stands by itself, as the state of an evolve does.
    let named = |field: &str| {
        let outcome = changed(&[(ROWS, CONDITION), (FIELD, field)]);
        assert_eq!(outcome.rendered(), "", "{field}");
        outcome
    };
    let same = named(
        "field att(x) = (condition |> silu |> linear(bias, zero))*(x |> rmsnorm |> attention(heads: 2))",
    );
    assert_eq!(print::text(&same.built().grad), print::text(&built.grad));
    // A layer reads its parameters before it computes.
    let layer = named(
        "layer gated(x: value) = (condition |> silu |> linear(width, bias, zero))*(x |> rmsnorm |> attention(heads: 2))\nfield att = gated",
    );
    let paths = |built: &Built| {
        built
            .params
            .iter()
            .map(|p| p.path.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(paths(layer.built()), paths(built));
    assert_eq!(layer.built().forward.len(), built.forward.len());
}

#[test]
fn runs_are_told_the_law_of_times() {
    let normal = |mean, std| Times::LogitNormal { mean, std };
    for (loss, times) in [
        ("velocity", Times::Uniform),
        ("velocity(time: uniform)", Times::Uniform),
        ("velocity(time: logit_normal)", normal(0.0, 1.0)),
        (
            "1/2*velocity(time: logit_normal(mean: -1/2, std: 2)) + 1/8*kinetic",
            normal(-0.5, 2.0),
        ),
    ] {
        let outcome = changed(&[("loss   velocity", &format!("loss   {loss}"))]);
        let labelled = true;
        let wanted = Some(Flow {
            times,
            labelled,
            dropped_percent: 0,
        });
        assert_eq!(told(outcome.built()).flow, wanted, "{loss}");
    }
    let some = changed(&[("(classes: 5)", "(classes: 5, dropped: 10%)")]);
    let flow = told(some.built()).flow.expect("a flow");
    assert_eq!(flow.dropped_percent, 10);
    let outcome = changed(&[(", label_token(classes: 5)", "")]);
    let flow = told(outcome.built()).flow.expect("a flow");
    assert!(!flow.labelled);
    let classifier = changed(&[
        (", time_token, label_token(classes: 5)", ""),
        ("linear(4)", "classes(5)"),
        ("velocity", "cross_entropy"),
    ]);
    assert_eq!(told(classifier.built()).flow, None);
}

/// Sequences of vectors move as images do; where the model is told no class, no array has them.
#[test]
fn noise_moves_to_vectors() {
    let vectors = [
        (
            "patches(image: [4, 6], patch: 2)",
            "vectors(width: 4, context: 6)",
        ),
        (IMAGES, "vectors(\"a.npz\", targets: \"kind\")"),
    ];
    let form = |outcome: &Outcome| {
        assert_eq!(outcome.rendered(), "");
        match &outcome
            .built()
            .train
            .as_ref()
            .expect("a train block")
            .data
            .form
        {
            Form::Vectors(vectors) => vectors.clone(),
            other => panic!("{other:?}"),
        }
    };
    let told = changed(&vectors);
    let names: Vec<String> = inputs(&told.built().loss)
        .into_iter()
        .map(|(n, _)| n)
        .collect();
    let wanted = [names::LABEL, names::TARGETS, names::TIME, names::VECTORS];
    assert_eq!(names, wanted);
    let of = form(&told);
    assert!(of.flow.expect("a flow").labelled);
    assert_eq!((of.classes(), of.numbers(), of.leading), (5, 24, 2));
    assert_eq!(of.targets[0].array, "kind");
    let free = form(&changed(
        &[&vectors[..], &[(", label_token(classes: 5)", "")]].concat(),
    ));
    assert!(!free.flow.expect("a flow").labelled && free.targets.is_empty());
}

/// Each mistake is said where it is made, before anything runs.
#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let mut cases = Cases::default();
    let rows = ", time_token, label_token(classes: 5)";
    let image = "patches(image: [4, 6], patch: 2)";
    for (name, parts) in [
        ("no time", &[(", time_token", "")][..]),
        (
            "the class alone",
            &[(", time_token", ""), ("velocity", "mse")],
        ),
        ("another loss", &[("velocity", "mse")]),
        (
            "a classifier that is told the class",
            &[("linear(4)", "classes(5)"), ("velocity", "cross_entropy")],
        ),
        (
            "the velocity of a classifier",
            &[("linear(4)", "classes(5)")],
        ),
        ("too few numbers", &[("linear(4)", "linear(3)")]),
        (
            "one velocity of a whole image",
            &[("linear(4)", "linear(4, of: mean)")],
        ),
        (
            "other classes",
            &[("label_token(classes: 5)", "label_token(classes: 6)")],
        ),
        (
            "most labels left out",
            &[("(classes: 5)", "(classes: 5, dropped: 60%)")],
        ),
        ("a condition that nothing reads", &[(ROWS, CONDITION)]),
        ("a condition that the model has not", &[(FIELD, GATED)]),
        (
            "a condition of nothing",
            &[(ROWS, "condition()"), (FIELD, GATED)],
        ),
        (
            "a condition of a class token",
            &[(ROWS, "condition(time_token, class_token)"), (FIELD, GATED)],
        ),
        (
            "told twice",
            &[(ROWS, "time_token, condition(time_token)"), (FIELD, GATED)],
        ),
        (
            "two conditions",
            &[
                (
                    ROWS,
                    "condition(time_token), condition(label_token(classes: 5))",
                ),
                (FIELD, GATED),
            ],
        ),
        (
            "an evolve of this name",
            &[
                (ROWS, CONDITION),
                (FIELD, GATED),
                ("evolve euler", "evolve condition: euler"),
            ],
        ),
        (
            "a law that is none",
            &[("loss   velocity", "loss   velocity(time: normal)")],
        ),
        (
            "a deviation that is none",
            &[(
                "loss   velocity",
                "loss   velocity(time: logit_normal(std: 0))",
            )],
        ),
        (
            "a word too many",
            &[("loss   velocity", "loss   velocity(time: uniform(mean: 1))")],
        ),
        (
            "twice",
            &[("time_token,", "time_token, time_token(scale: 2),")],
        ),
        (
            "the class token in between",
            &[(rows, ", time_token, class_token")],
        ),
        (
            "a class token of which no velocity is said",
            &[(rows, ", class_token, time_token")],
        ),
        (
            "vectors of other numbers",
            &[
                (image, "vectors(width: 3, context: 6)"),
                (IMAGES, "vectors(\"a.npz\")"),
            ],
        ),
        (
            "vectors and another output",
            &[
                (image, "vectors(width: 4, context: 6)"),
                (IMAGES, "vectors(\"a.npz\")"),
                ("linear(4)", "linear(4)\n  output kind: classes(3)"),
                ("velocity", "velocity + cross_entropy(of: kind)"),
            ],
        ),
        (
            "the time of vectors that are predicted",
            &[
                (image, "vectors(width: 4, context: 6)"),
                (IMAGES, "vectors(\"a.npz\")"),
                ("velocity", "mse"),
            ],
        ),
        (
            "the velocity of tokens",
            &[
                (image, "tokens(vocab: 4, context: 6)"),
                (
                    "linear(width: 6), time_token, label_token(classes: 5)",
                    "learned(width: 6)",
                ),
                (IMAGES, "tokens(\"a.bin\")"),
            ],
        ),
        (
            "tokens",
            &[
                (image, "tokens(vocab: 256, context: 6)"),
                ("linear(width: 6)", "learned(width: 6)"),
                ("rmsnorm |> linear(4)", "logits"),
                (IMAGES, "tokens(\"a.bin\")"),
                ("velocity", "cross_entropy"),
            ],
        ),
    ] {
        let outcome = changed(parts);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}
