//! Next sentence prediction: what runs are told, what is compared, and what does not fit, at its place.

use crate::common::{self, Cases, Outcome, compile_text};
use odec_graph::{OpKind, TensorType};
use odec_program::Dim;
use odec_program::manifest::{Form, Loss, Masked, Sentences, Tokenizer};

const MODEL: &str = "field ffn = rmsnorm |> relu_mlp(hidden: 4)
field att = rmsnorm |> attention(heads: 2)
model m {
  input  tokens(vocab: 257, context: 6)
  embed  learned(width: 4), segments(2, separator: 7)
  evolve lie(att, ffn) for 1 step
  output logits(tied)
  output follows: tanh |> classes(2)
}
train {
  data   sentences(\"a.txt\", \"b.jsonl\", tokenizer: bytes, key: \"body\", held_out: 20%)
  loss   masked(rate: 15%) + 1/2*cross_entropy(of: follows)
  batch  2
  steps  3
  optimizer adamw(lr: 1e-3)
}
";
const DATA: &str =
    "sentences(\"a.txt\", \"b.jsonl\", tokenizer: bytes, key: \"body\", held_out: 20%)";
const FOLLOWS: &str = "  output follows: tanh |> classes(2)\n";

/// The model with some parts of it changed.
#[track_caller]
fn changed(parts: &[(&str, &str)]) -> Outcome {
    common::changed(MODEL, parts)
}

#[test]
fn runs_are_told_what_ends_a_sentence_and_which_output_is_told_the_class() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    let built = outcome.built();
    let train = built.train.as_ref().expect("a train block");
    let told = Sentences {
        tokenizer: Tokenizer::Bytes,
        key: "body".into(),
        separator: "\n".into(),
        end: 7,
        output: "follows".into(),
    };
    assert_eq!(train.data.form, Form::Sentences(told));
    assert_eq!(train.data.files, ["a.txt", "b.jsonl"]);
    assert_eq!(train.data.held_out_percent, 20);
    let masked = Loss::Masked(Masked {
        rate: 0.15,
        token: 256,
        kept: Some(7),
    });
    assert_eq!((train.loss, train.also["follows"]), (masked, Loss::Class));
    // One class of each row beside a token at each place.
    let mut compared: Vec<(String, TensorType)> = Vec::new();
    for (_, n) in built.loss.nodes() {
        if let OpKind::Input(i) = &n.op {
            compared.push((i.name.clone(), i.ty.clone()));
        }
    }
    compared.sort_by(|a, b| a.0.cmp(&b.0));
    let whole = |rows| TensorType::index([Dim::Batch, rows, Dim::Fixed(1)]);
    let wanted = [
        ("follows.targets", whole(Dim::Fixed(1))),
        ("targets", whole(Dim::Seq)),
        ("tokens", whole(Dim::Seq)),
    ];
    assert_eq!(compared, wanted.map(|(name, ty)| (name.to_string(), ty)));
}

/// The file of a tokenizer is asked for as `text` asks for it.
#[test]
fn a_tokenizer_may_be_a_file() {
    let outcome = changed(&[("tokenizer: bytes", "tokenizer: \"none.json\"")]);
    let named = &outcome.built().named.tokenizer;
    let named = named.as_ref().expect("a tokenizer");
    assert_eq!((named.path.as_str(), named.more), ("none.json", 0));
}

#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let mut cases = Cases::default();
    for (name, parts) in [
        ("no separator", &[(", segments(2, separator: 7)", "")][..]),
        (
            "nothing is told the class",
            &[(FOLLOWS, ""), (" + 1/2*cross_entropy(of: follows)", "")],
        ),
        ("three classes", &[("classes(2)", "classes(3)")]),
        ("tokens twice", &[("tanh |> classes(2)", "logits(tied)")]),
        (
            "two outputs",
            &[
                (
                    FOLLOWS,
                    "  output follows: classes(2)\n  output more: classes(2)\n",
                ),
                ("(of: follows)", "(of: follows) + cross_entropy(of: more)"),
            ],
        ),
        ("no term", &[(" + 1/2*cross_entropy(of: follows)", "")]),
        (
            "classes alone",
            &[
                ("  output logits(tied)\n", ""),
                ("output follows: tanh |> classes(2)", "output classes(2)"),
                (
                    "masked(rate: 15%) + 1/2*cross_entropy(of: follows)",
                    "cross_entropy",
                ),
            ],
        ),
        (
            "a class of a plain text",
            &[(DATA, "text(\"a.txt\", tokenizer: bytes)")],
        ),
        ("one token", &[("context: 6", "context: 1")]),
        ("too few kinds", &[("vocab: 257", "vocab: 100")]),
        ("masks", &[("vocab: 257", "vocab: 256")]),
    ] {
        let outcome = changed(parts);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}
