//! Why a run cannot start, or go on: sentences that say what to do.

use crate::artifact::ArtifactError;
use crate::data::DataError;
use crate::data::tokenizer::TokenizerError;
use crate::executor::RunError;
use crate::infer::evaluate::EvaluateError;
use crate::parameters::checkpoint::CheckpointError;
use crate::parameters::import::ImportError;
use crate::system::files::remedy;
use crate::system::shown::Shown;
use std::io;
use std::path::Path;

/// Why a run cannot start, or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(
        "{path} has no train block; add one to the source: train {{ data text(\"…\", tokenizer: bytes) … }}"
    )]
    NoTrainBlock { path: String },
    #[error(
        "a batch of {batch} does not fit the {planned} that the artifact was planned for; build it again"
    )]
    Batch { batch: u64, planned: u64 },
    #[error(
        "{path} holds a run already; continue it with `--resume {path}`, or choose another folder with --out"
    )]
    Occupied { path: String },
    #[error(
        "{path} is there, and {run} is not the folder of a run that odec began, so it is not overwritten; \
         move it away, or choose another folder with --out"
    )]
    ForeignFile { path: String, run: String },
    #[error("another process is training in {path}; wait for it, or choose another folder")]
    Busy { path: String },
    #[error(
        "{path} is not the folder of a run ({source}); start one with `odec train FILE --out {path}`"
    )]
    NotARun {
        path: String,
        source: CheckpointError,
    },
    #[error(
        "{path} has {done} steps behind it, so it cannot end after {asked}; ask for more with --steps, which counts all steps of the run"
    )]
    Behind { path: String, done: u64, asked: u64 },
    #[error("a time limit of {0} seconds is none; give a positive number")]
    TimeLimit(f64),
    #[error(
        "the {what} is not finite at step {step}{place}; the last good checkpoint is {checkpoint} (step {saved}). \
         A lower learning rate, a longer warm-up or a smaller step size h may help"
    )]
    NonFinite {
        what: String,
        step: u64,
        /// Where it started, as a clause.
        place: String,
        checkpoint: String,
        /// The step of that checkpoint.
        saved: u64,
    },
    /// The disk refuses, before there is anything to keep.
    #[error("cannot write {path}: {source}; {remedy}, then try again")]
    Write {
        path: String,
        source: io::Error,
        remedy: &'static str,
    },
    /// The disk refuses in the course of a run.
    #[error(
        "the run stops at step {step}: cannot write {path}: {source}. The checkpoint of step {saved} is untouched; \
         {remedy}, then go on with `odec train --resume {run}`"
    )]
    Save {
        path: String,
        source: io::Error,
        step: u64,
        saved: u64,
        run: String,
        remedy: &'static str,
    },
    /// The folder is not the one that the run began in.
    #[error(
        "the run stops at step {step}: {run} was moved, deleted or begun anew by another process, so nothing more is written \
         there; step {saved} was the last that was saved"
    )]
    Lost { run: String, step: u64, saved: u64 },
    /// The text cannot be read in the course of a run.
    #[error(
        "the run stops at step {step}: {source}. The checkpoint of step {saved} is untouched; \
         restore the file, then go on with `odec train --resume {run}`"
    )]
    Text {
        source: DataError,
        step: u64,
        saved: u64,
        run: String,
    },
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Import(#[from] ImportError),
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<EvaluateError> for TrainError {
    fn from(e: EvaluateError) -> TrainError {
        match e {
            EvaluateError::Data(e) => e.into(),
            EvaluateError::Run(e) => e.into(),
        }
    }
}

impl TrainError {
    /// A file that cannot be written.
    pub fn write(path: &Path, source: io::Error) -> TrainError {
        TrainError::Write {
            path: path.shown(),
            remedy: remedy(&source),
            source,
        }
    }
}
