//! Planned programs compute what their graphs mean.

use crate::systems::{Decoder, SYSTEMS, Shape, System, options};
use odec_compiler::model::Built;
use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::{Assembled, Options, assemble};
use odec_graph::interp::{self, Tensor};
use odec_program::Bindings;
use odec_program::manifest::Manifest;
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::{Artifact, Executor, State, Value};
use std::collections::BTreeMap;

pub fn executor(manifest: &Manifest) -> Executor {
    let artifact = Artifact::in_memory(manifest.clone()).expect("the manifest is consistent");
    let device = ReferenceDevice::new(&manifest.program.kernels);
    let mut e = Executor::new(&artifact, Box::new(device)).unwrap();
    e.set_poison(true);
    e.initialise(7);
    e
}

fn assembled(d: &Decoder, options: Options) -> Assembled {
    assemble(&d.model(), options).unwrap_or_else(|e| panic!("{e}"))
}

pub fn tokens(at: Bindings, vocab: u64, seed: u64) -> Vec<i32> {
    (0..at.batch * at.seq)
        .map(|i| ((i * i * 7 + i * 3 + seed) % vocab) as i32)
        .collect()
}

/// Parameters by path and inputs by name, for the interpreter.
pub fn feeds(e: &Executor, at: Bindings, inputs: &[(&str, &[i32])]) -> BTreeMap<String, Tensor> {
    let params = e.manifest().params.iter().map(|p| {
        let data = e.of(State::Params, p).iter().collect();
        (p.path.clone(), Tensor::new(p.shape.clone(), data))
    });
    let inputs = inputs.iter().map(|(name, x)| {
        let data = x.iter().map(|x| f64::from(*x)).collect();
        (
            name.to_string(),
            Tensor::new(vec![at.batch, at.seq, 1], data),
        )
    });
    params.chain(inputs).collect()
}

/// Loss and gradients.
pub fn gradient(e: &mut Executor, at: Bindings, vocab: u64) -> Vec<u64> {
    let (x, y) = (tokens(at, vocab, 1), tokens(at, vocab, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let run = e.run("grad", at, &inputs, &[]).unwrap();
    let mut out = vec![run.scalar("loss").unwrap()];
    out.extend(e.state(State::Grads).iter());
    out.into_iter().map(f64::to_bits).collect()
}

/// Logits, the loss, and the same with gradients.
pub fn results(e: &mut Executor, at: Bindings, vocab: u64) -> Vec<u64> {
    let (x, y) = (tokens(at, vocab, 1), tokens(at, vocab, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let logits = e.run("forward", at, &inputs[..1], &[]).unwrap();
    let mut out: Vec<f64> = logits.reals("logits").unwrap().iter().collect();
    let loss = e.run("loss", at, &inputs, &[]).unwrap();
    out.push(loss.scalar("loss").unwrap());
    let bits = out.into_iter().map(f64::to_bits);
    bits.chain(gradient(e, at, vocab)).collect()
}

/// The gradient of every parameter at its first, middle and last element, beside the loss moved both ways; how far they may be apart.
#[track_caller]
pub fn differences(
    what: &str,
    built: &Built,
    feeds: &mut BTreeMap<String, Tensor>,
    at: Bindings,
    within: f64,
) {
    let grads = interp::run(&built.grad, feeds, at).unwrap();
    for p in &built.params {
        let n = feeds[&p.path].data.len();
        for i in [0, n / 2, n - 1] {
            let mut moved = |by: f64| {
                feeds.get_mut(&p.path).unwrap().data[i] += by;
                interp::run(&built.grad, feeds, at).unwrap()["loss"].data[0]
            };
            let h = 1e-4;
            let (above, below) = (moved(h), moved(-2.0 * h));
            moved(h);
            let want = (above - below) / (2.0 * h);
            let got = grads[&format!("grad.{}", p.path)].data[i];
            let path = &p.path;
            assert!(
                (got - want).abs() < within,
                "{what}: {path}[{i}]: {got}, not {want}"
            );
        }
    }
}

#[track_caller]
pub fn close(what: &str, got: &[f32], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}");
    let scale = want.iter().fold(0.0f64, |m, x| m.max(x.abs())).max(1e-3);
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*g) - w).abs() / scale;
        assert!(
            error <= tolerance,
            "{what}[{i}]: {g} instead of {w} ({error:.1e} of {scale})"
        );
    }
}

