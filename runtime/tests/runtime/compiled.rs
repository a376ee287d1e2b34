//! The CPU device with kernels compiled from C: the reference device's bits on any number of threads.

use crate::{c, support};
use odec_program::Bindings;
use odec_runtime::profile::NamedProfile;
use odec_runtime::{
    Artifact, DeviceChoice, Executor, ObjectCode, Settings, Show, State, Value, open_run, resume,
    train,
};
use std::collections::BTreeSet;
use std::path::Path;

fn artifact(dir: &Path) -> Artifact {
    let manifest = support::manifest();
    let object = dir.join("kernels.so");
    c::compile(&manifest.program.kernels, &object);
    let bytes = std::fs::read(object).unwrap();
    let object = ObjectCode {
        file: "kernels.so".into(),
        target: "cpu:portable".into(),
        bytes,
    };
    Artifact::write(&dir.join("tiny.odex"), manifest, &[object]).unwrap()
}

/// Parameters, gradients and moments after a few steps, as bits.
fn steps(a: &Artifact, choice: DeviceChoice, threads: usize) -> Vec<u32> {
    let mut x = Executor::new(a, a.device(choice, Some(threads)).unwrap()).unwrap();
    x.set_poison(true);
    x.initialise(3);
    let (batch, seq) = (support::BATCH, support::CONTEXT);
    let tokens: Vec<i32> = (0..(batch * seq) as i32).map(|i| i * 37 % 256).collect();
    let targets: Vec<i32> = tokens.iter().map(|t| (t + 1) % 256).collect();
    for t in 1..=3 {
        // A ragged batch too.
        let at = Bindings::new(batch, if t == 2 { 7 } else { seq });
        let n = (at.batch * at.seq) as usize;
        let io = [
            ("tokens", Value::I32(&tokens[..n])),
            ("targets", Value::I32(&targets[..n])),
        ];
        x.run("grad", at, &io, &[]).unwrap();
        let bias = |beta: f64| 1.0 / (1.0 - beta.powi(t));
        x.run(
            "update",
            at,
            &[],
            &[("lr", 0.01), ("bias1", bias(0.9)), ("bias2", bias(0.95))],
        )
        .unwrap();
    }
    let states = [State::Params, State::Grads, State::Moment1, State::Moment2];
    states
        .into_iter()
        .flat_map(|s| {
            x.state(s)
                .f32()
                .iter()
                .map(|v| v.to_bits())
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn compiled_kernels_give_the_reference_bits_on_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    let a = artifact(dir.path());
    let want = steps(&a, DeviceChoice::Reference, 1);
    assert!(want.iter().all(|b| f32::from_bits(*b).is_finite()));
    for threads in [1, 2, 3, 7] {
        assert!(
            steps(&a, DeviceChoice::Cpu, threads) == want,
            "{threads} threads"
        );
    }
}

/// A whole run in compiled code, cut in two: the folder holds all that is needed, and the bits are those of the
/// reference device.
#[test]
fn a_compiled_run_can_be_resumed_and_equals_the_reference() {
    let dir = tempfile::tempdir().unwrap();
    let a = artifact(dir.path());
    let text = dir.path().join("corpus.txt");
    std::fs::write(&text, support::corpus(3000)).unwrap();
    let settings = |device, steps| Settings {
        steps: Some(steps),
        data: vec![text.clone()],
        device,
        threads: Some(3),
        show: Show::Nothing,
        ..Settings::default()
    };
    let (compiled, reference) = (dir.path().join("compiled"), dir.path().join("reference"));
    train(&a, &compiled, &settings(DeviceChoice::Cpu, 4)).unwrap();
    // The run stands on its own feet.
    std::fs::remove_dir_all(a.path()).unwrap();
    resume(&compiled, &settings(DeviceChoice::Cpu, 9)).unwrap();
    // Rates depend on the planned number of steps, so the reference is cut alike, but never leaves its device.
    let b = Artifact::in_memory(support::manifest()).unwrap();
    train(&b, &reference, &settings(DeviceChoice::Reference, 4)).unwrap();
    resume(&reference, &settings(DeviceChoice::Reference, 9)).unwrap();
    let params = |run: &Path| -> Vec<u32> {
        let x = open_run(run, DeviceChoice::Reference, None).unwrap();
        x.state(State::Params)
            .f32()
            .iter()
            .map(|v| v.to_bits())
            .collect()
    };
    assert!(params(&compiled) == params(&reference));
}

#[test]
fn an_object_without_a_kernel_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let manifest = support::manifest();
    let object = dir.path().join("kernels.so");
    c::compile(&manifest.program.kernels[1..], &object);
    let bytes = std::fs::read(object).unwrap();
    let object = ObjectCode {
        file: "kernels.so".into(),
        target: "cpu:portable".into(),
        bytes,
    };
    let a = Artifact::write(&dir.path().join("tiny.odex"), manifest, &[object]).unwrap();
    let e = a
        .device(DeviceChoice::Cpu, Some(1))
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        e.contains(&format!(
            "no kernel `{}`",
            support::manifest().program.kernels[0].symbol
        )),
        "{e}"
    );
}

#[test]
fn a_profile_names_kernels_and_counts_launches() {
    let a = Artifact::in_memory(support::manifest()).unwrap();
    let mut x = Executor::new(&a, a.device(DeviceChoice::Reference, None).unwrap()).unwrap();
    x.start_profile();
    for _ in 0..3 {
        let at = Bindings::new(1, 2);
        x.run("forward", at, &[("tokens", Value::I32(&[1, 2]))], &[])
            .unwrap();
    }
    let told = NamedProfile::new(a.manifest(), x.profile().unwrap(), None);
    let rows = told.kernels();
    assert_eq!(rows.len(), 3);
    assert!(
        rows.iter()
            .all(|r| r.sum.launches == 3 && r.entry == "forward")
    );
    let product = rows.iter().find(|r| r.kernel.starts_with("contract_"));
    assert_eq!(product.unwrap().dims, [2, 256, 16]);
    let names: BTreeSet<String> = told.lines().into_iter().map(|l| l.name).collect();
    let want = ["embed forward", "head forward", "head.pack forward"];
    assert_eq!(names, want.map(String::from).into());
}
