//! Errors of training runs, with what to do about them.

use crate::artifact::ArtifactError;
use crate::data::DataError;
use crate::data::tokenizer::TokenizerError;
use crate::executor::RunError;
use crate::infer::evaluate::EvaluateError;
use crate::parameters::checkpoint::CheckpointError;
use crate::parameters::import::ImportError;
use crate::system::files::remedy;
use crate::system::known::{self, Kind};
use crate::system::output::OutputError;
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
        "a batch of {batch} does not fit the artifact, which was built for {planned}; build it again"
    )]
    Batch { batch: u64, planned: u64 },
    #[error(
        "{path} holds a run already; continue it with `--resume {path}`, or choose another folder with --out"
    )]
    Occupied { path: String },
    #[error(
        "{path} holds what an earlier run has kept, {kept}, and no checkpoint; move it away, or choose another folder with --out"
    )]
    Kept { path: String, kept: String },
    #[error(
        "{path} is in the exploration {exploration}, which holds its own runs alone; choose another folder with --out"
    )]
    OfExploration { path: String, exploration: String },
    #[error(
        "{path} exists, and {run} is not a run of odec, so it is not overwritten; move it away, or choose another folder with --out"
    )]
    ForeignFile { path: String, run: String },
    #[error("another process is training in {path}; wait for it, or choose another folder")]
    Busy { path: String },
    #[error("{path} is not a run ({source}); start one with `odec train FILE --out {path}`")]
    NotARun {
        path: String,
        source: CheckpointError,
    },
    #[error("{path} is not a run: it {what}")]
    NoRunBut { path: String, what: String },
    #[error(
        "{path} has done {done} steps already, so it cannot end after {asked}; give more --steps, which counts all steps of the run"
    )]
    Behind { path: String, done: u64, asked: u64 },
    #[error("a time limit of {0} seconds is not positive; give a number of seconds above 0")]
    TimeLimit(f64),
    #[error(
        "the {what} is not finite at step {step}{place}; the last good checkpoint is {checkpoint} (step {saved}). \
         {advice}"
    )]
    NonFinite {
        what: String,
        step: u64,
        /// Where it started, as a clause.
        place: String,
        checkpoint: String,
        /// The step of that checkpoint.
        saved: u64,
        advice: &'static str,
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
        "the run stops at step {step}: cannot write {path}: {source}. The checkpoint of step {saved} is untouched; {remedy}, then continue with `odec train --resume {run}`"
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
        "the run stops at step {step}: another process moved, deleted or restarted {run}, so nothing more is written there; the last saved step is {saved}"
    )]
    Lost { run: String, step: u64, saved: u64 },
    /// The text cannot be read in the course of a run.
    #[error(
        "the run stops at step {step}: {source}. The checkpoint of step {saved} is untouched; restore the file, then continue with `odec train --resume {run}`"
    )]
    Text {
        source: DataError,
        step: u64,
        saved: u64,
        run: String,
    },
    #[error(transparent)]
    Output(#[from] OutputError),
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
    /// Of a path that is said to be a run.
    pub(crate) fn not_a_run(path: &Path, source: CheckpointError) -> TrainError {
        let shown = path.shown();
        match known::instead(path, &[Kind::Run]) {
            Some(what) => TrainError::NoRunBut { path: shown, what },
            None => TrainError::NotARun {
                path: shown,
                source,
            },
        }
    }

    /// A file that cannot be written.
    pub fn write(path: &Path, source: io::Error) -> TrainError {
        TrainError::Write {
            path: path.shown(),
            remedy: remedy(&source),
            source,
        }
    }
}
