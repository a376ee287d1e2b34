//! The `update` entry of every optimiser against its equations in f64, and runs that are resumed.

use crate::numbers::executor;
use crate::source;
use crate::systems::options;
use odec_compiler::passes::build_manifest;
use odec_program::Bindings;
use odec_program::choice::Choices;
use odec_program::manifest::{Manifest, Param};
use odec_program::optimizers::OptimizerKind;
use odec_program::schedules::ScheduleKind;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::run::Run;
use odec_runtime::{Artifact, DeviceChoice, Executor, Settings, Show, State};
use std::collections::BTreeSet;
use std::path::Path;

const KEPT: [State; 2] = [State::Moment1, State::Moment2];
const RATE: f64 = 0.03;

/// A model whose matrices and vectors fill more than one row each.
fn manifest(train: &str) -> Manifest {
    let text = format!(
        "field att = rmsnorm |> attention(heads: 2, causal, rope)\n\
         field ffn = rmsnorm |> swiglu(hidden: 12)\n\
         model small {{\n  input tokens(vocab: 256, context: 8)\n  embed learned(width: 8)\n  \
         evolve lie(att, ffn) for 2 steps\n  output rmsnorm |> logits(tied) }}\n\
         train {{ data text(\"none.txt\", tokenizer: bytes);  batch 2;  steps 6;  {train} }}\n"
    );
    let built = source::built(&text);
    build_manifest(&built, &text, options()).unwrap().manifest
}

/// Every example of every optimiser.
fn examples() -> impl Iterator<Item = &'static str> {
    let all = OptimizerKind::all().into_iter();
    all.flat_map(|o| o.examples().iter().map(|e| e.text))
}

/// One number after step `t`, with what is kept beside it, written out in f64.
fn stepped(o: &OptimizerKind, t: i32, decays: bool, [p, g, a, b]: [f64; 4]) -> (f64, [f64; 2]) {
    let decay = |x: f64| if decays { x } else { 0.0 };
    match o {
        OptimizerKind::AdamW(o) => {
            let (m, v) = (
                o.betas.0 * a + (1.0 - o.betas.0) * g,
                o.betas.1 * b + (1.0 - o.betas.1) * g * g,
            );
            let (mean, variance) = (m / (1.0 - o.betas.0.powi(t)), v / (1.0 - o.betas.1.powi(t)));
            let moved = mean / (variance.sqrt() + o.eps) + decay(o.weight_decay) * p;
            (p - RATE * moved, [m, v])
        }
        OptimizerKind::Sgd(o) => {
            let u = o.momentum * a + g + decay(o.weight_decay) * p;
            (p - RATE * u, [if o.momentum > 0.0 { u } else { 0.0 }, 0.0])
        }
        OptimizerKind::Lion(o) => {
            let direction = o.betas.0 * a + (1.0 - o.betas.0) * g;
            let sign = if direction == 0.0 {
                0.0
            } else {
                direction.signum()
            };
            let moved = sign + decay(o.weight_decay) * p;
            (
                p - RATE * moved,
                [o.betas.1 * a + (1.0 - o.betas.1) * g, 0.0],
            )
        }
    }
}

/// Pseudo-random numbers for every parameter that a memory holds something of; gaps stay zero.
fn fill(e: &mut Executor, state: State, scale: f64) {
    let params: Vec<Param> = state.holds(e.manifest()).cloned().collect();
    let bytes = e.real().bytes();
    for p in params {
        let start = (p.offset / bytes) as usize;
        let number = |i: usize| {
            let place = (start + i) as u32 ^ (state as u32 * 0x9e37);
            let n = place.wrapping_mul(2_654_435_761) >> 8;
            scale * (f64::from(n) / f64::from(1 << 24) - 0.5)
        };
        let n = p.elements() as usize;
        let numbers = (0..n).map(number);
        e.state_mut(state).part(start..start + n).fill(numbers);
    }
}

