//! Claims, proved: the library's, false ones, and how they are told.

use crate::common::{Cases, compile_text, model};
use odec_library::{LibraryScheme, shipped};
use odec_program::manifest::{Claim, ClaimStatus};

/// Orders that are reached within a bound, of pairs, of learned coefficients, or beside another claim.
const CHOSEN: &[&str] = &[
    "abm4",
    "blanes_moan4",
    "dormand_prince",
    "etdrk4",
    "gauss4",
    "iie",
    "pcformer",
    "radau_iia3",
    "rk4",
    "rk4_learned",
    "rkc2",
    "ssp33",
    "stoermer",
    "strang",
    "symplectic_euler",
];

/// All claims of the library are proved; and nothing more could be claimed, or there would be a message.
#[test]
fn the_library_keeps_its_claims() {
    let mut lines = Vec::new();
    for LibraryScheme { name, text, .. } in shipped::library().iter() {
        let outcome = compile_text(text);
        assert!(
            outcome.messages.is_empty(),
            "{name}: {}",
            outcome.rendered()
        );
        for c in &outcome.checked().claims {
            assert_eq!(c.status, ClaimStatus::Proved, "{name}: {}", c.note);
            let line = format!("{:<16} {:<20} {}", c.scheme, c.claim, c.note);
            let line = line.trim_end().to_string();
            if CHOSEN.contains(name) && !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    insta::assert_snapshot!(lines.join("\n"));
}

fn claims(text: &str) -> Vec<Claim> {
    compile_text(text).checked().claims.clone()
}

/// A scheme of the library with another claim.
fn claiming(name: &str, order: &str) -> String {
    let text = shipped::text(name);
    let renamed = text.replace(&format!("scheme {name}"), "scheme mine");
    let from = renamed.find("  order ").expect("a claim");
    let to = from + renamed[from..].find('\n').expect("a line");
    format!("{}  order {order}{}", &renamed[..from], &renamed[to..])
}

/// Orders from the literature; one more is false, one less is a warning.
#[test]
fn one_more_is_false_and_one_less_is_not_all() {
    let known = [
        ("euler", 1),
        ("heun", 2),
        ("midpoint", 2),
        ("ralston", 2),
        ("kutta3", 3),
        ("ssp33", 3),
        ("rk4", 4),
        ("rk38", 4),
        ("bogacki_shampine", 3),
        ("dormand_prince", 5),
        ("gauss4", 4),
        ("gauss6", 6),
        ("radau_iia3", 3),
        ("implicit_midpoint", 2),
        ("sdirk2", 2),
        ("backward_euler", 1),
        ("iie", 1),
        ("lie", 1),
        ("strang", 2),
        ("ruth3", 3),
        ("yoshida4", 4),
        ("parallel", 1),
        ("ab2", 2),
        ("ab3", 3),
        ("ab4", 4),
        ("am3", 3),
        ("bdf2", 2),
    ];
    for (name, order) in known {
        let more = compile_text(&claiming(name, &(order + 1).to_string()));
        let codes: Vec<&str> = more.messages.iter().map(|d| d.code).collect();
        assert_eq!(codes, ["false-order"], "{name}: {}", more.rendered());
        let has = format!("has order {order}, not {}", order + 1);
        assert!(
            more.messages[0].message.contains(&has),
            "{}",
            more.rendered()
        );
        if order > 1 {
            let less = compile_text(&claiming(name, &(order - 1).to_string()));
            let codes: Vec<&str> = less.messages.iter().map(|d| d.code).collect();
            assert_eq!(codes, ["higher-order"], "{name}: {}", less.rendered());
        }
    }
}

/// Nodes of published tableaus are rounded by themselves.
#[test]
fn rounded_nodes_are_taken_within_the_residual_of_the_claim() {
    let of = |claim: &str, node: &str| {
        compile_text(&format!(
            "scheme own(F) {{ {claim}  tableau {{\n 0 |\n {node} | 0.66666\n | 0.25 0.75\n }} }}"
        ))
    };
    let taken = of("order 2 within 1e-4", "0.66667");
    assert!(taken.messages.is_empty(), "{}", taken.rendered());
    let claim = &taken.checked().claims[0];
    assert_eq!(claim.note, "exactly, only order 1");
    for (claim, node) in [
        ("order 1", "0.66667"),
        ("order 2 within 1e-6", "0.66667"),
        ("order 2 within 1e-4", "0.6669"),
    ] {
        let refused = of(claim, node);
        let codes: Vec<_> = refused.messages.iter().map(|d| d.code).collect();
        assert!(codes.contains(&"tableau-row-sum"), "{}", refused.rendered());
    }
}

#[test]
fn a_claim_within_a_residual() {
    let within = |r: &str| compile_text(&claiming("blanes_moan4", &format!("4{r}")));
    assert!(within(" within 1e-14").messages.is_empty());
    for r in ["", " within 1e-17"] {
        let outcome = within(r);
        assert_eq!(
            outcome.messages[0].code,
            "false-order",
            "{}",
            outcome.rendered()
        );
    }
}

/// A setting of the model decides how far an implicit method is iterated.
#[test]
fn claims_are_proved_again_where_a_scheme_is_applied() {
    let good = compile_text(&model("gauss4(layer, r: 4)", 2, "")).on_its_flow();
    assert!(good.messages.is_empty(), "{}", good.rendered());
    let few = compile_text(&model("gauss4(layer, r: [3, 2])", 2, "")).on_its_flow();
    insta::assert_snapshot!(few.rendered());
}

#[test]
fn false_claims() {
    let cases = [
        (
            "rk4",
            "scheme mine {\n  order 4\n  tableau {\n    0   |\n    1/2 | 1/2\n    1/2 | 1/4  1/4\n    1   | 0    0    1\n        | 1/6  1/3  1/3  1/6\n  }\n}\n",
        ),
        (
            "rk3_as_released",
            "scheme mine {\n  order 3\n  tableau {\n    0   |\n    1/2 | 1/2\n    1   | 0    1\n        | 1/6  2/3  1/6\n  }\n}\n",
        ),
        (
            "weights",
            "scheme mine {\n  order 4\n  tableau {\n    0   |\n    1/2 | 1/2\n    1/2 | 0    1/2\n    1   | 0    0    1\n        | 1/6  1/3  1/3  1/5\n  }\n}\n",
        ),
        (
            "splitting",
            "scheme mine(A, B) {\n  order 3\n  A(1/2) B(1) A(1/2)\n}\n",
        ),
        (
            "euler_steps",
            "scheme mine(A, B) {\n  order 2\n  step x {\n    y = x + h/2*A(x)\n    z = y + h*B(y)\n    return z + h/2*A(z)\n  }\n}\n",
        ),
        (
            "multistep",
            "scheme mine {\n  order 2\n  multistep { alpha 1 -1; beta 0 5/4 -1/4 }\n  start by heun\n}\n",
        ),
        ("unused", "scheme mine(A, B) {\n  order 1\n  A(1)\n}\n"),
        (
            "iterations",
            &claiming("gauss4", "4").replace("r = 3", "r = 1"),
        ),
    ];
    let mut shown = Cases::default();
    for (name, text) in cases {
        let outcome = compile_text(text);
        assert!(outcome.checked.is_none(), "{name} is refused");
        shown.add(name, outcome.rendered());
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn what_cannot_be_proved_is_said() {
    let cases = [
        (
            "projection",
            "scheme mine(F) {\n  order 1\n  step x { return nonnegative(x + h*F(x)) }\n}\n",
        ),
        (
            "product",
            "scheme mine(F, G) {\n  order 1\n  step x { g = G(x)  return x + h*g*F(x) }\n}\n",
        ),
        (
            "state",
            "scheme mine(F) {\n  order 1\n  step x { return x + h*F(2*x) }\n}\n",
        ),
        (
            "rate",
            "scheme mine(L, F) {\n  order 1\n  step x {\n    k = F(x)\n    return x + h*(k + L(h*k))\n  }\n}\n",
        ),
        (
            "exponential",
            "scheme mine(L, F) {\n  order 2\n  start { f = F(x) }\n  step x { f = F(x)  return exp(h*L)(x) + h*phi1(h*L)(f) + h*phi2(h*L)(f - f[-1]) }\n}\n",
        ),
        (
            "no_h",
            "scheme mine(F) {\n  order 1\n  step x { return x + F(x) }\n}\n",
        ),
        (
            "history",
            "scheme mine(F) {\n  order 1\n  step x { y = x + h*F(x)  z = 1/2*y + 1/2*z[-1]  return z }\n}\n",
        ),
        (
            "growing",
            "scheme mine(F) {\n  order 1\n  step x { f = F(x)  return x + h*sum j in 0.. { f[-j] } }\n}\n",
        ),
    ];
    let mut shown = Vec::new();
    for (name, text) in cases {
        let outcome = compile_text(text);
        shown.push(format!("{name}\n{}", outcome.rendered()));
    }
    insta::assert_snapshot!(shown.join("\n\n"));
}

/// The explicit method of order 3 with two steps (Dahlquist 1956) is consistent and of no use.
#[test]
fn an_unstable_multistep_method_is_named() {
    let text = "scheme mine {\n  order 3\n  multistep { alpha 1 4 -5; beta 0 4 2 }\n  start by kutta3\n}\n";
    let found = claims(text);
    assert_eq!(found[0].status, ClaimStatus::Proved);
    assert!(
        found[0].note.contains("not zero-stable"),
        "{}",
        found[0].note
    );
}

/// Learned coefficients at their start, and history written by hand.
#[test]
fn step_programs() {
    let proved = [
        "scheme mine(F) {\n  order 2\n  learn b = 1/2\n  step x {\n    k = F(x)\n    return x + h*((1 - b)*k + b*F(x + h*k))\n  }\n}\n",
        "scheme mine(F) {\n  order 2\n  step x {\n    f = F(x)\n    return x + h*(3/2*f - 1/2*f[-1])\n  }\n  start by euler\n}\n",
        "scheme mine(A, B) {\n  order 2\n  step x { y = flow A(1/2) B(1) A(1/2) from x  return y }\n}\n",
        "scheme mine(A, B) {\n  order 2\n  step x { y = flow A(1) B(1) from x  z = flow B(1) A(1) from x  return 1/2*y + 1/2*z }\n}\n",
    ];
    for text in proved {
        let found = claims(text);
        assert_eq!(found[0].status, ClaimStatus::Proved, "{text}");
    }
}

/// Long methods, decided modulo primes or by the exact solution's powers.
#[test]
fn long_methods_are_proved() {
    let triple = |name: &str, inner: &str, root: u32, order: u32| {
        format!(
            "scheme {name}(A, B) {{\n  order {order}\n  let u = 1/(2 - root(2, {root}))\n  \
             method compose({inner}(u), {inner}(1 - 2*u), {inner}(u))\n}}\n"
        )
    };
    let eighth = [
        triple("four", "strang", 3, 4),
        triple("six", "four", 5, 6),
        triple("eight", "six", 7, 8),
    ];
    let adams = "scheme adams16(F) {\n  order 16\n  multistep {\n    alpha 1 -1\n    beta 0 WEIGHTS\n  }\n  start by rk4\n}\n";
    let weights = adams_bashforth(16).join(" ");
    let cases = [
        (eighth.concat(), "order 8"),
        (adams.replace("WEIGHTS", &weights), "order 16"),
    ];
    for (text, claim) in cases {
        let outcome = compile_text(&text);
        assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
        let last = outcome.checked().claims.last().cloned().expect("a claim");
        assert_eq!(
            (last.claim.as_str(), last.status),
            (claim, ClaimStatus::Proved)
        );
    }
    // One more is false: no tree of that order is made for it.
    let more = adams
        .replace("WEIGHTS", &weights)
        .replace("order 16", "order 17");
    let outcome = compile_text(&more);
    assert!(
        outcome.rendered().contains("has order 16, not 17"),
        "{}",
        outcome.rendered()
    );
}

/// The weights `∫₀¹ Π (t + i)/(i − j) dt`, i ≠ j below k.
fn adams_bashforth(k: i64) -> Vec<String> {
    use odec_graph::Exact;
    let weight = |j: i64| {
        let mut p = vec![Exact::one()];
        for i in (0..k).filter(|i| *i != j) {
            let over = Exact::ratio(1, i - j);
            let mut next = vec![Exact::zero(); p.len() + 1];
            for (n, c) in p.iter().enumerate() {
                next[n] = &next[n] + &(&(c * &Exact::int(i)) * &over);
                next[n + 1] = &next[n + 1] + &(c * &over);
            }
            p = next;
        }
        let terms = p.iter().enumerate();
        let sum: Exact = terms.map(|(n, c)| c * &Exact::ratio(1, n as i64 + 1)).sum();
        sum.to_string()
    };
    (0..k).map(weight).collect()
}

/// What the report prints of a modified equation can be claimed.
#[test]
fn what_is_integrated_instead_can_be_claimed() {
    let midpoint = "tableau { 1/2 | 1/2;  | 1 } solve by fixed_point(iterations: 4)";
    let lie = "A(1) B(1)";
    // The average vector field by Simpson's rule (Celledoni, McLachlan, Owren & Quispel 2010).
    let average = "tableau { 0 | ; 1/2 | 1/12 1/3 1/12; 1 | 1/6 2/3 1/6;  | 1/6 2/3 1/6 } solve by fixed_point(iterations: 4)";
    let cases = [
        ("A, B", lie, "effective_order 2", None),
        (
            "A, B",
            lie,
            "effective_order 3",
            Some("it has effective order 2"),
        ),
        (
            "A, B",
            lie,
            "effective_order 1",
            Some("it has effective order 2"),
        ),
        ("F", midpoint, "effective_order 2", None),
        ("F", average, "energy_order 4", None),
        (
            "F",
            average,
            "energy_order 2",
            Some("it has energy order 4"),
        ),
        (
            "F",
            average,
            "energy_preserving",
            Some("preserves the energy up to order 4"),
        ),
        (
            "F",
            "multistep { alpha 1 -1; beta 0 3/2 -1/2 } start by heun",
            "effective_order 1",
            Some("one-step methods"),
        ),
    ];
    for (fields, body, claim, wrong) in cases {
        let text = format!("scheme s({fields}) {{ {claim}\n{body} }}");
        let outcome = compile_text(&text);
        match wrong {
            None => {
                let claims = &outcome.checked().claims;
                let found = claims.iter().find(|c| c.claim == claim).expect("a claim");
                assert_eq!(found.status, ClaimStatus::Proved, "{text}: {}", found.note);
            }
            Some(why) => assert!(
                outcome.rendered().contains(why),
                "{text}: {}",
                outcome.rendered()
            ),
        }
    }
}
