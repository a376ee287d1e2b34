//! Every kernel of every model of the library, and all but row kernels of those in bf16, for every GPU, through NVIDIA's
//! assembler.
//!
//! It must assemble, keep its values in registers (no spills, no stack but what a division needs) and call nothing. Run by
//! `make test`, which fetches the assembler (`scripts/ptxas.sh`); without it the test fails.

use crate::harness::cache;
use crate::harness::models::{library, library_in_bf16};
use odec_program::gpu::{self, tensor};
use odec_program::kernel::Attend;
use odec_program::manifest::Manifest;
use odec_program::{DType, Kernel, KernelSpec, Target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

fn assembler() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.ptxas/ptxas");
    assert!(
        path.is_file(),
        "there is no {}; scripts/ptxas.sh fetches it",
        path.display()
    );
    path
}

/// The distinct kernels of all models, planned for a target.
fn kernels(target: Target) -> Vec<Kernel> {
    let models = library(target);
    assert!(models.len() > 20, "{} models", models.len());
    let half = library_in_bf16(target);
    assert!(half.len() > 20, "{} models in bf16", half.len());
    let kernels = |(_, m): (String, Manifest)| m.program.kernels;
    // Row kernels in bf16 are those of f32 with a rounding.
    let half = half.into_iter().flat_map(kernels);
    let half = half.filter(|k| !matches!(k.spec, KernelSpec::Rows(_)));
    let all = models.into_iter().flat_map(kernels).chain(half);
    let all = all.chain(wide_heads());
    let distinct: BTreeMap<String, Kernel> = all.map(|k| (k.symbol.clone(), k)).collect();
    distinct.into_values().collect()
}

/// Attention with the most registers: wide heads that share keys and see a window. No model of the library has such.
fn wide_heads() -> Vec<Kernel> {
    let spec = |inputs, head| Attend {
        dtype: DType::F32,
        inputs,
        heads: 4,
        kv_heads: 2,
        head,
        causal: true,
        window: Some(100),
        scale: 0.125,
    };
    [(DType::F32, 128), (DType::Bf16, 128), (DType::Bf16, 96)]
        .into_iter()
        .flat_map(|(inputs, head)| {
            let spec = spec(inputs, head);
            [
                KernelSpec::Attend(spec.clone()),
                KernelSpec::AttendCached(spec.clone()),
                KernelSpec::AttendBackward(spec),
            ]
        })
        .map(|spec| Kernel {
            symbol: spec.symbol(),
            spec,
        })
        .collect()
}

/// What `ptxas -v` says about a module.
fn assemble(ptxas: &Path, text: &[u8], target: Target) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    let source = folder.path().join("kernel.ptx");
    std::fs::write(&source, text).map_err(|e| e.to_string())?;
    let done = Command::new(ptxas)
        .arg("-v")
        .arg(format!("-arch={target}"))
        .arg(&source)
        .arg("-o")
        .arg(folder.path().join("kernel.cubin"))
        .output()
        .map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    match done.status.success() {
        true => Ok(said),
        false => Err(said),
    }
}

fn numbers(line: &str) -> Vec<u64> {
    let words = line.split(|c: char| !c.is_ascii_digit());
    words.filter_map(|w| w.parse().ok()).collect()
}

/// Registers of a thread and bytes of shared memory, least and most, of kernels of a kind; for `docs/gpu.md`.
#[derive(Debug, Default)]
struct Used {
    kernels: u64,
    registers: Option<(u64, u64)>,
    shared: Option<(u64, u64)>,
}

impl Used {
    fn add(&mut self, said: &str) {
        let line = said.lines().find(|l| l.contains("Used ")).unwrap_or("");
        let of = |what: &str| {
            let part = line.split(", ").find(|p| p.contains(what));
            // `ptxas info : Used 32 registers`
            part.and_then(|p| numbers(p).last().copied()).unwrap_or(0)
        };
        let wider = |range: Option<(u64, u64)>, x: u64| {
            let (least, most) = range.unwrap_or((x, x));
            Some((least.min(x), most.max(x)))
        };
        self.kernels += 1;
        self.registers = wider(self.registers, of("registers"));
        self.shared = wider(self.shared, of("bytes smem"));
    }
}

