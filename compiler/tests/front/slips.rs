//! What people who know other tools write: taken where it is plain, and else answered with what to write.

use crate::common::{compile_text, model};
use odec_compiler::model::layers::VOCABULARY;
use std::collections::BTreeSet;

const TRAIN: &str = "train {
  data text(\"a.txt\", tokenizer: bytes)
  optimizer adamw(lr: 1e-3)
  batch 2;  steps 400
  schedule cosine(warmup: 5%)
}
";

fn trained(from: &str, to: &str) -> String {
    let text = model("lie(att, ffn)", 2, "h = 1").replace("vocab: 11", "vocab: 256") + TRAIN;
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

#[test]
fn a_warm_up_is_a_share_or_a_number_of_steps() {
    for (written, steps) in [
        ("5%", 20),
        ("0.05", 20),
        ("1/20", 20),
        ("20", 20),
        ("20 steps", 20),
        ("100%", 400),
        ("400 steps", 400),
        ("1", 1),
        ("0", 0),
    ] {
        let text = trained("warmup: 5%", &format!("warmup: {written}"));
        let outcome = compile_text(&text);
        let built = outcome.checked().built.as_ref().expect("a model");
        let schedule = built.train.as_ref().map(|t| t.schedule.clone());
        assert!(
            schedule.as_ref().is_some_and(|s| s.warmup() == steps),
            "{written}: {schedule:?}"
        );
    }
}

#[test]
fn memory_has_units_of_both_kinds() {
    let budget = |written: &str| {
        let text = trained("batch 2", &format!("memory budget({written});  batch 2"));
        let outcome = compile_text(&text);
        let built = outcome.checked().built.as_ref().expect("a model");
        built.named.budget.expect("a budget").0
    };
    let all = ["4 GB", "4GiB", "4 MB", "4 MiB", "5 kB", "5KiB", "4096"].map(budget);
    let (k, ki) = (1000, 1024);
    let meant = [
        4 * k * k * k,
        4 * ki * ki * ki,
        4 * k * k,
        4 * ki * ki,
        5 * k,
        5 * ki,
        4096,
    ];
    assert_eq!(all, meant);
}

#[test]
fn slips_are_answered_with_what_to_write() {
    let slips = [
        (
            "a warm-up longer than training",
            "warmup: 5%",
            "warmup: 150%",
        ),
        ("a share below 0", "warmup: 5%", "warmup: -0.1"),
        (
            "more steps than there are",
            "warmup: 5%",
            "warmup: 401 steps",
        ),
        ("steps where there are none", "lr: 1e-3", "lr: 3 steps"),
        (
            "steps as memory",
            "batch 2",
            "memory budget(4 steps);  batch 2",
        ),
        (
            "an unknown unit",
            "batch 2",
            "memory budget(4 gb);  batch 2",
        ),
        ("a word with a value", "causal,", "causal: true,"),
        (
            "another case",
            "for 2 steps",
            "for 2 steps { h = 1 }\n  evolve Lie(att, ffn) for 2 steps",
        ),
        ("an arrow", "rmsnorm |> att", "rmsnorm -> att"),
        ("a drawn arrow", "rmsnorm |> att", "rmsnorm → att"),
        (
            "an argument without its name",
            "logits(tied)\n",
            "logits(tied)\n  init normal(0.02)\n",
        ),
        (
            "a layer that is not there",
            "swiglu(hidden: 12)",
            "deconv(kernel: 3)",
        ),
        (
            "a field that is not there",
            "ffn = rmsnorm |> swiglu(hidden: 12)",
            "ffn = deconv",
        ),
    ];
    let said = slips.map(|(what, from, to)| {
        let said = compile_text(&trained(from, to)).rendered();
        assert!(!said.is_empty(), "{what}");
        format!("{what}\n{said}\n")
    });
    insta::assert_snapshot!(said.join("\n"));
}

/// Of layers that are called otherwise in PyTorch and in papers. Each answer names what there is, and what it shows can be written.
#[test]
fn names_from_elsewhere_are_answered_with_what_there_is() {
    // Of one layer, applied to what it shows or to a value.
    let layer = |value: &str| {
        let alone = value.contains("(x") || value.contains("(q");
        let value = if alone {
            value.to_string()
        } else {
            format!("x |> {value}")
        };
        let ffn = "ffn = tried";
        let text = trained("ffn = rmsnorm |> swiglu(hidden: 12)", ffn);
        let set = "x = s |> rmsnorm;  y = s |> linear;  q = s |> linear;  k = s |> linear;  v = s |> linear;  p = 1/2*x";
        let learned = "learn w[width, width] = normal";
        let all = "y + q + k + v + p + linear(x, w)";
        compile_text(&format!(
            "layer tried(s: value) {{\n {learned}\n {set}\n z = {value}\n return {all} + (z |> linear(width))\n}}\n{text}"
        ))
        .rendered()
    };
    for name in [
        "Identity",
        "MultiheadAttention",
        "scaled_dot_product_attention",
        "DropPath",
        "StochasticDepth",
        "Conv1d",
        "BatchNorm1d",
        "GroupNorm",
        "Embedding",
        "GRU",
        "lstm",
        "Mamba",
        "Mish",
        "SEBlock",
    ] {
        let said = layer(name);
        assert!(said.contains("is not a layer"), "{name}: {said}");
        let (_, help) = said.split_once("help: ").expect("a help");
        assert!(
            !help.contains("did you mean") && !help.contains("lists all"),
            "{name}: {said}"
        );
    }
    let mut shown = BTreeSet::new();
    for (name, help) in VOCABULARY.elsewhere {
        for value in help.split('`').skip(1).step_by(2) {
            let (head, _) = value.split_once('(').unwrap_or((value, ""));
            let is_name = head.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            // Of other places than fields, and of another model.
            let other = [
                "odec",
                "step",
                "embed",
                "train",
                "tune",
                "normal",
                "positions",
                "euler",
                "encoder",
                "heads",
                "causal",
                "window",
                "bias",
            ];
            if !is_name
                || other.contains(&head)
                || value.contains("from: encoder")
                || value.len() < 3
                || !shown.insert(value)
            {
                continue;
            }
            let said = layer(&value.replace("(n)", "(width)").replace("(…)", ""));
            let wrong = said.contains("error") && !said.contains("needs");
            assert!(!wrong, "{name}: `{value}`: {said}");
        }
    }
    assert!(shown.len() > 25, "{shown:?}");
}

/// The place to look at is the rate that has no `h`, not the field's evaluation.
#[test]
fn a_forgotten_step_size_is_shown_where_it_is_missing() {
    let scheme =
        |body: &str| format!("scheme mine(F) {{\n  order 2\n  step x {{\n{body}\n  }}\n}}\n");
    let forgotten = [
        "    k = F(x)\n    y = x + k\n    return x + h/2*(k + F(y))",
        "    k1 = F(x)\n    k2 = F(x + k1/2)\n    return x + h*k2",
        "    k1 = F(x)\n    repeat 2 { k1 = F(x + h/2*k1) }\n    return h*k1 + (x - F(x))",
    ];
    let said = forgotten.map(|body| compile_text(&scheme(body)).rendered());
    insta::assert_snapshot!(said.join("\n"));
    // With it there is nothing to say.
    let whole = scheme("    k = F(x)\n    y = x + h*k\n    return x + h/2*(k + F(y))");
    assert_eq!(compile_text(&whole).rendered(), "");
}
