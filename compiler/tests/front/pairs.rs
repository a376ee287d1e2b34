//! Step programs with two states: velocity Verlet, leapfrog, Störmer's method and partitioned methods, written in every way.

use crate::common::{Cases, compile_text};
use odec_compiler::analysis::opaque_field::alone;
use odec_compiler::analysis::pair_facts::{PairFacts, facts};
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, text};
use odec_graph::Exact;
use odec_library::shipped;
use odec_program::manifest::ClaimStatus;

fn report(source: &str) -> Report {
    report::scheme(
        compile_text(source)
            .checked()
            .instances
            .first()
            .expect("a scheme"),
        shipped::library(),
    )
}

fn of(source: &str) -> Option<PairFacts> {
    let outcome = compile_text(source);
    let i = outcome
        .checked()
        .instances
        .first()
        .expect("a scheme")
        .clone();
    facts(&alone(&i.scheme, i.start_by, i.settings, i.listed))
}

fn mine(head: &str, body: &str) -> String {
    format!("scheme mine({head}) {{\n  {body}\n}}\n")
}

/// As it is computed: the order of x, that of what is kept, whether it is symplectic, symmetric, explicit backwards.
type Known = (usize, usize, [bool; 3]);

fn known(p: &PairFacts) -> Known {
    let symmetric = p.symmetric.as_ref().is_some_and(Exact::is_zero);
    let structure = [p.symplectic.is_ok(), symmetric, p.explicit_backwards];
    let order = |p: Option<usize>| p.expect("an order");
    (order(p.state), order(p.kept), structure)
}

const VERLET: [bool; 3] = [true, true, true];
const EULER: [bool; 3] = [true, false, true];

#[test]
fn methods_written_in_every_way() {
    let cases: [(&str, &str, Known); 13] = [
        // Velocity Verlet: as in books, with the old force kept, from rest, in positions from rest.
        (
            "F, V",
            "start { v = V(x) } step x { y = x + h*v[-1] + h*h/2*F(x);  v = v[-1] + h/2*(F(x) + F(y));  return y }",
            (2, 2, VERLET),
        ),
        (
            "F, V",
            "start { v = V(x);  f = F(x) } step x { y = x + h*v[-1] + h*h/2*f[-1];  f = F(y);  v = v[-1] + h/2*(f[-1] + f);  return y }",
            (2, 2, VERLET),
        ),
        (
            "F",
            "step x { y = x + h*v[-1] + h*h/2*F(x);  v = v[-1] + h/2*(F(x) + F(y));  return y }",
            (2, 2, VERLET),
        ),
        // Without the first force, only the second one is felt.
        (
            "F, V",
            "start { v = V(x) } step x { y = x + h*v[-1] + h*h/2*f[-1];  f = F(y);  v = v[-1] + h/2*(f[-1] + f);  return y }",
            (1, 1, VERLET),
        ),
        // A drift, a kick, a drift; times h.
        (
            "F, V",
            "start { v = V(x) } step x { y = x + h/2*v[-1];  v = v[-1] + h*F(y);  return y + h/2*v }",
            (2, 2, VERLET),
        ),
        (
            "F",
            "step x { y = x + 1/2*d[-1];  d = d[-1] + h*h*F(y);  return y + 1/2*d }",
            (2, 2, VERLET),
        ),
        // Leapfrog whose velocities belong half a step before, started with those of the start: symplectic Euler.
        (
            "F, V",
            "start { v = V(x) } step x { v = v[-1] + h*F(x);  return x + h*v }",
            (1, 1, EULER),
        ),
        (
            "F, V",
            "start { v = V(x) } step x { y = x + h*v[-1];  v = v[-1] + h*F(y);  return y }",
            (1, 1, EULER),
        ),
        // Störmer's method in positions: exactly started, from rest, and with nothing before.
        (
            "F, V",
            "start { y = x;  u = V(x);  f = F(x) } step x { z = y[-1] - h*u[-1] + h*h/2*f[-1];  y = x;  u = 0*x;  f = 0*x;  return 2*x - z + h*h*F(x) }",
            (2, 2, EULER),
        ),
        (
            "F",
            "start { y = x } step x { z = y[-1];  y = x;  return 2*x - z + h*h*F(x) }",
            (1, 1, EULER),
        ),
        (
            "F",
            "step x { return 2*x - x[-1] + h*h*F(x) }",
            (0, 0, EULER),
        ),
        // Pairs of fields.
        (
            "A, B, P",
            "start { p = P(x) } step x { m = p[-1] + h/2*B(x);  y = x + h*A(m);  p = m + h/2*B(y);  return y }",
            (2, 2, VERLET),
        ),
        (
            "A, B, P",
            "start { p = P(x) } step x { p = p[-1] + h*B(x);  return x + h*A(p) }",
            (1, 1, EULER),
        ),
    ];
    // An old force that begins as twice what it is.
    let twice = cases[1].1.replace("f = F(x) }", "f = 2*F(x) }");
    assert_eq!(known(&of(&mine("F, V", &twice)).expect("facts")).0, 1);
    for (head, body, expected) in cases {
        let facts = of(&mine(head, body)).unwrap_or_else(|| panic!("{body}"));
        assert_eq!(known(&facts), expected, "{body}");
    }
}

