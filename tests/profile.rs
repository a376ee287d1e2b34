//! `odec profile` as a person uses it: tables, rows, a timeline, a trace, and what it says where it cannot.

#![cfg(feature = "mlir")]

mod place;

use odec_program::manifest::FORMAT;
use place::Place;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn tables_a_timeline_and_a_trace_of_one_run() {
    let place = Place::new();
    let args = [
        "profile",
        "tiny.ode",
        "--steps",
        "2",
        "--lines",
        "5",
        "--svg",
        "step.svg",
        "--trace",
        "step.json",
    ];
    let said = place.good(&args);
    for part in [
        "\nroof ",
        " of the roof\n",
        "\nfield ",
        "\nffn ",
        "\nupdate ",
        "\ncontract ",
        " more: --lines 0 prints all\n",
        "\ntimeline        step.svg\ntrace           step.json\n",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // The last table: a head and five lines.
    let lines = said
        .lines()
        .skip_while(|l| !l.starts_with("launch "))
        .skip(1);
    let lines: Vec<&str> = lines.take_while(|l| l.contains('%')).collect();
    let named = |l: &&str| {
        ["forward", "backward", "update"]
            .iter()
            .any(|role| l.contains(role))
    };
    assert!(lines.len() == 5 && lines.iter().all(named), "{said}");
    assert!(place.read("step.svg").starts_with("<svg "));

    let found = json(&place.good(&[&args[..], &["--json"]].concat()));
    let trace = json(&place.read("step.json"));
    let events = trace["traceEvents"].as_array().expect("a list");
    let on = |track: u64| {
        events
            .iter()
            .filter(move |e| e["ph"] == "X" && e["tid"] == track)
    };
    let launches: f64 = on(2)
        .map(|e| e["dur"].as_f64().expect("a time") / 1e3)
        .sum();
    let all = found["all"]["ms"].as_f64().expect("a time");
    assert!((launches - all).abs() < 1e-3 * all, "{launches} {all}");
    assert_eq!(on(1).count(), 2);
    // Threads are busy with a launch while it lasts.
    let within = |e: &Value| {
        let [from, time] = ["ts", "dur"].map(|k| e[k].as_f64().expect("a time"));
        on(2).any(|l| {
            let [begin, whole] = ["ts", "dur"].map(|k| l[k].as_f64().expect("a time"));
            begin <= from && from + time <= begin + whole + 1e-3
        })
    };
    assert!(on(3).count() > 0 && on(3).all(within));
    assert!(found["roof"]["gflop_per_s"].as_f64() > Some(0.0));
    assert!(found["all"]["roof"].as_f64() > Some(0.0));
}

#[test]
fn kernels_are_listed_on_request() {
    let place = Place::new();
    let said = place.good(&[
        "profile", "tiny.ode", "--steps", "1", "--by", "kernel", "--lines", "0",
    ]);
    let last = said.lines().last().expect("a line");
    assert!(said.contains("\nkernel ") && last.contains('×'), "{said}");
}

#[test]
fn files_that_cannot_be_written_are_refused_before_the_work() {
    let place = Place::new();
    for flag in ["--svg", "--trace"] {
        let (code, said) = place.bad(&["profile", "missing.ode", flag, "nowhere/step"]);
        assert_eq!(code, 1);
        assert!(
            said.starts_with("error: cannot write nowhere/step: "),
            "{said}"
        );
    }
    place.good(&["build", "tiny.ode", "--target", "sm_80", "-o", "card.odex"]);
    for flag in ["--svg", "--trace"] {
        let args = [
            "profile",
            "card.odex",
            "--device",
            "cuda:dry",
            "--steps",
            "1",
            flag,
            "step",
        ];
        let (code, said) = place.bad(&args);
        assert_eq!(code, 1);
        assert!(said.contains("this device computes nothing"), "{said}");
        assert!(!place.path().join("step").exists());
    }
    let (code, _) = place.bad(&["profile", "tiny.ode", "--steps", "0"]);
    assert_eq!(code, 2);
}

/// Its launches have no places in the model that can be read.
#[test]
fn an_artifact_of_an_earlier_format_is_refused_with_a_remedy() {
    let place = Place::new();
    place.good(&["build", "tiny.ode", "-o", "tiny.odex"]);
    let text = place.read("tiny.odex/manifest.json");
    let older = text.replacen(&format!("\"format\": {FORMAT}"), "\"format\": 10", 1);
    assert_ne!(older, text);
    place.write("tiny.odex/manifest.json", &older);
    let (code, said) = place.bad(&["profile", "tiny.odex"]);
    assert_eq!(code, 1);
    assert!(
        said.starts_with(&format!(
            "error: tiny.odex has artifact format 10, and this odec reads format {FORMAT}; build it again"
        )),
        "{said}"
    );
}
