//! Whole planned programs: compiled code against the reference device, bit for bit.
//!
//! The library's five architectures, made small and ragged, take two optimiser steps on each device, over an arena
//! whose dead slots are poisoned. Logits, losses, gradients, moments and parameters must be equal in every bit, on
//! every target and for any number of threads.

use crate::harness::cache;
use crate::harness::models::{
    OF_READING, OF_STEPS, in_bf16, in_f64, optimizers, planned, planned_with, ragged,
    read_in_pieces, same_steps, three_updates, two_steps, update_of,
};
use odec_mlir::link;
use odec_program::manifest::{Manifest, Precision};
use odec_program::{Bindings, EntryId, Quantized, Target};
use odec_runtime::device::Device;
use odec_runtime::device::cpu::CpuDevice;
use odec_runtime::device::reference::ReferenceDevice;

/// The program's kernels, compiled.
struct Compiled<'a> {
    manifest: &'a Manifest,
    target: Target,
    folder: tempfile::TempDir,
}

impl<'a> Compiled<'a> {
    fn new(manifest: &'a Manifest, target: Target) -> Compiled<'a> {
        let objects =
            odec_mlir::compile(&manifest.program.kernels, target, cache().as_ref()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        link(&objects, &folder.path().join("kernels.so")).unwrap();
        Compiled {
            manifest,
            target,
            folder,
        }
    }

    fn device(&self, threads: usize) -> CpuDevice {
        let p = &self.manifest.program;
        let scratch = p
            .entries
            .values()
            .map(|e| e.scratch_bytes)
            .max()
            .unwrap_or(0);
        let path = self.folder.path().join("kernels.so");
        CpuDevice::open(&path, self.target.name(), &p.kernels, scratch, threads).unwrap()
    }
}

fn check(name: &str, sizes: &[(&str, &str)], targets: &[Target]) {
    let at = Bindings::new(2, 19);
    for &target in targets {
        let mut manifest = planned(name, sizes, target);
        manifest.program.keep(&OF_STEPS);
        let reference = ReferenceDevice::new(&manifest.program.kernels);
        let want = two_steps(&manifest, Box::new(reference), at);
        let compiled = Compiled::new(&manifest, target);
        for threads in [1, 2, 7] {
            let got = two_steps(&manifest, Box::new(compiled.device(threads)), at);
            same_steps(&got, &want, &format!("{name}, {target}, {threads} threads"));
        }
    }
}

/// A sequence read in pieces of these lengths, one token at a time among them, through several blocks of keys.
const PIECES: [usize; 9] = [7, 1, 1, 55, 1, 17, 46, 1, 21];

/// The same of a text that is longer than what is kept for a window.
const LONG: [usize; 10] = [7, 1, 1, 130, 1, 46, 1, 40, 1, 3];

/// Decoding against `forward` over the whole sequence, every token's logits in every bit.
fn check_decoding(name: &str, sizes: &[(&str, &str)], targets: &[Target]) {
    check_decoding_with(name, sizes, targets, None);
}

fn check_decoding_with(
    name: &str,
    sizes: &[(&str, &str)],
    targets: &[Target],
    weights: Option<Quantized>,
) {
    for &target in targets {
        let mut manifest = planned_with(name, sizes, target, weights);
        manifest.program.keep(&OF_READING);
        check_reading(name, &manifest, target, &PIECES);
    }
}

fn check_reading(name: &str, manifest: &Manifest, target: Target, pieces: &[usize]) {
    let compiled = Compiled::new(manifest, target);
    let reference = ReferenceDevice::new(&manifest.program.kernels);
    let devices: [Box<dyn Device>; 3] = [
        Box::new(compiled.device(1)),
        Box::new(compiled.device(3)),
        Box::new(reference),
    ];
    let mut first: Option<Vec<u64>> = None;
    for device in devices {
        let what = format!("{name}, {}", device.name());
        let whole = read_in_pieces(manifest, device, pieces, &what);
        assert!(
            *first.get_or_insert_with(|| whole.clone()) == whole,
            "{what}"
        );
    }
}

#[test]
fn decoding_a_prenorm_on_every_target() {
    let targets = crate::harness::targets();
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check_decoding("prenorm", &sizes, &targets);
}

/// Keys and values of recent tokens move while a text is read.
#[test]
fn decoding_with_a_short_window_on_every_target() {
    let sizes = [
        ("hidden: 704", "hidden: 37"),
        ("width: 256", "width: 40"),
        ("for 6 steps", "for 2 steps"),
        ("window: 64", "window: 9"),
    ];
    for target in crate::harness::targets() {
        for sizes in [sizes.to_vec(), in_bf16(&sizes)] {
            let mut manifest = planned("grouped", &sizes, target);
            manifest.program.keep(&OF_READING);
            let decode = &manifest.program.entries[&EntryId::Decode];
            assert!(decode.kept.iter().all(|k| k.recent && k.rows == 192));
            check_reading("grouped", &manifest, target, &LONG);
        }
    }
}

/// A recurrence and running sums in the place of attention.
fn recurrent() -> Vec<(&'static str, &'static str)> {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let mixer = (
        "attention(heads: 4, causal, rope)",
        "concat(scan(linear |> sigmoid, linear), cumsum(linear(70)) |> rmsnorm) |> linear",
    );
    sizes.into_iter().chain([mixer]).collect()
}

/// Linear attention in the place of attention, with decays of every kind.
fn linear() -> Vec<(&'static str, &'static str)> {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let mixer = (
        "attention(heads: 4, causal, rope)",
        "concat(linear_attention(linear(6), linear(6), linear(38), heads: 2, decay: linear(6) |> sigmoid), \
         linear_attention(linear(6), linear(6), linear(34), heads: 2, decay: linear(2) |> sigmoid), \
         linear_attention(linear(6), linear(6), linear, heads: 1, retention), \
         linear_attention(linear(6), linear(6) |> normalize(heads: 2), linear(34), heads: 2, delta: linear(2) |> sigmoid, decay: linear(6) |> sigmoid)) |> rmsnorm |> linear",
    );
    sizes.into_iter().chain([mixer]).collect()
}

/// Both in chunks, of which the last ones are shorter or empty.
fn in_chunks() -> Vec<(&'static str, &'static str)> {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    let mixer = (
        "attention(heads: 4, causal, rope)",
        "concat(scan(linear |> sigmoid, linear, chunks: 3), cumsum(linear(70), chunks: 2) |> rmsnorm, \
         linear_attention(linear(6), linear(6), linear(38), heads: 2, decay: linear(6) |> sigmoid, chunks: 3), \
         linear_attention(linear(6), linear(6), linear(34), heads: 2, decay: linear(2) |> sigmoid, chunks: 64), \
         linear_attention(linear(6), linear(6) |> normalize(heads: 2), linear(34), heads: 2, delta: linear(2) |> sigmoid, decay: linear(6) |> sigmoid, chunks: 3), \
         linear_attention(linear(6), linear(6), linear, heads: 1, chunks: 2)) |> rmsnorm |> linear",
    );
    sizes.into_iter().chain([mixer]).collect()
}

#[test]
fn recurrences_in_chunks() {
    // Kernels of scans and linear attention are in f32 where a model is in bf16.
    check("prenorm", &in_chunks(), &host());
    check("prenorm", &in_f64(&in_chunks()), &host());
}

/// What matrices are when a run ends is what the next one begins with, in every bit.
#[test]
fn linear_attention() {
    check_decoding("prenorm", &linear(), &host());
    check("prenorm", &linear(), &host());
    check("prenorm", &in_bf16(&linear()), &host());
    check("prenorm", &in_f64(&linear()), &host());
}

/// What a run leaves to the next: every token's logits have the bits of the whole text, and so has a second text in the same memory.
#[test]
fn recurrences() {
    check_decoding("prenorm", &recurrent(), &host());
    check("prenorm", &recurrent(), &host());
    check("prenorm", &in_bf16(&recurrent()), &host());
    check("prenorm", &in_f64(&recurrent()), &host());
}

/// Matrices of 40 and 37 rows: a group and a part of one.
#[test]
fn decoding_in_integers_on_every_target() {
    let (targets, all) = (crate::harness::targets(), crate::harness::all_targets());
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check_decoding_with("prenorm", &sizes, &targets, Some(Quantized::INT8));
    check_decoding_with("prenorm", &in_bf16(&sizes), &all, Some(Quantized::INT4));
    let sizes = [
        ("width: 256", "width: 40"),
        ("hidden: 4*width", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check_decoding_with("gpt", &sizes, &host(), Some(Quantized::INT4));
}

#[test]
fn decoding_keeps_one_past_per_evaluation() {
    let sizes = ragged("hidden: 352", "width: 128", "for 4 steps");
    check_decoding("iiet", &sizes, &host());
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check_decoding("rk4_layer", &sizes, &host());
}

#[test]
fn decoding_splittings_and_implicit_methods() {
    for (name, steps) in [
        ("strang_att", "for 6 steps"),
        ("hybrid", "for 6 steps"),
        ("residual_scaling", "for 6 steps"),
        ("gauss", "for 4 steps"),
        ("yoshida", "for 2 steps"),
    ] {
        let sizes = ragged("hidden: 352", "width: 128", steps);
        check_decoding(name, &sizes, &host());
    }
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check_decoding("unsplit", &sizes, &host());
}

/// What a token's later steps read is made within the same token: a history needs no cache.
#[test]
fn decoding_with_a_history() {
    let sizes = ragged("hidden: 352", "width: 128", "for 6 steps");
    check_decoding("pcformer_layer", &sizes, &host());
    check_decoding("dlcl_layer", &sizes, &host());
}

/// Gated and plain, with biases and without, several evaluations per step; rounded factors, kept in two bytes or rounded
/// as they are read.
#[test]
fn in_bf16_on_every_target() {
    let targets = crate::harness::all_targets();
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check("prenorm", &in_bf16(&sizes), &targets);
    check("rk2", &in_bf16(&sizes), &host());
    let sizes = [
        ("width: 256", "width: 40"),
        ("hidden: 4*width", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check("gpt", &in_bf16(&sizes), &host());
}

/// All kinds of kernels, vectors of half as many elements; `e^x`, `ln x` and `erf x` among them.
#[test]
fn in_f64_on_every_target() {
    let targets = crate::harness::targets();
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check("prenorm", &in_f64(&sizes), &targets);
    let sizes = [
        ("width: 256", "width: 40"),
        ("hidden: 4*width", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check("gpt", &in_f64(&sizes), &host());
    check_decoding("gpt", &in_f64(&sizes), &host());
}

#[test]
fn decoding_in_bf16() {
    let sizes = ragged("hidden: 704", "width: 256", "for 6 steps");
    check_decoding("prenorm", &in_bf16(&sizes), &host());
    let sizes = ragged("hidden: 352", "width: 128", "for 4 steps");
    check_decoding("iiet", &in_bf16(&sizes), &host());
}

/// A gate that weighs what this step found against what the step before found.
#[test]
fn decoding_with_a_history_and_a_gate() {
    let gated = "scheme momentum(F, G) {\n  step x {\n    k = F(x)\n    g = G(k, k[-1])\n    \
                 return x + h*(g*k + (1 - g)*k[-1])\n  }\n}\nmodel gated {";
    let sizes = [
        ("model rk2_gated_layer {", gated),
        (
            "rk2_gated(layer, gate) for 6 steps",
            "momentum(layer, gate) for 3 steps",
        ),
        ("width: 256", "width: 40"),
        ("hidden: 704", "hidden: 37"),
    ];
    check_decoding("rk2_gated_layer", &sizes, &host());
}

fn host() -> Vec<Target> {
    Target::detect(Precision::F32).into_iter().collect()
}

#[test]
fn prenorm_on_every_target() {
    let targets = crate::harness::targets();
    check(
        "prenorm",
        &ragged("hidden: 704", "width: 256", "for 6 steps"),
        &targets,
    );
}

/// Layer normalisation, biases, GELU, learned positions.
#[test]
fn gpt() {
    let sizes = [
        ("width: 256", "width: 40"),
        ("hidden: 4*width", "hidden: 37"),
        ("for 6 steps", "for 2 steps"),
    ];
    check("gpt", &sizes, &host());
    check_decoding("gpt", &sizes, &host());
    let sinusoidal = [("positions(learned)", "positions(sinusoidal)")];
    check_decoding(
        "gpt",
        &[sinusoidal[0], sizes[0], sizes[1], sizes[2]],
        &host(),
    );
}

#[test]
fn macaron() {
    check(
        "macaron",
        &ragged("hidden: 352", "width: 256", "for 6 steps"),
        &host(),
    );
}

#[test]
fn rk2() {
    check(
        "rk2",
        &ragged("hidden: 704", "width: 256", "for 6 steps"),
        &host(),
    );
}

#[test]
fn rk4() {
    check(
        "rk4_layer",
        &ragged("hidden: 704", "width: 256", "for 6 steps"),
        &host(),
    );
}

#[test]
fn every_optimiser_on_every_target() {
    for optimizer in optimizers() {
        for target in crate::harness::targets() {
            let manifest = update_of(optimizer, target);
            let reference = ReferenceDevice::new(&manifest.program.kernels);
            let want = three_updates(&manifest, Box::new(reference));
            let compiled = Compiled::new(&manifest, target);
            for threads in [1, 3] {
                let got = three_updates(&manifest, Box::new(compiled.device(threads)));
                same_steps(&got, &want, &format!("{optimizer}, {target}"));
            }
        }
    }
}

/// Coefficients that are trained: of a flow, of all steps, of each channel.
#[test]
fn learned_coefficients() {
    check(
        "rk2",
        &[
            ("hidden: 704", "hidden: 37"),
            ("width: 256", "width: 40"),
            ("for 6 steps", "for 2 steps"),
            ("heun(layer)", "own(layer)"),
            (
                "model rk2 {",
                "scheme own(F) {
                   learn shared gamma[2] = [1, 1/2]
                   learn b = 1/2
                   learn per channel alpha = 1
                   step x {
                     k1 = F(x)
                     k2 = F(x + h*b*(1 - b)^2*k1)
                     return x + h*(gamma[0]*k1 + gamma[1]*alpha*k2)
                   }
                 }
                 model rk2 {",
            ),
        ],
        &host(),
    );
}

#[test]
fn iterated_implicit_euler() {
    check(
        "iiet",
        &ragged("hidden: 352", "width: 128", "for 4 steps"),
        &host(),
    );
}
