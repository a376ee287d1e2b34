//! Whole planned programs on an emulated GPU, from the PTX that an artifact holds, against the reference device, bit for
//! bit; and against the same model on the host's processor, which must learn the same bits. In bf16, which runs on tensor
//! cores, they are near.

use crate::assemble::portable;
use crate::emulated::on_gpu;
use crate::harness::cache;
use crate::harness::models::{
    OF_READING, OF_STEPS, Steps, in_bf16, near_steps, optimizers, planned, ragged, read_in_pieces,
    same_steps, three_updates, two_steps, update_of,
};
use odec_program::gpu::tensor;
use odec_program::manifest::Manifest;
use odec_program::{Bindings, EntryId, Kernel, KernelSpec, Target};
use odec_runtime::device::Device;
use odec_runtime::device::reference::ReferenceDevice;
use odec_runtime::{Artifact, Executor, Value};
use std::ops::Range;

fn check(name: &str, sizes: &[(&str, &str)], target: Target) -> Steps {
    let at = Bindings::new(2, 19);
    let mut manifest = planned(name, sizes, target);
    manifest.program.keep(&OF_STEPS);
    let reference = ReferenceDevice::new(&manifest.program.kernels);
    let want = two_steps(&manifest, Box::new(reference), at);
    let gpu = on_gpu(&manifest.program.kernels, target);
    let got = two_steps(&manifest, Box::new(gpu), at);
    same_steps(&got, &want, &format!("{name}, {target}"));
    // The plan for a processor packs and blocks in its own way, and computes the same.
    let manifest = planned(name, sizes, Target::Portable);
    let reference = ReferenceDevice::new(&manifest.program.kernels);
    let processor = two_steps(&manifest, Box::new(reference), at);
    same_steps(
        &got,
        &processor,
        &format!("{name}, {target} against a processor"),
    );
    want
}

#[test]
fn prenorm() {
    check(
        "prenorm",
        &ragged("hidden: 704", "width: 256", "for 6 steps"),
        Target::Sm80,
    );
}

#[test]
fn linear_attention() {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let mixer = (
        "attention(heads: 4, causal, rope)",
        "concat(linear_attention(linear(6), linear(6), linear(38), heads: 2, decay: linear(6) |> sigmoid), \
         linear_attention(linear(6), linear(6), linear(34), heads: 2, retention, chunks: 3), \
         linear_attention(linear(6), linear(6) |> normalize(heads: 2), linear(34), heads: 2, delta: linear(2) |> sigmoid, decay: linear(6) |> sigmoid, chunks: 2)) |> rmsnorm |> linear",
    );
    let sizes: Vec<_> = sizes.into_iter().chain([mixer]).collect();
    check("prenorm", &sizes, Target::Sm80);
}

#[test]
fn recurrent() {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let mixer = (
        "attention(heads: 4, causal, rope)",
        "concat(scan(linear |> sigmoid, linear), scan(linear(33) |> sigmoid, linear(33), chunks: 3), cumsum(linear(33), chunks: 2) |> rmsnorm) |> linear",
    );
    let sizes: Vec<_> = sizes.into_iter().chain([mixer]).collect();
    check("prenorm", &sizes, Target::Sm80);
}

#[test]
fn rk4() {
    check(
        "rk4_layer",
        &ragged("hidden: 704", "width: 256", "for 6 steps"),
        Target::Sm90a,
    );
}

