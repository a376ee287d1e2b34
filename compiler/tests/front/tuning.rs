//! What is wrong about what is trained, and what its matrices keep to; where their parameters stand.

use crate::common::{compile_text, model};

fn text(model: &str, train: &str) -> String {
    format!(
        "{}\ntrain {{ data text(\"a.txt\", tokenizer: bytes)\n  optimizer adamw(lr: 1e-3);  batch 2;  steps 4\n  {train}\n}}",
        model.replace("vocab: 11", "vocab: 256")
    )
}

fn mistakes(model: &str, trains: &[&str]) -> String {
    let all = trains.iter().map(|train| {
        let outcome = compile_text(&text(model, train));
        assert!(outcome.checked.is_none(), "{train}");
        outcome.rendered()
    });
    all.collect::<Vec<_>>().join("\n")
}

const OF_TIME: &str = "weights of time { embed: 4, hidden: 4 }";

#[test]
fn mistakes_of_tuning() {
    let lie = |options: &str| model("lie(att, ffn)", 2, options);
    let adaptive = model("bogacki_shampine(layer)", 2, OF_TIME).replace(
        "for 2 steps",
        "for adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 4) steps",
    );
    let said = [
        mistakes(
            &lie("h = 1"),
            &[
                "tune lora(rank: 8)",
                "from \"runs/a\";  tune lora",
                "from \"runs/a\";  tune lora(rank: 0)",
                "from \"runs/a\";  tune lora(rank: 1e12)",
                "from \"runs/a\";  tune lora(rank: 8, alpha: 16)",
                "from \"runs/a\";  tune adapters(rank: 8)",
                "from \"runs/a\";  tune 3",
                "tune all;  tune all",
            ],
        ),
        mistakes(&adaptive, &["from \"runs/a\";  tune lora(rank: 8)"]),
        mistakes(
            &model("euler(plain)", 2, "h = 1")
                .replace("field att", "field plain = rmsnorm\nfield att"),
            &[
                "from \"runs/a\";  tune lora(rank: 8)",
                "constrain spectral(max: 1)",
            ],
        ),
    ];
    insta::assert_snapshot!("tuning_lora", said.join("\n"));
    let said = [
        mistakes(
            &lie("h = 1"),
            &[
                "constrain spectral",
                "constrain spectral(max: 0)",
                "constrain spectral(max: -1)",
                "constrain spectral(max: 1, rounds: 3)",
                "constrain frobenius(max: 1)",
                "from \"runs/a\";  tune lora(rank: 8);  constrain spectral(max: 1)",
            ],
        ),
        mistakes(&lie(OF_TIME), &["constrain spectral(max: 1)"]),
    ];
    insta::assert_snapshot!("tuning_constrain", said.join("\n"));
}

/// Parameters that training adds to a model's own.
#[test]
fn added_parameters() {
    let of = |options: &str, train: &str| -> Vec<String> {
        let outcome = compile_text(&text(&model("lie(att, ffn)", 2, options), train));
        let built = outcome.checked().built.clone().expect("a model");
        let own = |p: &&odec_graph::ops::Parameter| odec_program::manifest::added::is(&p.path);
        let shown = built.params.iter().filter(own);
        shown.map(|p| format!("{} {:?}", p.path, p.shape)).collect()
    };
    let lora = "from \"runs/a\";  tune lora(rank: 10)";
    // Sides are 8 and 12.
    let shared = of("weights shared, ffn per step", lora);
    insta::assert_snapshot!("tuning_parameters", shared.join("\n"));
    let timed = of(OF_TIME, lora);
    assert_eq!(timed.len(), 2 * 2 * 7);
    assert!(timed.iter().all(|p| p.starts_with("step.")), "{timed:?}");
    let bounded = of("weights shared", "constrain spectral(max: 1)");
    assert_eq!(
        bounded,
        [
            "att.q.weight.spectral.u [8]",
            "att.k.weight.spectral.u [8]",
            "att.v.weight.spectral.u [8]",
            "att.o.weight.spectral.u [8]",
            "ffn.gate.weight.spectral.u [12]",
            "ffn.up.weight.spectral.u [12]",
            "ffn.down.weight.spectral.u [8]",
        ]
    );
}

#[test]
fn mistakes_of_groups() {
    let model = model("lie(att, ffn)", 2, "h = 1").replace("vocab: 11", "vocab: 256");
    let said = |optimizer: &str, more: &str| {
        let outcome = compile_text(&format!(
            "{model}\ntrain {{ data text(\"a.txt\", tokenizer: bytes);  batch 2;  steps 4\n  \
             optimizer adamw(lr: 1e-3)\n    {optimizer}\n  {more}\n}}"
        ));
        assert!(outcome.checked.is_none(), "{optimizer}");
        outcome.rendered()
    };
    let all = [
        ("except nrom { weight_decay: 0 }", ""),
        ("except dropout { weight_decay: 0 }", ""),
        ("except norm { weight_deca: 0 }", ""),
        ("except norm { weight_decay: -1 }", ""),
        ("except norm { 0 }", ""),
        ("except norm { lr: 1, lr: 2 }", ""),
        ("except norm {}", ""),
        ("except norm", ""),
        ("except { lr: 1 }", ""),
        ("except norm by sgd", ""),
        ("except norm by adam(lr: 1)", ""),
        (
            "except norm { lr: 1 } except vectors, matrices { lr: 2 }",
            "",
        ),
        ("", "schedule constant except norm { lr: 1 }"),
        // What is not trained is in no group.
        (
            "except norm { lr: 1 }",
            "from \"runs/a\";  tune lora(rank: 2)",
        ),
    ];
    let all = all.map(|(optimizer, more)| said(optimizer, more));
    insta::assert_snapshot!(all.join("\n"));
}
