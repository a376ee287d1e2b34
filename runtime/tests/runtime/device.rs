//! Executor and reference device against closed forms.

use crate::support::{self, CONTEXT, VOCAB, WIDTH};
use odec_program::Bindings;
use odec_runtime::{Artifact, DeviceChoice, Executor, State, Value};

fn executor() -> Executor {
    let artifact = Artifact::in_memory(support::manifest()).unwrap();
    let device = artifact.device(DeviceChoice::Reference, None).unwrap();
    let mut x = Executor::new(&artifact, device).unwrap();
    x.set_poison(true);
    x.initialise(1);
    x
}

const AT: Bindings = Bindings::new(2, 5);
const TOKENS: [i32; 10] = [0, 1, 2, 255, 4, 5, 0, 7, 8, 9];
const TARGETS: [i32; 10] = [1, 2, 255, 4, 5, 6, 7, 8, 0, 10];

/// Logits of each row in f64, from the parameters.
fn logits(params: &[f32]) -> Vec<Vec<f64>> {
    let (w, head) = (WIDTH as usize, (VOCAB * WIDTH) as usize);
    let row = |t: i32| {
        let x = &params[t as usize * w..][..w];
        let one = |o: usize| {
            (0..w)
                .map(|i| f64::from(x[i]) * f64::from(params[head + o * w + i]))
                .sum()
        };
        (0..VOCAB as usize).map(one).collect()
    };
    TOKENS.iter().map(|t| row(*t)).collect()
}

fn loss(params: &[f32]) -> f64 {
    let row =
        |(l, t): (&Vec<f64>, &i32)| l.iter().map(|x| x.exp()).sum::<f64>().ln() - l[*t as usize];
    logits(params).iter().zip(&TARGETS).map(row).sum::<f64>() / TARGETS.len() as f64
}

#[test]
fn forward_and_loss_agree_with_f64() {
    let mut x = executor();
    let want = logits(x.state(State::Params).f32());
    let want_loss = loss(x.state(State::Params).f32());
    let out = x
        .run("forward", AT, &[("tokens", Value::I32(&TOKENS))], &[])
        .unwrap();
    let got = out.reals("logits").unwrap().f32();
    assert_eq!(got.len(), 10 * VOCAB as usize);
    for (g, w) in got.iter().zip(want.iter().flatten()) {
        assert!((f64::from(*g) - w).abs() < 1e-6, "{g} {w}");
    }
    let io = [
        ("tokens", Value::I32(&TOKENS)),
        ("targets", Value::I32(&TARGETS)),
    ];
    let got = x.run("loss", AT, &io, &[]).unwrap().scalar("loss").unwrap();
    assert!((got - want_loss).abs() < 1e-6, "{got} {want_loss}");
}

#[test]
fn gradients_agree_with_central_differences() {
    let mut x = executor();
    let io = [
        ("tokens", Value::I32(&TOKENS)),
        ("targets", Value::I32(&TARGETS)),
    ];
    x.run("grad", AT, &io, &[]).unwrap();
    let (params, grads) = (
        x.state(State::Params).f32().to_vec(),
        x.state(State::Grads).f32(),
    );
    let w = WIDTH as usize;
    let head = (VOCAB * WIDTH) as usize;
    // One element of: a used row, a row used twice, an unused row, and rows of the output matrix.
    for i in [255 * w + 3, 1, 100 * w, head, head + 255 * w + 15] {
        let mut p = params.clone();
        let step = 1.0 / 128.0;
        p[i] = params[i] + step;
        let up = loss(&p);
        p[i] = params[i] - step;
        let slope = (up - loss(&p)) / (2.0 * f64::from(step));
        assert!(
            (f64::from(grads[i]) - slope).abs() < 2e-6,
            "{i}: {} {slope}",
            grads[i]
        );
    }
}

#[test]
fn update_is_adamw_with_clipping() {
    let mut x = executor();
    let n = x.state(State::Params).f32().len();
    for (i, g) in x.state_mut(State::Grads).f32().iter_mut().enumerate() {
        *g = (i % 7) as f32 - 3.0;
    }
    let before = x.state(State::Params).f32().to_vec();
    let norm: f64 = x
        .state(State::Grads)
        .f32()
        .iter()
        .map(|g| f64::from(*g).powi(2))
        .sum::<f64>()
        .sqrt();
    let scalars = [
        ("lr", 0.1),
        ("bias1", 1.0 / (1.0 - 0.9)),
        ("bias2", 1.0 / (1.0 - 0.95)),
    ];
    let got = x
        .run("update", Bindings::new(1, 1), &[], &scalars)
        .unwrap()
        .scalar("grad_norm")
        .unwrap();
    assert!((got - norm).abs() < 1e-6 * norm);
    for i in (0..n).step_by(97) {
        let (p, g) = (f64::from(before[i]), ((i % 7) as f64 - 3.0) / norm);
        // After one step the corrected moments are g and g².
        let want = p - 0.1 * (g / (g.abs() + 1e-8) + 0.01 * p);
        let got = f64::from(x.state(State::Params).f32()[i]);
        assert!((got - want).abs() < 1e-6, "{i}: {got} {want}");
    }
}

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let mut x = executor();
    let mut errors = vec![];
    let mut fail = |entry: &str, at: (u64, u64), io: &[(&str, Value)]| {
        let at = Bindings::new(at.0, at.1);
        errors.push(
            x.run(entry, at, io, &[])
                .map(|_| ())
                .unwrap_err()
                .to_string(),
        );
    };
    let tokens = ("tokens", Value::I32(&TOKENS));
    fail("backward", (2, 5), &[]);
    fail("forward", (2, 5), &[]);
    fail(
        "forward",
        (2, 5),
        &[tokens, ("targets", Value::I32(&TARGETS))],
    );
    fail("forward", (2, 4), &[tokens]);
    fail("forward", (2, 5), &[("tokens", Value::F32(&[0.0; 10]))]);
    fail("forward", (0, 5), &[tokens]);
    fail("forward", (1, CONTEXT + 1), &[tokens]);
    fail("forward", (1, 2), &[("tokens", Value::I32(&[3, 256]))]);
    fail("forward", (1, 2), &[("tokens", Value::I32(&[-1, 2]))]);
    fail("update", (1, 1), &[]);
    insta::assert_snapshot!(errors.join("\n"));
}
