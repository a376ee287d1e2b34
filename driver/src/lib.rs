//! The driver: from a path to a checked file, and from that to an artifact that runs.
//!
//! Takes what a command line names; gives checked files, artifacts, and failures with the exit code they end a command with. It is
//! the one crate that calls compiler, code generator and runtime. Leaves arguments and what a command prints to `src/`.

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
