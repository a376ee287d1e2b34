//! Methods that look back, in evolves whose steps are not equal.

use crate::common::{Outcome, compile_text, model};
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::analysis::{json, text};
use odec_graph::Exact;
use odec_library::shipped;

/// Adams and Bashforth's method with the numbers of equal steps; as a step program, nothing says what they become.
const MINE: &str = "scheme mine(F) { order 2  step x { f = F(x)  return x + h*(3/2*f - 1/2*f[-1]) }  start by heun }\n";

fn evolved(flow: &str, options: &str, schemes: &str) -> (Outcome, Report) {
    let outcome = compile_text(&format!("{schemes}{}", model(flow, 8, options))).on_its_flow();
    let report = report::evolve(&outcome.checked().evolved[0], shipped::library());
    (outcome, report)
}

/// The order of an evolve, and the codes of what is said of it.
fn order(flow: &str, options: &str, schemes: &str) -> (Option<usize>, Vec<&'static str>) {
    let (outcome, report) = evolved(flow, options, schemes);
    let codes = outcome.messages.iter().map(|d| d.code).collect();
    (report.order.ok().map(|f| f.order), codes)
}

/// Methods that are defined by a polynomial through earlier values keep their order: they get the coefficients of the grid.
#[test]
fn adams_methods_and_backward_differentiation_have_the_coefficients_of_the_grid() {
    let own = [
        ("ab2", 2),
        ("ab3", 3),
        ("ab4", 4),
        ("ab5", 5),
        ("am3", 3),
        ("am4", 4),
        ("bdf2", 2),
        ("bdf3", 3),
        ("bdf4", 4),
        ("nystrom2", 2),
    ];
    for (name, p) in own {
        for rule in ["1/(k+1)", "(k+1)/8", "1/2 + k%2"] {
            let rule = rule.replace("k%2", "(k - 2)^2/36");
            let found = order(&format!("{name}(layer)"), &format!("h = {rule}"), "");
            assert_eq!(found, (Some(p), vec![]), "{name} with h = {rule}");
        }
    }
    // Simpson's rule gains its fourth order from equal steps alone.
    let (outcome, report) = evolved("milne4(layer)", "h = 1/(k+1)", "");
    assert_eq!(report.order.unwrap().order, 3);
    assert!(report.unequal.unwrap().fitted);
    assert_eq!(outcome.messages.len(), 1, "{}", outcome.rendered());
}

/// h = 1/(k+1): the ratio of step 1 is 1/2, so the weights are 1 + 1/4 and −1/4; step 2 has 2/3.
#[test]
fn the_coefficients_are_those_of_each_step() {
    let (outcome, _) = evolved("ab2(ffn)", "h = 1/(k+1)", "");
    let stages = outcome.checked().stages();
    for weights in ["x + 5/4*h*k1 - 1/4*h*p1", "x + 4/3*h*k1 - 1/3*h*p1"] {
        assert!(stages.contains(weights), "{weights}\n{stages}");
    }
    let (equal, _) = evolved("ab2(ffn)", "h = 1/8", "");
    assert!(equal.checked().stages().contains("3/2*h*k1"));
}

/// Numbers of equal steps have the order of equal steps on no other grid, and the claim says so.
#[test]
fn other_methods_have_the_order_of_the_grid() {
    let warned = vec!["unequal-steps"];
    for rule in ["1/(k+1)", "(k+1)/8"] {
        let found = order("mine(layer)", &format!("h = {rule}"), MINE);
        assert_eq!(found, (Some(1), warned.clone()));
    }
    assert_eq!(order("mine(layer)", "h = 1/8", MINE), (Some(2), vec![]));
    // What is kept was multiplied by the size of its own step.
    let kept = "scheme mine(F) { order 2  step x { g = h*F(x)  return x + 3/2*g - 1/2*g[-1] }  start by heun }\n";
    assert_eq!(order("mine(layer)", "h = 1/8", kept), (Some(2), vec![]));
    assert_eq!(
        order("mine(layer)", "h = 1/(k+1)", kept),
        (Some(0), warned.clone())
    );
    // Learned rows are no Adams method after a step of training.
    let learned = "scheme mine { learn multistep from ab3 keep order 2  start by heun }\n";
    let (outcome, report) = evolved("mine(layer)", "h = 1/(k+1)", learned);
    assert_eq!(report.order.unwrap().order, 1);
    assert_eq!(outcome.messages[0].code, "unequal-steps");
    let notes = outcome.checked().claims.iter();
    let notes: Vec<&str> = notes
        .filter(|c| c.scheme == "mine")
        .map(|c| c.note.as_str())
        .collect();
    assert!(
        notes.iter().all(|n| n.starts_with("on equal steps")),
        "{notes:?}"
    );
    assert!(!notes.is_empty());
    // What it keeps depends on all earlier steps.
    assert_eq!(order("hamming5(layer)", "h = 1/(k+1)", ""), (None, warned));
}

