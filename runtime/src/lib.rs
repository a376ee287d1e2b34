//! Runs artifacts: training, evaluation, generation, and a door for outside checks. No LLVM in here.
//!
//! Takes `name.odex/` folders made by `odec build`; gives trained parameters, losses, text.
//!
//! ```text
//! train · infer · conformance     a run and its steps; evaluation, text, single entries; devices compared
//! parameters                      checkpoints, and parameters of other programs
//! data                            texts, tokens, tokenizers, masks
//! executor                        entries: slots to memory, inputs to outputs
//! artifact                        a folder that is checked once
//! device                          cpu (compiled code, threads) | cuda (a GPU) | reference (scalar Rust); memory, numbers
//! system                          files, printing, threads, keys
//! ```
//!
//! A folder uses those below it, never one above (`scripts/cycles.py`).
//!
//! Invariants: a program is validated once, on load, so that launching it is cheap; bits depend on artifact,
//! instruction set and seed, never on the number of threads; files are written whole or not at
//! all; nothing a person gives can cause a panic; `unsafe` is confined to `device::memory`, `device::ffi`, `device::cuda::card`, `system::pool` and `system::os`.

#![deny(unsafe_code)]
// `stdio` prints: what `println!` prints can end a run.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod artifact;
pub mod conformance;
pub mod data;
pub mod device;
pub mod executor;
pub mod infer;
pub mod parameters;
pub mod system;
pub mod train;

pub use artifact::{Artifact, ArtifactError, DeviceChoice, ObjectCode, Unsigned};
pub use data::Corpus;
pub use data::tokenizer::Tokenizer;
pub use executor::{Executor, RunError, State, Value};
pub use infer::evaluate::{Evaluation, evaluate};
pub use infer::exec::exec;
pub use infer::generate::{Reader, Sampling, generate};
pub use system::files::remedy;
pub use system::progress::Show;
pub use system::shown::Shown;
pub use train::failure::TrainError;
pub use train::material::{corpus_of, tokenizer_of};
pub use train::run::{Run, open_run, open_run_with};
pub use train::{End, Settings, Summary, resume, train};
