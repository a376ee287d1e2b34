//! Kernels for GPUs without one: shipped PTX on an emulated card, launches on a driver that only takes notes, NVIDIA's assembler. One binary: each
//! holds all of LLVM.

#![allow(clippy::single_range_in_vec_init)] // lists of launches, most of them of one

mod assemble;
mod emulated;
#[path = "../harness/mod.rs"]
mod harness;
mod kernels;
mod launches;
mod modules;
mod programs;
mod tensor;
