//! The driver: from a path to a checked file, and from that to an artifact that runs.
//!
//! Takes what a command line names; gives checked files, artifacts, and failures with the exit code they end a command with. It is
//! the one crate that calls compiler, code generator and runtime. Leaves arguments and what a command prints to `src/`.
//!
//! # Invariants
//!
//! - A [`fail::Failure`] says whose fault it is: the user's (exit code 1), nobody's, where a signal stopped the command (128 + its number), or
//!   odec's own (3). What it quotes from files is escaped when it is printed.
//! - Source files are opened by `odec_runtime::system::input`: regular files of UTF-8, at most `MAX_BYTES` long. An import is a `.ode` file; one
//!   that is reached by several paths is read as one.
//! - The source that an artifact holds is checked with the settings and imports that it holds, never with files of this machine, and without
//!   printing (`source::of_artifact`).
//! - Data and parameters that a train block names may be missing when it is checked: that is a note or a warning. The run says whether it needs
//!   them.
//! - A model is refused before its code is generated: for its precision, for a kernel that GPUs do not run, for the memory of a card
//!   (`memory_check.rs`), or by the caller.
//! - Code is generated in a child process, which is this program again (`__codegen`), so a crash of LLVM ends the child alone.
//! - Kernels that this user did not sign are compiled again from the program, or run where `--trust` says so; without the feature `mlir` they are
//!   refused.
//! - The library is embedded here (`library.rs`). Crates below take it as an argument.

// `odec_runtime::system::stdio` prints: what `println!` prints can end a run.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod artifact;
pub mod fail;
pub mod library;
pub mod measure;
mod memory_check;
pub mod method;
pub mod quantized;
pub mod source;
pub mod terminal;
