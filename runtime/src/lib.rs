//! Runs artifacts: training, evaluation, generation, and single entries for checks from outside. Uses no LLVM.
//!
//! Takes `name.odex/` folders made by `odec build`; gives trained parameters, losses, text.
//!
//! ```text
//! profile                         what measured launches add up to, as rows, a trace and a picture
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
//! # Invariants
//!
//! - A program is validated once, on load, so that launching it is cheap.
//! - Bits depend on artifact, instruction set and seed, never on the number of threads.
//! - Files are written whole or not at all. Nothing a person gives can cause a panic.
//! - `unsafe` is confined to `device::memory`, `device::ffi`, `device::loops`, `device::cuda::card`, `system::pool` and `system::os`.
//!
//! # Files and code of others
//!
//! - A file may be anybody's. The numbers of a manifest are bounded in `artifact/numbers.rs` and `check.rs` before
//!   anything is divided by them or made as large.
//! - Compiled code runs when this user's key signed it (`system/key.rs`), it was just compiled, or `--trust` said so.
//!   `Artifact::code` decides that alone, and what was verified is what is loaded, from memory.
//! - Panics of other people's code are caught in one place, `system/caught.rs`.
//! - What is on disk is whole or not there: files are written in a working folder beside their place, flushed, renamed,
//!   and the folder flushed (`system/files.rs`, which does all writing). Artifacts, checkpoints and kept tokens carry
//!   the hash of all their contents. A run killed at any instant continues bit for bit (`tests/runs.rs`).
//! - What is replaced or deleted is odec's, known by what is inside: a locked marker in working folders, `.lock` in
//!   runs (`train/lock.rs`), the manifest of an artifact. Files that a person names go through `system/output.rs`,
//!   which refuses those of runs and artifacts. `tests/files.rs` holds all of it.
//! - Texts and token files are read at places of their own (`data/identity.rs`), never mapped: a file that changes is
//!   an error. What they are known by is in the checkpoint.
//! - Everything is printed through `system/stdio.rs` (`out!`, `outln!`, `errln!`), which never panics; `println!` and
//!   its like are denied here and in odec's `src/`.
//!
//! # Devices
//!
//! - A device may work by itself: a run is asked for, and its outputs are taken later (`Executor::queue`, `take`). The
//!   order is that of asking, so nothing depends on when. What is saved is the state after a step that was looked at,
//!   with none under way (`train/step.rs`).
//! - Launches become graphs of the driver in `device/cuda/` alone; the executor knows nothing of them.
//! - `device/reals.rs` is the one place that turns numbers into a program's real type.

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
pub mod profile;
pub mod system;
pub mod train;

pub use artifact::{Artifact, ArtifactError, DeviceChoice, ObjectCode, Unsigned};
pub use data::dataset::{Batch, Dataset};
pub use data::tokenizer::Tokenizer;
pub use executor::{Executor, RunError, State, Value};
pub use infer::evaluate::{Evaluation, evaluate};
pub use infer::exec::exec;
pub use infer::generate::{Asked, Sampling, generate, generate_several};
pub use infer::reader::{Logits, Reader, Texts};
pub use infer::translate::{Search, translate};
pub use parameters::checkpoint::Weights;
pub use system::files::remedy;
pub use system::progress::Show;
pub use system::shown::Shown;
pub use train::dataset::{dataset_of, pairs_of, tokenizer_of};
pub use train::failure::TrainError;
pub use train::run::{Run, open_run, open_run_with};
pub use train::{End, Settings, Summary, resume, train};