/// A model with parameters and gradients.
fn prepared(optimizer: &str, more: &str, gradients: f64) -> Executor {
    let mut e = executor(&manifest(&format!("optimizer {optimizer};  {more}")));
    fill(&mut e, State::Params, 1.0);
    fill(&mut e, State::Grads, gradients);
    e
}

fn optimizer(e: &Executor) -> OptimizerKind {
    e.manifest().train.as_ref().unwrap().optimizer.clone()
}

/// Step `t`; the norm of the gradient.
fn step(e: &mut Executor, t: i32) -> f64 {
    let mut scalars = vec![("lr", RATE)];
    scalars.extend(optimizer(e).scalars(t as u64));
    let run = e.run("update", Bindings::new(1, 1), &[], &scalars);
    run.unwrap().scalar("grad_norm").unwrap()
}

/// All numbers of a parameter in a memory, zeros where it holds none.
fn numbers(e: &Executor, state: State, p: &Param) -> Vec<f64> {
    match state.holds(e.manifest()).any(|held| held.path == p.path) {
        true => e.of(state, p).iter().collect(),
        false => vec![0.0; p.elements() as usize],
    }
}

#[test]
fn steps_are_the_optimisers_equations() {
    for text in examples() {
        for (clip, gradients) in [("clip 1.0", 1.0), ("clip 1.0", 1e-4), ("seed 0", 1.0)] {
            for (precision, near) in [("f32", 2e-6), ("f64", 1e-12)] {
                let more = format!("{clip};  precision {precision}");
                let mut e = prepared(text, &more, gradients);
                let o = optimizer(&e);
                let params = e.manifest().params.clone();
                for t in 1..=3 {
                    let all = |e: &Executor, s| -> Vec<Vec<f64>> {
                        params.iter().map(|p| numbers(e, s, p)).collect()
                    };
                    let grads = all(&e, State::Grads);
                    let norm = grads.iter().flatten().map(|g| g * g).sum::<f64>().sqrt();
                    let scale = match clip {
                        "clip 1.0" => (1.0 / norm).min(1.0),
                        _ => 1.0,
                    };
                    let before = [State::Params, KEPT[0], KEPT[1]].map(|s| all(&e, s));
                    let got = step(&mut e, t);
                    assert!((got / norm - 1.0).abs() < near, "{text}: {got}, not {norm}");
                    let after = [State::Params, KEPT[0], KEPT[1]].map(|s| all(&e, s));
                    for (n, p) in params.iter().enumerate() {
                        for (i, g) in grads[n].iter().enumerate() {
                            let at = |of: &[Vec<Vec<f64>>; 3]| [0, 1, 2].map(|s| of[s][n][i]);
                            let ([x, a, b], got) = (at(&before), at(&after));
                            let (x, [a, b]) = stepped(&o, t, p.decay, [x, g * scale, a, b]);
                            for (got, want) in got.into_iter().zip([x, a, b]) {
                                let fits = (got - want).abs() <= near * (1.0 + want.abs());
                                assert!(
                                    fits,
                                    "{text}, step {t}, {} [{i}]: {got}, not {want}",
                                    p.path
                                );
                            }
                        }
                    }
                }
                // Gaps between parameters stay zero.
                let used: u64 = params.iter().map(Param::elements).sum();
                let nonzero = e.state(State::Params).iter().filter(|x| *x != 0.0);
                assert!(nonzero.count() as u64 <= used);
            }
        }
    }
}

#[test]
fn a_norm_that_is_not_finite_changes_nothing() {
    for text in examples() {
        for bad in [f32::NAN, f32::INFINITY, 1e30] {
            let mut e = prepared(text, "clip 1.0", 1.0);
            for state in KEPT {
                fill(&mut e, state, 0.1);
            }
            e.state_mut(State::Grads).f32()[5] = bad;
            let all =
                |e: &Executor| [State::Params, KEPT[0], KEPT[1]].map(|s| e.state(s).f32().to_vec());
            let before = all(&e);
            assert!(!step(&mut e, 1).is_finite());
            assert!(before == all(&e), "{text}: {bad}");
        }
    }
}

