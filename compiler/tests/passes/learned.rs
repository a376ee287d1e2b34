//! Schemes with learned coefficients: planned programs compute what their graphs mean, and train the coefficients.

use crate::numbers::{close, executor, feeds, tokens};
use crate::source::{built, checked};
use crate::systems::options;
use odec_compiler::analysis::claims::Instance;
use odec_compiler::analysis::keep;
use odec_compiler::model::Built;
use odec_compiler::passes::build_manifest;
use odec_graph::{Exact, interp};
use odec_numerics::multistep::Multistep;
use odec_numerics::order::{Weights, prove};
use odec_numerics::{Tableau, Trees};
use odec_program::Bindings;
use odec_program::manifest::named;
use odec_runtime::{State, Value};

/// A coefficient for all steps, one per step, one per channel, and a polynomial.
const LEARNED: &str = "scheme learned(F) {
  learn shared gamma[2] = [1, 1/2]
  learn b = 1/2
  learn per channel alpha = 1
  step x {
    k1 = F(x)
    k2 = F(x + h*(b*(1-b)*k1 + gamma[1]*alpha*x))
    return x + h*(gamma[0]*k1 + alpha*k2)
  }
}
";

fn model(flow: &str, steps: u64) -> String {
    format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 20)\n\
         field layer = increment(lie(att, ffn))\n\
         model small {{\n  input tokens(vocab: 256, context: 7)\n  embed learned(width: 12)\n  \
         evolve {flow} for {steps} steps {{ h = 1/2 }}\n  output rmsnorm |> logits(tied)\n}}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  loss cross_entropy;  optimizer adamw(lr: 1e-3)\n\
         batch 3;  steps 10 }}\n"
    )
}

fn check(scheme: &str, flow: &str, steps: u64) {
    let text = format!("{scheme}{}", model(flow, steps));
    let built = built(&text);
    let manifest = build_manifest(&built, &text, options())
        .unwrap_or_else(|e| panic!("{e}"))
        .manifest;
    let mut e = executor(&manifest);
    let at = Bindings::new(2, 5);
    let (x, y) = (tokens(at, 11, 1), tokens(at, 11, 5));
    let f = feeds(&e, at, &[("tokens", &x), ("targets", &y)]);
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let out = e.run("forward", at, &inputs[..1], &[]).unwrap();
    let want = interp::run(&built.forward, &f, at).unwrap();
    close(
        "logits",
        out.reals("logits").unwrap().f32(),
        &want["logits"].data,
        1e-5,
    );
    let out = e.run("grad", at, &inputs, &[]).unwrap();
    let want = interp::run(&built.grad, &f, at).unwrap();
    close(
        "loss",
        out.reals("loss").unwrap().f32(),
        &want["loss"].data,
        1e-5,
    );
    let start = e.state(State::Params).f32().to_vec();
    let grads = e.state(State::Grads).f32().to_vec();
    let place = |p: &odec_program::manifest::Param| {
        let first = p.offset as usize / 4;
        first..first + p.shape.iter().product::<u64>() as usize
    };
    for p in &manifest.params {
        let name = format!("grad.{}", p.path);
        close(&name, &grads[place(p)], &want[&name].data, 2e-5);
    }
    let scalars = [
        (named::LR, 1e-2),
        (named::BIAS1, 10.0),
        (named::BIAS2, 20.0),
    ];
    e.run("update", at, &[], &scalars).unwrap();
    let after = e.state(State::Params).f32();
    let learned = manifest
        .params
        .iter()
        .filter(|p| p.path.contains("scheme."));
    let mut moved = 0;
    for p in learned {
        for i in place(p) {
            assert_eq!(after[i] != start[i], grads[i] != 0.0, "{}", p.path);
            moved += usize::from(after[i] != start[i]);
        }
    }
    assert!(moved > 0, "no coefficient is trained");
}

#[test]
fn coefficients_of_every_kind() {
    check(LEARNED, "learned(ffn)", 2);
    check(LEARNED, "learned(layer)", 2);
}

/// Methods that keep an order: free directions are trained, coefficients follow.
#[test]
fn kept_orders() {
    for (scheme, flow) in [
        (
            "scheme kept { learn per channel tableau from heun keep order 2 }\n",
            "kept(ffn)",
        ),
        (
            "scheme kept { learn shared multistep from ab3 keep order 2 }\n",
            "kept(ffn)",
        ),
    ] {
        check(scheme, flow, 3);
    }
}

