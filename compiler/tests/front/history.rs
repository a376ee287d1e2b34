//! Histories: stage programs, parameters, values against plain loops, gradients against differences, and mistakes.

use crate::common::{Cases, compile_text, model};
use crate::reference::{
    BINDINGS, Feeds, Random, State, check_gradients, check_values, feeds, ffn, layer, rmsnorm, sum,
};
use odec_compiler::model::Built;
use odec_graph::{Exact, print, run};
use odec_library::shipped;
use odec_program::manifest::Init;
use proptest::prelude::*;

const STEPS: usize = 4;

/// A window of three steps, one of them before the first.
const WINDOW: &str = "scheme window(F) {
  learn a = 1/3
  learn b[3] = [1, 1/2, 1/4]
  step x {
    k = F(x)
    return x + h*(a*F(x + h*k) + sum j in 0..3 { b[j]*k[-j] })
  }
}
";

/// An entry of `start`, a norm of its own, all entries so far, refreshed in place.
const GROWING: &str = "scheme growing(F, N) {
  learn w[..] = uniform
  start { z = N(x);  x = z }
  step x {
    z = N(x + h*F(x))
    z = N(sum j in 0.. { w[j]*z[-j] })
    return sum j in 0.. { w[j]*z[-j] } - 1/4*x[-1]
  }
}
";

/// Input injection: `e` is set once.
const INJECTED: &str = "scheme injected(F) {
  start { e = F(x) }
  step x { return x + h*F(x + e) }
}
";

fn built(scheme: &str, flow: &str, steps: usize, options: &str) -> Built {
    let text = format!("{scheme}{}", model(flow, steps as u64, options));
    compile_text(&text)
        .checked()
        .built
        .clone()
        .expect("a model")
}

fn one(f: &Feeds, path: String) -> f64 {
    f[&path].data[0]
}

#[test]
fn stage_programs() {
    let mut cases = Cases::default();
    for (name, text) in [
        ("window", WINDOW),
        ("growing", GROWING),
        ("injected", INJECTED),
    ] {
        cases.add(name, compile_text(text).checked().stages());
    }
    insta::assert_snapshot!("history_stage_programs", cases);
}

#[test]
fn graphs_of_two_steps() {
    let b = built(GROWING, "growing(ffn, rmsnorm)", 2, "h = 1/2");
    insta::assert_snapshot!("history_graph_growing", print::text(&b.forward));
}

/// One row of coefficients for each step, as long as the history; what `start` does has parameters of its own.
#[test]
fn parameters() {
    let b = built(GROWING, "growing(ffn, rmsnorm)", 2, "");
    let paths = b.params.iter().map(|p| p.path.as_str());
    let own: Vec<&str> = paths.filter(|p| !p.contains("ffn")).collect();
    assert_eq!(
        own,
        [
            "embed.token.weight",
            "start.N.norm.gain",
            "step.0.scheme.w.0",
            "step.0.scheme.w.1",
            "step.0.N.norm.gain",
            "step.1.scheme.w.0",
            "step.1.scheme.w.1",
            "step.1.scheme.w.2",
            "step.1.N.norm.gain",
            "output.norm.gain",
        ]
    );
    let init = |path: &str| b.params.iter().find(|p| p.path == path).map(|p| &p.init);
    assert_eq!(init("step.0.scheme.w.1"), Some(&Init::Constant(0.5)));
    assert_eq!(init("step.1.scheme.w.1"), Some(&Init::Constant(1.0 / 3.0)));
    let shared = GROWING.replace("learn w", "learn shared w");
    let b = built(&shared, "growing(ffn, rmsnorm)", 2, "weights shared");
    let paths = b.params.iter().map(|p| p.path.as_str());
    let own: Vec<&str> = paths.filter(|p| !p.contains("ffn")).collect();
    assert_eq!(
        own,
        [
            "embed.token.weight",
            "N.norm.gain",
            "scheme.w.0",
            "scheme.w.1",
            "scheme.w.2",
            "output.norm.gain",
        ]
    );
}

