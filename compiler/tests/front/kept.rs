//! Learned coefficients on the methods of an order: what the conditions say, what is trained, and what is refused.

use crate::common::{compile_text, model};
use crate::reference::{check_gradients, check_values, feeds, ffn, sum};
use odec_compiler::analysis::claims::WITHOUT_TIME;
use odec_compiler::analysis::learned::{Learning, learning};
use odec_compiler::analysis::{json, report, text};
use odec_compiler::codes;
use odec_compiler::scheme::Coeff;
use odec_library::shipped;
use odec_numerics::manifold::Shape;

/// Conditions that are linear, some that are not, and one set for all steps.
const KEPT: &str = "scheme two { learn per channel tableau from heun keep order 2 }
scheme four { learn multistep from ab4 keep order 3 }
scheme past(F) {
  learn shared beta[4] = [0, 3/2, -1/2, 0] keep order 2
  step x {
    k1 = F(x)
    k2 = F(x + h*k1)
    return x + h*(beta[0]*k2 + sum j in 0..3 { beta[j+1]*k1[-j] })
  }
}
";

#[test]
fn reports_and_stage_programs() {
    let outcome = compile_text(KEPT);
    let checked = outcome.checked();
    let reports = checked
        .instances
        .iter()
        .map(|of| report::scheme(of, shipped::library()));
    let facts = |r: report::Report| {
        let shown = text::text(&r);
        let from = shown.find("Learned coefficients").expect("a section");
        let json = json::json(&r);
        format!("{}\n{}\n{}\n", r.name, &shown[from..], json["keeps"])
    };
    let facts: Vec<String> = reports.map(facts).collect();
    let claims = checked
        .claims
        .iter()
        .map(|c| format!("{}: {} ({})\n", c.scheme, c.claim, c.note));
    let claims: String = claims.collect();
    insta::assert_snapshot!(format!(
        "{}\n{claims}\n{}",
        facts.join("\n"),
        checked.stages()
    ));
}

fn known(text: &str, order: usize) -> Learning {
    let outcome = compile_text(text);
    let found = learning(&outcome.checked().instances[0], order);
    found.expect("learned").expect("known")
}

/// Explicit methods of two stages and order 2, of three and 3, of four and 4 are families with one, two and two free
/// parameters (Kutta 1901; Hairer, Nørsett & Wanner 1993, II.1); explicit multistep methods of k steps and order p ≤ k, with
/// the state of one step, have k − p (III.2).
#[test]
fn families_of_methods_have_the_dimensions_that_are_known() {
    for (source, order, free) in [("heun", 2, 1), ("kutta3", 3, 2), ("rk4", 4, 2)] {
        let l = known(
            &format!("scheme s {{ learn tableau from {source} }}"),
            order,
        );
        let last = &l.methods[order - 1];
        assert_eq!(
            (last.tangent, last.shape),
            (free, Shape::Manifold),
            "{source}"
        );
    }
    let l = known("scheme s { learn multistep from ab4 }", 4);
    let free: Vec<usize> = l.methods.iter().map(|m| m.tangent).collect();
    assert_eq!(free, [3, 2, 1, 0]);
}

/// `Φ(F'F) = b₁a₁₀` and `Φ(F''(F, F)) = b₁a₁₀²` by hand, at Heun's coefficients; b₀ stands in the first condition alone.
#[test]
fn slopes_are_derivatives() {
    let l = known("scheme s { learn tableau from heun }", 2);
    let slopes = |n: usize| {
        let c = &l.coefficients[n];
        let each = c.slopes.iter().map(|(p, t, s)| format!("{p} {t} {s}"));
        (c.name.as_str(), c.breaks, each.collect::<Vec<_>>())
    };
    assert_eq!(
        slopes(0),
        (
            "a[1][0]",
            Some(2),
            vec!["2 F'F 1/2".into(), "3 F''(F, F) 1".into()]
        )
    );
    assert_eq!(slopes(1), ("b[0]", Some(1), vec!["1 F 1".into()]));
}

/// At the start of a product the point is singular: `d` and `e` must not both move, so their plane is no plane of methods.
#[test]
fn a_crossing_is_no_manifold() {
    let text = "scheme s(F) {
      learn d = 0;  learn e = 0
      step x { return x + h*(1 + d*e)*F(x) }
    }";
    let l = known(text, 1);
    assert_eq!(
        (l.methods[0].tangent, l.methods[0].shape),
        (2, Shape::Singular)
    );
    assert_eq!(
        (l.coefficients[0].breaks, l.coefficients[0].slopes.len()),
        (Some(1), 0)
    );
}

/// All entries of RK4 and of Kutta's method move on the methods of order 3: directions and values on the way, each of few terms.
#[test]
fn whole_tableaus_keep_order_three() {
    keeps_order_three("rk4", 6);
    keeps_order_three("kutta3", 2);
}

