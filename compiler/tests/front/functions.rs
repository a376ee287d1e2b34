//! Functions of numbers in schemes: how they are written, what is proved of them, and the number of a step.

use crate::common::{Outcome, compile_text, model};
use odec_program::manifest::{Claim, ClaimStatus};

fn claims(text: &str) -> Vec<Claim> {
    compile_text(text).checked().claims.clone()
}

/// A step of two evaluations, with its weights and what is declared before it.
fn weighted(claim: &str, declared: &str, weights: [&str; 2]) -> String {
    let [b1, b2] = weights;
    format!(
        "scheme mine(F) {{ {claim};  {declared}
           step x {{ f = F(x);  g = F(x + h*f);  return x + h*(({b1})*f + ({b2})*g) }} }}"
    )
}

/// The stage program of the first step of a small model.
fn program(scheme: &str, flow: &str, steps: u64) -> Vec<String> {
    let text = format!("{scheme}\n{}", model(flow, steps, "h = 1/4"));
    let outcome = compile_text(&text);
    let programs = &outcome.checked().programs;
    let own = programs.iter().map(ToString::to_string);
    own.filter(|p| p.starts_with(flow)).collect()
}

/// What is exact at the initial values of learned coefficients is proved there.
#[test]
fn functions_with_exact_values_are_those_values() {
    for (declared, weights) in [
        ("learn a = 0", ["1 - exp(a)/2", "exp(a)/2"]),
        ("learn a = 0", ["1/2 + tanh(a)", "sigmoid(a)"]),
        ("learn a = 4/9", ["1 - 3/4*sqrt(a)", "3/4*sqrt(a)"]),
        ("learn a = 1", ["1/(1 + a)", "1/2 + log(a)"]),
        ("let w = sqrt(1/4)", ["1 - w", "w"]),
        ("learn a = 1/2;  let w = 1 - a", ["a", "w"]),
    ] {
        let found = claims(&weighted("order 2", declared, weights));
        assert_eq!(found.len(), 1, "{declared}: {found:?}");
        assert_eq!(
            found[0].status,
            ClaimStatus::Proved,
            "{declared}: {}",
            found[0].note
        );
    }
}

/// What a function without an exact value does not change holds whatever it is; the rest is not proved, and says why.
#[test]
fn other_functions_are_opaque() {
    let declared = "let w = exp(-1)";
    let text = weighted(
        "order 1;  stages 2;  explicit;  evaluations 2",
        declared,
        ["1 - w", "w"],
    );
    for c in claims(&text) {
        assert_eq!(c.status, ClaimStatus::Proved, "{}: {}", c.claim, c.note);
        if c.claim == "order 1" {
            assert_eq!(c.note, "for any value of `exp(-1)`");
        }
    }
    let learned = weighted("order 1", "learn a = 1", ["1 - tanh(a)", "tanh(a)"]);
    assert_eq!(claims(&learned)[0].note, "for any value of `tanh(1)`");
    let why = |text: &str| {
        let found = claims(text);
        assert_eq!(found[0].status, ClaimStatus::ClaimedNotProved, "{found:?}");
        found[0].note.clone()
    };
    let second = weighted("order 2", declared, ["1 - w", "w"]);
    assert_eq!(why(&second), "`exp(-1)` has no exact value");
    let of_h = weighted("order 1", "learn a = 1", ["1 - exp(-a*h)", "exp(-a*h)"]);
    assert_eq!(why(&of_h), "`exp(-h)` is a function of the step size");
    let of_step = weighted("order 1", "", ["1 - 1/(k + 1)", "1/(k + 1)"]);
    assert!(why(&of_step).contains("step"), "{}", why(&of_step));
}

fn messages(outcome: &Outcome) -> String {
    outcome.rendered()
}

#[test]
fn an_order_is_not_kept_through_a_function() {
    let text = "scheme mine(F) { keep order 2;  learn a = 1/2;  learn b = 1/2
        step x { f = F(x);  g = F(x + h*f);  return x + h*((1 - b)*f + b*g + tanh(a)*f - tanh(a)*g) } }";
    let outcome = compile_text(text);
    assert!(outcome.checked.is_none());
    assert!(
        messages(&outcome).contains("`a` is learned inside `tanh(a)`"),
        "{}",
        messages(&outcome)
    );
}

