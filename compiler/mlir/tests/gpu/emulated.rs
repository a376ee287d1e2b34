//! Kernels compiled for a GPU, on the emulated one; and their launches kept for a real one.

use crate::harness::cache;
use odec_emulator::Emulated;
use odec_program::{Kernel, Target};
use odec_runtime::conformance::cases::Cases;
use sha2::{Digest, Sha256};
use std::path::Path;

/// Compiles kernels for a GPU, joins them as in an artifact, and reads the text back.
pub fn on_gpu(kernels: &[Kernel], target: Target) -> Emulated {
    let mut distinct = kernels.to_vec();
    distinct.sort_by(|a, b| a.symbol.cmp(&b.symbol));
    distinct.dedup_by(|a, b| a.symbol == b.symbol);
    let objects = odec_mlir::compile(&distinct, target, cache().as_ref());
    let objects = objects.unwrap_or_else(|e| panic!("{e}"));
    let ptx = String::from_utf8(odec_mlir::gpu::ptx::join(&objects)).unwrap();
    Emulated::new(ptx, kernels, target)
}

/// Keeps launches in the folder that `ODEC_KEEP_LAUNCHES` names, if there is one, for `odec replay` on a card.
pub fn keep(cases: &Cases) {
    let Some(folder) = std::env::var_os("ODEC_KEEP_LAUNCHES") else {
        return;
    };
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder).expect("a folder");
    let digest = Sha256::digest(format!("{cases:?}"));
    let digest: String = digest[..8].iter().map(|b| format!("{b:02x}")).collect();
    let kind = cases.kernels[0].spec.kind();
    let name = format!("{kind}-{}-{digest}.safetensors", cases.target);
    cases.save(&folder.join(name)).expect("a file");
}
