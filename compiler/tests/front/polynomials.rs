//! Roots of polynomials as coefficients: wherever a number may stand, exact in proofs, the same as roots written otherwise.

use crate::common::compile_text;
use odec_program::manifest::{Claim, ClaimStatus};

fn claims(text: &str) -> Vec<Claim> {
    compile_text(text).checked().claims.clone()
}

#[track_caller]
fn proved(text: &str) {
    let all = claims(text);
    assert!(!all.is_empty(), "{text}");
    for c in all {
        assert_eq!(
            c.status,
            ClaimStatus::Proved,
            "{}: {}\n{text}",
            c.claim,
            c.note
        );
    }
}

#[test]
fn wherever_a_number_may_stand() {
    let g = "root(x^3 - 3*x^2 + 3/2*x - 1/6, 0.436)";
    // Diagonally implicit of order 2 at any g; the variable is any name.
    proved(&format!(
        "scheme s(F) {{ order 2;  sdirk;  tableau {{ {g} | {g};  (1 - {g}) | (1 - 2*{g}) {g};  | 1/2 1/2 }}  solve by fixed_point(iterations: 3) }}"
    ));
    proved(
        "scheme s(F) { order 2;  let g = root(g^3 - 3*g + 1, 0.35);  step x { k = F(x);  return x + h*((1 - 1/(2*g))*k + 1/(2*g)*F(x + h*g*k)) } }",
    );
    proved(
        "scheme s(A, B) { order 2;  A(root(u^3 - 3*u + 1, 0.35)) B(1/2) A(1 - 2*root(u^3 - 3*u + 1, 0.35)) B(1/2) A(root(u^3 - 3*u + 1, 0.35)) }",
    );
    proved(
        "scheme s(F) { order 2;  let w = root(w^3 - 3*w + 1, 0.35);  multistep {\nalpha 1 (-1 - w) w\nbeta 0 (3/2 - w/2) (-1/2 - w/2)\n}\nstart by heun }",
    );
    // Of a number that has a name.
    proved(
        "scheme s(F) { order 1;  let a = 3;  let w = root(y^a - a*y + 1, 0.35);  step x { return x + h*(w*F(x) + (1 - w)*F(x)) } }",
    );
}

/// Roots that are radicals are the radicals, and conjugates of a cubic know each other.
#[test]
fn one_number_by_two_names() {
    proved(
        "scheme s(F) { order 2;  sdirk;  L_stable;  stiffly_accurate;  let g = 1 - root(x^2 - 2, 1.4)/2;  let k = 1 - sqrt(2)/2;  tableau { g | g;  1 | (1 - k) k;  | (1 - g) g }  solve by fixed_point(iterations: 3) }",
    );
    let [a, b, c] = ["-1.88", "0.347", "1.532"].map(|near| format!("root(x^3 - 3*x + 1, {near})"));
    proved(&format!(
        "scheme s(F) {{ order 1;  let u = {a} + {b} + {c} + 1;  step x {{ return x + h*u*F(x) }} }}"
    ));
    proved(&format!(
        "scheme s(F) {{ order 1;  let u = -({a}*{b}*{c});  step x {{ return x + h*u*F(x) }} }}"
    ));
    proved(&format!(
        "scheme s(F) {{ order 1;  let u = {a} - {b}^2 + 3;  let v = {c} - {a}^2 + 3;  step x {{ return x + h*(u + v - 1)*F(x) }} }}"
    ));
}

/// What holds of the root does not hold of its decimal.
#[test]
fn decimals_are_told_from_roots() {
    let with = |g: &str, claim: &str| {
        format!(
            "scheme s(F) {{ {claim};  let g = {g};  let b = (16*g - 1 - 6*g^2)/4;  tableau {{ g | g;  (1 + g)/2 | (1 - g)/2 g;  1 | b (1 - b - g) g;  | b (1 - b - g) g }}  solve by fixed_point(iterations: 3) }}"
        )
    };
    let root = "root(x^3 - 3*x^2 + 3/2*x - 1/6, 0.436)";
    let decimal = "0.43586652150845899941601945119355684253";
    proved(&with(root, "order 3;  L_stable"));
    // R(∞) is 0 and R is bounded for all g near it; of order 3 it is for one alone.
    proved(&with(decimal, "L_stable"));
    let of = compile_text(&with(decimal, "order 3"));
    let codes: Vec<&str> = of.messages.iter().map(|d| d.code).collect();
    assert_eq!(codes, ["false-order"], "{}", of.rendered());
    // The other roots: order 3 as well, and not L-stable for the smallest one.
    let small = "root(x^3 - 3*x^2 + 3/2*x - 1/6, 0.159)";
    proved(&with(small, "order 3"));
    assert!(compile_text(&with(small, "L_stable")).checked.is_none());
}