fn keeps_order_three(source: &str, free: usize) {
    let text = format!("scheme kept {{ learn tableau from {source} keep order 3 }}\n");
    let outcome = compile_text(&(text + &model("kept(ffn)", 1, "h = 1/2")));
    let checked = outcome.checked();
    let claim = &checked.claims[0];
    assert_eq!(claim.claim, "keep order 3");
    let program = checked.programs.last().expect("a program");
    assert_eq!(program.learned.len(), free);
    let terms = |c: &Coeff| c.terms().count();
    assert!(
        program
            .derived
            .iter()
            .all(|d| terms(&d.over).max(terms(&d.under)) <= 40)
    );
    let b = checked.built.clone().expect("a model");
    check_gradients(source, &b, &feeds(&b, 3));
}

/// Heun's method moved along its manifold: a = 1 + u, b₁ = 1/(2a), with a number for each step.
#[test]
fn values_and_gradients() {
    let text = format!(
        "scheme kept {{ learn tableau from heun keep order 2 }}\n{}",
        model("kept(ffn)", 2, "h = 1/2")
    );
    let outcome = compile_text(&text);
    let b = outcome.checked().built.clone().expect("a model");
    let own = b.params.iter().filter(|p| p.path.contains("scheme"));
    let own: Vec<&str> = own.map(|p| p.path.as_str()).collect();
    assert_eq!(own, ["step.0.scheme.u.0", "step.1.scheme.u.0"]);
    let f = feeds(&b, 7);
    check_values("kept", &b, &f, 2, &mut |k, x| {
        let step = format!("step.{k}");
        let a = 1.0 + f[&format!("{step}.scheme.u.0")].data[0];
        let weight = 0.5 / a;
        let k1 = ffn(x, &f, &format!("{step}.ffn"));
        let k2 = ffn(
            &sum(&[(1.0, x), (0.5 * a, &k1)]),
            &f,
            &format!("{step}.ffn"),
        );
        sum(&[(1.0, x), (0.5 * (1.0 - weight), &k1), (0.5 * weight, &k2)])
    });
    check_gradients("kept", &b, &f);
}

#[test]
fn what_cannot_be_kept() {
    let mut shown = String::new();
    for text in [
        "scheme s { learn tableau from rk4 keep order 4 }",
        "scheme s(F) { learn b = 1/2;  learn shared a = 1/2;  keep order 1\n  step x { return x + h*(a*F(x) + b*F(x + h*F(x))) } }",
        "scheme s(F) { learn a = 1;  keep order 1\n  step x { return x + h*a*F(x) } }",
        "scheme s(F) { keep order 1\n  step x { return x + h*F(x) } }",
        "scheme s(F) { learn u = 1;  keep order 1\n  step x { return x + h*u*F(x) } }",
        "scheme s(F) { learn a[..] = delta;  keep order 1\n  step x { k = F(x)\n  return x + h*sum j in 0.. { a[j]*k[-j] } } }",
        "scheme s(F) { learn a = 1/2;  learn b = 1/2;  keep order 1\n  step x { k = a*F(x + h*F(x)) + (1-a)*F(x)\n  return x + h*(a*k + b*k[-1]) } }",
        "scheme s { learn tableau from heun keep order 2/3 }",
        "scheme s { learn tableau from heun keep order 1 keep order 2 }",
    ] {
        let outcome = compile_text(text);
        assert!(outcome.checked.is_none(), "{text}");
        shown += &outcome.rendered();
        shown += "\n";
    }
    insta::assert_snapshot!(shown);
}

/// The time of an evaluation stays where its argument moves with a learned coefficient: an order that is kept is then one for fields without time.
#[test]
fn an_order_is_kept_for_fields_without_time_where_arguments_move() {
    let fields = "field timed = concat(id, time) |> linear(width)\n";
    let said = |flow: &str| {
        let outcome = compile_text(&format!("{KEPT}{fields}{}", model(flow, 6, "h = 1/6")));
        let about = outcome.messages.iter();
        let warned = about.filter(|d| d.code == codes::UNPROVED_CLAIM).count();
        let claims = &outcome.checked().claims;
        let name = flow.split('(').next().unwrap();
        let kept = claims
            .iter()
            .find(|c| c.scheme == name && c.claim.starts_with("keep"));
        (warned, kept.unwrap().note.contains(WITHOUT_TIME))
    };
    // The nodes of a tableau are sums of learned numbers, those of `past` are 0 and 1.
    assert_eq!(said("two(timed)"), (1, true));
    assert_eq!(said("two(ffn)"), (0, true));
    assert_eq!(said("past(timed)"), (0, false));
}
