//! Functions of learned numbers, and noise in steps: gradients against differences, and what a run draws.

use crate::numbers::{close, executor, feeds, tokens};
use crate::plain::{self, drawn_loss};
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_graph::interp::{self, Tensor};
use odec_program::{Bindings, noise};
use odec_runtime::{State, Value};
use std::collections::BTreeMap;

const AT: Bindings = Bindings::new(2, 3);
const WIDTH: usize = 4;

fn model(scheme: &str, flow: &str, options: &str) -> String {
    format!(
        "{scheme}
        field slope = linear
        model small {{ input tokens(vocab: 256, context: 8);  embed learned(width: 4)
          evolve {flow} for 2 steps {{ {options} }};  output logits(tied);  init normal(std: 0.5) }}
        train {{ data text(\"none.txt\", tokenizer: bytes);  optimizer adamw(lr: 1e-3);  batch 2;  steps 4 }}"
    )
}

/// All functions, of numbers of each kind.
const FUNCTIONS: &str = "scheme functions(F) {
  learn shared a = 1/2
  learn per channel c = 3/4
  learn b[2] = [1/3, 2]
  step x {
    f = F(x)
    y = exp(-a*h)*x + sqrt(c)*h/(1 + b[1])*f
    g = F(y)
    return y + h*(tanh(b[0])*sigmoid(a + c)*f + softplus(c - 2*a)/sqrt(h)*g) + log(b[1])/c*F(g)
  }
}";

/// What the gradient says of each learned number is the slope of the loss in f64; and compiled code agrees.
#[test]
fn gradients_are_slopes() {
    for options_of_steps in ["h = 1/3", "learn h = 1/3", "learn per channel h = 1/3"] {
        let text = model(FUNCTIONS, "functions(slope)", options_of_steps);
        let built = built(&text);
        let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
        let mut e = executor(&manifest);
        let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
        let mut f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
        let want = interp::run(&built.grad, &f, AT).unwrap();
        let loss =
            |f: &BTreeMap<String, Tensor>| interp::run(&built.grad, f, AT).unwrap()["loss"].data[0];
        let mut compared = 0;
        for p in &manifest.params {
            let learned = p.path.contains("scheme.") || p.path.ends_with(".h");
            for i in 0..f[&p.path].data.len() * usize::from(learned) {
                let old = f[&p.path].data[i];
                let step = 1e-5;
                let mut at = |value: f64| {
                    f.get_mut(&p.path).expect("a parameter").data[i] = value;
                    loss(&f)
                };
                let slope = (at(old + step) - at(old - step)) / (2.0 * step);
                at(old);
                let found = want[&format!("grad.{}", p.path)].data[i];
                let near = (found - slope).abs() <= 1e-7 * slope.abs().max(1.0);
                assert!(near, "{options_of_steps}: {}[{i}]: {found} {slope}", p.path);
                assert!(found != 0.0, "{options_of_steps}: {}[{i}]", p.path);
                compared += 1;
            }
        }
        assert!(compared >= 13, "{compared}");
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let out = e.run("grad", AT, &io, &[]).unwrap();
        close(
            "loss",
            out.reals("loss").unwrap().f32(),
            &want["loss"].data,
            1e-5,
        );
        let grads = e.state(State::Grads).f32();
        for p in &manifest.params {
            let from = p.offset as usize / 4;
            let own = &grads[from..from + p.shape.iter().product::<u64>() as usize];
            close(&p.path, own, &want[&format!("grad.{}", p.path)].data, 5e-5);
        }
    }
}

/// Of large numbers, on both sides, `softplus` and `tanh` are what they tend to.
#[test]
fn functions_do_not_overflow() {
    let scheme = "scheme far(F) { learn a = 1000;  learn b = -1000
      step x { return x + h*(softplus(a)/1000*tanh(a) + softplus(b) + sigmoid(b) + exp(b))*F(x) } }";
    let plain = "scheme far(F) { step x { return x + h*F(x) } }";
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let loss = |scheme: &str| {
        let text = model(scheme, "far(slope)", "h = 1/2");
        let built = built(&text);
        let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
        let mut e = executor(&manifest);
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        e.run("grad", AT, &io, &[]).unwrap().scalar("loss").unwrap()
    };
    let (far, near) = (loss(scheme), loss(plain));
    assert!((far - near).abs() < 1e-5, "{far} {near}");
}

/// With F = 0 a step adds its noise alone: of the key, and of a stream of its own for each draw. Evaluation adds none.
#[test]
fn noise_is_drawn_in_training_alone() {
    let scheme = "scheme noisy(F) { step x { y = x + sqrt(h)*normal(std: 1/2)
      return y + h*F(y) + 2*normal(std: 1/2) } }";
    let text = model(scheme, "noisy(slope)", "h = 1/4");
    let built = built(&text);
    let manifest = build_manifest(&built, &text, options()).unwrap().manifest;
    let mut e = executor(&manifest);
    for p in &manifest.params {
        if p.path.contains("slope") {
            let from = p.offset as usize / 4;
            e.state_mut(State::Params).f32()[from..from + WIDTH * WIDTH].fill(0.0);
        }
    }
    let (x, y) = (tokens(AT, 11, 1), tokens(AT, 11, 5));
    let mut f = feeds(&e, AT, &[("tokens", &x), ("targets", &y)]);
    let table = f["embed.token.weight"].data.clone();
    let rows: Vec<&[f64]> = table.chunks(WIDTH).collect();
    let logits = |state: &[f64]| -> Vec<f64> {
        let product = |e: &&[f64]| e.iter().zip(state).map(|(a, b)| a * b).sum();
        rows.iter().map(product).collect()
    };
    let evaluated = interp::run(&built.forward, &f, AT).unwrap()["logits"]
        .data
        .clone();
    for (got, token) in evaluated.chunks(256).zip(&x) {
        for (a, b) in got.iter().zip(logits(rows[*token as usize])) {
            assert!((a - b).abs() < 1e-12, "{a} {b}");
        }
    }
    let mut found = Vec::new();
    for key in [5u32, 6] {
        f.insert(
            noise::KEY.into(),
            Tensor::new(vec![1], vec![f64::from(key)]),
        );
        let loss = interp::run(&built.grad, &f, AT).unwrap()["loss"].data[0];
        let nats = |(row, (token, y)): (usize, (&i32, &i32))| {
            let state: Vec<f64> = (0..WIDTH as u32)
                .map(|c| {
                    // √(1/4)·1/2 and 2·1/2, in each of the two steps.
                    let draws = [(2, 0.25), (3, 1.0), (4, 0.25), (5, 1.0)];
                    let draws =
                        draws.map(|(s, size)| size * noise::normal([key, s, row as u32, c]));
                    rows[*token as usize][c as usize] + draws.iter().sum::<f64>()
                })
                .collect();
            plain::nats(&logits(&state), *y)
        };
        let want = x.iter().zip(&y).enumerate().map(nats).sum::<f64>() / 6.0;
        assert!((loss - want).abs() < 1e-12, "{loss} {want}");
        let compiled = drawn_loss(&mut e, AT, [&x, &y], key);
        assert!((compiled - want).abs() < 1e-5, "{compiled} {want}");
        found.push(loss);
    }
    assert!(found[0] != found[1]);
}
