//! What is wrong about losses.

use crate::common::{compile_text, model};

fn mistakes(flow: &str, options: &str, losses: &[&str]) -> String {
    mistakes_of(&model(flow, 2, options), losses)
}

fn mistakes_of(model: &str, losses: &[&str]) -> String {
    let all = losses.iter().map(|loss| {
        let text = format!(
            "{}\ntrain {{ data text(\"a.txt\", tokenizer: bytes)\n  optimizer adamw(lr: 1e-3);  batch 2;  steps 4\n  \
             loss {loss}\n}}",
            model.replace("vocab: 11", "vocab: 256")
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

/// Outputs that read the states of earlier evolves.
#[test]
fn mistakes_of_exits() {
    let of = |output: &str, other: &str, loss: &str| {
        let ends = format!("{output}\n  output early: {other}");
        let model = model("lie(att, ffn)", 2, "h = 1")
            .replace(
                "evolve ",
                "evolve first: lie(att, ffn) for 2 steps\n  evolve last: ",
            )
            .replace("output rmsnorm |> logits(tied)", &ends);
        mistakes_of(&model, &[loss])
    };
    let (plain, tied) = ("output rmsnorm |> logits(tied)", "first |> logits(tied)");
    let sum = "cross_entropy + cross_entropy(of: early)";
    let all = [
        of("output first |> rmsnorm |> logits(tied)", tied, sum),
        of(plain, "frist |> logits(tied)", sum),
        of(plain, "first |> shift |> logits(tied)", sum),
        of(plain, "first |> linear(3) |> logits(tied)", sum),
        of(plain, "first |> classes(4)", sum),
        of(plain, tied, "cross_entropy"),
        of(plain, tied, "cross_entropy(of: early)"),
        of(plain, tied, "cross_entropy + mse(of: early)"),
        of("output classes(3)", tied, sum),
        of("output rmsnorm |> logits(tied, ahead: 1)", tied, sum),
        of(plain, "logits(tied, ahead: 1000)", sum),
        of(plain, "logits(tied, ahead: -1)", sum),
        of(
            plain,
            "logits(tied, ahead: 1)",
            "masked(rate: 15%) + cross_entropy(of: early)",
        ),
    ];
    insta::assert_snapshot!("losses_exits", all.join("\n"));
}

/// What a model reads is said by the term of its first output alone.
#[test]
fn terms_of_the_output_without_a_label() {
    for term in [
        "masked(rate: 15%, of: kind)",
        "velocity(time: uniform, of: kind)",
    ] {
        let said = mistakes("lie(att, ffn)", "h = 1", &[term]);
        let name = term.split('(').next().expect("a name");
        let wanted = format!("`{name}` is of the output without a label");
        assert!(said.contains(&wanted), "{said}");
        assert_eq!(said.matches("error[").count(), 1, "{said}");
    }
}

#[test]
fn weights_that_do_not_drift() {
    let drift = &["cross_entropy + drift"];
    let time = "h = 1/2;  weights of time { embed: 4, hidden: 4 }";
    let all = [
        mistakes("lie(att, ffn)", "weights shared", drift),
        mistakes("lie(att, ffn)", "weights every 2", drift),
        mistakes("lie(att, ffn)", "weights cycle 1", drift),
        mistakes_of(&model("lie(att, ffn)", 1, "h = 1"), drift),
        mistakes_of(
            &model("lie(att, ffn)", 2, time).replace(
                "for 2 steps",
                "for random(log_normal_poisson(mean: 2)) steps",
            ),
            drift,
        ),
    ];
    insta::assert_snapshot!("losses_drift", all.join("\n"));
}

/// Scores are compared with choices where some tokens are left out, and must be where tokens then choose by them.
#[test]
fn choices_and_thresholds_go_together() {
    let routed = |words: &str| {
        let extent = format!("for routed(linear(2), max: 2, choice: expert, {words}) steps");
        model("lie(att, ffn)", 2, "weights shared").replace("for 2 steps", &extent)
    };
    let some = "capacity: [1, 1/2]";
    let unused = "no step of this model leaves out tokens by comparing their scores";
    let missing =
        "nothing in the loss keeps scores of tokens that take a step above this threshold";
    let choice = &["cross_entropy + 1/1000*choice"];
    for (said, wanted) in [
        (mistakes("lie(att, ffn)", "h = 1", choice), unused),
        (mistakes_of(&routed("capacity: [1, 1]"), choice), unused),
        (
            mistakes_of(
                &routed(&format!("{some}, threshold: 1/2")),
                &["cross_entropy"],
            ),
            missing,
        ),
    ] {
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn mixtures_that_cannot_be_balanced() {
    let balance = &["cross_entropy + load_balance"];
    // Iterations that end when equations are solved, not the fixed number of `fixed_point(iterations: 3)`.
    let solved = |gradient: &str| {
        let text = model("rest(experts)", 2, "h = 1");
        format!(
            "scheme rest(F) {{ step x {{ solve z = F(z) + x from 0 by anderson(tol: 1e-3, max: 8) {gradient}  return z }} }}\n\
             field experts = rmsnorm |> moe(experts: 4, top_k: 2, hidden: 8)\n{text}"
        )
    };
    let chosen = model("lie(att, ffn)", 2, "weights shared").replace(
        "for 2 steps",
        "for routed(linear(2), max: 2, choice: expert, capacity: [1, 1/2]) steps",
    );
    let iterates = "`load_balance` needs steps that evaluate mixtures a known number of times";
    for (said, wanted) in [
        (
            mistakes("lie(att, ffn)", "h = 1", balance),
            "this model has no mixture of experts and no routed steps",
        ),
        (
            mistakes_of(&chosen, balance),
            "this model has no mixture of experts, and its steps choose their tokens",
        ),
        (mistakes_of(&solved("gradient implicit"), balance), iterates),
        (mistakes_of(&solved(""), balance), iterates),
    ] {
        assert!(said.contains(wanted), "{said}");
    }
}