/// What is wrong with a kernel of this report.
fn complaint(said: &str, kernel: &Kernel, target: Target) -> Option<String> {
    let line = |what: &str| said.lines().find(|l| l.contains(what)).map(str::to_string);
    let Some(stack) = line("bytes stack frame") else {
        return Some(format!("no report: {said}"));
    };
    if numbers(&stack).iter().any(|n| *n != 0) {
        return Some(stack);
    }
    // Of `wgmma` whose sums are touched in between (C7514), which is then made to wait.
    if let Some(warning) = line("warning").or_else(|| line("serialized")) {
        return Some(warning);
    }
    let used = line("Used ")?;
    let shared = used.split(", ").find(|p| p.ends_with("bytes smem"));
    let shared = shared.map_or(0, |p| numbers(p)[0]);
    let dims = vec![1; 3];
    // What a launch asks for is not in the report.
    let planned = gpu::shape(&kernel.spec, &dims, target);
    let planned = planned.map_or(0, |s| s.shared - s.dynamic());
    (shared != planned).then(|| format!("{shared} bytes of shared memory, planned {planned}"))
}

/// What a kernel multiplies with.
fn units(spec: &KernelSpec, target: Target) -> &'static str {
    let tensor = match spec {
        KernelSpec::Contract(c) if tensor::warpgroup::runs(c, target) => return WARPGROUPS,
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a)
            if tensor::warpgroup::attends(a, target) =>
        {
            return WARPGROUPS;
        }
        KernelSpec::Contract(c) => tensor::contract::runs(c),
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            tensor::attend::runs(a)
        }
        _ => false,
    };
    if tensor { WARPS } else { "" }
}

const WARPGROUPS: &str = ", warpgroups";
const WARPS: &str = ", tensor cores";

/// The same, as the instructions say.
fn instructions(text: &str) -> &'static str {
    match (
        text.contains("wgmma.mma_async"),
        text.contains(" mma.sync") || text.contains("\tmma.sync"),
    ) {
        (true, false) => WARPGROUPS,
        (false, true) => WARPS,
        (false, false) => "",
        (true, true) => "both",
    }
}

fn check(target: Target) {
    let ptxas = assembler();
    let kernels = kernels(target);
    let objects = odec_mlir::compile(&kernels, target, cache().as_ref());
    let objects = objects.unwrap_or_else(|e| panic!("{e}"));
    let left = Mutex::new(kernels.iter().zip(&objects).collect::<Vec<_>>());
    let wrong = Mutex::new(Vec::new());
    let table = Mutex::new(BTreeMap::<String, Used>::new());
    let work = || {
        while let Some((kernel, object)) = { left.lock().unwrap().pop() } {
            let found = match assemble(&ptxas, &object.bytes, target) {
                Ok(said) => {
                    let text = String::from_utf8_lossy(&object.bytes);
                    let units = units(&kernel.spec, target);
                    let kind = format!("{}{units}", kernel.spec.kind());
                    table.lock().unwrap().entry(kind).or_default().add(&said);
                    let found = instructions(&text);
                    let other = (found != units).then(|| format!("runs on {found:?}"));
                    let fed = tensor::map::count(&kernel.spec, target) > 0;
                    let boxes = text.contains("cp.async.bulk.tensor");
                    let unfed = (fed != boxes).then(|| format!("fed by maps: {boxes}"));
                    complaint(&said, kernel, target).or(other).or(unfed)
                }
                Err(said) => Some(said),
            };
            wrong
                .lock()
                .unwrap()
                .extend(found.map(|w| format!("{}: {w}", kernel.symbol)));
        }
    };
    std::thread::scope(|s| {
        s.spawn(work);
        work();
    });
    for (kind, used) in table.into_inner().unwrap() {
        eprintln!("{target}: {kind}: {used:?}");
    }
    let wrong = wrong.into_inner().unwrap();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        kernels.len(),
        wrong.join("\n")
    );
    eprintln!("{target}: {} kernels", kernels.len());
}

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn every_kernel_assembles_for_sm_80() {
    check(Target::Sm80);
}

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn every_kernel_assembles_for_sm_90a() {
    check(Target::Sm90a);
}
