//! Weights in integers on the command line: what is printed beside the run, and what is refused.

#![cfg(feature = "mlir")]

mod place;

use place::{Place, TINY};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_run_is_judged_and_continued_in_integers() {
    let place = Place::new();
    place.good(&["train", "tiny.ode", "--out", "run"]);
    let before = place.tensors("run");
    for (weights, apart) in [("int8", 0.05), ("int4", 0.4)] {
        let judged = json(&place.good(&["eval", "run", "--weights", weights, "--json"]));
        let beside = &judged["quantized"];
        let [loss, own] = [beside, &judged].map(|e| e["loss"].as_f64().expect("a loss"));
        assert!(loss != own && (loss - own).abs() < apart, "{judged}");
        assert_eq!(beside["weights"], weights);
        let numbers = &beside["logits"];
        let [largest, rms, of] =
            ["largest", "rms", "of"].map(|key| numbers[key].as_f64().expect("a number"));
        assert!(0.0 < rms && rms < largest && rms < of / 4.0, "{judged}");
        let plain = place.good(&["eval", "run", "--weights", weights]);
        assert!(plain.contains(&format!(" in {weights}, ")), "{plain}");

        // Compiled code and the reference device, one text and one beside others.
        let asked = [
            "generate",
            "run",
            "--prompt",
            "the qui",
            "--tokens",
            "24",
            "--weights",
            weights,
        ];
        let text = place.good(&asked);
        let on = place.good(&[&asked[..], &["--device", "reference"]].concat());
        assert_eq!(text, on);
        let several = place.good(&[&asked[..], &["--samples", "3", "--json"]].concat());
        let first = json(several.lines().next().expect("a text"));
        let first = first["text"].as_str().expect("a text");
        assert_eq!(text, format!("the qui{first}\n"));

        let read = |more: &[&str]| {
            let bench = ["bench", "run/model.odex", "--tokens", "2", "--json"];
            let said = json(&place.good(&[&bench[..], more].concat()));
            (
                said["weights"].clone(),
                said["read_bytes"].as_u64().expect("bytes"),
            )
        };
        let (plain, quantized) = (read(&[]), read(&["--weights", weights]));
        assert_eq!((&plain.0, &quantized.0), (&Value::Null, &weights.into()));
        assert!(quantized.1 < plain.1 / 2, "{quantized:?} of {plain:?}");
    }
    assert!(place.tensors("run") == before, "the run stays as it is");

    for (args, want) in [
        (
            &["eval", "run", "--weights", "int2"][..],
            "weights are int8 or int4, not `int2`",
        ),
        (
            &["eval", "run", "--weights", "int8", "--device", "cuda:dry"],
            "kernels for GPUs do not read weights in integers yet",
        ),
        (&["bench", "tiny.ode", "--weights", "int8"], "--tokens"),
        (
            &["train", "tiny.ode", "--out", "other", "--weights", "int8"],
            "unexpected argument '--weights'",
        ),
    ] {
        let (code, said) = place.bad(args);
        assert!(code < 3 && said.contains(want), "{args:?}: {said}");
    }
}

/// What is refused before anything is compiled, at its place.
#[test]
fn models_that_are_not_read_in_integers_are_told_why() {
    let place = Place::new();
    place.write(
        "wide.ode",
        &TINY.replace("seed 0", "seed 0;  precision f64"),
    );
    place.write("ahead.ode", &TINY.replace(", causal", ""));
    let bench = |file: &str| place.bad(&["bench", file, "--tokens", "2", "--weights", "int8"]);
    let (code, said) = bench("wide.ode");
    assert_eq!(code, 1, "{said}");
    for part in [
        "weights in int8 do not go with `precision f64`",
        "wide.ode:18",
        "integers are multiplied in f32",
    ] {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    let (code, said) = bench("ahead.ode");
    let want = "--weights int8 is for models that generate text token by token, and tiny does not";
    assert!(code == 1 && said.contains(want), "{said}");
}
