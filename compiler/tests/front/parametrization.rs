//! Rates and deviations that follow the size of the model.

use crate::common::{compile_text, model};
use odec_graph::ops::Parameter;
use odec_program::manifest::{Init, Train};
use odec_program::optimizers::{AdamW, OptimizerKind};

/// A model of 8 columns and 4 steps with an output of its own.
fn text(options: &str, train: &str) -> String {
    let model = model("lie(att, ffn)", 4, options);
    let model = model
        .replace("vocab: 11", "vocab: 256")
        .replace("logits(tied)", "logits");
    format!(
        "{model}\ntrain {{ data text(\"a.txt\", tokenizer: bytes)\n  batch 2;  steps 4\n  {train}\n}}"
    )
}

fn built(options: &str, train: &str) -> (Vec<Parameter>, Train) {
    let outcome = compile_text(&text(options, train));
    let built = outcome.built();
    (
        built.params.clone(),
        built.train.clone().expect("a train block"),
    )
}

/// The deviation that a parameter starts with, and the arguments of what it follows.
fn of(all: &(Vec<Parameter>, Train), path: &str) -> (Option<f64>, AdamW) {
    let (params, train) = all;
    let p = params.iter().find(|p| p.path == path).expect(path);
    let std = match p.init {
        Init::Normal { std } => Some(std),
        _ => None,
    };
    match train.optimizer_of(train.group_of(&p.path, &p.shape)) {
        OptimizerKind::AdamW(adamw) => (std, adamw.clone()),
        other => panic!("{other:?}"),
    }
}

const ADAMW: &str = "optimizer adamw(lr: 1e-3, weight_decay: 0.5, eps: 1e-8)";

/// Yang et al. 2022, table 3, and Dey et al. 2025, table 1, for twice the width and four times the depth.
#[test]
fn rates_and_deviations_are_those_of_the_tables() {
    let own = "except step.1.ffn { lr: 4e-3 } except gain { weight_decay: 0 }";
    let plain = built("h = 1/4", &format!("{ADAMW} {own}"));
    let mup = built(
        "h = 1/4",
        &format!("{ADAMW} {own};  parametrization mup(width: 4)"),
    );
    let complete = "parametrization complete_p(width: 4, depth: 1)";
    let complete = built("h = 1/4", &format!("{ADAMW} {own};  {complete}"));
    let (m, l) = (2.0f64, 4.0f64);
    for p in &plain.0 {
        let (std, was) = of(&plain, &p.path);
        let matrix = p.shape.len() > 1;
        // Deviation, rate, decay, and ε under CompleteP.
        let want = match p.path.split('.').next() {
            Some("embed") => [1.0, 1.0, 1.0, 1.0 / m],
            Some("output") if matrix => [1.0 / m, 1.0 / m, m, 1.0],
            Some("output") => [1.0, 1.0, 1.0, 1.0 / m],
            _ if matrix => [1.0 / m.sqrt(), 1.0 / m, m, 1.0 / (m * l)],
            _ => [1.0, 1.0, 1.0, 1.0 / (m * l)],
        };
        for (all, eps) in [(&mup, 1.0), (&complete, want[3])] {
            let (now, is) = of(all, &p.path);
            assert_eq!(now, std.map(|s| s * want[0]), "{}", p.path);
            let scaled = AdamW {
                lr: was.lr * want[1],
                weight_decay: was.weight_decay * want[2],
                eps: was.eps * eps,
                betas: was.betas,
            };
            assert_eq!(is, scaled, "{}", p.path);
        }
    }
    // Vectors decay in groups that say so, and nowhere else.
    let vectors = |all: &(Vec<Parameter>, Train)| {
        let group = |p: &&Parameter| {
            let group = all.1.group_of(&p.path, &p.shape);
            group > 0 && all.1.groups[group - 1].vectors_decay
        };
        all.0.iter().filter(group).count()
    };
    assert!(vectors(&plain) > 0);
    assert_eq!(vectors(&plain), vectors(&complete));
    // Steps are named together where they follow the same.
    let names: usize = mup.1.groups.iter().map(|g| g.of.len()).sum();
    assert!(names < 30, "{:?}", mup.1.groups);
}

/// At the size of the base nothing changes.
#[test]
fn the_base_is_as_it_was() {
    for rule in ["mup(width: 8)", "complete_p(width: 8, depth: 4)"] {
        let with = built("h = 1", &format!("{ADAMW};  parametrization {rule}"));
        assert_eq!(with, built("h = 1", ADAMW), "{rule}");
    }
}

#[test]
fn mistakes_of_parametrizations() {
    let said = |options: &str, train: &str, change: (&str, &str)| {
        let outcome = compile_text(&text(options, train).replace(change.0, change.1));
        assert!(outcome.checked.is_none(), "{train}");
        outcome.rendered()
    };
    let none = ("", "");
    let all = [
        ("h = 1", "parametrization mup", none),
        ("h = 1", "parametrization mup(width: 0)", none),
        ("h = 1", "parametrization mup(width: 4, depth: 2)", none),
        ("h = 1", "parametrization complete_p(width: 4)", none),
        ("h = 1", "parametrization standard(width: 4)", none),
        (
            "h = 1",
            "parametrization complete_p(width: 4, depth: 1)",
            none,
        ),
        (
            "learn h = 1",
            "parametrization complete_p(width: 4, depth: 4)",
            none,
        ),
        (
            "h = 1",
            "parametrization mup(width: 4)",
            ("logits", "logits(tied)"),
        ),
        (
            "h = 1",
            "parametrization mup(width: 4)",
            (
                "adamw(lr: 1e-3, weight_decay: 0.5, eps: 1e-8)",
                "sgd(lr: 0.1)",
            ),
        ),
        (
            "h = 1",
            "constrain spectral(max: 1);  parametrization mup(width: 4)",
            none,
        ),
        (
            "h = 1",
            "from \"runs/a\";  tune lora(rank: 2);  parametrization mup(width: 4)",
            none,
        ),
        (
            "weights of time { embed: 4, hidden: 4 }",
            "parametrization mup(width: 4)",
            none,
        ),
        (
            "h = 1",
            "parametrization mup(width: 4)",
            ("swiglu(hidden: 12)", "moe(experts: 4, top_k: 2, hidden: 8)"),
        ),
    ];
    let all =
        all.map(|(options, train, change)| said(options, &format!("{ADAMW};  {train}"), change));
    insta::assert_snapshot!(all.join("\n"));
}
