//! Step programs with a history as general linear methods, and who takes their first steps.

use crate::common::{Cases, Outcome, compile_text, model};
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, latex, text};
use odec_compiler::scheme::StageInstr;
use odec_graph::Exact;
use odec_library::shipped;
use odec_numerics::poly::Poly;

fn report(source: &str) -> Report {
    let outcome = compile_text(source);
    let checked = outcome.checked();
    let instance = checked.instances.first().expect("a scheme");
    report::scheme(instance, shipped::library())
}

#[test]
fn reports() {
    let mut cases = Cases::default();
    for name in ["abm4", "hamming5", "byrne_lambert4", "butcher_hybrid5"] {
        cases.add(name, text::text(&report(shipped::text(name))));
    }
    insta::assert_snapshot!("general_reports", cases);
    let abm4 = report(shipped::text("abm4"));
    let value = serde_json::to_string_pretty(&json::json(&abm4)["general_linear"]).expect("JSON");
    insta::assert_snapshot!("general_json", value);
    insta::assert_snapshot!("general_latex", latex::latex(&abm4).expect("matrices"));
}

/// A multistep method written as a step program has the same facts.
#[test]
fn multistep_methods_as_step_programs() {
    let cases = [
        ("ab2", "3/2*f - 1/2*f[-1]", "heun"),
        ("ab3", "23/12*f - 4/3*f[-1] + 5/12*f[-2]", "kutta3"),
        (
            "ab4",
            "55/24*f - 59/24*f[-1] + 37/24*f[-2] - 3/8*f[-3]",
            "rk4",
        ),
    ];
    for (name, slope, by) in cases {
        let written = format!(
            "scheme mine(F) {{ step x {{ f = F(x);  return x + h*({slope}) }}  start by {by} }}"
        );
        let (own, mine) = (report(shipped::text(name)), report(&written));
        let (_, rows) = own.multistep.expect("rows");
        let (_, facts) = mine.general.expect("matrices");
        assert_eq!(facts.order, Some(rows.order), "{name}");
        assert_eq!(mine.order.expect("an order").order, rows.order, "{name}");
        assert_eq!(facts.error_constant, rows.error_constant, "{name}");
        assert_eq!(facts.zero_stable, rows.zero_stable, "{name}");
        assert_eq!(facts.strongly_stable, rows.strongly_stable, "{name}");
        assert_eq!(facts.a_stable, rows.a_stable, "{name}");
        assert_eq!(facts.real, rows.real, "{name}");
        assert_eq!(facts.imaginary_squared, rows.imaginary_squared, "{name}");
        assert_eq!(mine.started, own.started, "{name}");
    }
}

/// In PEC form the kept evaluation is one at a predicted state, so it depends on all earlier ones: the order is that with a starting
/// procedure, and a claim of it is proved.
#[test]
fn what_is_kept_may_depend_on_itself() {
    let pec = "scheme pec(F) {
      order 2
      step x {
        g = F(x)
        p = x + h/2*(3*g[-1] - g[-2])
        g = F(p)
        return x + h/2*(g + g[-1])
      }
      start by heun
    }";
    let outcome = compile_text(pec);
    assert!(outcome.messages.is_empty(), "{}", outcome.rendered());
    let more = compile_text(&pec.replace("order 2", "order 3"));
    assert_eq!(more.messages[0].code, "false-order", "{}", more.rendered());
}

/// The refresh of IIET's Algorithm 1 with fixed coefficients: f is found by iterations that read the one before.
#[test]
fn a_refreshed_history() {
    let refresh = "scheme refresh(F) {
      step x {
        f = F(x)
        repeat 1 { f = F(x + h*(1/2*f + 1/2*f[-1])) }
        return x + h*(1/2*f + 1/2*f[-1])
      }
    }";
    let r = report(refresh);
    let (g, f) = r.general.expect("matrices");
    assert_eq!(g.names, ["x", "h f[-1]"]);
    // Y₂ = x + (h F(x) + h f[−1])/2; M(z) by hand: f = z(1 + z/2) x + z/2 f[−1], x⁺ = x + (f + f[−1])/2.
    let p = |c: &[(i64, i64)]| Poly::new(c.iter().map(|(n, d)| Exact::ratio(*n, *d)).collect());
    let phi = [
        p(&[(0, 1), (0, 1), (-1, 4)]),
        p(&[(-1, 1), (-1, 1), (-1, 4)]),
        p(&[(1, 1)]),
    ];
    let found = f.characteristic.expect("a polynomial").by_w;
    assert_eq!(found, phi);
    assert_eq!(f.zero_stable, Some(true));
}

