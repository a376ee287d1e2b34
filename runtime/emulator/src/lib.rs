//! A GPU for tests: runs the PTX that artifacts hold, one thread after the other.
//!
//! Takes the PTX of a program's kernels; gives a [`Device`], so that single kernels and whole programs can be held against the
//! reference device. It executes the instructions that the emitters' kernels are made of, exactly, and refuses all others;
//! it says nothing about speed, nor about what an assembler or a card would do with the text. Leaves the making of PTX to
//! `odec-mlir`, whose tests use this crate; it is one of its own because tests spend their time here, and it is compiled for speed.
//!
//! # Invariants
//!
//! - Integers and f32 have the bits that PTX specifies. NVIDIA does not specify how tensor cores add: here they add as badly as measured on any
//!   card (`tensor.rs`).
//! - An instruction, a modifier or a memory space that no emitter writes ends the test: nothing is skipped but comments and `.pragma`.
//! - What a card would pass over ends the test: accesses outside of operands or unaligned, shared memory that nobody wrote, races, barriers that
//!   not all threads reach, copies and products that nobody waits for (`memory.rs`, `phases.rs`, `warpgroup.rs`).
//! - Blocks, warps and threads run in a fixed order, so a launch gives the same bits each time.
//! - Blocks, threads, shared memory and arguments of a launch are those that the runtime gives a card (`odec_runtime::device::cuda::plan`), and
//!   must be what the PTX declares.
//! - Only tests depend on this crate: a fault is a panic.

mod isa;
mod memory;
mod parse;
mod phases;
mod run;
mod scalar;
mod tensor;
mod warpgroup;

use odec_program::{Kernel, KernelSpec, Target};
use odec_runtime::device::Device;
use odec_runtime::device::cuda::plan::{Launch, Place, plan};
use odec_runtime::device::memory::Words;
use std::rc::Rc;

/// Kernels as PTX, ready to run.
pub struct Emulated {
    pub ptx: String,
    kernels: Vec<(KernelSpec, Rc<isa::Kernel>)>,
    target: Target,
    /// Launches have no more blocks than this: of kernels that do all work with any number of them.
    pub most_blocks: Option<u64>,
}

impl Emulated {
    /// Reads the PTX of an artifact, which has each of its kernels once.
    ///
    /// # Panics
    /// When the text has an instruction that no emitter writes, or lacks a kernel.
    pub fn new(ptx: String, kernels: &[Kernel], target: Target) -> Emulated {
        let modules: Vec<Rc<isa::Kernel>> = parse::module(&ptx).into_iter().map(Rc::new).collect();
        let find = |k: &Kernel| {
            let found = modules.iter().find(|m| m.name == k.symbol);
            (
                k.spec.clone(),
                found.expect("the text has every kernel").clone(),
            )
        };
        Emulated {
            kernels: kernels.iter().map(find).collect(),
            ptx,
            target,
            most_blocks: None,
        }
    }
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
        let blocks = shape.blocks.min(self.most_blocks.unwrap_or(u64::MAX));
        run::launch(kernel, blocks, shape.shared, &arguments, &mut memory);
    }
}
