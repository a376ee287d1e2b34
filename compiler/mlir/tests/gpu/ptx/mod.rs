//! A GPU for tests: runs the PTX that artifacts hold, one thread after the other.
//!
//! Takes a program's kernels; gives a [`Device`], so that single kernels and whole programs can be held against the
//! reference device. It executes the instructions that the emitters' kernels are made of, exactly, and refuses all others;
//! it says nothing about speed, nor about what an assembler or a card would do with the text.

#![allow(dead_code)]

mod isa;
mod memory;
mod parse;
mod phases;
mod run;
mod scalar;
mod tensor;
mod warpgroup;

use crate::harness::cache;
use odec_program::{KernelSpec, Target};
use odec_runtime::conformance::cases::Cases;
use odec_runtime::device::Device;
use odec_runtime::device::cuda::plan::{Launch, Place, plan};
use odec_runtime::device::memory::Words;
use sha2::{Digest, Sha256};
use std::path::Path;
use std::rc::Rc;

/// Kernels as PTX, ready to run.
pub struct Emulated {
    pub ptx: String,
    kernels: Vec<(KernelSpec, Rc<isa::Kernel>)>,
    target: Target,
}

impl Emulated {
    /// Compiles kernels for a GPU, joins them as in an artifact, and reads the text back.
    pub fn new(kernels: &[odec_program::Kernel], target: Target) -> Emulated {
        let mut distinct = kernels.to_vec();
        distinct.sort_by(|a, b| a.symbol.cmp(&b.symbol));
        distinct.dedup_by(|a, b| a.symbol == b.symbol);
        let objects = odec_mlir::compile(&distinct, target, cache().as_ref());
        let objects = objects.unwrap_or_else(|e| panic!("{e}"));
        let text = String::from_utf8(odec_mlir::gpu::ptx::join(&objects)).unwrap();
        let modules: Vec<Rc<isa::Kernel>> = parse::module(&text).into_iter().map(Rc::new).collect();
        let find = |k: &odec_program::Kernel| {
            let found = modules.iter().find(|m| m.name == k.symbol);
            (
                k.spec.clone(),
                found.expect("the text has every kernel").clone(),
            )
        };
        Emulated {
            kernels: kernels.iter().map(find).collect(),
            ptx: text,
            target,
        }
    }
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

impl Device for Emulated {
    fn name(&self) -> String {
        "emulated GPU".into()
    }

    fn launch(&mut self, kernel: usize, operands: &[Words], dims: &[u64], coeffs: &[f64]) {
        let (spec, kernel) = &self.kernels[kernel];
        let signature = spec.checked_signature().unwrap_or_else(|e| panic!("{e}"));
        let places: Vec<Place> = operands.iter().map(|w| Place::from(*w)).collect();
        let planned = plan(spec, &signature, self.target, &places, dims, coeffs);
        let planned = planned.unwrap_or_else(|e| panic!("{e}"));
        let Some(launch) = planned else {
            return;
        };
        let Launch {
            shape,
            arguments,
            maps,
        } = launch;
        assert_eq!(kernel.threads as u64, shape.threads, "{}", kernel.name);
        // What a kernel declares and what a launch asks for.
        let (dynamic, declared) = (shape.dynamic(), shape.shared - shape.dynamic());
        let name = &kernel.name;
        // LLVM keeps in registers what each thread writes and reads for itself.
        let kept = kernel.shared == declared || kernel.shared == 0;
        assert!(kept, "{name}: {} bytes for {declared}", kernel.shared);
        assert_eq!(kernel.dynamic.is_some(), dynamic > 0, "{name}");
        let mut memory = memory::Memory::new(operands);
        memory.maps = maps;
        run::launch(kernel, shape.blocks, shape.shared, &arguments, &mut memory);
    }
}
