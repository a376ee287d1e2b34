//! First steps, as they are computed: what they leave of an order, and how the start is said.

use crate::common::{compile_text, model};
use odec_compiler::analysis::report::{self, Found};
use odec_compiler::analysis::{json, text};
use odec_library::shipped;
use odec_program::manifest::ClaimStatus;

const LEAP: &str = "scheme mine(F) {\n  order 2\n  step x { return x[-1] + 2*h*F(x) }\n}\n";
const ADAMS: &str = "scheme mine(F) {\n  order 2\n  step x {\n    f = F(x)\n    return x + h*(3/2*f - 1/2*f[-1])\n  }\n}\n";
const SUMMED: &str = "scheme mine(F) {\n  order 2\n  step x {\n    f = F(x)\n    w = w[-1] + f - f[-1]\n    return x + h*(3/2*f - 1/2*f[-1] + 0*w)\n  }\n}\n";

fn with(text: &str, start: &str) -> String {
    let end = text.rfind('}').expect("a scheme");
    format!("{}  {start}\n}}\n", &text[..end])
}

/// The order as it is computed.
fn computed(text: &str) -> Found {
    let outcome = compile_text(&text.replace("  order 2\n", ""));
    let r = report::scheme(
        outcome.checked().instances.first().expect("a scheme"),
        shipped::library(),
    );
    r.computed.expect("a history").expect("an order")
}

/// What is read before the first step is 0, and a claim that needs more is false.
#[test]
fn claims_without_a_start_are_false() {
    let entry = with(ADAMS, "start { f = 0*F(x) }");
    let idle = with(&entry, "start by heun");
    for (name, text) in [
        ("leap", LEAP),
        ("adams", ADAMS),
        ("entry", &entry),
        ("idle", &idle),
        // No first value of `w` reads no history, so that nothing else could take the first steps.
        ("summed", SUMMED),
    ] {
        let outcome = compile_text(text);
        assert!(outcome.checked.is_none(), "{name} is refused");
        insta::assert_snapshot!(format!("start_false_{name}"), outcome.rendered());
    }
}

#[test]
fn orders_with_and_without_a_start() {
    let cases = [
        (LEAP.to_string(), 0),
        (with(LEAP, "start by euler"), 2),
        (ADAMS.to_string(), 1),
        (with(ADAMS, "start by euler"), 2),
        // An entry that is right but for O(h), used with h.
        (with(ADAMS, "start { f = F(x) }"), 2),
        (with(ADAMS, "start { f = 2*F(x) }"), 1),
        // A start that halves the state.
        (with(ADAMS, "start { f = F(x);  x = 1/2*x }"), 0),
        // A momentum that begins with nothing: the first displacements are missed.
        ("scheme mine(F) { step x { v = 1/2*v[-1] + 1/2*F(x);  return x + h*v } }".into(), 1),
        ("scheme mine(F) { step x { v = 1/2*v[-1] + 1/2*F(x);  return x + h*v }  start { v = F(x) } }".into(), 1),
        // Coefficients of entries that are not there are 0.
        ("scheme mine(F) { learn b = 0;  step x { f = F(x);  return x + h*((1 - b)*F(x + h/2*f) + b*f[-1]) } }".into(), 2),
        // The field is evaluated at twice the state, once, times h.
        ("scheme mine(F) { step x { return x + h*F(2*x - x[-1]) } }".into(), 1),
    ];
    for (text, order) in cases {
        let found = computed(&text);
        assert_eq!(found.order, order, "{text}\n{found:?}");
    }
}

/// A start of low order is told with a claim, and limits the order as it is computed.
#[test]
fn claims_with_a_poor_start_are_of_exact_values() {
    let four = "scheme mine(F) {\n  order 4\n  step x {\n    f = F(x)\n    return x + h/24*(55*f - 59*f[-1] + 37*f[-2] - 9*f[-3])\n  }\n  start by euler\n}\n";
    let outcome = compile_text(four);
    let claim = &outcome.checked().claims[0];
    assert_eq!(claim.status, ClaimStatus::Proved);
    insta::assert_snapshot!("start_poor_note", claim.note);
    let instance = &outcome.checked().instances[0];
    assert_eq!(report::proved(instance).expect("an order").order, 2);
    let shown = text::text(&report::scheme(instance, shipped::library()));
    insta::assert_snapshot!("start_poor_report", shown);
    let all = json::json(&report::scheme(instance, shipped::library()));
    assert_eq!(all["order"], 4);
    assert_eq!(all["as_computed"]["order"], 2);
    assert_eq!(all["as_computed"]["first_steps"]["steps"], 3);
    assert_eq!(all["started_by"]["limits_order_to"], 2);
}

/// What another scheme's steps keep counts too: here a rate that is not there yet is kept as 0.
#[test]
fn what_first_steps_keep_counts() {
    let kept = "scheme mine(F) {\n  order 2\n  step x {\n    g = 0*x\n    f = F(x)\n    g = f + 0*f[-1]\n    return x + h*(3/2*f - 1/2*g[-1])\n  }\n  start by rk4\n}\n";
    let right = kept.replace("g = 0*x", "g = F(x)");
    assert_eq!((computed(kept).order, computed(&right).order), (1, 2));
}

/// Of an evolve, the order is that of all its steps.
#[test]
fn evolves_as_they_are_computed() {
    let scheme = ADAMS.replace("  order 2\n", "");
    let ode = format!("{scheme}{}", model("mine(layer)", 4, ""));
    let outcome = compile_text(&ode);
    let found = report::order_of(&outcome.checked().evolved[0]).expect("an order");
    assert_eq!(found.order, 1);
    let divergent = "scheme mine(F) { step x { f = F(x);  return -4*x + 5*x[-1] + h*(4*f + 2*f[-1]) }  start by kutta3 }\n";
    let ode = format!("{divergent}{}", model("mine(layer)", 4, ""));
    let outcome = compile_text(&ode);
    let why = report::order_of(&outcome.checked().evolved[0])
        .expect_err("it diverges")
        .why;
    assert_eq!(
        why,
        "it is not zero-stable: its errors grow from step to step"
    );
}

/// A residual is one of the first steps too, and a method that has no exact starting procedure is as good as its start.
#[test]
fn starts_within_a_residual_and_of_unstable_methods() {
    let near = ADAMS
        .replace("order 2", "order 2 within 1e-6")
        .replace("3/2*f - 1/2*f[-1]", "1.50000001*f - 0.5*f[-1]");
    let proved = |text: &str| compile_text(text).checked().claims[0].status == ClaimStatus::Proved;
    assert!(proved(&with(&near, "start by euler")));
    assert!(compile_text(&near).checked.is_none());
    let twice = "scheme mine { order 1;  multistep { alpha 1 -2 1; beta 0 0 0 };  start by euler }";
    assert!(proved(twice), "1 is a root of ρ twice");
}
