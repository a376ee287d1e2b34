//! Learned coefficients: stage programs, parameters, values against plain loops, gradients against differences.

use crate::common::{Cases, compile_text, model};
use crate::reference::{Feeds, State, check_gradients, check_values, feeds, ffn, layer, sum};
use odec_compiler::model::Built;
use odec_graph::print;
use odec_program::manifest::Init;

/// RK2 with learned weights, as ODE Transformer's released code has them: shared by all steps.
const GAMMA: &str = "scheme gamma2(F) {
  learn shared gamma[2] = [1, 1/2]
  step x {
    k1 = F(x)
    k2 = F(x + h*k1)
    return x + h*(gamma[0]*k1 + gamma[1]*k2)
  }
}
";

/// A predictor with exponentially weighted stages and a corrector, all coefficients learned.
const EMA: &str = "scheme ema(F) {
  learn b = 1/2
  learn per channel alpha = 1
  step x {
    k1 = F(x)
    k2 = F(x + h*k1)
    p  = x + h*(b*(1-b)^3*k1 + b*k2 - 1/3*b*alpha*k2)
    return x + h*alpha*F(p)
  }
}
";

const STEPS: usize = 2;

fn built(scheme: &str, flow: &str, options: &str) -> Built {
    let text = format!("{scheme}{}", model(flow, STEPS as u64, options));
    compile_text(&text)
        .checked()
        .built
        .clone()
        .expect("a model")
}

fn one(f: &Feeds, path: &str) -> f64 {
    f[path].data[0]
}

/// Each column times its own number.
fn channels(x: &State, c: &[f64]) -> State {
    let row = |r: &Vec<f64>| r.iter().zip(c).map(|(x, c)| x * c).collect();
    x.iter().map(row).collect()
}

#[test]
fn stage_programs() {
    let mut cases = Cases::default();
    for (name, text) in [("gamma2", GAMMA), ("ema", EMA)] {
        cases.add(name, compile_text(text).checked().stages());
    }
    insta::assert_snapshot!("learned_stage_programs", cases);
}

/// What a method of each kind learns, and what stays zero; own parameters, starts and ways to solve replace the source's.
#[test]
fn methods_that_start_from_others() {
    let mut cases = Cases::default();
    for (name, text) in [
        (
            "shared_multistep",
            "scheme s { learn shared multistep from ab3 }",
        ),
        (
            "implicit_multistep",
            "scheme s(F, r = 0) { learn per channel multistep from am3;  start by euler }",
        ),
        (
            "states_of_a_multistep",
            "scheme s { learn multistep from bdf2;  solve by fixed_point(iterations: 1) }",
        ),
        (
            "diagonal",
            "scheme s(F, r = 1) { learn tableau from sdirk2 }",
        ),
        (
            "full",
            "scheme s(F, n = 1) { learn shared tableau from gauss4;  solve by fixed_point(iterations: n) }",
        ),
    ] {
        let outcome = compile_text(text);
        cases.add(name, outcome.checked().stages());
    }
    insta::assert_snapshot!("learned_from", cases);
}

#[test]
fn graphs_of_two_steps() {
    for (name, text, flow) in [("gamma2", GAMMA, "gamma2(ffn)"), ("ema", EMA, "ema(ffn)")] {
        let b = built(text, flow, "h = 1/2");
        insta::assert_snapshot!(format!("learned_graph_{name}"), print::text(&b.forward));
    }
}

#[test]
fn coefficients_are_parameters_with_their_exact_starts() {
    let b = built(EMA, "ema(ffn)", "");
    let find = |path: &str| b.params.iter().find(|p| p.path == path).cloned();
    let scalar = find("step.1.scheme.b").expect("one for each step");
    assert_eq!((scalar.shape, scalar.init), (vec![], Init::Constant(0.5)));
    let alpha = find("step.0.scheme.alpha").expect("one for each step");
    assert_eq!((alpha.shape, alpha.init), (vec![8], Init::Constant(1.0)));
    let b = built(GAMMA, "gamma2(ffn)", "");
    let shared = b.params.iter().filter(|p| p.path.contains("scheme"));
    let shared: Vec<&str> = shared.map(|p| p.path.as_str()).collect();
    assert_eq!(shared, ["scheme.gamma.0", "scheme.gamma.1"]);
}

#[test]
fn values_of_shared_weights() {
    let b = built(GAMMA, "gamma2(layer)", "h = 1/2");
    let f = feeds(&b, 7);
    let g = [one(&f, "scheme.gamma.0"), one(&f, "scheme.gamma.1")];
    check_values("gamma2", &b, &f, STEPS, &mut |k, x| {
        let step = format!("step.{k}");
        let k1 = layer(x, &f, &step);
        let k2 = layer(&sum(&[(1.0, x), (0.5, &k1)]), &f, &step);
        sum(&[(1.0, x), (0.5 * g[0], &k1), (0.5 * g[1], &k2)])
    });
    check_gradients("gamma2", &b, &f);
}

