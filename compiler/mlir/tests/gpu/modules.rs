//! Whole modules of models of real size, as an artifact holds them, through the oldest and the newest of NVIDIA's assemblers.
//!
//! A module must assemble without spills, calls and warnings: an assembler says by one (C75xx) that it makes products wait for each
//! other, which it decides kernel by kernel and version by version. Run by `make test`, which fetches the assemblers
//! (`scripts/ptxas.sh`); without them the tests fail.

use crate::harness::cache;
use crate::harness::models::{in_bf16, planned};
use odec_mlir::gpu::ptx;
use odec_program::Target;
use std::path::Path;
use std::process::Command;

/// Folders of the assemblers, within `.ptxas`.
const ASSEMBLERS: [&str; 2] = ["", "newest"];

/// What is wrong with a report of `ptxas -v`.
fn complaints(said: &str) -> Vec<String> {
    let spills = |line: &str| {
        let clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
        line.contains("bytes stack frame") && line.trim() != clean
    };
    let remark =
        |line: &str| line.contains("(C") || line.contains("warning") || line.contains("error");
    let wrong = said.lines().filter(|l| spills(l) || remark(l));
    wrong.map(str::to_string).collect()
}

fn check(name: &str, sizes: &[(&'static str, &'static str)], target: Target) {
    let m = planned(name, sizes, target);
    let kernels = &m.program.kernels;
    let objects = odec_mlir::compile(kernels, target, cache().as_ref());
    let text = ptx::join(&objects.unwrap_or_else(|e| panic!("{e}")));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("kernels.ptx");
    std::fs::write(&source, text).unwrap();
    for assembler in ASSEMBLERS {
        let ptxas = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../.ptxas")
            .join(assembler)
            .join("ptxas");
        let done = Command::new(&ptxas)
            .arg("-v")
            .arg(format!("-arch={target}"))
            .arg(&source)
            .arg("-o")
            .arg(folder.path().join("kernels.cubin"))
            .output()
            .unwrap_or_else(|e| panic!("{}: {e}; scripts/ptxas.sh fetches it", ptxas.display()));
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            done.status.success(),
            "{name}, {target}, {assembler}:\n{said}"
        );
        let functions = said.matches("Used ").count();
        assert_eq!(functions, kernels.len(), "{name}, {target}, {assembler}");
        let wrong = complaints(&said);
        assert!(
            wrong.is_empty(),
            "{name}, {target}, ptxas {assembler}:\n{}",
            wrong.join("\n")
        );
    }
}

const SHAPE: [(&str, &str); 3] = [
    ("context: 256", "context: 1024"),
    ("hidden: 704", "hidden: 1408"),
    ("width: 256", "width: 512"),
];

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn modules_with_heads_of_64_assemble() {
    let heads = [SHAPE.as_slice(), &[("heads: 4", "heads: 8")]].concat();
    for target in Target::GPUS {
        check("rk2", &in_bf16(&heads), target);
    }
    check("rk2", &heads, Target::Sm90a);
}

#[test]
#[ignore = "needs ptxas; `make test` fetches it and runs this"]
fn modules_with_heads_of_128_assemble() {
    check("prenorm", &in_bf16(&SHAPE), Target::Sm90a);
}

#[test]
fn remarks_and_spills_are_complaints() {
    for line in [
        "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async are serialized in 'contract_1'",
        "ptxas info : (C7517) wgmma.wait_group is injected in function 'contract_1'",
        "    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads",
    ] {
        assert_eq!(complaints(line), [line], "{line}");
    }
    let clean = "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    assert!(complaints(clean).is_empty());
}
