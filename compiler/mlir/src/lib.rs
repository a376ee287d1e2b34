//! Compiles kernels to object code: the only crate that uses MLIR and LLVM.
//!
//! Takes [`odec_program::Kernel`]s; gives MLIR text, object files and shared objects, or PTX, for a
//! [`odec_program::Target`]. Leaves what the kernels mean to `odec-program`, which ones to make to
//! `odec-compiler`, and running them to `odec-runtime`.
//!
//! # Invariants
//!
//! - Equal kernels and targets give equal bytes. The crate is compiled without optimisation in every profile, so that tests and releases write the
//!   same text (`make profiles`).
//! - Generated code is exact arithmetic in the documented order (no fast-math flags, no contraction), so every target gives the same bits.
//! - An object refers to nothing but `memcpy`, `memset` and `memmove`.
//! - Code is generated in a child process with a limit of time (`codegen.rs`).
//! - The constructors of LLVM and MLIR run when the first [`Pipeline`] is made, in programs that are linked with `constructors.ld`: nothing else of the two
//!   is called before.
//! - This crate writes objects and its cache, and does no other I/O.
//! - `unsafe` lives in files that say so, each block with its reason.

mod access;
mod attend;
mod body;
pub mod cache;
mod chunks;
pub mod codegen;
mod columns;
mod contract;
mod delay;
mod dot;
pub mod emit;
mod epilogue;
pub mod error;
mod ffi;
mod fma;
mod gather;
pub mod gpu;
mod grouped;
mod keep;
mod linear_attend;
pub mod link;
mod micro;
pub mod object;
mod pack;
mod pairs;
mod panel;
pub mod pipeline;
mod quantized;
mod rows;
mod scan;
mod tiles;
mod top_tokens;
mod transpose;
mod vectors;

pub use cache::Cache;
pub use codegen::{CANNOT_WRITE, compile, compile_in_child, serve};
use emit::Emitter;
pub use error::CodegenError;
pub use link::link;
pub use object::Object;
use odec_program::{Kernel, KernelSpec, Target};
pub use pipeline::Pipeline;

/// Whether a kernel makes sense, on any target.
fn validate(kernel: &Kernel) -> Result<(), CodegenError> {
    kernel.spec.validate().map_err(|reason| CodegenError::Spec {
        symbol: kernel.symbol.clone(),
        reason,
    })
}

/// The MLIR text of a kernel, before lowering.
///
/// # Errors
/// [`CodegenError::Spec`] when the spec makes no sense, or asks for something that no emitter does.
pub fn mlir_text(kernel: &Kernel, target: Target) -> Result<String, CodegenError> {
    validate(kernel)?;
    if target.is_gpu() {
        return gpu::mlir_text(kernel, target);
    }
    let mut e = Emitter::new(&kernel.symbol, kernel.spec.dtype(), target);
    let emitted: Result<(), String> = match &kernel.spec {
        KernelSpec::Rows(k) => rows::emit(&mut e, k),
        KernelSpec::Columns(k) => columns::emit(&mut e, k),
        KernelSpec::Gather(k) => gather::emit_gather(&mut e, k),
        KernelSpec::ScatterAdd(k) => gather::emit_scatter_add(&mut e, k),
        KernelSpec::PositionSum(k) => gather::emit_position_sum(&mut e, k),
        KernelSpec::SequenceSum(k) => gather::emit_sequence_sum(&mut e, k),
        KernelSpec::Keep(k) => keep::emit(&mut e, k),
        KernelSpec::Scan(k) => scan::emit(&mut e, k),
        KernelSpec::Delay(k) => delay::emit(&mut e, k),
        KernelSpec::TopTokens(k) => top_tokens::emit(&mut e, k),
        KernelSpec::Grouped(k) => grouped::emit_rows(&mut e, k),
        KernelSpec::GroupedOuter(k) => grouped::emit_outer(&mut e, k),
        KernelSpec::Pack(k) => pack::emit(&mut e, k),
        KernelSpec::Contract(k) => contract::emit(&mut e, k),
        KernelSpec::Attend(k) => attend::forward::emit(&mut e, k),
        KernelSpec::AttendBackward(k) => attend::backward::emit(&mut e, k),
        KernelSpec::AttendCached(k) => attend::cached::emit(&mut e, k),
        KernelSpec::LinearAttend(k) => linear_attend::emit(&mut e, k),
    };
    match emitted {
        Ok(()) => Ok(e.finish()),
        Err(reason) => Err(CodegenError::Spec {
            symbol: kernel.symbol.clone(),
            reason,
        }),
    }
}
