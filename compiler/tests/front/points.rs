//! Points that fields move: their paths, step by step, and models that have none.

use crate::common::{Cases, Outcome, compile_text};
use odec_compiler::simulate::{self, Failure};
use odec_grammar::render;
use std::collections::BTreeMap;

fn model(field: &str, flow: &str, options: &str) -> Outcome {
    compile_text(&format!(
        "field f = {field}
model m {{
  input  vectors(width: 2, context: 3)
  embed  id
  evolve {flow} {{ {options};  weights shared }}
  output state
}}
"
    ))
}

/// dx/dt = −x/2 by Euler's method, and dx/dt = t by methods that solve it exactly.
#[test]
fn the_states_are_those_after_each_step() {
    let none = BTreeMap::new();
    let start = [1.0, -2.0, 4.0, 0.5];
    let halves = model("-1/2*id", "euler(f) for 3 steps", "h = 1");
    let paths = simulate::paths(halves.built(), &start, &none).expect("paths");
    assert_eq!((paths.points, paths.width), (2, 2));
    assert_eq!(paths.times, [0.0, 1.0, 2.0, 3.0]);
    for (n, state) in paths.states.iter().enumerate() {
        let wanted = start.map(|x| x / f64::from(1 << n));
        assert_eq!(state[..], wanted);
    }
    for scheme in ["midpoint", "rk4"] {
        let flow = format!("{scheme}(f) for 4 steps");
        let time = model("broadcast(time, to: 2)", &flow, "h = 1/2");
        let paths = simulate::paths(time.built(), &start, &none).expect("paths");
        for (t, state) in paths.times.iter().zip(&paths.states) {
            for (x, from) in state.iter().zip(&start) {
                assert!(
                    (x - (from + t * t / 2.0)).abs() < 1e-14,
                    "{scheme}: {x} at {t}"
                );
            }
        }
    }
}

/// Steps of several sizes, a method with a history, and several evolves.
#[test]
fn times_are_those_of_the_steps() {
    let none = BTreeMap::new();
    let shrinking = model("-1*id", "euler(f) for 3 steps", "h = 1/(k+1)");
    let paths = simulate::paths(shrinking.built(), &[1.0, 1.0], &none).expect("paths");
    assert_eq!(paths.times, [0.0, 1.0, 1.5, 1.5 + 1.0 / 3.0]);
    assert_eq!(paths.states[1], [0.0, 0.0]);
    let history = model("-1*id", "ab2(f) for 5 steps", "h = 1/8");
    let paths = simulate::paths(history.built(), &[1.0, 2.0], &none).expect("paths");
    assert_eq!(paths.states.len(), 6);
    let two = compile_text(
        "field f = id
model m {
  input  vectors(width: 1, context: 1)
  embed  id
  evolve one: euler(f) for 1 step { h = 1 }
  evolve two: euler(f) for 2 steps { h = 1/2 }
  output state
}
",
    );
    let paths = simulate::paths(two.built(), &[1.0], &none).expect("paths");
    assert_eq!(paths.times, [0.0, 1.0, 1.5, 2.0]);
    let states: Vec<f64> = paths.states.concat();
    assert_eq!(states, [1.0, 2.0, 3.0, 4.5]);
}

#[test]
fn points_that_leave_all_numbers_are_said() {
    let outcome = model("1000000000000*id^3", "euler(f) for 9 steps", "h = 1");
    match simulate::paths(outcome.built(), &[1.0, 2.0], &BTreeMap::new()) {
        Err(Failure::NotFinite { step, time, .. }) => assert_eq!(step as f64, time),
        other => panic!("{other:?}"),
    }
}

#[test]
fn models_without_points_say_why() {
    let text = |input: &str, embed: &str, flow: &str, output: &str| {
        format!(
            "field f = rmsnorm |> linear
model m {{
  input  {input}
  embed  {embed}
  evolve {flow}
  output {output}
}}
"
        )
    };
    let (vectors, id, flow) = (
        "vectors(width: 2, context: 3)",
        "id",
        "euler(f) for 2 steps",
    );
    let mut cases = Cases::default();
    for (name, text) in [
        (
            "tokens",
            text(
                "tokens(vocab: 5, context: 3)",
                "learned(width: 2)",
                flow,
                "logits(tied)",
            ),
        ),
        (
            "patches",
            text(
                "patches(image: 4, patch: 2)",
                "linear(width: 2)",
                flow,
                "classes(3)",
            ),
        ),
        (
            "a class token",
            text(vectors, "id, class_token", flow, "state(of: mean)"),
        ),
        (
            "a condition",
            text(
                vectors,
                "id, condition(time_token)",
                flow,
                "((1 + condition)*id) |> state",
            ),
        ),
        (
            "steps that are found",
            text(
                vectors,
                id,
                "bogacki_shampine(f) for adaptive(rtol: 1e-3, atol: 1e-3, until: 1, max: 8) steps { weights shared }",
                "state",
            ),
        ),
        (
            "sizes that are learned",
            text(vectors, id, "euler(f) for 2 steps { learn h = 1 }", "state"),
        ),
    ] {
        let outcome = compile_text(&text);
        let why = outcome.built().passed.as_ref().expect_err(name);
        cases.add(name, render(why, &outcome.sources, false));
    }
    let outcome = compile_text(&text("tokens(vocab: 5, context: 3)", "id", flow, "logits"));
    assert!(outcome.checked.is_none());
    cases.add("tokens as they are", outcome.rendered());
    insta::assert_snapshot!(cases);
}
