//! Numbers of steps that are decided while a model runs: what is refused, and where.

use crate::common::{compile_text, model};
use odec_compiler::scheme::work::Routing;
use odec_grammar::{Diagnostic, codes};

fn with(extent: &str, flow: &str, options: &str, definitions: &str) -> String {
    let text = model(flow, 77, options).replace("for 77 steps", &format!("for {extent} steps"));
    format!("{definitions}\n{text}")
}

const ADAPTIVE: &str = "adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 4)";
const RANDOM: &str = "random(log_normal_poisson(mean: 4))";
const HALTING: &str = "halting(halt, max: 5, threshold: 0.99)";
const HALT: &str = "field halt = linear(1, bias) |> sigmoid";
const ROUTED: &str = "routed(route, max: 3, choice: token)";
const ROUTE: &str = "field route = linear(3)";
const SHARED: &str = "weights shared";
const PAIR: &str = "bogacki_shampine(layer)";

#[test]
fn what_cannot_be_decided_while_it_runs_is_refused_where_it_stands() {
    let refused = [
        (
            "adaptive(rtol: 0, atol: 1e-4, until: 1, max: 4)",
            PAIR,
            SHARED,
            "",
        ),
        (
            "adaptive(rtol: -1e-3, atol: 1e-4, until: 1, max: 4)",
            PAIR,
            SHARED,
            "",
        ),
        (
            "adaptive(rtol: 1e-3, atol: 1e-40, until: 1, max: 4)",
            PAIR,
            SHARED,
            "",
        ),
        (
            "adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 1e9)",
            PAIR,
            SHARED,
            "",
        ),
        (
            "adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 20000)",
            PAIR,
            SHARED,
            "",
        ),
        (
            "adaptive(rtol: 1e-3, until: 1, first: 2, most: 4)",
            PAIR,
            SHARED,
            "",
        ),
        (ADAPTIVE, "rk4(layer)", SHARED, ""),
        (ADAPTIVE, PAIR, "", ""),
        (ADAPTIVE, PAIR, "weights shared;  h = 1/2", ""),
        (ADAPTIVE, PAIR, "weights shared;  learn h = 1", ""),
        (ADAPTIVE, PAIR, "weights shared;  gradient last(2)", ""),
        (ADAPTIVE, "ab2(layer)", SHARED, ""),
        (
            ADAPTIVE,
            "[bogacki_shampine(layer), heun(layer)]",
            SHARED,
            "",
        ),
        (
            ADAPTIVE,
            "own(layer)",
            SHARED,
            "scheme own(F) { learn b = 1/2  step x { k = F(x)  y = x + h*F(x + h*b*k)  return y embedded x + h*k } }",
        ),
        (
            ADAPTIVE,
            "own(layer)",
            SHARED,
            "scheme own(F) { learn shared b = 1/2  step x { k = F(x)  return x + h*F(x + h/2*k) embedded x + h*b*k } }",
        ),
        (
            ADAPTIVE,
            "own(layer)",
            SHARED,
            "scheme own(F) { step x { k = F(x)  return nonnegative(x + h*k) embedded x + h*F(x + h*k) } }",
        ),
        (RANDOM, "lie(att, ffn)", "weights per step", ""),
        (RANDOM, "lie(att, ffn)", "weights shared;  h = 1/steps", ""),
        (
            RANDOM,
            "lie(att, ffn)",
            "weights shared;  gradient last(0)",
            "",
        ),
        (
            "random(log_normal_poisson(mean: 4), max: 3)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        ("random(uniform(1, 3))", "lie(att, ffn)", SHARED, ""),
        (
            "random(log_normal_poisson(mean: 1e9))",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(att, max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(linear(1), max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(linear(2) |> sigmoid, max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(time(embed: 4) |> linear(1) |> sigmoid, max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(layer, max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(max: 8, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            "",
        ),
        (
            "halting(halt, max: 1, threshold: 0.99)",
            "lie(att, ffn)",
            SHARED,
            HALT,
        ),
        (
            "halting(halt, max: 8, threshold: 1.01)",
            "lie(att, ffn)",
            SHARED,
            HALT,
        ),
        ("halting(halt, most: 8)", "lie(att, ffn)", SHARED, HALT),
        (HALTING, "lie(att, ffn)", "", HALT),
        (
            HALTING,
            "lie(att, ffn)",
            "weights shared, halt per step",
            HALT,
        ),
        (HALTING, "ab2(layer)", SHARED, HALT),
        (
            HALTING,
            "lie(att, ffn)",
            "weights shared;  gradient last(2)",
            HALT,
        ),
        (
            HALTING,
            "lie(att, ffn)",
            "weights shared;  h = 1/steps",
            HALT,
        ),
        (
            HALTING,
            "lie(att, ffn)",
            "weights shared;  learn h = 1",
            HALT,
        ),
        (HALTING, "[lie(att, ffn), heun(layer)]", SHARED, HALT),
        (
            "adaptive(rtol: 1e-3, atol: 1e-4, until: 1, max: 4, halting: halt)",
            PAIR,
            SHARED,
            HALT,
        ),
        (
            "routed(route, max: 3, choice: token, capacity: [1, 2/3, 1/3])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, capacity: 1/2)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, 1/2])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1/2, 1/3, 1/2])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [3/2, 1, 1/2])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, 1/2, 0])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, sqrt(2)/2, 1/2])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, 1/2, 1/4294967296])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, h, 1/3])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 2, choice: expert, capacity: [1, 1/2])",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: expert, capacity: [1, 2/3, 1/3])",
            "lie(att, ffn)",
            SHARED,
            "field route = shift(by: 1) |> linear(3)",
        ),
        (
            "routed(route, max: 3, choice: expert)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, choice: both)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, threshold: 1/2)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, capacity: [1, 1, 1], threshold: 1/2)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        (
            "routed(route, max: 3, capacity: [1, 2/3, 1/3], threshold: 1)",
            "lie(att, ffn)",
            SHARED,
            ROUTE,
        ),
        ("routed(max: 3)", "lie(att, ffn)", SHARED, ROUTE),
        ("routed(route)", "lie(att, ffn)", SHARED, ROUTE),
        ("routed(route, max: 1)", "lie(att, ffn)", SHARED, ROUTE),
        ("routed(route, max: 4)", "lie(att, ffn)", SHARED, ROUTE),
        ("routed(layer, max: 3)", "lie(att, ffn)", SHARED, ROUTE),
        (ROUTED, "lie(att, ffn)", "", ROUTE),
        (ROUTED, "ab2(layer)", SHARED, ROUTE),
        (
            ROUTED,
            "lie(att, ffn)",
            "weights shared;  gradient last(2)",
            ROUTE,
        ),
        (
            ROUTED,
            "lie(att, near)",
            SHARED,
            "field route = linear(3)\nfield near = conv(kernel: 3, causal, depthwise)",
        ),
        (
            ROUTED,
            "lie(att, sums)",
            SHARED,
            "field route = linear(3)\nfield sums = cumsum",
        ),
        (
            ROUTED,
            "lie(att, near)",
            SHARED,
            "field route = linear(3)\nfield near = attend(linear, linear, linear, heads: 2, causal, window: 3, softcap: 50)",
        ),
        ("sideways(3)", "lie(att, ffn)", SHARED, ""),
    ];
    let mut shown = Vec::new();
    for (extent, flow, options, definitions) in refused {
        let outcome = compile_text(&with(extent, flow, options, definitions));
        assert!(
            outcome.checked.is_none(),
            "{extent} {flow} {options} compiles"
        );
        let each = outcome.messages.iter().map(|d| {
            let at = d.labels.first().expect("a place").span;
            let text = outcome.sources.text(at.source);
            let place = &text[at.start as usize..at.end as usize];
            let helps: Vec<String> = d.help.iter().map(|h| format!("\n    = {h}")).collect();
            format!(
                "{}: {}\n    at `{place}`{}",
                d.code,
                d.message,
                helps.concat()
            )
        });
        shown.push(each.collect::<Vec<_>>().join("\n"));
    }
    insta::assert_snapshot!(shown.join("\n\n"));
}

#[test]
fn the_partner_becomes_part_of_a_step_that_its_error_decides_over() {
    let outcome = compile_text(&with(ADAPTIVE, PAIR, SHARED, ""));
    let built = outcome.checked().built.as_ref().expect("a model");
    // Bogacki and Shampine's fourth stage is the partner's alone; a layer is two evaluations.
    assert_eq!(built.summary.evaluations_per_step, 8);
    assert!(built.summary.evolves[0].at_most && built.decode.is_none());
    let outcome = compile_text(&with(RANDOM, "lie(att, ffn)", SHARED, ""));
    let built = outcome.checked().built.as_ref().expect("a model");
    assert_eq!((built.summary.steps, built.depths.len()), (16, 1));
    assert!(built.decode.is_some());
}

#[test]
fn tokens_that_halt_one_by_one_are_read_on() {
    let outcome = compile_text(&with(HALTING, "lie(att, ffn)", SHARED, HALT));
    let built = outcome.checked().built.as_ref().expect("a model");
    let work = &built.summary.evolves[0];
    // Five steps of two evaluations, four decisions between them.
    assert_eq!((work.evaluations, work.depth), (14, 14));
    assert_eq!(built.summary.evaluations, 14);
    assert!(work.at_most && built.decode.is_some() && built.depths.len() == 1);
    let own = |p: &odec_graph::ops::Parameter| p.path.starts_with("halt.linear.");
    assert_eq!(built.params.iter().filter(|p| own(p)).count(), 2);
}

#[test]
fn routed_tokens_are_read_on() {
    for extent in [ROUTED, "routed(route, max: 3)"] {
        let outcome = compile_text(&with(extent, "lie(att, ffn)", SHARED, ROUTE));
        let built = outcome.checked().built.as_ref().expect("a model");
        let work = &built.summary.evolves[0];
        // Three steps of two evaluations, and the router before them.
        assert_eq!((work.evaluations, work.depth), (7, 7));
        assert_eq!(built.summary.evaluations, 7);
        assert_eq!(work.routed, Some(Routing::Tokens));
        assert!(work.at_most && built.decode.is_some());
        assert_eq!(built.depths.len(), 1);
        let own = |p: &odec_graph::ops::Parameter| p.path == "route.linear.weight";
        assert_eq!(built.params.iter().filter(|p| own(p)).count(), 1);
    }
}

/// What is said of tokens that are read before they are predicted.
fn warned(messages: &[Diagnostic]) -> Vec<&str> {
    let ahead = messages.iter().filter(|d| d.code == codes::LOOKS_AHEAD);
    ahead.map(|d| &d.message[..]).collect()
}

/// Steps that take a share of a text depend on later tokens; those that take all do not.
#[test]
fn steps_that_choose_their_tokens_look_ahead() {
    for (choice, ahead) in [
        ("choice: expert, capacity: [1, 2/3, 1/3]", true),
        ("capacity: [1, 0.5, 1/4]", true),
        ("choice: expert, capacity: [1, 1, 1]", false),
    ] {
        let extent = format!("routed(route, max: 3, {choice})");
        let outcome = compile_text(&with(&extent, "lie(att, ffn)", SHARED, ROUTE));
        let built = outcome.checked().built.as_ref().expect("a model");
        let work = &built.summary.evolves[0];
        // Three steps of two evaluations, the router before each.
        assert_eq!((work.evaluations, work.depth, work.at_most), (9, 9, false));
        assert_eq!(built.decode.is_none(), ahead, "{choice}");
        let said = "each step compares a token's `route` with that of later tokens, which the model is to predict";
        let wanted = [said].repeat(ahead.into());
        assert_eq!(warned(&outcome.messages), wanted, "{choice}");
    }
    // By a threshold tokens choose for themselves once the model is trained.
    let extent = "routed(route, max: 3, choice: expert, capacity: [1, 2/3, 1/3], threshold: 1/2)";
    let outcome = compile_text(&with(extent, "lie(att, ffn)", SHARED, ROUTE));
    let built = outcome.checked().built.as_ref().expect("a model");
    assert!(built.decode.is_some() && warned(&outcome.messages).is_empty());
    // Words that are hidden may be read with those after them.
    let extent = "routed(route, max: 3, choice: expert, capacity: [1, 2/3, 1/3])";
    let train = "train { data text(\"a.txt\", tokenizer: bytes);  loss masked(rate: 1/4)\n  \
                 optimizer adamw(lr: 1e-3);  batch 2;  steps 4 }";
    let text = with(extent, "lie(att, ffn)", SHARED, ROUTE).replace("vocab: 11", "vocab: 257");
    let outcome = compile_text(&format!("{text}\n{train}"));
    assert!(outcome.checked.is_some());
    assert!(warned(&outcome.messages).is_empty());
}

/// A halting field is one of the model's: its matrices get factors and bounds like any other's.
#[test]
fn halting_fields_are_tuned_and_bounded() {
    let text = with(HALTING, "lie(att, ffn)", SHARED, HALT).replace("vocab: 11", "vocab: 256");
    for (words, path) in [
        (
            "tune lora(rank: 1);  from \"theirs\"",
            "halt.linear.weight.lora.a",
        ),
        (
            "constrain spectral(max: 1)",
            "halt.linear.weight.spectral.u",
        ),
    ] {
        let train = format!(
            "train {{ data text(\"a.txt\", tokenizer: bytes)\n  optimizer adamw(lr: 1e-3);  batch 2;  steps 4\n  {words} }}"
        );
        let outcome = compile_text(&format!("{text}\n{train}"));
        let built = outcome.checked().built.as_ref().expect("a model");
        let all: Vec<&String> = built.params.iter().map(|p| &p.path).collect();
        assert!(all.iter().any(|p| *p == path), "{all:?}");
        let gradient = |(name, _): &(String, _)| *name == format!("grad.{path}");
        let outputs = built.grad.outputs();
        assert!(!words.contains("lora") || outputs.iter().any(gradient));
    }
}
