//! Schemes with learned coefficients: planned programs compute what their graphs mean, and train the coefficients.

use crate::numbers::{close, executor, feeds, tokens};
use crate::systems::options;
use odec_compiler::model::{Built, compile};
use odec_compiler::passes::build_manifest;
use odec_compiler::scheme::NoFiles;
use odec_grammar::{Sources, parse};
use odec_graph::interp;
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

fn built(text: &str) -> Built {
    let mut sources = Sources::default();
    let main = sources.add("test.ode", text);
    let (file, errors) = parse(main, text);
    assert_eq!(errors, []);
    let checked = compile(&file, main, &mut sources, &mut NoFiles).unwrap();
    checked.built.unwrap()
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
        out.f32("logits").unwrap(),
        &want["logits"].data,
        1e-5,
    );
    let out = e.run("grad", at, &inputs, &[]).unwrap();
    let want = interp::run(&built.grad, &f, at).unwrap();
    close("loss", out.f32("loss").unwrap(), &want["loss"].data, 1e-5);
    let start = e.state(State::Params).to_vec();
    let grads = e.state(State::Grads).to_vec();
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
    let after = e.state(State::Params);
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