/// Sizes that are learned are any sizes.
#[test]
fn learned_steps_differ() {
    let warned = vec!["unequal-steps"];
    for (flow, p) in [("ab2", 1), ("ab4", 1), ("bdf2", 0), ("mine", 1)] {
        let flow = format!("{flow}(layer)");
        let schemes = if flow.starts_with("mine") { MINE } else { "" };
        assert_eq!(
            order(&flow, "learn h = 1", schemes),
            (Some(p), warned.clone()),
            "{flow}"
        );
    }
    assert_eq!(
        order("ab2(layer)", "learn shared h = 1", ""),
        (Some(2), vec![])
    );
    assert_eq!(order("rk4(layer)", "learn h = 1", ""), (Some(4), vec![]));
    // The earlier evaluation is of no use to the order.
    let idle = "scheme idle(F) { order 1  step x { f = F(x)  return x + h*(f + h*f - h*f) + 0*f[-1] }  start by euler }\n";
    assert_eq!(order("idle(layer)", "learn h = 1", idle), (Some(1), vec![]));
    // Σ bᵢ cᵢ = 1·r, r the last step's size over this one's: 1 on equal steps, 2 where steps halve.
    let far = "scheme far(F) { order 1  step x { f = F(x)  return x + h*(2*f - f[-1]) }  start by euler }\n";
    for (options, sum) in [("learn h = 1", 2), ("learn shared h = 1", 1)] {
        let (_, report) = evolved("far(layer)", options, far);
        let limit = report.order.unwrap().limit.unwrap();
        assert_eq!(limit.value, Exact::int(sum), "{options}");
    }
}

/// Backward differentiation of two steps bears ratios below 1 + √2, however many steps there are.
#[test]
fn stability_on_a_grid() {
    let stability = |options: &str| {
        let (_, report) = evolved("bdf2(layer)", options, "");
        report.unequal.unwrap().growth.unwrap()
    };
    let slow = stability("h = (12/5)^k");
    let fast = stability("h = (5/2)^k");
    assert_eq!((slow.bounded, fast.bounded), (Some(true), None));
    assert!(slow.largest.unwrap() < fast.largest.unwrap());
    let (_, adams) = evolved("ab4(layer)", "h = 3^k", "");
    let growth = adams.unequal.unwrap().growth.unwrap();
    assert_eq!((growth.bounded, growth.largest), (Some(true), Some(1.0)));
}

/// Points that coincide carry no polynomial: the rows stay as they are, and the order of that is said.
#[test]
fn steps_forth_and_back() {
    let (_, report) = evolved("bdf3(layer)", "h = (-1)^k/8", "");
    let about = report.unequal.unwrap();
    assert_eq!((report.order.unwrap().order, about.fitted), (0, false));
    // Sizes with roots are exact too.
    assert_eq!(
        order("ab3(layer)", "h = sqrt(k+1)/8", ""),
        (Some(3), vec![])
    );
}

/// A step that reads what others kept with other settings is not like one among its own kind.
#[test]
fn settings_of_earlier_steps() {
    let scaled = "scheme mine(F, a = 1) { step x { f = F(x)  g = a*f  return x + h*(f + 1/2*g - 1/2*g[-1]) }  start by heun }\n";
    let alike = "mine(layer, a: [1, 1, 1, 1, 1, 1, 1, 1])";
    assert_eq!(order(alike, "h = 1/8", scaled), (Some(2), vec![]));
    let varied = "mine(layer, a: [1, 2, 1, 2, 1, 2, 1, 2])";
    assert_eq!(order(varied, "h = 1/8", scaled), (None, vec![]));
    // An inner method may be the one whose settings differ: each kind of step has an order of its own.
    let inner = "scheme own(F, a = 1) { step x { return x + h*a*F(x) } }\n";
    let (outcome, _) = evolved(
        "lie(ffn by own(a: [1, 2, 1, 1, 1, 1, 1, 1]), att)",
        "h = 1/8",
        inner,
    );
    let orders = outcome
        .checked()
        .evolved
        .iter()
        .map(|e| report::evolve(e, shipped::library()).order.unwrap().order);
    assert_eq!(orders.collect::<Vec<_>>(), [1, 0]);
    // Iterations change nothing of what is kept.
    let iterated = "bdf2(layer, r: [1, 2, 2, 2, 3, 3, 3, 3])";
    assert_eq!(order(iterated, "h = 1/8", ""), (Some(2), vec![]));
}

#[test]
fn reports() {
    let mut shown = Vec::new();
    let all = [
        ("bdf2(layer)", "h = 1/(k+1)", ""),
        ("mine(layer)", "h = 1/(k+1)", MINE),
        ("ab2(layer)", "learn h = 1/2", ""),
    ];
    for (flow, options, schemes) in all {
        let (outcome, report) = evolved(flow, options, schemes);
        shown.push(format!(
            "{}{}\n{:#}",
            outcome.rendered(),
            text::text(&report),
            json::json(&report)["unequal_steps"]
        ));
    }
    insta::assert_snapshot!(shown.join("\n\n"));
    let (_, report) = evolved("ab2(layer)", "h = 1/2", "");
    assert!(json::json(&report).get("unequal_steps").is_none());
    assert_eq!(report.order.unwrap().order, 2);
    let ratios = evolved("ab2(layer)", "h = 1/(k+1)", "")
        .1
        .unequal
        .unwrap()
        .ratios;
    assert_eq!(ratios, Some([Exact::ratio(1, 2), Exact::ratio(7, 8)]));
}
