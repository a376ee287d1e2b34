//! Kernels for processors as they were compiled, beside the scalar evaluator, the reference device and f64. One binary: each holds all of LLVM.

#![allow(clippy::single_range_in_vec_init)] // lists of launches, most of them of one

mod attend;
mod cache;
mod codegen;
mod contract;
mod delay;
mod emit;
mod fma;
mod grouped;
#[path = "../harness/mod.rs"]
mod harness;
mod linear_attend;
mod link;
mod object;
mod pairs;
mod pipeline;
mod programs;
mod quantized;
mod rows;
mod scan;
mod tiles;
mod top_tokens;