#[test]
fn values_of_polynomials_and_channels() {
    let b = built(EMA, "ema(layer)", "h = 1/2");
    let f = feeds(&b, 7);
    check_values("ema", &b, &f, STEPS, &mut |k, x| {
        let (step, h) = (format!("step.{k}"), 0.5);
        let b = one(&f, &format!("{step}.scheme.b"));
        let alpha = &f[&format!("{step}.scheme.alpha")].data;
        let k1 = layer(x, &f, &step);
        let k2 = layer(&sum(&[(1.0, x), (h, &k1)]), &f, &step);
        let scaled = channels(&k2, alpha);
        let p = sum(&[
            (1.0, x),
            (h * b * (1.0 - b).powi(3), &k1),
            (h * b, &k2),
            (-h * b / 3.0, &scaled),
        ]);
        sum(&[(1.0, x), (h, &channels(&layer(&p, &f, &step), alpha))])
    });
    check_gradients("ema", &b, &f);
}

/// A step size for each step and channel, started at 1/steps.
#[test]
fn values_of_learned_step_sizes() {
    let b = built("", "heun(ffn)", "learn per channel h = 1/steps");
    let start = b.params.iter().find(|p| p.path == "step.1.h");
    let start = start.map(|p| (p.shape.clone(), p.init.clone()));
    assert_eq!(start, Some((vec![8], Init::Constant(0.5))));
    let f = feeds(&b, 7);
    check_values("learned h", &b, &f, STEPS, &mut |k, x| {
        let h = &f[&format!("step.{k}.h")].data;
        let field = |x: &State| ffn(x, &f, &format!("step.{k}.ffn"));
        let k1 = field(x);
        let k2 = field(&sum(&[(1.0, x), (1.0, &channels(&k1, h))]));
        let mean = sum(&[(0.5, &k1), (0.5, &k2)]);
        sum(&[(1.0, x), (1.0, &channels(&mean, h))])
    });
    check_gradients("learned h", &b, &f);
}

/// What cancels exactly needs no parameter.
#[test]
fn exact_cancellation_stays() {
    let text =
        "scheme none(F) { learn b = 1/2;  step x { k = F(x);  return x + h*(b*k + (1 - b)*k) } }\n";
    let b = built(text, "none(ffn)", "");
    assert!(b.params.iter().all(|p| !p.path.contains("scheme")));
    assert_eq!(
        print::text(&b.forward),
        print::text(&built("", "euler(ffn)", "").forward)
    );
}

#[test]
fn a_flow_that_is_used_twice_has_one_coefficient_and_two_flows_clash() {
    let text = "scheme r(F) { learn b = 1/2;  step x { return x + b*h*F(x) } }\n";
    let b = built(text, "strang(ffn by r, att)", "");
    let own = b.params.iter().filter(|p| p.path.ends_with("scheme.b"));
    assert_eq!(own.count(), STEPS);
    let clash = compile_text(&format!(
        "{text}{}",
        model("lie(ffn by r, att by r)", 2, "")
    ));
    insta::assert_snapshot!("learned_clash", clash.rendered());
}

#[test]
fn mistakes() {
    let mut cases = Cases::default();
    for (name, text) in [
        (
            "length",
            "scheme s(F) { learn b[3] = [1, 2];  step x { return x + b[0]*F(x) } }",
        ),
        (
            "entry",
            "scheme s(F) { learn b[3] = 1;  step x { return x + b[3]*F(x) } }",
        ),
        (
            "list",
            "scheme s(F) { learn b[3] = 1;  step x { return x + b*F(x) } }",
        ),
        (
            "set",
            "scheme s(F) { learn b = 1;  step x { b = 2;  return x + b*F(x) } }",
        ),
        (
            "taken",
            "scheme s(F, r = 2) { learn r = 1;  learn h = 1;  step x { return x + r*h*F(x) } }",
        ),
        (
            "divisor",
            "scheme s(F) { learn b = 1;  step x { return x + F(x)/(b - b) } }",
        ),
        ("tableau_of_a_step", "scheme s { learn tableau from iie }"),
        ("tableau_of_nothing", "scheme s { learn tableau from rk5 }"),
        ("tableau_of_itself", "scheme s { learn tableau from s }"),
        (
            "tableau_of_a_multistep",
            "scheme s { learn tableau from ab4 }",
        ),
        (
            "multistep_of_a_tableau",
            "scheme s { learn multistep from gauss4 }",
        ),
        (
            "multistep_of_nothing",
            "scheme s { learn multistep from ab9 }",
        ),
        (
            "start_of_a_tableau",
            "scheme s { learn tableau from rk4;  start by heun }",
        ),
        (
            "start_of_one_step",
            "scheme one { multistep { alpha 1 -1; beta 0 1 } }\nscheme s { learn multistep from one;  start by heun }",
        ),
        (
            "solve_of_an_explicit_tableau",
            "scheme s(F) { learn tableau from rk4;  solve by fixed_point(iterations: 2) }",
        ),
        (
            "a_constant_of_the_source",
            "scheme q(F) { let a = 1;  tableau { 0 |; | a } }\nscheme s(F, a = 2) { learn tableau from q }",
        ),
        (
            "unused_parameter",
            "scheme s(F, q = 2) { learn tableau from rk4 }",
        ),
        (
            "count",
            "scheme s(F) { learn b = 1;  step x { y = x;  repeat b { y = y + F(y) }  return y } }",
        ),
    ] {
        cases.add(name, compile_text(text).rendered());
    }
    insta::assert_snapshot!("learned_mistakes", cases);
}