/// Older entries do not count where their coefficients are 0 at the start, and no two steps are alike where they are not.
#[test]
fn growing_histories() {
    assert!(report(shipped::text("iiet_refresh")).tableau.is_ok());
    let uniform = shipped::text("iiet_refresh").replace("= delta", "= uniform");
    let r = report(&uniform.replace("scheme iiet_refresh", "scheme mine"));
    assert!(r.general.is_none());
    let why = r.order.expect_err("nothing is known").why;
    assert_eq!(
        why,
        "no two of its steps are alike, because its history grows"
    );
}

fn programs(outcome: &Outcome) -> Vec<String> {
    let programs = &outcome.checked().programs;
    programs.iter().map(ToString::to_string).collect()
}

/// The first steps are the other scheme's; what later ones need is kept, and nothing else is computed.
#[test]
fn first_steps() {
    insta::assert_snapshot!(
        "general_stages_abm4",
        programs(&compile_text(shipped::text("abm4"))).join("\n")
    );
    insta::assert_snapshot!(
        "general_stages_hamming5",
        programs(&compile_text(shipped::text("hamming5"))).join("\n")
    );
    let outcome = compile_text(shipped::text("byrne_lambert4"));
    let start = &outcome.checked().programs[0];
    let past = |i: &StageInstr| matches!(i, StageInstr::Past { .. });
    assert!(!start.instrs.iter().any(past));
    // Three stages that are kept, and those of rk4.
    assert!(start.evaluations() <= 3 + 4);
}

#[test]
fn a_start_of_low_order_is_told() {
    let low = shipped::text("abm4").replace("start by rk4", "start by euler");
    let low = low.replace("scheme abm4", "scheme mine");
    let outcome = compile_text(&low);
    let limits =
        "the first 3 steps limit the global order to 2: after them, x has 3 of F'F, exact 9/2";
    assert_eq!(
        outcome.checked().claims[0].note,
        format!(
            "with exact starting values; order 2 as computed: started by euler, of order 1, for 3 steps: {limits}"
        )
    );
    let shown = text::text(&report(&low));
    assert!(
        shown.contains("the first 3 steps limit the global order to 2"),
        "{shown}"
    );
    let divergent = "scheme mine(F) { order 3  step x { f = F(x);  return -4*x + 5*x[-1] + h*(4*f + 2*f[-1]) }  start by kutta3 }";
    let outcome = compile_text(divergent);
    assert_eq!(
        outcome.checked().claims[0].note,
        "but not zero-stable: it does not converge"
    );
}

#[test]
fn mistakes_of_starts() {
    let mistakes = [
        (
            "nothing",
            "scheme s(F) { step x { return x + h*F(x) }  start by heun }",
        ),
        (
            "fields",
            "scheme s(F, G) { step x { k = F(x) + G(x);  return x + h*(2*k - k[-1]) }  start by heun }",
        ),
        (
            "no_value",
            "scheme s(F) {\n  step x {\n    f = F(x + h*f[-1])\n    return x + h*f\n  }\n  start by heun\n}\n",
        ),
        (
            "tableau",
            "scheme s(F) { tableau { 0 |\n | 1 }\n start by heun }",
        ),
    ];
    let mut cases = Cases::default();
    for (name, source) in mistakes {
        let outcome = compile_text(source);
        assert!(!outcome.messages.is_empty(), "{name}");
        cases.add(name, outcome.rendered());
    }
    insta::assert_snapshot!("general_mistakes", cases);
    let nested = "scheme s(F) { step x { k = F(x);  return x + h*(2*k - k[-1]) }  start by abm4 }";
    for source in [nested, &model("lie(abm4(att), ffn)", 2, "")] {
        let outcome = compile_text(source);
        assert!(outcome.messages.iter().all(|d| d.code == "nested-history"));
        assert!(outcome.checked.is_none());
    }
}