fn check_against_interpreter(shape: Shape, at: Bindings) {
    let d = Decoder::new(shape);
    let a = assembled(&d, options());
    let mut e = executor(&a.manifest);
    let (x, y) = (tokens(at, shape.vocab, 1), tokens(at, shape.vocab, 5));

    let f = feeds(&e, at, &[("tokens", &x)]);
    let want = interp::run(&d.forward, &f, at).unwrap();
    let out = e
        .run("forward", at, &[("tokens", Value::I32(&x))], &[])
        .unwrap();
    close(
        "logits",
        out.reals("logits").unwrap().f32(),
        &want["logits"].data,
        1e-4,
    );

    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let f = feeds(&e, at, &[("tokens", &x), ("targets", &y)]);
    let want = interp::run(&d.grad, &f, at).unwrap();
    let loss = e
        .run("loss", at, &inputs, &[])
        .unwrap()
        .scalar("loss")
        .unwrap();
    close("loss", &[loss as f32], &want["loss"].data, 1e-5);
    e.state_mut(State::Grads).f32().fill(f32::NAN);
    let loss = e
        .run("grad", at, &inputs, &[])
        .unwrap()
        .scalar("loss")
        .unwrap();
    close("loss of grad", &[loss as f32], &want["loss"].data, 1e-5);
    for p in &a.manifest.params {
        let start = p.offset as usize / 4;
        let n = p.shape.iter().product::<u64>() as usize;
        let name = format!("grad.{}", p.path);
        close(
            &name,
            &e.state(State::Grads).f32()[start..start + n],
            &want[&name].data,
            1e-4,
        );
    }
}

#[test]
fn programs_agree_with_the_interpreter() {
    for system in SYSTEMS {
        for (tied, shared) in [(true, false), (false, true)] {
            let shape = Shape {
                tied,
                shared,
                ..Shape::tiny(system)
            };
            check_against_interpreter(shape, Bindings::new(2, 5));
        }
    }
    check_against_interpreter(Shape::tiny(System::Prenorm), Bindings::new(1, 1));
    check_against_interpreter(Shape::tiny(System::Prenorm), Bindings::new(3, 7));
}

/// Loss, logits and gradients as bits.
fn bits(d: &Decoder, options: Options) -> Vec<u32> {
    let at = Bindings::new(2, 6);
    let a = assembled(d, options);
    let mut e = executor(&a.manifest);
    let (x, y) = (tokens(at, d.shape.vocab, 1), tokens(at, d.shape.vocab, 5));
    let inputs = [("tokens", Value::I32(&x)), ("targets", Value::I32(&y))];
    let mut out: Vec<f32> = e
        .run("forward", at, &inputs[..1], &[])
        .unwrap()
        .reals("logits")
        .unwrap()
        .f32()
        .to_vec();
    out.extend(
        e.run("grad", at, &inputs, &[])
            .unwrap()
            .reals("loss")
            .unwrap()
            .f32(),
    );
    out.extend(e.state(State::Grads).f32());
    out.iter().map(|x| x.to_bits()).collect()
}

#[test]
fn fused_equals_unfused_bit_for_bit() {
    for system in SYSTEMS {
        let d = Decoder::new(Shape::tiny(system));
        let off = Options {
            fusion: Fusion::Off,
            ..options()
        };
        assert!(bits(&d, options()) == bits(&d, off), "{system:?}");
    }
}