#[test]
fn values_of_a_window() {
    let b = built(WINDOW, "window(layer)", STEPS, "h = 1/2");
    let f = feeds(&b, 7);
    let mut ks: Vec<State> = Vec::new();
    check_values("window", &b, &f, STEPS, &mut |k, x| {
        let (step, h) = (format!("step.{k}"), 0.5);
        let k1 = layer(x, &f, &step);
        let a = one(&f, format!("{step}.scheme.a"));
        let k2 = layer(&sum(&[(1.0, x), (h, &k1)]), &f, &step);
        ks.insert(0, k1);
        let mut next = sum(&[(1.0, x), (h * a, &k2)]);
        for (j, k) in ks.iter().take(3).enumerate() {
            let b = one(&f, format!("{step}.scheme.b.{j}"));
            next = sum(&[(1.0, &next), (h * b, k)]);
        }
        next
    });
    check_gradients("window", &b, &f);
}

#[test]
fn values_of_a_growing_history() {
    let b = built(GROWING, "growing(ffn, rmsnorm)", STEPS, "h = 1/2");
    let f = feeds(&b, 7);
    let (mut zs, mut before): (Vec<State>, Option<State>) = (Vec::new(), None);
    check_values("growing", &b, &f, STEPS, &mut |k, x| {
        let step = format!("step.{k}");
        let norm = |x: &State| rmsnorm(x, &f[&format!("{step}.N.norm.gain")]);
        let mixed = |zs: &[State]| {
            let each = zs.iter().enumerate();
            let terms: Vec<(f64, &State)> = each
                .map(|(j, z)| (one(&f, format!("{step}.scheme.w.{j}")), z))
                .collect();
            sum(&terms)
        };
        let mut x = x.clone();
        if k == 0 {
            x = rmsnorm(&x, &f["start.N.norm.gain"]);
            zs.push(x.clone());
        }
        let y = ffn(&x, &f, &format!("{step}.ffn"));
        zs.insert(0, norm(&sum(&[(1.0, &x), (0.5, &y)])));
        zs[0] = norm(&mixed(&zs));
        let mut next = mixed(&zs);
        if let Some(before) = &before {
            next = sum(&[(1.0, &next), (-0.25, before)]);
        }
        before = Some(x);
        next
    });
    check_gradients("growing", &b, &f);
}

#[test]
fn values_of_an_injected_input() {
    let b = built(INJECTED, "injected(ffn)", STEPS, "h = 1/2");
    let f = feeds(&b, 7);
    let mut e: Option<State> = None;
    check_values("injected", &b, &f, STEPS, &mut |k, x| {
        let e = e.get_or_insert_with(|| ffn(x, &f, "start.ffn"));
        let at = sum(&[(1.0, x), (1.0, e)]);
        sum(&[(1.0, x), (0.5, &ffn(&at, &f, &format!("step.{k}.ffn")))])
    });
    check_gradients("injected", &b, &f);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// A sum over all entries with coefficients that vanish beyond a window is the window.
    #[test]
    fn a_window_is_a_history_of_zeros(
        weights in prop::collection::vec(-3i32..4, 1..4), steps in 1usize..5
    ) {
        let terms: Vec<String> =
            weights.iter().enumerate().map(|(j, w)| format!("+ ({w})/2*k[-{j}]")).collect();
        let written = format!("scheme w(F) {{ step x {{ k = F(x);  return x {} }} }}\n", terms.concat());
        let listed: Vec<String> = weights.iter().map(|w| format!("({w})/2")).collect();
        let n = weights.len();
        let learned = format!(
            "scheme w(F) {{ learn c[{n}] = [{}];  step x {{ k = F(x);  return x + sum j in 0..{n} {{ c[j]*k[-j] }} }} }}\n",
            listed.join(", ")
        );
        let (a, b) = (built(&written, "w(ffn)", steps, ""), built(&learned, "w(ffn)", steps, ""));
        prop_assert_eq!(logits(&a), logits(&b), "halves are exact in f64");
    }

    /// Coefficients at their starts are the plain scheme: `delta` is implicit Euler without a history.
    #[test]
    fn a_fresh_history_is_the_plain_scheme(r in 0usize..4, steps in 1usize..5) {
        let fresh = built("", &format!("iiet_refresh(layer, r: {r})"), steps, "");
        let plain = built("", &format!("iie(layer, r: {r})"), steps, "");
        for (a, b) in logits(&fresh).iter().zip(logits(&plain)) {
            prop_assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{} and {}", a, b);
        }
    }
}

