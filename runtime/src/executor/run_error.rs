//! Why an entry cannot run: sentences that name what was asked for and what there is.

use odec_program::manifest::Manifest;
use odec_program::{Entry, EntryId, Io, Maxima};
use std::io;

/// Why an entry cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "this artifact has no entry `{entry}` (it has {known}); build it from a file with a train block"
    )]
    NoEntry { entry: String, known: String },
    #[error("entry `{entry}` has no {what} `{name}` (it has {known})")]
    NoIo {
        entry: String,
        what: &'static str,
        name: String,
        known: String,
    },
    #[error("entry `{entry}` needs the input `{name}`")]
    MissingInput { entry: String, name: String },
    #[error(
        "input `{name}` has {found} elements of {found_dtype}; it needs {shape}, {expected} of {dtype}"
    )]
    Input {
        name: String,
        shape: String,
        expected: u64,
        dtype: &'static str,
        found: usize,
        found_dtype: &'static str,
    },
    #[error(
        "token {token} at position {position} of input `{name}` is not in 0..{vocab}, the model's vocabulary"
    )]
    Token {
        name: String,
        position: usize,
        token: i32,
        vocab: u64,
    },
    #[error("entry `extend` reads one token of each text, not {seq}")]
    OneOfEach { seq: u64 },
    #[error("batch {batch} × sequence {seq}{beside} is outside the artifact's limits, {maxima}")]
    Size {
        batch: u64,
        seq: u64,
        /// The source, if there is one.
        beside: String,
        maxima: Maxima,
    },
    #[error(
        "a text cannot go back to its first {past} tokens: of {dropped} nothing is kept any more, and attention would see some of these"
    )]
    Dropped { past: u64, dropped: u64 },
    #[error("entry `{entry}` needs the scalar `{name}`")]
    MissingScalar { entry: String, name: String },
    #[error("{tensor} of {site} is the first tensor that is not")]
    NonFinite { site: String, tensor: String },
    #[error(
        "the adaptive steps{evolve} reached t = {reached:.6} of {until} in {max} attempts; allow more attempts (`max`) or larger errors (`rtol`, `atol`), or keep the weights smaller, which needs fewer steps"
    )]
    Unfinished {
        evolve: String,
        reached: f64,
        until: f64,
        max: u64,
    },
    #[error("output `{name}` has elements other than f32 and f64")]
    OutputType { name: String },
    #[error("cannot reserve memory for the program: {0}")]
    Memory(#[from] io::Error),
    #[error("the device failed: {0}")]
    Device(String),
}

/// An entry by name.
///
/// # Errors
/// When there is none.
pub fn find<'a>(m: &'a Manifest, entry: &str) -> Result<(EntryId, &'a Entry), RunError> {
    let found = m.program.entries.get_key_value(entry);
    found
        .map(|(id, e)| (*id, e))
        .ok_or_else(|| no_entry(m, entry))
}

pub(crate) fn no_entry(m: &Manifest, entry: &str) -> RunError {
    let known: Vec<&str> = m.program.entries.keys().map(|e| e.as_str()).collect();
    RunError::NoEntry {
        entry: entry.into(),
        known: known.join(", "),
    }
}

pub(crate) fn no_io(entry: &str, what: &'static str, name: &str, list: &[Io]) -> RunError {
    let known: Vec<&str> = list.iter().map(|io| io.name.as_str()).collect();
    RunError::NoIo {
        entry: entry.into(),
        what,
        name: name.into(),
        known: known.join(", "),
    }
}