/// What no optimiser keeps takes no memory, and may not be written.
#[test]
fn memory_is_that_of_what_is_kept() {
    for (text, kept) in [
        ("adamw(lr: 1)", 2),
        ("sgd(lr: 1, momentum: 0.9)", 1),
        ("sgd(lr: 1)", 0),
    ] {
        let m = manifest(&format!("optimizer {text}"));
        let bytes = KEPT.map(|s| s.bytes(&m));
        let held = bytes.iter().filter(|n| **n == m.program.trained_bytes);
        assert_eq!(
            (held.count(), bytes.iter().filter(|n| **n == 0).count()),
            (kept, 2 - kept)
        );
    }
    let mut m = manifest("optimizer adamw(lr: 1)");
    let without = manifest("optimizer lion(lr: 1)").train.unwrap().optimizer;
    m.train.as_mut().unwrap().optimizer = without;
    let said = Artifact::in_memory(m).map(drop).unwrap_err().to_string();
    assert!(
        said.contains("leaves its slot (Moment2, 0 bytes)"),
        "{said}"
    );
}

/// The tensors of a run of six steps that is left after each of these: their names, and their bytes.
fn trained(m: &Manifest, folder: &Path, name: &str, left: &[u64]) -> (BTreeSet<String>, Vec<u8>) {
    let artifact = Artifact::in_memory(m.clone()).unwrap();
    let out = folder.join(name);
    let s = Settings {
        data: vec![folder.join("corpus.txt")],
        device: DeviceChoice::Reference,
        show: Show::Nothing,
        evaluations: 0,
        ..Settings::default()
    };
    let mut run = Run::start(&artifact, &out, &s).unwrap();
    for step in left {
        while run.progress().step < *step {
            run.step().unwrap();
        }
        run.save().unwrap();
        drop(run);
        run = Run::resume(&out, &s).unwrap();
    }
    run.finish(&s).unwrap();
    let bytes = std::fs::read(out.join(CHECKPOINT)).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let names = tensors.names().into_iter().map(String::from).collect();
    let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (names, bytes[8 + header..].to_vec())
}

#[test]
fn runs_go_on_bit_for_bit_with_every_optimiser_and_schedule() {
    let dir = tempfile::tempdir().unwrap();
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(20);
    std::fs::write(dir.path().join("corpus.txt"), text).unwrap();
    let schedules = ScheduleKind::all().into_iter();
    let schedules: Vec<&str> = schedules
        .flat_map(|s| s.examples().iter().map(|e| e.text))
        // More steps than this run has.
        .map(|text| {
            text.split_once("00 steps")
                .map_or(text, |_| "inverse_sqrt(warmup: 2)")
        })
        .collect();
    let pairs = examples().zip(schedules.iter().cycle());
    let rest = schedules.iter().map(|s| ("sgd(lr: 0.1, momentum: 0.9)", s));
    let mut ends = BTreeSet::new();
    for (n, (optimizer, schedule)) in pairs.chain(rest).enumerate() {
        let m = manifest(&format!("optimizer {optimizer};  schedule {schedule}"));
        let whole = trained(&m, dir.path(), &format!("whole{n}"), &[]);
        let parts = trained(&m, dir.path(), &format!("parts{n}"), &[1, 4]);
        assert!(whole == parts, "{optimizer}, {schedule}");
        // Each parameter, and as many tensors beside each as are kept.
        let kept = m.train.as_ref().unwrap().optimizer.states().len();
        let paths = m.params.iter().map(|p| p.path.clone());
        let kept = paths.flat_map(|p| {
            let beside = ["", "moment1.", "moment2."].map(|of| format!("{of}{p}"));
            beside.into_iter().take(1 + kept)
        });
        assert_eq!(whole.0, kept.collect(), "{optimizer}");
        ends.insert(whole.1);
    }
    // No two of them are the same.
    assert!(
        ends.len() >= examples().count() + schedules.len() - 2,
        "{}",
        ends.len()
    );
}