/// Programs are printed with functions as they are written, and read back (`common.rs` compares each).
#[test]
fn programs_show_functions() {
    let decaying = "scheme decaying(F) { learn shared per channel a = 1/2;  learn c[2] = [1, 2]
        step x { return exp(-a*h)*x + h/(c[0] + exp(c[1]))*F(x) + sqrt(h)*softplus(c[0])*F(2*x) } }";
    let [text] = &program(decaying, "decaying(ffn)", 2)[..] else {
        panic!("one program")
    };
    for shown in [
        "exp(-a*h)*x",
        "h/(c[0] + exp(c[1]))*k1",
        "sqrt(h)*softplus(c[0])*k2",
    ] {
        assert!(text.contains(shown), "{text}");
    }
}

/// `k` is the number of the step from 0, unless the scheme has a `k` of its own.
#[test]
fn steps_know_their_number() {
    let numbered = "scheme numbered(F) { step x { return x + h/(k + 1)*F(x) } }";
    let found = program(numbered, "numbered(ffn)", 3);
    let returned: Vec<&str> = found
        .iter()
        .filter_map(|p| p.trim_end().lines().last())
        .collect();
    assert_eq!(
        returned,
        [
            "  return x + h*k1",
            "  return x + 1/2*h*k1",
            "  return x + 1/3*h*k1"
        ]
    );
    let repeated = "scheme deeper(F) { let n = k + 1;  step x { y = x;  repeat n { y = y + h*F(y) }  return y } }";
    let found = program(repeated, "deeper(ffn)", 2);
    assert!(
        found[0].contains("1 evaluation\n") && found[1].contains("2 evaluations"),
        "{found:?}"
    );
    for own in [
        "scheme own(F) { step x { k = F(x);  return x + h*k } }",
        "scheme own(F, k = 1) { step x { return x + h*k*F(x) } }",
        "scheme own(F) { learn k = 1;  step x { return x + h*k*F(x) } }",
    ] {
        assert_eq!(program(own, "own(ffn)", 3).len(), 1, "{own}");
    }
    let early = "scheme early(F) { step x { y = x + h*k;  k = F(y);  return y + h*k } }";
    let outcome = compile_text(early);
    assert!(
        messages(&outcome).contains("`k` is not defined"),
        "{}",
        messages(&outcome)
    );
}

/// A scheme with fields of its own has the program of these steps written out.
#[test]
fn schemes_are_applied_inside_steps() {
    let inside = "scheme twice(A, B) { step x { y = flow strang(A, B)(1/2) from x;  return flow strang(A, B)(1/2) from y } }";
    let written = "scheme twice(A, B) { step x { y = flow A(1/4) B(1/2) A(1/4) from x;  return flow A(1/4) B(1/2) A(1/4) from y } }";
    let split = "scheme twice(A, B) { strang(A, B)(1/2) strang(A, B)(1/2) }";
    let of = |scheme: &str| program(scheme, "twice(ffn, att)", 2);
    assert_eq!(of(inside), of(written));
    assert_eq!(of(split), of(written));
    for scheme in [inside, split] {
        let claimed = scheme.replacen('{', "{ order 2;  ", 1);
        let found = claims(&claimed);
        assert_eq!(
            found[0].status,
            ClaimStatus::Proved,
            "{scheme}: {}",
            found[0].note
        );
    }
    let inner = "scheme third(F) { step x { return flow iie(F, r: 2)(1/3) rk4(F)(2/3) from x } }";
    assert_eq!(
        claims(&inner.replacen('{', "{ order 1;  ", 1))[0].status,
        ClaimStatus::Proved
    );
    let round = "scheme a(F) { step x { return flow b(F)(1) from x } }
        scheme b(F) { step x { return flow a(F)(1) from x } }";
    assert!(messages(&compile_text(round)).contains("is defined by itself"));
}
