//! Segments of texts: the rows that tokens get, what is hidden of them, and what does not fit.

use crate::common::{self, Cases, Outcome, compile_text};
use crate::layers::in_pieces;
use odec_graph::{Tensor, run};
use odec_program::Bindings;
use odec_program::manifest::{Loss, Masked};
use std::collections::BTreeMap;

const MODEL: &str = "field ffn = rmsnorm |> relu_mlp(hidden: 4)
field att = rmsnorm |> attention(heads: 2, causal)
model m {
  input  tokens(vocab: 11, context: 6)
  embed  learned(width: 4), segments(3, separator: 7)
  evolve lie(att, ffn) for 1 step
  output logits(tied)
}
train {
  data   tokens(\"a.bin\")
  loss   cross_entropy
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

/// A field that is zero leaves the embedding, which the output shows.
#[test]
fn a_token_is_of_the_segment_that_the_next_separator_ends() {
    let text = "field none = 0*id
model m {
  input  tokens(vocab: 11, context: 6)
  embed  learned(width: 4), segments(3, separator: 7)
  evolve euler(none) for 1 step
  output logits(tied)
}
";
    let outcome = compile_text(text);
    let built = outcome.built();
    let shape = |path: &str| {
        let found = built.params.iter().find(|p| p.path == path);
        found.expect(path).shape.clone()
    };
    assert_eq!(shape("embed.segment.weight"), [3, 4]);
    // Tokens are nothing, so what is said of all of them is 0; of the segment, its row times the first column of the table.
    let mut table = Tensor::zeros(vec![11, 4]);
    table.data[0] = 1.0;
    let rows = [
        [10.0, 0.0, 0.0, 0.0],
        [20.0, 5.0, 0.0, 0.0],
        [30.0, 0.0, 6.0, 0.0],
    ];
    let segments = Tensor::new(vec![3, 4], rows.concat());
    let tokens = [1.0, 7.0, 2.0, 7.0, 7.0, 3.0, 7.0, 7.0, 7.0, 7.0, 1.0, 1.0];
    let given = BTreeMap::from([
        ("embed.token.weight".to_string(), table),
        ("embed.segment.weight".to_string(), segments),
        (
            "tokens".to_string(),
            Tensor::new(vec![2, 6, 1], tokens.to_vec()),
        ),
    ]);
    let made = run(&built.forward, &given, Bindings::new(2, 6)).expect("logits");
    let first = made["logits"].data.chunks(11).map(|row| row[0] / 10.0);
    let first: Vec<f64> = first.collect();
    // A separator is of the segment that it ends; those after the last one that counts are of the last.
    assert_eq!(
        first,
        [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0]
    );
}

#[test]
fn a_text_in_pieces_has_the_segments_of_the_whole_text() {
    let outcome = compile_text(MODEL);
    assert_eq!(outcome.rendered(), "");
    // Keys and values of four columns, and one number of separators.
    assert_eq!(in_pieces(outcome.built(), MODEL), (8, 1));
}

#[test]
fn a_separator_is_not_hidden() {
    let masked = ("loss   cross_entropy", "loss   masked(rate: 15%)");
    let kept = |outcome: &Outcome| match outcome.built().train.as_ref().expect("a train block").loss
    {
        Loss::Masked(Masked { token, kept, .. }) => (token, kept),
        other => panic!("{other:?}"),
    };
    let causal = ("heads: 2, causal", "heads: 2");
    assert_eq!(kept(&changed(&[masked, causal])), (10, Some(7)));
    let none = (", segments(3, separator: 7)", "");
    assert_eq!(kept(&changed(&[masked, causal, none])), (10, None));
}

#[test]
fn what_does_not_fit_is_said_at_its_place() {
    let (embed, segments) = (
        "learned(width: 4), segments(3, separator: 7)",
        "segments(3, separator: 7)",
    );
    let masked = ("loss   cross_entropy", "loss   masked(rate: 15%)");
    let mut cases = Cases::default();
    for (name, parts) in [
        ("no separator", &[(segments, "segments(3)")][..]),
        ("no number", &[(segments, "segments(separator: 7)")]),
        ("one segment", &[(segments, "segments(1, separator: 7)")]),
        (
            "a separator that is no token",
            &[(segments, "segments(2, separator: 11)")],
        ),
        (
            "a separator that hides",
            &[masked, (segments, "segments(2, separator: 10)")],
        ),
        (
            "twice",
            &[(
                segments,
                "segments(2, separator: 1), segments(2, separator: 2)",
            )],
        ),
        (
            "of vectors",
            &[
                (
                    "tokens(vocab: 11, context: 6)",
                    "vectors(width: 3, context: 6)",
                ),
                (embed, "linear(width: 4), segments(2, separator: 1)"),
                ("logits(tied)", "linear(3)"),
                ("tokens(\"a.bin\")", "vectors(\"a.npz\")"),
                ("loss   cross_entropy", "loss   mse"),
            ],
        ),
    ] {
        let outcome = changed(parts);
        assert!(outcome.checked.is_none(), "{name} is valid");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(cases);
}
