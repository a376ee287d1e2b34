//! Exponential integrators: what is proved of the library's, of others, and what is said of mistakes.

use crate::common::{compile_text, model};
use odec_compiler::analysis::{json, report, text};
use odec_library::shipped;
use odec_program::manifest::ClaimStatus;

/// Methods of the library with their classical and stiff orders (Hochbruck & Ostermann 2005, section 5; 2010, section 2).
const METHODS: [(&str, usize, usize); 9] = [
    ("exponential_euler", 1, 1),
    ("etd2rk", 2, 2),
    ("etd3rk", 3, 2),
    ("etdrk4", 4, 2),
    ("krogstad4", 4, 3),
    ("strehmel_weiner4", 4, 3),
    ("hochbruck_ostermann4", 4, 4),
    ("lawson_euler", 1, 1),
    ("lawson4", 4, 1),
];

fn source(name: &str) -> String {
    shipped::text(name).replace(&format!("scheme {name}("), "scheme mine(")
}

#[test]
fn claims_of_the_library_are_proved_and_others_refused() {
    for (name, order, stiff) in METHODS {
        let outcome = compile_text(&source(name));
        let claims = &outcome.checked().claims;
        assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
        assert!(claims.iter().all(|c| c.status == ClaimStatus::Proved));
        let said = |claim: String| claims.iter().any(|c| c.claim == claim);
        assert!(said(format!("order {order}")) && said(format!("stiff_order {stiff}")));
        for wrong in 0..=5 {
            if wrong == stiff {
                continue;
            }
            let claim = format!("stiff_order {stiff}");
            let text = source(name).replace(&claim, &format!("stiff_order {wrong}"));
            let outcome = compile_text(&text);
            let codes: Vec<&str> = outcome.messages.iter().map(|d| d.code).collect();
            assert_eq!(codes, ["false-claim"], "{name} {wrong}");
        }
        let more =
            source(name).replace(&format!("order {order};"), &format!("order {};", order + 1));
        let outcome = compile_text(&more);
        assert!(
            outcome.messages.iter().any(|d| d.code == "false-order"),
            "{name}: {}",
            outcome.rendered()
        );
    }
}

#[test]
fn reports() {
    let mut all = String::new();
    for name in ["etdrk4", "hochbruck_ostermann4"] {
        let outcome = compile_text(&source(name));
        let r = report::scheme(&outcome.checked().instances[0], shipped::library());
        all += &text::text(&r);
        all += &format!("{}\n", json::json(&r)["stiff_order"]);
    }
    let text = format!(
        "{}{}",
        "field leak = decay(rate: 1/4)\n",
        model("krogstad4(leak, layer)", 2, "h = 1/2")
    );
    let outcome = compile_text(&text).on_its_flow();
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    let programs = &outcome.checked().programs;
    all += &programs.last().expect("a step").to_string();
    insta::assert_snapshot!("exponential_reports", all);
}

/// A line that begins otherwise is no exponential method, and one without functions has no stiff order.
#[test]
fn what_is_not_decided() {
    let told = |body: &str| {
        let text = format!("scheme s(L, F) {{ stiff_order 1  step x {{ {body} }} }}");
        let outcome = compile_text(&text);
        outcome.rendered()
    };
    let euler = told("return x + h*L(x) + h*F(x)");
    assert!(euler.contains("no function of a linear field"), "{euler}");
    let stage = told("y = x + h*L(x)  return exp(h*L)(x) + h*phi1(h*L)(F(y))");
    assert!(stage.contains("a stage does not begin with"), "{stage}");
    // The exact flow of L between two halves of a step of F: as a line with functions of L, Strang's splitting.
    let text = "scheme s(L, F) { order 2  step x { y = exp(h/2*L)(x)  k = F(y)\n\
                z = y + h*F(y + h/2*k)  return exp(h/2*L)(z) } }";
    let outcome = compile_text(text);
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
}

/// An exponential method of two steps. What its first step leaves of the order is not decided, so the claim is not proved.
#[test]
fn histories() {
    let text = "scheme etd2(L, F) { order 2  step x { f = F(x)\n\
                return exp(h*L)(x) + h*(phi1(h*L)(f) + phi2(h*L)(f - f[-1])) } }";
    let outcome = compile_text(text);
    let r = report::scheme(&outcome.checked().instances[0], shipped::library());
    assert_eq!(r.order.as_ref().map(|f| f.order), Ok(2));
    assert!(r.computed.is_some_and(|f| f.is_err()));
    let claims = &outcome.checked().claims;
    assert_eq!(claims[0].status, ClaimStatus::ClaimedNotProved);
}

#[test]
fn mistakes_are_told_at_their_place() {
    let mut all = Vec::new();
    for body in [
        "return exp(h*L)(x) + h*F(phi12(h*L)(x))",
        "return exp(h)(x)",
        "return exp(h*L + h*F)(x)",
        "return exp(h*L*F)(x)",
        "return exp(h*L) + x",
        "return exp(h*L, h)(x)",
        "return exp(h*L)(x, x)",
        "return exp(h*L)(h)",
        "return exp(h*L)(at: x)",
        "return cos(h*L)(x)",
        "return phi1()(x)",
        "return exp(x*L)(x)",
    ] {
        let text = format!(
            "scheme s(L, F) {{ step x {{ {body} }} }}\n{}",
            model("s(leak, ffn)", 1, "")
        );
        let outcome = compile_text(&format!("field leak = decay\n{text}")).on_its_flow();
        assert!(outcome.checked.is_none(), "{body}");
        all.push(outcome.rendered());
    }
    for flow in [
        "exponential_euler(ffn, att)",
        "exponential_euler(rmsnorm |> decay, att)",
        "exponential_euler(1/2*decay, att)",
        "exponential_euler(euler(att), att)",
    ] {
        let outcome = compile_text(&model(flow, 1, "")).on_its_flow();
        assert!(outcome.checked.is_none(), "{flow}");
        all.push(outcome.rendered());
    }
    insta::assert_snapshot!("exponential_mistakes", all.join("\n"));
}

/// A linear field has one set of parameters, also where every use of others has its own.
#[test]
fn parameters() {
    for (options, count) in [
        ("weights per use", 2),
        ("weights shared", 1),
        ("weights per step", 2),
    ] {
        let text = format!(
            "field leak = decay\n{}",
            model("etdrk4(leak, ffn)", 2, options)
        );
        let outcome = compile_text(&text).on_its_flow();
        let built = outcome.checked().built.as_ref().expect("a model");
        let own = built
            .params
            .iter()
            .filter(|p| p.path.ends_with("decay.log_rate"));
        let shapes: Vec<&[u64]> = own.map(|p| &p.shape[..]).collect();
        assert_eq!(shapes, vec![&[8u64][..]; count], "{options}");
    }
}
