//! What is wrong about losses.

use crate::common::{compile_text, model};

fn mistakes(flow: &str, options: &str, losses: &[&str]) -> String {
    let all = losses.iter().map(|loss| {
        let text = format!(
            "{}\ntrain {{ data text(\"a.txt\", tokenizer: bytes)\n  optimizer adamw(lr: 1e-3);  batch 2;  steps 4\n  \
             loss {loss}\n}}",
            model(flow, 2, options).replace("vocab: 11", "vocab: 256")
        );
        let outcome = compile_text(&text);
        assert!(outcome.checked.is_none(), "{loss}");
        outcome.rendered()
    });
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn mistakes_of_losses() {
    let sums = mistakes(
        "lie(att, ffn)",
        "h = 1",
        &[
            "kinetic",
            "cross_entropy + drift",
            "cross_entropy + mse",
            "cross_entropy + ponder",
            "cross_entropy + kinetc",
            "cross_entropy + jacobian",
            "cross_entropy + cross_entropy",
            "cross_entropy + smooth(10%)",
            "cross_entropy - kinetic",
            "cross_entropy + 0*kinetic",
            "cross_entropy + 1e60*kinetic",
            "cross_entropy + kinetic*2*kinetic",
            "cross_entropy + kinetic(2)",
            "cross_entropy + 3",
            "smooth",
            "smooth(100%)",
            "masked + kinetic",
        ],
    );
    insta::assert_snapshot!("losses_sums", sums);
    let steps = [
        mistakes("lie(att, ffn)", "learn h = 1", &["cross_entropy + kinetic"]),
        mistakes("lie(att, ffn)", "h = -1", &["cross_entropy + kinetic"]),
    ];
    insta::assert_snapshot!("losses_steps", steps.join("\n"));
}
