//! Equal evaluations of a step are one evaluation: what is equal, and what only looks so.

use crate::common::{compile_text, model};
use odec_compiler::analysis::report;
use odec_compiler::model::{Built, Checked};
use odec_graph::OpKind;
use odec_library::shipped;

/// The first iterate is the state, which `k` is evaluated at already.
const WARM: &str = "scheme warm(F) { step x { k = F(x)
    solve z = x + h/2*F(z) from x by fixed_point(iterations: 2)
    return x + h/2*k + h/2*F(z) } }";

fn checked(flow: &str, steps: u64, options: &str, scheme: &str) -> Checked {
    let outcome = compile_text(&format!("{scheme}\n{}", model(flow, steps, options)));
    outcome.checked().clone()
}

/// Evaluations of one step.
fn evaluations(flow: &str, options: &str, scheme: &str) -> u64 {
    let built = checked(flow, 1, options, scheme).built;
    built.expect("a model").summary.evaluations
}

fn alone(body: &str) -> u64 {
    let scheme = format!("scheme own(F) {{ step x {{ {body} }} }}");
    evaluations("own(ffn)", "", &scheme)
}

#[test]
fn evaluations_at_one_value_are_one() {
    assert_eq!(evaluations("warm(ffn)", "", WARM), 3);
    assert_eq!(alone("return x + h/2*F(x) + h/2*F(x)"), 1);
    // Through what is made of them, projected or multiplied alike.
    assert_eq!(
        alone("a = F(x + h*F(x))  b = F(x + h*F(x))  return x + h*(a + b)"),
        2
    );
    assert_eq!(
        alone("a = F(nonnegative(x))  b = F(nonnegative(x))  return x + h*(a + b)"),
        1
    );
    let twice = |by: &str| {
        alone(&format!(
            "solve y = x + h*F(y) from x by {by}  solve z = x + h*F(z) from x by {by}  return y + h*F(z)"
        ))
    };
    assert_eq!(twice("fixed_point(iterations: 3)"), 4);
    assert_eq!(twice("anderson(tol: 1e-2, max: 3, memory: 2)"), 4);
    // Methods made of methods: both begin with the rate at the state.
    let average = "scheme middle(F) { method average(rk4(F), heun(F)) }";
    assert_eq!(evaluations("middle(ffn)", "", average), 5);
}

/// A value through which no gradient passes is another one.
#[test]
fn what_gradients_tell_apart_stays_apart() {
    let solve = |gradient: &str| {
        alone(&format!(
            "k = F(x)  l = F(x + h*k)
             solve z = x + h*F(z) from x by fixed_point(iterations: 1) {gradient}
             return z + h*l"
        ))
    };
    assert_eq!(solve(""), 2);
    assert_eq!(solve("gradient phantom(1)"), 3);
}

/// Each written occurrence has parameters of its own, of all fields or of those that are named.
#[test]
fn uses_with_weights_of_their_own_stay_apart() {
    assert_eq!(evaluations("warm(ffn)", "weights per use", WARM), 4);
    assert_eq!(evaluations("warm(both)", "weights per use", WARM), 8);
    let one = "weights per step, ffn per use";
    assert_eq!(evaluations("warm(both)", one, WARM), 7);
    let report = report::evolve(
        &checked("warm(both)", 1, one, WARM).evolved[0],
        shipped::library(),
    );
    // Of the flow as a whole: an evaluation of both fields is one.
    assert_eq!(report.work.map(|w| w.evaluations), Some(4));
}

/// A report and a claim about a scheme count what a model of it evaluates.
#[test]
fn a_report_counts_what_is_computed() {
    let am3 = |options: &str| {
        let checked = checked("am3(ffn)", 6, options, "");
        let report = report::evolve(&checked.evolved[0], shipped::library());
        let steps = checked.built.expect("a model").summary.evaluations;
        (report.work.expect("a count").evaluations, steps)
    };
    // Two iterations, and the rate at the state, where they begin; all first steps take three as well.
    assert_eq!(am3(""), (3, 18));
    // The iterations are at the end of the step, and so is what they begin with.
    let timed = "weights of time { embed: 2, hidden: 3 }";
    assert_eq!(am3(timed), (4, 3 + 5 * 4));
    let claims = |n: u64| {
        let own = shipped::text("am3").replace("am3", "own");
        let outcome = compile_text(&own.replace("order 3", &format!("order 3;  evaluations {n}")));
        outcome.messages.is_empty()
    };
    assert_eq!((claims(3), claims(4)), (true, false));
}

/// The same value at another time is another evaluation of a field that reads the time.
#[test]
fn times_that_are_read_stay_apart() {
    let own = "scheme own(F) { step x { return x + h/2*F(x) + h/2*F(x, at: 1/3) } }";
    assert_eq!(evaluations("own(ffn)", "", own), 1);
    let timed = "weights of time { embed: 2, hidden: 3 }";
    assert_eq!(evaluations("own(ffn)", timed, own), 2);
    let zero = own.replace("1/3", "0");
    assert_eq!(evaluations("own(ffn)", timed, &zero), 1);
}

/// Backward and decoding have no more of them than the forward pass: keys and values are kept once.
#[test]
fn merged_evaluations_have_one_backward_and_one_cache() {
    let contractions = |b: &Built| {
        let nodes = b.grad.nodes();
        nodes
            .filter(|(_, n)| matches!(n.op, OpKind::AttentionBackward(_)))
            .count()
    };
    let caches = |b: &Built| {
        let decode = b.decode.as_ref().expect("a decode graph");
        let nodes = decode.nodes();
        nodes
            .filter(|(_, n)| matches!(n.op, OpKind::Cache(_)))
            .count()
    };
    let built = |options: &str| {
        checked("warm(att)", 2, options, WARM)
            .built
            .expect("a model")
    };
    let b = built("");
    assert_eq!((contractions(&b), caches(&b)), (6, 12));
    let apart = built("weights per use");
    assert_eq!((contractions(&apart), caches(&apart)), (8, 16));
}