/// A learned tableau at its start is the method, up to the order in which products are rounded.
#[test]
fn a_fresh_tableau_is_its_method() {
    let b = built("", "rk4_learned(layer)", 2, "h = 1/2");
    let paths = b.params.iter().filter(|p| p.path.contains("scheme."));
    assert_eq!(paths.count(), 2 * (6 + 4));
    let plain = built("", "rk4(layer)", 2, "h = 1/2");
    for (a, b) in logits(&b).iter().zip(logits(&plain)) {
        assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} and {b}");
    }
}

/// Logits with learned coefficients at their exact starts.
fn logits(b: &Built) -> Vec<f64> {
    let mut f = feeds(b, 3);
    for p in &b.params {
        if let (Init::Constant(c), true) = (&p.init, p.path.contains("scheme.")) {
            f.get_mut(&p.path).expect("a parameter").data.fill(*c);
        }
    }
    // Draw the others by their names, so that models with other coefficients have the same ones.
    for (path, t) in f.iter_mut() {
        if !path.contains("scheme.") && !["tokens", "targets"].contains(&path.as_str()) {
            let next = |h: u64, b: u8| h.wrapping_mul(31).wrapping_add(u64::from(b));
            let mut r = Random(path.bytes().fold(1, next));
            t.data.iter_mut().for_each(|v| *v = r.next());
        }
    }
    run(&b.forward, &f, BINDINGS).expect("it runs")["logits"]
        .data
        .clone()
}

/// Started by another scheme: a multistep method as a step program has the values of the method.
#[test]
fn a_started_history_is_a_multistep_method() {
    let written = "scheme mine(F) { step x { f = F(x);  return x + h*(23/12*f - 4/3*f[-1] + 5/12*f[-2]) }  start by kutta3 }\n";
    let a = built(written, "mine(ffn)", 5, "h = 1/2");
    let b = built("", "ab3(ffn)", 5, "h = 1/2");
    for (a, b) in logits(&a).iter().zip(logits(&b)) {
        assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} and {b}");
    }
}

/// Hamming's method: three steps of RK4 with its own weights, then predictor and corrector.
#[test]
fn values_of_a_started_history() {
    let b = built("", "hamming5(ffn)", STEPS + 2, "h = 1/2");
    let f = feeds(&b, 7);
    let (mut xs, mut fs, mut d): (Vec<State>, Vec<State>, Option<State>) = (vec![], vec![], None);
    check_values("hamming5", &b, &f, STEPS + 2, &mut |k, x| {
        let (path, h) = (format!("step.{k}.ffn"), 0.5);
        let slope = |x: &State| ffn(x, &f, &path);
        let k1 = slope(x);
        xs.insert(0, x.clone());
        fs.insert(0, k1.clone());
        if k < 3 {
            let k2 = slope(&sum(&[(1.0, x), (h / 2.0, &k1)]));
            let k3 = slope(&sum(&[(1.0, x), (h / 2.0, &k2)]));
            let k4 = slope(&sum(&[(1.0, x), (h, &k3)]));
            let (a, b) = (h / 6.0, h / 3.0);
            return sum(&[(1.0, x), (a, &k1), (b, &k2), (b, &k3), (a, &k4)]);
        }
        let p = [
            (1.0, &xs[3]),
            (8.0 / 3.0 * h, &fs[0]),
            (-4.0 / 3.0 * h, &fs[1]),
            (8.0 / 3.0 * h, &fs[2]),
        ];
        let p = sum(&p);
        let m = match &d {
            None => p.clone(),
            Some(d) => sum(&[(1.0, &p), (-112.0 / 121.0, d)]),
        };
        let c = [
            (9.0 / 8.0, &xs[0]),
            (-1.0 / 8.0, &xs[2]),
            (3.0 / 8.0 * h, &slope(&m)),
            (3.0 / 4.0 * h, &fs[0]),
            (-3.0 / 8.0 * h, &fs[1]),
        ];
        let c = sum(&c);
        let own = sum(&[(1.0, &p), (-1.0, &c)]);
        let next = sum(&[(1.0, &c), (9.0 / 121.0, &own)]);
        d = Some(own);
        next
    });
    check_gradients("hamming5", &b, &f);
}

