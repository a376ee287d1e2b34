//! Fixed points to a tolerance: their stage programs, their orders, and what is wrong about them.

use crate::common::{Cases, compile_text, model};
use odec_compiler::analysis::{report, text};
use odec_compiler::codes;
use odec_library::shipped;

fn step(by: &str) -> String {
    format!("scheme s(F) {{ step x {{ solve z = x + h*F(z) from x by {by}  return z }} }}")
}

fn implicit(by: &str) -> String {
    format!("scheme own {{ order 2;  tableau {{ 1/2 | 1/2; | 1 }};  solve by {by} }}")
}

#[test]
fn stages() {
    let gauss = "scheme gauss(F) { let q = sqrt(3)/6
        tableau { (1/2 - q) | 1/4 (1/4 - q); (1/2 + q) | (1/4 + q) 1/4; | 1/2 1/2 }
        solve by anderson(memory: 1, tol: 1e-3, max: 3) gradient implicit }";
    let mut cases = Cases::default();
    for (name, text) in [
        ("two_unknowns", gauss.to_string()),
        ("plain", step("fixed_point(tol: 1/100, max: 3)")),
        (
            "last",
            step("anderson(memory: 2, tol: 1e-3, max: 4) gradient last(2)"),
        ),
        (
            "broyden",
            step("broyden(memory: 2, tol: 1e-3, max: 3) gradient implicit"),
        ),
        (
            "phantom",
            step("fixed_point(iterations: 2) gradient phantom(2)"),
        ),
    ] {
        let outcome = compile_text(&text);
        cases.add(name, outcome.checked().stages());
    }
    insta::assert_snapshot!("solves_stage_programs", cases);
}

/// The order is that of the equation; a bound on the iterations that is too small for it limits it all the same.
#[test]
fn orders() {
    let notes = |by: &str| -> Vec<String> {
        let outcome = compile_text(&implicit(by));
        assert_eq!(outcome.messages, [], "{by}");
        outcome
            .checked()
            .claims
            .iter()
            .map(|c| c.note.clone())
            .collect()
    };
    let note = ["of the equation, solved to 1/1000"];
    assert_eq!(notes("anderson(tol: 1e-3, max: 9)"), note);
    assert_eq!(
        notes("fixed_point(tol: 1e-3, max: 9) gradient implicit"),
        note
    );
    // One iteration, and the evaluation that the gradient passes through.
    assert_eq!(notes("fixed_point(iterations: 0) gradient implicit"), [""]);
    let outcome = compile_text(&implicit("fixed_point(iterations: 0)"));
    assert_eq!(outcome.messages[0].code, codes::FALSE_ORDER);
}

fn claiming(order: usize, body: &str) -> String {
    format!("scheme s(F) {{\n  order {order}\n  step x {{\n    {body}\n    return z\n  }}\n}}\n")
}

/// Runge and Kutta's step from x, as `s`.
const FROM: &str = "k = F(x);  l = F(x + h/2*k);  m = F(x + h/2*l);  s = x + h/6*(k + 2*l + 2*m + F(x + h*m));  y = x + h*k";

/// An equation is judged by what solves it, wherever its unknown stands; where the iterations begin says nothing.
#[test]
fn solutions_of_affine_equations() {
    let by = "by anderson(tol: 1e-6, max: 50)";
    let cases = [
        // y, Euler's step.
        (1, format!("{FROM}\n    solve z = 2*y - z from s {by}")),
        (1, format!("{FROM}\n    solve z = 3*z - 2*y from s {by}")),
        // Backward Euler, and the implicit midpoint rule.
        (
            1,
            "solve z = 1/2*z + 1/2*(x + h*F(z)) from x by fixed_point(tol: 1e-6, max: 50)".into(),
        ),
        (1, format!("solve z = 2*(x + h*F(z)) - z from 0 {by}")),
        (
            2,
            format!("solve z = 1/3*z + 2/3*(x + h*F(1/2*x + 1/2*z)) from x {by}"),
        ),
        // One inside the other: y = x + h/2 F(y) + h/2 F(z) is what z is made of.
        (
            1,
            format!(
                "solve z = 1/2*z + 1/2*x + h/2*F(z) from x {by};  solve w = z - w/2 + w/2 from z {by};  z = w"
            ),
        ),
    ];
    for (order, body) in cases {
        let outcome = compile_text(&claiming(order, &body));
        assert_eq!(outcome.messages, [], "{}", outcome.rendered());
        let more = compile_text(&claiming(order + 1, &body));
        let has = format!("`s` has order {order}, not {}", order + 1);
        assert_eq!(more.messages[0].message, has, "{}", more.rendered());
    }
}

/// A backward Euler step by an equation has the tableau of backward Euler, at any order of trees: no iterations stand for it.
#[test]
fn a_solution_is_not_a_number_of_iterations() {
    // Composed with 17 steps of the adjoint nothing is left but x: order 0 exactly, for all trees.
    let there = "scheme s(F) { step x {
        solve z = x + h*F(z) from x by anderson(tol: 1e-6, max: 50)
        return z - h*F(z) + h*F(x) } }";
    let outcome = compile_text(there);
    let r = report::scheme(&outcome.checked().instances[0], shipped::library());
    let found = r.order.expect("an order");
    assert_eq!(found.order, 1);
    assert_eq!(
        found.limit.expect("a limit").value,
        odec_graph::Exact::zero()
    );
}

