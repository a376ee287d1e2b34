//! Encoders that fill in hidden tokens, trained on a text of this repository.

#![cfg(feature = "mlir")]

mod place;

use place::Place;
use serde_json::Value;
use std::path::Path;

/// The library's BERT at a small size.
#[test]
fn bert_learns_a_text() {
    let place = Place::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (model, text) = (
        root.join("schemes/models/bert.ode"),
        root.join("LICENSE-APACHE"),
    );
    let (model, text) = (model.display().to_string(), text.display().to_string());
    let small = [
        "--set",
        "model.width=32",
        "--set",
        "model.context=48",
        "--set",
        "model.encoder.steps=2",
        "--data",
        &text,
    ];
    let trained = |run: &str, steps: &str| -> [f64; 2] {
        let steps = format!("train.steps={steps}");
        place.good(
            &[
                &["train", &model, "--out", run, "--set", &steps],
                &small[..],
            ]
            .concat(),
        );
        let said: Value =
            serde_json::from_str(&place.good(&["eval", run, "--json"])).expect("JSON");
        // Of each sentence of what is held out it says whether the rest of its row follows it.
        let share = said["accuracy"].as_f64().expect("a share");
        assert!((0.0..=1.0).contains(&share), "{share}");
        ["cross_entropy", "follows.cross_entropy"]
            .map(|term| said["terms"][term].as_f64().expect("a term"))
    };
    // A guess among all bytes costs log 256 = 5.5 nats, one by how often they are in the text 3.0; one of two classes costs log 2 = 0.7.
    let (first, last) = (trained("first", "1"), trained("last", "150"));
    assert!(
        first[0] > 4.5 && last[0] < 3.8,
        "{first:?} nats, then {last:?}"
    );
    assert!(last[1] < 1.0, "{last:?}");
    // The rows of both segments were trained.
    let segments = |run: &str| {
        let all = place.tensors(run);
        let found = all
            .into_iter()
            .find(|(name, _)| name == "embed.segment.weight");
        found.expect("segments").1
    };
    let (start, end) = (segments("first"), segments("last"));
    assert_eq!((start.len(), end.len()), (2 * 32 * 4, 2 * 32 * 4));
    for row in 0..2 {
        let row = row * 32 * 4..(row + 1) * 32 * 4;
        assert_ne!(start[row.clone()], end[row]);
    }
}
