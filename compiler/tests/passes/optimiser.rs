//! The `update` entry against AdamW written out in f64.

use crate::numbers::executor;
use crate::systems::{Decoder, Shape, System, options};
use odec_compiler::passes::{Model, assemble};
use odec_program::Bindings;
use odec_program::manifest::Param;
use odec_runtime::{Executor, State};

const NAMED: [(&str, f64); 3] = [("lr", 0.03), ("bias1", 1.7), ("bias2", 2.5)];

fn run(e: &mut Executor) -> f32 {
    let at = Bindings::new(1, 1);
    e.run("update", at, &[], &NAMED)
        .unwrap()
        .scalar("grad_norm")
        .unwrap() as f32
}

/// Pseudo-random numbers for every element of every parameter; gaps stay zero.
fn fill(params: &[Param], state: &mut [f32], scale: f32, positive: bool) {
    for p in params {
        let start = p.offset as usize / 4;
        for (i, x) in state[start..start + p.shape.iter().product::<u64>() as usize]
            .iter_mut()
            .enumerate()
        {
            let n = ((start + i) as u32).wrapping_mul(2_654_435_761) >> 8;
            let y = n as f32 / (1 << 24) as f32 - 0.5;
            *x = scale * if positive { y.abs() } else { y };
        }
    }
}

fn prepared(clip: Option<f64>, grad_scale: f32) -> Executor {
    let d = Decoder::new(Shape::tiny(System::Prenorm));
    let mut model: Model = d.model();
    model.train.as_mut().unwrap().clip = clip;
    let a = assemble(&model, options()).unwrap();
    let mut e = executor(&a.manifest);
    for (state, scale, positive) in [
        (State::Params, 1.0, false),
        (State::Grads, grad_scale, false),
        (State::Moment1, 0.1, false),
        (State::Moment2, 0.01, true),
    ] {
        fill(
            &a.manifest.params,
            e.state_mut(state).f32(),
            scale,
            positive,
        );
    }
    e
}

fn wide(e: &Executor, s: State) -> Vec<f64> {
    e.state(s).f32().iter().map(|x| f64::from(*x)).collect()
}

#[test]
fn one_step_is_adamw() {
    for (clip, grad_scale) in [(Some(1.0), 1.0), (Some(1.0), 1e-3), (None, 1.0)] {
        let mut e = prepared(clip, grad_scale);
        let [p, g, m, v] =
            [State::Params, State::Grads, State::Moment1, State::Moment2].map(|s| wide(&e, s));
        let norm = g.iter().map(|x| x * x).sum::<f64>().sqrt();
        let scale = clip.map_or(1.0, |c| (c / norm).min(1.0));
        let got = run(&mut e);
        assert!(
            (f64::from(got) - norm).abs() < 1e-6 * norm,
            "{got} instead of {norm}"
        );

        let (beta1, beta2, eps) = (0.9, 0.95, 1e-8);
        let [(_, lr), (_, bias1), (_, bias2)] = NAMED;
        let params = e.manifest().params.clone();
        for param in &params {
            let decay = if param.decay { 0.1 } else { 0.0 };
            let start = param.offset as usize / 4;
            for i in start..start + param.shape.iter().product::<u64>() as usize {
                let grad = g[i] * scale;
                let m1 = beta1 * m[i] + (1.0 - beta1) * grad;
                let v1 = beta2 * v[i] + (1.0 - beta2) * grad * grad;
                let step = m1 * bias1 / ((v1 * bias2).sqrt() + eps);
                let want = p[i] * (1.0 - lr * decay) - lr * step;
                let got = f64::from(e.state(State::Params).f32()[i]);
                assert!(
                    (got - want).abs() < 1e-6,
                    "{} [{}]: {got} instead of {want}",
                    param.path,
                    i - start
                );
                assert!((f64::from(e.state(State::Moment1).f32()[i]) - m1).abs() < 1e-7);
                assert!((f64::from(e.state(State::Moment2).f32()[i]) - v1).abs() < 1e-7);
            }
        }
        // Gaps between parameters stay zero.
        let used: u64 = params.iter().map(|p| p.shape.iter().product::<u64>()).sum();
        let nonzero = e
            .state(State::Params)
            .f32()
            .iter()
            .filter(|x| **x != 0.0)
            .count() as u64;
        assert!(nonzero <= used);
    }
}

#[test]
fn a_norm_that_is_not_finite_changes_nothing() {
    for bad in [f32::NAN, f32::INFINITY, 1e30] {
        let mut e = prepared(Some(1.0), 1.0);
        e.state_mut(State::Grads).f32()[5] = bad;
        let before =
            [State::Params, State::Moment1, State::Moment2].map(|s| e.state(s).f32().to_vec());
        assert!(!run(&mut e).is_finite());
        let after =
            [State::Params, State::Moment1, State::Moment2].map(|s| e.state(s).f32().to_vec());
        assert!(before == after, "{bad}");
    }
}