/// What is said where an equation has no solution that iterations reach, each at the equation.
#[test]
fn equations_without_an_order() {
    let cases = [
        (
            "away",
            format!("{FROM}\n    solve z = 2*y - z from s by fixed_point(tol: 1e-6, max: 50)"),
            1,
        ),
        (
            "slow",
            "solve z = 9/10*z + 1/10*(x + h*F(z)) from 0 by fixed_point(tol: 1e-6, max: 50)".into(),
            1,
        ),
        (
            "singular",
            "solve z = z + h*F(z) from x by anderson(tol: 1e-6, max: 50)".into(),
            1,
        ),
        (
            "powers",
            "solve z = x + h*z + h*F(z) from x by anderson(tol: 1e-6, max: 50)".into(),
            1,
        ),
        (
            "few",
            "solve z = 1/2*z + 1/2*(x + h*F(z)) from x by anderson(tol: 1e-6, max: 6)".into(),
            1,
        ),
        (
            "away_and_false",
            format!("{FROM}\n    solve z = 2*y - z from s by fixed_point(tol: 1e-6, max: 50)"),
            4,
        ),
    ];
    let mut shown = Vec::new();
    for (name, body, order) in cases {
        let outcome = compile_text(&claiming(order, &body));
        assert!(!outcome.messages.is_empty(), "{name}");
        shown.push(format!("{name}\n{}", outcome.rendered()));
    }
    insta::assert_snapshot!("solves_without_an_order", shown.join("\n\n"));
}

/// What a report says of a solution, and how much it may take.
#[test]
fn reports() {
    let bdf = "scheme bdf { order 2;  A_stable;  multistep { alpha 1 -4/3 1/3; beta 2/3 };  start by euler;  \
               solve by anderson(tol: 1e-4, max: 20) gradient implicit }";
    let mut cases = Cases::default();
    for (name, text) in [
        ("bdf", bdf.to_string()),
        (
            "midpoint",
            implicit("anderson(memory: 2, tol: 1e-3, max: 9)"),
        ),
        ("equation", step("fixed_point(tol: 1e-3, max: 9)")),
        (
            "away",
            "scheme s(F) { step x { solve z = 2*(x + h*F(z)) - z from x by fixed_point(tol: 1e-3, max: 9)  return z } }".into(),
        ),
    ] {
        let outcome = compile_text(&text);
        let instances = &outcome.checked().instances;
        let said: Vec<String> = instances
            .iter()
            .map(|i| text::text(&report::scheme(i, shipped::library())))
            .collect();
        cases.add(name, said.join("\n"));
    }
    insta::assert_snapshot!("solves_reports", cases);
}

#[test]
fn mistakes() {
    let all: Vec<String> = [
        "anderson(memory: 0, tol: 1e-3, max: 9)",
        "anderson(memory: 9, tol: 1e-3, max: 9)",
        "anderson(memory: 5, tol: 1e-3, max: 4)",
        "anderson(memory: 5, tol: 0, max: 9)",
        "anderson(memory: 5, tol: -1/2, max: 9)",
        "anderson(memory: 5, tol: 1, max: 9)",
        "anderson(tol: 1e-3, max: 1000000000)",
        "anderson(tol: 1e-3, max: 0)",
        "anderson(iterations: 5)",
        "anderson(memory: x, tol: x, max: h)",
        "fixed_point(tol: 1e-3)",
        "fixed_point(max: 9)",
        "fixed_point(iterations: 9, tol: 1e-3)",
        "fixed_point(memory: 9, tol: 1e-3, max: 9)",
        "fixed_point",
        "broyden(max: 9)",
        "broyden(memory: 9, tol: 1e-3, max: 9)",
        "newton(tol: 1e-3, max: 9)",
        "andersen(tol: 1e-3, max: 9)",
        "fixed_point(iterations: 9) gradient backsolve",
        "fixed_point(iterations: 9) gradient implicitly",
        "fixed_point(iterations: 9) gradient implicit(2)",
        "fixed_point(iterations: 9) gradient last",
        "fixed_point(iterations: 9) gradient last(0)",
        "fixed_point(iterations: 9) gradient last(10)",
        "fixed_point(iterations: 9) gradient phantom(1000000)",
        "fixed_point(iterations: 9) gradient phantom(1, 2)",
        "fixed_point(iterations: 9) gradient 3",
    ]
    .iter()
    .map(|by| {
        let outcome = compile_text(&step(by));
        assert!(outcome.checked.is_none(), "{by}");
        outcome.rendered()
    })
    .collect();
    insta::assert_snapshot!("solves_mistakes", all.join("\n"));
}

/// What one text makes large is counted, however it is put together.
#[test]
fn many_iterations() {
    let refused = |scheme: &str, flow: &str, steps: u64| {
        let outcome = compile_text(&format!("{scheme}\n{}", model(flow, steps, "")));
        let codes: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
        assert!(codes.contains(&codes::TOO_LARGE), "{codes:?}");
    };
    let many = step("anderson(memory: 8, tol: 1e-3, max: 1000)");
    refused(&many, "s(layer)", 10);
    let plain = step("fixed_point(tol: 1e-3, max: 1000)");
    refused(&plain, "s(layer)", 20);
    // Solves in solves: 10⁹ iterations.
    let inner = "s(increment(s(increment(s(layer)))))";
    refused(&plain, inner, 1);
    let inside = "scheme s(F) { step x {
        solve z = F(z) from x by fixed_point(tol: 1e-3, max: 1000) gradient implicit  return z } }";
    refused(inside, "s(map(s(map(s(layer)))))", 1);
}
