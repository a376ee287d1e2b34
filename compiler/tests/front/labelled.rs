//! Texts with a class each: what runs are told, what is left out where rows are filled up, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_graph::OpKind;
use odec_program::manifest::{Form, Labelled, Loss, Tokenizer};

const MODEL: &str = "field ffn = rmsnorm |> relu_mlp(hidden: 4)
field att = rmsnorm |> attention(heads: 2)
model m {
  input  tokens(vocab: 259, context: 6)
  embed  learned(width: 4)
  evolve lie(att, ffn) for 1 step
  output classes(2)
}
train {
  data   labelled(\"a.tsv\", text: \"body\", label: \"kind\", names: \"no, yes\", tokenizer: bytes, held_out: 20%)
  loss   cross_entropy
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";
const DATA: &str = "labelled(\"a.tsv\", text: \"body\", label: \"kind\", names: \"no, yes\", tokenizer: bytes, held_out: 20%)";

/// The model with some parts of it changed.
#[track_caller]
fn changed(parts: &[(&str, &str)]) -> Outcome {
    common::changed(MODEL, parts)
}

#[test]
fn runs_are_told_where_texts_and_labels_are() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let train = built.train.as_ref().expect("a train block");
    let told = Labelled {
        tokenizer: Tokenizer::Bytes,
        text: "body".into(),
        label: "kind".into(),
        classes: 2,
        names: vec!["no".into(), "yes".into()],
        begin: 256,
        end: 257,
        padding: 258,
        truncate: false,
    };
    assert_eq!(train.data.form, Form::Labelled(told));
    assert_eq!((train.data.held_out_percent, train.loss), (20, Loss::Class));
    // Two classes are told apart, and 259 kinds of tokens are read.
    let model = &built.config;
    assert_eq!((model.vocab, model.tokens), (2, Some(259)));
    assert_eq!([model.kinds("tokens"), model.kinds("targets")], [259, 2]);
}

#[test]
fn arguments_have_defaults() {
    let outcome = changed(&[(
        DATA,
        "labelled(\"a.jsonl\", tokenizer: \"none.json\", truncate)",
    )]);
    let built = outcome.built();
    let train = built.train.as_ref().expect("a train block");
    let Form::Labelled(told) = &train.data.form else {
        panic!("{:?}", train.data.form);
    };
    assert_eq!([&told.text[..], &told.label], ["text", "label"]);
    assert!(told.names.is_empty() && told.truncate);
    let named = built.named.tokenizer.as_ref().expect("a tokenizer");
    assert_eq!((named.path.as_str(), named.more), ("none.json", 3));
}

/// Of what fills up rows nothing is read: attention has a list of keys, and the mean a weight for each token.
#[test]
fn attention_and_the_mean_leave_out_what_fills_up_rows() {
    let outcome = compile_text(MODEL);
    let forward = &outcome.built().forward;
    let mut partial = forward.nodes().filter_map(|(_, n)| match &n.op {
        OpKind::Attention(a) => Some(a.partial),
        _ => None,
    });
    assert_eq!((partial.next(), partial.next()), (Some(true), None));
    let padding = forward
        .nodes()
        .filter(|(_, n)| matches!(&n.op, OpKind::Equals(e) if e.to == 258));
    assert_eq!(padding.count(), 1);
    let first = changed(&[("classes(2)", "classes(2, of: class_token)")]);
    let means = |o: &Outcome| {
        let nodes = o.built().forward.nodes();
        nodes
            .filter(|(_, n)| matches!(n.op, OpKind::Recip(_)))
            .count()
    };
    // The mean divides by the number of tokens; the first row needs none.
    assert_eq!([&outcome, &first].map(means), [1, 0]);
}

#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let mut cases = Cases::default();
    for (name, parts) in [
        ("three classes", &[("classes(2)", "classes(3)")][..]),
        ("a name twice", &[("no, yes", "no, no")]),
        ("no name", &[("no, yes", "no,")]),
        ("the next token", &[("classes(2)", "logits(tied)")]),
        (
            "a plain text",
            &[(DATA, "text(\"a.txt\", tokenizer: bytes)")],
        ),
        ("tokens", &[(DATA, "tokens(\"a.bin\")")]),
        ("too few kinds", &[("vocab: 259", "vocab: 256")]),
        ("no room", &[("context: 6", "context: 2")]),
        ("a file of texts alone", &[("a.tsv", "a.txt")]),
        (
            "images",
            &[
                (
                    "tokens(vocab: 259, context: 6)",
                    "patches(image: 4, patch: 2, channels: 1)",
                ),
                ("learned(width: 4)", "linear(width: 4)"),
            ],
        ),
        (
            "a second output",
            &[
                ("classes(2)\n", "classes(2)\n  output more: classes(2)\n"),
                ("cross_entropy", "cross_entropy + cross_entropy(of: more)"),
            ],
        ),
        ("hidden tokens", &[("cross_entropy", "masked(rate: 15%)")]),
        (
            "a convolution",
            &[("rmsnorm |> relu_mlp(hidden: 4)", "conv(kernel: 3)")],
        ),
        (
            "an error of all rows",
            &[(
                "lie(att, ffn) for 1 step",
                "bogacki_shampine(att) for adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 4) steps { weights shared }",
            )],
        ),
    ] {
        let outcome = changed(parts);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}