/// Weights that are wrong by a little: nothing is proved that is not true.
#[test]
fn wrong_weights_are_refused() {
    let verlet = |position: &str, velocity: &str| {
        let step = format!(
            "y = x + h*v[-1] + h*h/{position}*F(x);  v = v[-1] + h/2*({velocity});  return y"
        );
        mine(
            "F, V",
            &format!(
                "order 2;  symplectic;  symmetric\n  start {{ v = V(x) }}\n  step x {{ {step} }}"
            ),
        )
    };
    let right = compile_text(&verlet("2", "F(x) + F(y)"));
    let claims = &right.checked().claims;
    assert!(claims.iter().all(|c| c.status == ClaimStatus::Proved));
    assert_eq!(claims.len(), 3);
    let wrong = [
        ("2", "2*F(x)"),
        ("2", "2*F(y)"),
        ("2", "2/3*F(x) + 4/3*F(y)"),
        ("2", "F(x) + 2*F(y)"),
        ("3", "F(x) + F(y)"),
    ];
    let mut cases = Cases::default();
    for (n, (position, velocity)) in wrong.into_iter().enumerate() {
        let outcome = compile_text(&verlet(position, velocity));
        assert!(outcome.checked.is_none(), "{position} {velocity}");
        cases.add(n, outcome.rendered());
    }
    insta::assert_snapshot!("pairs_wrong", cases);
}

/// Nothing is said of what is no such method.
#[test]
fn others_are_left_alone() {
    let others = [
        ("F", "step x { v = 1/2*v[-1] + h*F(x);  return x + h*v }"),
        ("F", "step x { v = v[-1] + h*F(x);  return x + v }"),
        ("F", "step x { v = v[-1] + F(x);  return x + h*v }"),
        (
            "F",
            "start { f = F(x) } step x { f = F(x);  return x + h*(3/2*f - 1/2*f[-1]) }",
        ),
        (
            "A, B",
            "step x { p = p[-1] + h*B(x);  return x + h*A(p) + h*p }",
        ),
        (
            "A",
            "start { p = x } step x { p = p[-1] + h*A(x);  return x + h*A(p) }",
        ),
        (
            "F",
            "step x { v = v[-1] + h*F(x);  w = w[-1] + h*F(x);  return x + h*v + h*w }",
        ),
        ("F", "step x { v = v[-1] + h*F(2*x);  return x + h*v }"),
    ];
    for (head, body) in others {
        assert_eq!(of(&mine(head, body)), None, "{body}");
    }
    // A momentum without a start is evaluated at 0.
    let none = mine(
        "A, B",
        "order 1\n  step x { p = p[-1] + h*B(x);  return x + h*A(p) }",
    );
    let claims = compile_text(&none).checked().claims.clone();
    assert!(
        claims
            .iter()
            .all(|c| c.status == ClaimStatus::ClaimedNotProved)
    );
}

#[test]
fn reports_of_the_library() {
    let mut cases = Cases::default();
    for name in [
        "velocity_verlet",
        "leapfrog",
        "symplectic_euler",
        "stoermer",
    ] {
        cases.add(name, text::text(&report(shipped::text(name))));
    }
    insta::assert_snapshot!("pairs_reports", cases);
    let value = &json::json(&report(shipped::text("leapfrog")))["two_states"];
    insta::assert_snapshot!(
        "pair_json",
        serde_json::to_string_pretty(value).expect("JSON")
    );
}