#[test]
fn mistakes() {
    let mut cases = Cases::default();
    for (name, text) in [
        (
            "forward",
            "scheme s(F) { step x { k = F(x);  return x + h*k[1] } }",
        ),
        (
            "unknown",
            "scheme s(F) { step x { k1 = F(x);  return x + h*k2[-1] } }",
        ),
        (
            "early",
            "scheme s(F) { step x { y = x + k[0];  k = F(y);  return y + k[-1] } }",
        ),
        (
            "number",
            "scheme s(F) { step x { c = 1/2;  return x + c*h*F(x) + c[-1] } }",
        ),
        (
            "constant",
            "scheme s(F) { start { e = F(x) }  step x { return x + h*F(x + e[-1]) } }",
        ),
        (
            "unread",
            "scheme s(F) { start { e = F(x) }  step x { d = F(x);  return x + h*d } }",
        ),
        (
            "step_size",
            "scheme s(F) { start { e = h*F(x) }  step x { return x + F(e) } }",
        ),
        (
            "returns",
            "scheme s(F) { start { return F(x) }  step x { return x + F(x) } }",
        ),
        (
            "no_step",
            "scheme s(A, B) { start { x = A(x) }  A(1) B(1) }",
        ),
        (
            "beginning",
            "scheme s(F) { step x { k = F(x);  return sum j in ..2 { k[-j] } } }",
        ),
        (
            "once",
            "scheme s(F) { start { z = F(x) }  start { z = x }  step x { z = F(z[-1]);  return z } }",
        ),
    ] {
        cases.add(name, compile_text(text).rendered());
    }
    insta::assert_snapshot!("history_mistakes", cases);
}

/// Methods of one step are what they are called elsewhere, bit for bit.
#[test]
fn methods_of_one_step() {
    let flow =
        |definition: &str, flow: &str| print::text(&built(definition, flow, 2, "h = 1/2").forward);
    let ab1 = "scheme ab1 { multistep { alpha 1 -1; beta 0 1 } }\n";
    assert_eq!(flow(ab1, "ab1(layer)"), flow("", "euler(layer)"));
    let solve = "solve by fixed_point(iterations: 2) }\n";
    let bdf1 = format!("scheme bdf1 {{ multistep {{ alpha 2 -2; beta 2 }};  {solve}");
    assert_eq!(
        flow(&bdf1, "bdf1(layer)"),
        flow("", "backward_euler(layer, r: 2)")
    );
}

/// An Adams method as a step program is the same method, and exact on polynomials as far as it claims.
#[test]
fn adams_bashforth() {
    for (name, beta) in [
        ("ab2", &[(3, 2), (-1, 2)][..]),
        ("ab3", &[(23, 12), (-4, 3), (5, 12)]),
        ("ab4", &[(55, 24), (-59, 24), (37, 24), (-3, 8)]),
    ] {
        for power in 1..=beta.len() as u32 {
            // x = t^q from t = 0 to 1 is the sum over its rates at 0, -1, -2 …
            let rate = |i: usize| i64::from(power) * (-(i as i64)).pow(power - 1);
            let each = beta.iter().enumerate();
            let sum: Exact = each
                .map(|(i, (n, d))| &Exact::ratio(*n, *d) * &Exact::int(rate(i)))
                .sum();
            assert_eq!(sum, Exact::one(), "{name}, t^{power}");
        }
        let terms = beta
            .iter()
            .enumerate()
            .map(|(j, (n, d))| format!(" + h*(({n})/{d}*k[-{j}])"));
        let written = format!(
            "scheme w(F) {{ step x {{ k = F(x);  return x{} }} }}\n",
            terms.collect::<String>()
        );
        let programs = |text: &str| compile_text(text).checked().programs.clone();
        let (method, own) = (programs(shipped::text(name)), programs(&written));
        let (method, own) = (method.last(), own.last());
        let shown = |p: Option<&odec_compiler::scheme::StageProgram>| {
            let text = p.expect("the last step").to_string();
            text.lines()
                .skip(1)
                .collect::<Vec<_>>()
                .join("\n")
                .replace("past k", "past f")
                .replace("keep k", "keep f")
        };
        assert_eq!(shown(method), shown(own));
    }
}
