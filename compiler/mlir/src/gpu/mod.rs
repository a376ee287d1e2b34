//! Kernels for NVIDIA GPUs.
//!
//! Takes the same [`Kernel`]s as the emitters for processors; gives MLIR text with thread numbers, shared memory, barriers
//! and shuffles (dialect `nvvm`), which LLVM turns into PTX. Who computes what is said in [`odec_program::gpu`]; what is
//! computed, in the kernel's specification: a kernel on a GPU gives the bits that it gives on a processor.
//!
//! Leaves assembling PTX to the driver, and launching to `odec-runtime`.

mod access;
mod attend;
mod by_block;
mod column;
mod columns;
mod contract;
mod delay;
mod gather;
mod grouped;
mod held;
mod keep;
mod linear_attend;
pub mod ptx;
mod rows;
mod scan;
mod stage;
mod tensor;
mod top_tokens;

use crate::CodegenError;
use crate::emit::{Arguments, Emitter};
use odec_program::gpu::columns::threads as columns_threads;
use odec_program::gpu::tensor::attend::runs as attends_on_tensor_cores;
use odec_program::gpu::tensor::contract::runs as contracts_on_tensor_cores;
use odec_program::gpu::tensor::contract::vector;
use odec_program::gpu::tensor::{map, warpgroup};
use odec_program::gpu::{awaits, refusal, shape};
use odec_program::{Kernel, KernelSpec, Target};

/// The MLIR text of a kernel, before lowering.
///
/// # Errors
/// [`CodegenError::Spec`] when the spec asks for something that no emitter does.
pub(crate) fn mlir_text(kernel: &Kernel, target: Target) -> Result<String, CodegenError> {
    let failed = |reason| CodegenError::Spec {
        symbol: kernel.symbol.clone(),
        reason,
    };
    if let Some(reason) = refusal(&kernel.spec) {
        return Err(failed(reason));
    }
    let arguments = arguments(&kernel.spec, target);
    let shape = shape(&kernel.spec, &vec![1; arguments.dims], target).expect("packing was refused");
    let registers = registers(&kernel.spec, target);
    let mut e = Emitter::for_gpu(&kernel.symbol, target, arguments, shape, registers);
    if awaits(target) {
        if let KernelSpec::Contract(k) = &kernel.spec {
            tensor::few::prefetch(&mut e, k);
        }
        e.await_launch();
    }
    match &kernel.spec {
        KernelSpec::Rows(k) => rows::emit(&mut e, k),
        KernelSpec::Columns(k) => columns::emit(&mut e, k),
        KernelSpec::Contract(k) if warpgroup::runs(k, target) => tensor::warpgroup::emit(&mut e, k),
        KernelSpec::Contract(k) if contracts_on_tensor_cores(k) => {
            tensor::contract::emit(&mut e, k)
        }
        KernelSpec::Contract(k) => contract::emit(&mut e, k),
        KernelSpec::Gather(k) => gather::emit_gather(&mut e, k),
        KernelSpec::ScatterAdd(k) => gather::emit_scatter_add(&mut e, k),
        KernelSpec::PositionSum(k) => gather::emit_position_sum(&mut e, k),
        KernelSpec::SequenceSum(k) => gather::emit_sequence_sum(&mut e, k),
        KernelSpec::Keep(k) => keep::emit(&mut e, k),
        KernelSpec::Scan(k) => scan::emit(&mut e, k),
        KernelSpec::Delay(k) => delay::emit(&mut e, k),
        KernelSpec::TopTokens(k) => top_tokens::emit(&mut e, k),
        KernelSpec::Attend(k) if attends_on_tensor_cores(k) => {
            tensor::attend::forward::emit(&mut e, k)
        }
        KernelSpec::AttendCached(k) if attends_on_tensor_cores(k) => {
            tensor::attend::forward::emit_cached(&mut e, k)
        }
        KernelSpec::AttendBackward(k) if attends_on_tensor_cores(k) => {
            tensor::attend::backward::emit(&mut e, k)
        }
        KernelSpec::Attend(k) => attend::forward::emit(&mut e, k),
        KernelSpec::AttendCached(k) => attend::forward::emit_cached(&mut e, k),
        KernelSpec::AttendBackward(k) => attend::backward::emit(&mut e, k),
        KernelSpec::LinearAttend(k) => linear_attend::emit(&mut e, k),
        KernelSpec::Grouped(k) => grouped::emit_rows(&mut e, k),
        KernelSpec::GroupedOuter(k) => grouped::emit_outer(&mut e, k),
        KernelSpec::Pack(_) => Err("packing is for processors".into()),
    }
    .map_err(failed)?;
    Ok(e.finish())
}

/// How many registers a thread may have. Named, because an assembler that is not told keeps fewer than it needs, and
/// spills, to make room for more blocks.
fn registers(spec: &KernelSpec, target: Target) -> u64 {
    match spec {
        // Three blocks of 128 threads share a multiprocessor.
        KernelSpec::AttendBackward(a)
            if warpgroup::attends(a, target) && a.head <= 64 && a.window.is_none() =>
        {
            168
        }
        KernelSpec::AttendBackward(a) if attends_on_tensor_cores(a) => 255,
        // Bounds on both sides, and the loop over heads, come on top of all sums.
        KernelSpec::AttendBackward(a) if a.window.is_some() || a.group() > 1 => 255,
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a)
            if a.head > 64 =>
        {
            255
        }
        // What is rounded on its way to shared memory waits in registers.
        KernelSpec::Contract(c)
            if contracts_on_tensor_cores(c) && (0..2).any(|n| vector(c, n) < 8) =>
        {
            255
        }
        // Two blocks of 512 threads share a multiprocessor.
        KernelSpec::Rows(k) if odec_program::gpu::rows::by_block(k) => 64,
        // All that a block of so many threads has.
        KernelSpec::Columns(k) => (65536 / columns_threads(k)).min(255),
        // Four blocks share a multiprocessor: as many as 1024 columns have, on 132 of them, are there at once.
        KernelSpec::ScatterAdd(_) => 128,
        // A block has a multiprocessor to itself.
        KernelSpec::Contract(c) if warpgroup::runs(c, target) && warpgroup::cols(c) > 128 => 255,
        // Two blocks of 256 threads share a multiprocessor.
        KernelSpec::Contract(c) if warpgroup::runs(c, target) => 128,
        _ => 168,
    }
}

/// What a kernel takes.
fn arguments(spec: &KernelSpec, target: Target) -> Arguments {
    let signature = spec.signature();
    Arguments {
        operands: signature.operands.len(),
        dims: signature.dims.len(),
        coeffs: signature.coeffs,
        maps: map::count(spec, target),
    }
}