/// The parameters below `scheme.` after some updates on the reference device, by path.
fn trained(built: &Built, text: &str, updates: usize) -> Vec<(String, f32)> {
    let manifest = build_manifest(built, text, options())
        .expect("it is built")
        .manifest;
    let mut e = executor(&manifest);
    let at = Bindings::new(2, 5);
    let (x, y) = (tokens(at, 11, 1), tokens(at, 11, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    for n in 1..=updates {
        e.run("grad", at, &inputs, &[]).expect("gradients");
        let bias = |beta: f64| 1.0 / (1.0 - beta.powi(n as i32));
        let scalars = [
            (named::LR, 3e-2),
            (named::BIAS1, bias(0.9)),
            (named::BIAS2, bias(0.95)),
        ];
        e.run("update", at, &[], &scalars).expect("an update");
    }
    let params = e.state(State::Params).f32();
    let own = manifest
        .params
        .iter()
        .filter(|p| p.path.contains("scheme."));
    own.map(|p| (p.path.clone(), params[p.offset as usize / 4]))
        .collect()
}

/// Trained directions are floats, which are rational numbers: the methods that they stand for have the order that is
/// kept, exactly, and no higher one; with coefficients rounded to f32 the order holds to rounding.
#[test]
fn trained_methods_are_proved_again() {
    for (source, order) in [("heun", 2), ("rk4", 2), ("ab4", 3), ("bdf2", 1)] {
        let what = if ["heun", "rk4"].contains(&source) {
            "tableau"
        } else {
            "multistep"
        };
        let scheme = format!("scheme kept {{ learn {what} from {source} keep order {order} }}\n");
        let steps = 5;
        let text = format!("{scheme}{}", model("kept(ffn)", steps));
        let checked = checked(&text);
        let kept = |i: &Instance| keep::kept(i)?.ok();
        let kept = checked.instances.iter().find_map(kept).expect("a manifold");
        let built = checked.built.as_ref().expect("a model");
        let after = trained(built, &text, 4);
        let mut methods = 0;
        for step in 0..steps {
            let of = |n: usize| {
                let path = format!("step.{step}.scheme.u.{n}");
                after.iter().find(|(p, _)| *p == path).map(|(_, u)| *u)
            };
            let u: Option<Vec<f32>> = (0..kept.chart.free).map(of).collect();
            // The first steps of a multistep method are taken by another scheme.
            let Some(u) = u else { continue };
            assert!(u.iter().all(|u| *u != 0.0), "{source}: {u:?}");
            let exact: Vec<Exact> = u
                .iter()
                .filter_map(|u| Exact::float(f64::from(*u)))
                .collect();
            let theta = kept.coefficients_at(&exact).expect("no denominator is 0");
            let named: Vec<(String, Exact)> = kept
                .coefficients
                .iter()
                .map(|l| l.name.clone())
                .zip(theta)
                .collect();
            assert_eq!(proved(source, &named, None), order, "{source}, step {step}");
            let rounded = |x: &Exact| Exact::float(f64::from(x.to_f64() as f32)).expect("finite");
            let rounded: Vec<(String, Exact)> =
                named.iter().map(|(n, x)| (n.clone(), rounded(x))).collect();
            let within = Exact::decimal("1e-6").expect("a number");
            assert_eq!(
                proved(source, &rounded, Some(&within)),
                order,
                "{source}, step {step}"
            );
            methods += 1;
        }
        assert!(methods >= 2, "{source}");
    }
}

/// The order of a method of the library with other coefficients.
fn proved(source: &str, named: &[(String, Exact)], within: Option<&Exact>) -> usize {
    let value = |name: String| {
        named
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, x)| x.clone())
    };
    let or_zero = |name: String| value(name).unwrap_or_default();
    let weights = named.iter().filter(|(n, _)| n.starts_with("b[")).count();
    if weights > 0 {
        let row = |i: usize| {
            (0..weights)
                .map(|j| or_zero(format!("a[{i}][{j}]")))
                .collect()
        };
        let b = (0..weights).map(|j| or_zero(format!("b[{j}]"))).collect();
        let tableau = Tableau::single((0..weights).map(row).collect(), b);
        let mut w = Weights::new(&tableau).expect("rational numbers");
        return prove(&mut w, &mut Trees::new(1), 8, within).order;
    }
    // The conditions of a multistep method are sums over its rows (Hairer, Nørsett & Wanner 1993, III.2).
    let steps = if source == "ab4" { 4 } else { 2 };
    let alpha = (0..=steps).map(|i| match i {
        0 => Exact::one(),
        _ => value(format!("alpha[{i}]")).unwrap_or_else(|| match (source, i) {
            ("ab4", 1) => Exact::int(-1),
            _ => Exact::zero(),
        }),
    });
    let method = Multistep {
        alpha: alpha.collect(),
        beta: (0..=steps).map(|i| or_zero(format!("beta[{i}]"))).collect(),
    };
    let holds = |q: &usize| {
        let c = method.constant(*q);
        let c = if c.is_negative() { -&c } else { c };
        within.map_or(c.is_zero(), |w| c <= *w)
    };
    (0..=8).take_while(holds).count().saturating_sub(1)
}

/// An entry of `start`, a norm of its own, rows as long as the history, a past state.
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

#[test]
fn histories() {
    check(GROWING, "growing(layer, layernorm)", 4);
    check("", "pcformer(layer, m: 2)", 4);
    check("", "iiet_refresh(layer, r: 2)", 3);
}
