//! Random bodies, planned: what runs is what the interpreter computes, logits and gradients.

use crate::numbers::{close, executor, feeds, tokens};
use crate::random_body::{FORMS, VOCAB, random};
use crate::source::built;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_graph::interp;
use odec_program::Bindings;
use odec_runtime::{State, Value};

#[test]
fn random_bodies_run_as_they_mean() {
    let at = Bindings::new(1, 4);
    let mut all = String::new();
    for seed in 101..=116 {
        let (text, _) = random(seed, &[0]);
        all += &text;
        let built = built(&text);
        let manifest = build_manifest(&built, &text, options())
            .expect(&text)
            .manifest;
        let mut e = executor(&manifest);
        let (x, y) = (tokens(at, VOCAB as u64, 1), tokens(at, VOCAB as u64, 3));
        // Larger than they start: what is nearly 0 everywhere would say nothing.
        for p in manifest.params.iter().filter(|p| p.shape.len() > 1) {
            let from = p.offset as usize / 4;
            let values = &mut e.state_mut(State::Params).f32()[from..from + p.elements() as usize];
            values.iter_mut().for_each(|x| *x *= 20.0);
        }
        let given = feeds(&e, at, &[("tokens", &x), ("targets", &y)]);
        let io = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
        let want = interp::run(&built.forward, &given, at).expect(&text);
        let run = e.run("forward", at, &io[..1], &[]).expect(&text);
        let logits: Vec<f32> = run
            .reals("logits")
            .unwrap()
            .iter()
            .map(|x| x as f32)
            .collect();
        close(&text, &logits, &want["logits"].data, 1e-5);
        let want = interp::run(&built.grad, &given, at).expect(&text);
        e.run("grad", at, &io, &[]).expect(&text);
        for p in &manifest.params {
            let got: Vec<f32> = e.of(State::Grads, p).iter().map(|x| x as f32).collect();
            close(
                &format!("{}\n{text}", p.path),
                &got,
                &want[&format!("grad.{}", p.path)].data,
                1e-3,
            );
        }
    }
    assert!(FORMS.iter().all(|form| all.contains(form)));
}