#[test]
fn gpt() {
    let sizes = [
        ("width: 256", "width: 40"),
        ("hidden: 4*width", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check("gpt", &sizes, Target::Sm80);
}

#[test]
fn every_optimiser() {
    for optimizer in optimizers() {
        for target in Target::GPUS {
            let manifest = update_of(optimizer, target);
            // Code that differs by the target's name alone is run once.
            let is_portable = |k: &Kernel| portable(&k.spec);
            if target != Target::Sm80 && manifest.program.kernels.iter().all(is_portable) {
                continue;
            }
            let reference = ReferenceDevice::new(&manifest.program.kernels);
            let want = three_updates(&manifest, Box::new(reference));
            let gpu = on_gpu(&manifest.program.kernels, target);
            let got = three_updates(&manifest, Box::new(gpu));
            same_steps(&got, &want, &format!("{optimizer}, {target}"));
        }
    }
}

#[test]
fn iterated_implicit_euler() {
    check(
        "iiet",
        &ragged("hidden: 352", "width: 128", "for 4 steps"),
        Target::Sm80,
    );
}

/// Heads that share keys, and a window shorter than the text.
#[test]
fn grouped() {
    let sizes = [("window: 64", "window: 5")];
    let ragged = ragged("hidden: 704", "width: 256", "for 6 steps");
    check("grouped", &[&sizes[..], &ragged].concat(), Target::Sm80);
}

/// Keys and values of recent tokens move while a text is read, and no bit of the next one's result changes. Where sums are those of whole texts, these have the
/// same bits, too.
#[test]
fn recent_tokens() {
    let sizes = [
        ("window: 64", "window: 9"),
        ("width: 256", "width: 32"),
        ("hidden: 704", "hidden: 37"),
        ("for 6 steps", "for 1 step"),
    ];
    for (target, half) in [
        (Target::Sm80, false),
        (Target::Sm80, true),
        (Target::Sm90a, true),
    ] {
        let all = if half {
            in_bf16(&sizes)
        } else {
            sizes.to_vec()
        };
        let mut manifest = planned("grouped", &all, target);
        manifest.program.keep(&OF_READING);
        let decode = &manifest.program.entries[&EntryId::Decode];
        assert!(decode.kept.iter().all(|k| k.recent && k.rows == 192));
        let gpu = || Box::new(on_gpu(&manifest.program.kernels, target));
        let stays = last_run(&manifest, gpu(), &[0..120, 120..190, 190..191]);
        let moves = last_run(&manifest, gpu(), &[0..120, 120..130, 130..195, 190..191]);
        assert!(stays == moves, "{target}");
        if target == Target::Sm80 {
            let pieces = [7, 1, 130, 1, 50, 1, 1];
            let got = read_in_pieces(&manifest, gpu(), &pieces, target.name());
            let reference = Box::new(ReferenceDevice::new(&manifest.program.kernels));
            let want = read_in_pieces(&manifest, reference, &pieces, "reference");
            assert!(half || got == want, "{target}");
        }
    }
}

/// Bits of the logits that the last of some runs gives, which read these parts of a text.
fn last_run(manifest: &Manifest, gpu: Box<dyn Device>, runs: &[Range<usize>]) -> Vec<u64> {
    let artifact = Artifact::in_memory(manifest.clone()).expect("the manifest is consistent");
    let mut e = Executor::new(&artifact, gpu).unwrap();
    e.initialise(7);
    e.run(EntryId::Prepare, Bindings::new(1, 1), &[], &[])
        .unwrap();
    let text: Vec<i32> = (0..256).map(|i| (i * i * 7 + i * 3 + 1) % 256).collect();
    let mut last = vec![];
    for run in runs {
        let at = Bindings::new(1, run.len() as u64).after(run.start as u64);
        let given = [("tokens", Value::I32(&text[run.clone()]))];
        let out = e.run(EntryId::Decode, at, &given, &[]).unwrap();
        let logits = out.reals("logits").unwrap();
        last = logits.iter().map(f64::to_bits).collect();
    }
    last
}

/// Tokens that meet two of eight experts.
#[test]
fn mixtures() {
    let sizes = [
        ("width: 128", "width: 40"),
        ("hidden: 352", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check("mixtral", &sizes, Target::Sm80);
}

/// Experts that take ⌈256/16 · 2/8⌉ = 4 tokens of a text: 32 of 38 choices at most.
#[test]
fn capacities() {
    let sizes = [
        ("width: 128", "width: 24"),
        ("hidden: 352", "hidden: 9, capacity: 1/16"),
        ("for 6 steps", "for 1 step"),
    ];
    check("mixtral", &sizes, Target::Sm80);
}

/// Steps that some tokens take, as tokens choose or steps.
#[test]
fn recursions() {
    for choice in ["choice: token", "choice: expert, capacity: [1, 1/3]"] {
        let steps =
            format!("for routed(linear(2), max: 2, {choice}) steps {{ h = 1;  weights shared }}");
        let sizes = [
            ("width: 256", "width: 40"),
            ("hidden: 704", "hidden: 37"),
            ("for 6 steps { h = 1;  weights per step }", &steps),
        ];
        let steps = check("prenorm", &sizes, Target::Sm80);
        // Some tokens leave the second step out, and some take it.
        let made = steps
            .iter()
            .filter(|(name, _)| name.starts_with("steps.made"));
        let made: Vec<f64> = made.map(|(_, bits)| f64::from_bits(bits[0])).collect();
        assert!(!made.is_empty(), "{choice}");
        assert!(made.iter().all(|n| *n > 1.0 && *n < 2.0), "{made:?}");
    }
}

/// On tensor cores sums are not those of the reference to the bit, and a number in between may round to the other
/// neighbour in bf16.
fn in_bf16_on(target: Target) {
    let sizes = [
        ("width: 256", "width: 64"),
        ("hidden: 704", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    let at = Bindings::new(2, 19);
    let manifest = planned("prenorm", &in_bf16(&sizes), target);
    let kernels = &manifest.program.kernels;
    let objects = odec_mlir::compile(kernels, target, cache().as_ref()).unwrap();
    let mut used = 0;
    for (kernel, object) in kernels.iter().zip(&objects) {
        let text = String::from_utf8_lossy(&object.bytes);
        let (mma, wgmma) = ("mma.sync", "wgmma.mma_async");
        let count = text.matches(mma).count() + text.matches(wgmma).count();
        let by_warpgroups = match &kernel.spec {
            KernelSpec::Contract(c) => tensor::warpgroup::runs(c, target),
            KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
                tensor::warpgroup::attends(a, target)
            }
            _ => false,
        };
        assert_eq!(text.contains(wgmma), by_warpgroups, "{}", kernel.symbol);
        assert!(!by_warpgroups || !text.contains(mma), "{}", kernel.symbol);
        let fed = tensor::map::count(&kernel.spec, target) > 0;
        let boxes = text.contains("cp.async.bulk.tensor");
        assert_eq!(boxes, fed, "{}", kernel.symbol);
        let fits = match &kernel.spec {
            KernelSpec::Contract(c) => tensor::contract::runs(c),
            KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
                tensor::attend::runs(a)
            }
            _ => false,
        };
        assert_eq!(count > 0, fits, "{}: {count}", kernel.symbol);
        used += usize::from(fits);
    }
    // Forward and both backward contractions of several sizes, attention forward, backward and for kept keys.
    assert!(used >= 10, "{used}");
    let want = two_steps(&manifest, Box::new(ReferenceDevice::new(kernels)), at);
    let got = two_steps(&manifest, Box::new(on_gpu(kernels, target)), at);
    near_steps(&got, &want, &format!("prenorm in bf16, {target}"));
}

#[test]
fn in_bf16_on_a_gpu() {
    in_bf16_on(Target::Sm80);
}

#[test]
fn in_bf16_on_hopper() {
    in_bf16_on(Target::Sm90a);
}
