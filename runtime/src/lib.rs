//! Runs artifacts: training, evaluation, generation, and a door for outside checks. No LLVM in here.
//!
//! Takes `name.odex/` folders made by `odec build`; gives trained parameters, losses, text.
//!
//! ```text
//! artifact ──► check ──► executor ──► device: cpu (compiled code, threads) | cuda (a GPU) | reference (scalar Rust)
//!                           ▲
//!  train ► run · evaluate · generate · exec ◄── data · schedule · checkpoint · metrics · chart
//! ```
//!
//! Invariants: a program is validated once, on load, so that launching it is cheap; bits depend on artifact,
//! instruction set and seed, never on the number of threads; files are written whole or not at
//! all; nothing a person gives can cause a panic; `unsafe` is confined to `memory`, `pool`, `ffi` and `cuda::card`.

#![deny(unsafe_code)]
// `stdio` prints: what `println!` prints can end a run.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod artifact;
pub mod cases;
#[cfg(feature = "tokenizers")]
mod caught;
pub mod chart;
pub mod check;
pub mod checkpoint;
pub mod compare;
pub mod cpu;
pub mod cuda;
pub mod data;
pub mod depth;
pub mod device;
pub mod evaluate;
pub mod exec;
pub mod executor;
pub mod factors;
pub mod failure;
pub mod ffi;
pub mod files;
pub mod generate;
pub mod gradient;
pub mod identity;
pub mod import;
pub mod init;
pub mod input;
pub mod integrate;
pub(crate) mod key;
pub mod launches;
pub mod lock;
pub mod mask;
pub mod material;
pub mod memory;
pub mod metrics;
mod numbers;
pub mod output;
pub mod pool;
pub(crate) mod ports;
pub mod private;
pub mod profile;
pub mod progress;
pub mod reach;
pub mod reals;
pub mod reference;
pub mod rng;
pub mod run;
pub(crate) mod run_error;
pub mod schedule;
pub mod shown;
pub(crate) mod stall;
pub mod stdio;
pub mod step;
pub mod token_cache;
pub mod tokenise;
pub mod tokenizer;
pub mod tokens;
pub mod train;
pub(crate) mod watch;

pub use artifact::{Artifact, ArtifactError, DeviceChoice, ObjectCode, Unsigned};
pub use data::Corpus;
pub use evaluate::{Evaluation, evaluate};
pub use exec::exec;
pub use executor::{Executor, RunError, State, Value};
pub use failure::TrainError;
pub use files::remedy;
pub use generate::{Reader, Sampling, generate};
pub use material::{corpus_of, tokenizer_of};
pub use progress::Show;
pub use run::{Run, open_run, open_run_with};
pub use shown::Shown;
pub use tokenizer::Tokenizer;
pub use train::{End, Settings, Summary, resume, train};
