//! Work grows as the text does: counts of what was done, for texts of two sizes; and limits, each with its place.

use crate::common::compile_text;
use odec_compiler::codes;
use odec_compiler::model::MAX_NODES;
use odec_compiler::scheme::StageInstr;
use odec_grammar::{Severity, work};
use odec_program::manifest::ClaimStatus;

/// What is done for a text.
fn done(text: &str) -> u64 {
    let before = work::done();
    compile_text(text);
    work::done() - before
}

/// Fields, each the one before twice.
fn doubled(times: usize) -> String {
    let fields = (1..=times).map(|i| format!("field f{i} = f{} + f{0}\n", i - 1));
    format!(
        "field f0 = rmsnorm |> swiglu(hidden: 4)\n{}",
        fields.collect::<String>()
    )
}

fn model(flow: &str, steps: u64, options: &str) -> String {
    format!(
        "model m {{ input tokens(vocab: 9, context: 8)\n embed learned(width: 8)\n evolve {flow} for {steps} steps {{ {options} }}\n output logits(tied) }}"
    )
}

#[test]
fn fields_that_share_their_terms_are_looked_at_once() {
    assert_eq!(done(&doubled(10)), 11);
    assert_eq!(done(&doubled(40)), 41);
}

/// As the field once, times 2^40; under weights of time too, which are made once for each time.
#[test]
fn sums_that_share_their_terms_are_made_once() {
    let once = "field f0 = rmsnorm |> swiglu(hidden: 4)\nfield f40 = 1099511627776*f0\n";
    for options in ["", "weights of time { embed: 2, hidden: 3 }"] {
        let made = |fields: &str| {
            let outcome = compile_text(&(fields.to_string() + &model("rk4(f40)", 3, options)));
            let built = outcome.checked().built.clone().expect("a model");
            (built.summary.evaluations, built.forward.nodes().count())
        };
        let of_one = made(once);
        assert_eq!(of_one.0, 12);
        assert_eq!(made(&doubled(40)), of_one);
    }
}

/// A recursion that reads a value and evaluates a field at it in one statement stays a recursion: terms grow with the stages, not
/// with their square, and numbers stay as long as the recursion has them.
#[test]
fn recursions_stay_recursions() {
    let terms = |text: &str| {
        let outcome = compile_text(text);
        let programs = &outcome.checked().programs;
        let sums = programs.iter().flat_map(|p| &p.instrs);
        let sizes = sums.filter_map(|i| match i {
            StageInstr::Combine(c) => Some(c.len()),
            _ => None,
        });
        sizes.collect::<Vec<_>>()
    };
    let field = "field f = rmsnorm |> swiglu(hidden: 4)\n".to_string();
    let sizes = terms(&(field + &model("rkl2(f, s: 40)", 1, "")));
    assert!(
        sizes.len() >= 39 && sizes.iter().all(|n| *n <= 5),
        "{sizes:?}"
    );
}

/// Sommeijer's, Shampine's and Verwer's method of 40 stages, whose coefficients have some 2,500 binary digits, and of 100, whose
/// are longer than numbers may be.
#[test]
fn long_coefficients_are_proved_or_refused() {
    let of = |s: u64| compile_text(&format!("scheme long {{ order 2 method rkc2(s: {s}) }}"));
    let outcome = of(40);
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    let claim = &outcome.checked().claims[0];
    assert_eq!(
        (&*claim.claim, claim.status),
        ("order 2", ClaimStatus::Proved)
    );
    let shown = of(100).rendered();
    assert!(shown.contains("4096"), "{shown}");
}

#[test]
fn too_many_evaluations_are_refused_where_they_are() {
    let text = doubled(23) + &model("euler(f23)", 2, "weights per use");
    let outcome = compile_text(&text);
    let d = &outcome.messages[0];
    assert_eq!(d.code, codes::TOO_LARGE, "{}", outcome.rendered());
    assert!(d.message.contains("20000"), "{}", outcome.rendered());
    assert!((d.labels[0].span.start as usize) < text.len());
}

#[test]
fn graphs_that_are_too_large_are_refused_at_their_evolve() {
    let text = "field att = rmsnorm |> attention(heads: 2, causal, rope)\n".to_string()
        + &model("euler(att)", 19_000, "weights shared");
    let outcome = compile_text(&text);
    let shown = outcome.rendered();
    assert_eq!(outcome.messages[0].code, codes::TOO_LARGE, "{shown}");
    assert!(shown.contains(&MAX_NODES.to_string()), "{shown}");
    assert!(
        shown.contains("of this evolve exceeds the limit"),
        "{shown}"
    );
}

/// The names that are said are compared with a bounded number of others; the rest is counted.
#[test]
fn unknown_names() {
    let text = |n: usize| {
        let fields = (0..n).map(|i| format!("field f{i:05} = g{i:05}\n"));
        fields.collect::<String>()
    };
    // A hundred words, each compared with a thousand.
    assert_eq!(done(&text(1_000)), 100_000);
    assert_eq!(done(&text(10_000)), 100_000);
    let outcome = compile_text(&text(10_000));
    let (last, shown) = outcome.messages.split_last().unwrap();
    assert_eq!(shown.len(), 100);
    assert!(shown.iter().all(|d| d.severity == Severity::Error));
    assert_eq!(
        (last.severity, &*last.message),
        (Severity::Note, "and 9,900 more messages")
    );
}
