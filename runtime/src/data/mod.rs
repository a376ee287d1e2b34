//! What models are trained on and evaluated with.
//!
//! Takes a [`Source`]: the data of a train block, and where it is read; gives a [`dataset::Dataset`]: batches of the training part, keyed by seed and
//! step, and consecutive ones of the held-out part. Each kind of source is a file in [`mod@sources`]. Leaves what is done with a batch to
//! [`mod@crate::train`] and [`mod@crate::infer::evaluate`].
//!
//! A new kind of source is a variant of `Form` in `program/src/manifest/data.rs` and a file in [`mod@sources`] that gives one of these, or a
//! dataset of its own:
//!
//! | data | dataset | beside it |
//! |---|---|---|
//! | tokens | `Corpus` (`corpus.rs`) | `mask.rs`: what is hidden |
//! | sentences for next sentence prediction | `SentenceSet` (`sentences.rs`) | |
//! | images | `ImageSet` (`images.rs`: patches, shifts, flips) | `pixels.rs`: where their numbers are |
//! | sequences of vectors | `VectorSet` (`vectors.rs`) | |
//! | pairs of texts; texts with a class each | `TextSet` (`texts.rs`: batches of similar length) | `sources/columns.rs`: how they stand in files |
//!
//! Which rows are held out, and the order of the others, is drawn in `draw.rs`; of rows that are drawn one by one, in `parts.rs`.

mod array;
pub mod corpus;
pub mod dataset;
mod draw;
pub(crate) mod flow;
pub mod identity;
pub(crate) mod images;
pub mod mask;
mod parts;
pub(crate) mod picture;
mod pixels;
pub mod points;
mod sentences;
pub mod sources;
mod texts;
pub mod token_cache;
pub mod tokenise;
pub mod tokenizer;
pub mod tokens;
mod vectors;
pub mod written;

use crate::data::tokenizer::{Tokenizer, TokenizerError};
use crate::system::output::OutputError;
use crate::system::progress::Show;
use crate::system::shown::Shown;
use odec_program::manifest::Data;
use odec_text::number::count;
use std::io;
use std::path::Path;

/// Why data cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "there is no text at {path}; name your own text with --data (`make data` in odec's source tree fetches data/shakespeare.txt)"
    )]
    Missing { path: String },
    #[error(
        "{path} is no text: its name ends as those of {kind} do; give a text, a .jsonl file, or tokens in a .bin"
    )]
    NamedOtherwise { path: String, kind: &'static str },
    #[error(
        "there are no images at {path}; name your own with --data (`make mnist` in odec's source tree fetches data/mnist.npz)"
    )]
    NoImagesAt { path: String },
    /// Of files of images or vectors: what is wrong with one.
    #[error("{path}: {reason}")]
    Images { path: String, reason: String },
    #[error("{path}, image {number} (counted from 0): {reason}")]
    Image {
        path: String,
        number: u64,
        reason: String,
    },
    #[error("the {part} part of {path} has no images")]
    NoImages { path: String, part: &'static str },
    #[error("there are no vectors at {path}; name your own with --data")]
    NoVectorsAt { path: String },
    #[error("there are no points at {path}")]
    NoPointsAt { path: String },
    #[error("{path}, sequence {number} (counted from 0): {reason}")]
    Sequence {
        path: String,
        number: u64,
        reason: String,
    },
    #[error("the {part} part of {path} has no sequences")]
    NoSequences { path: String, part: &'static str },
    #[error(
        "there are no pairs of texts at {path}; name your own with --data (`make catalogues` in odec's source tree fetches data/catalogue.de.jsonl)"
    )]
    NoPairsAt { path: String },
    /// Of files of pairs: what is wrong with one.
    #[error("{path}: {reason}")]
    Pairs { path: String, reason: String },
    #[error("{path}, line {line}: {reason}")]
    Pair {
        path: String,
        line: usize,
        reason: String,
    },
    #[error(
        "the {part} part of {path} has too few sentences: {has} that end with token {end} are followed by {context} tokens or more, and two are needed"
    )]
    Sentences {
        path: String,
        part: &'static str,
        has: usize,
        context: u64,
        end: u64,
    },
    #[error(
        "there are no texts with labels at {path}; name your own with --data (`make languages` in odec's source tree fetches data/languages.jsonl)"
    )]
    NoLabelledAt { path: String },
    #[error("the {part} part of {path} has no {what}")]
    NoTexts {
        path: String,
        part: &'static str,
        what: &'static str,
    },
    #[error(
        "with begin, end and padding the tokenizer has a vocabulary of {needs}; this model has a vocabulary of {vocab}"
    )]
    Special { needs: u64, vocab: u64 },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot write {path}: {source}")]
    Write { path: String, source: io::Error },
    #[error("{path} is empty")]
    Empty { path: String },
    #[error(
        "{path}: byte {byte} is not UTF-8; a tokenizer needs text in UTF-8; `data text(…, tokenizer: bytes)` takes any file"
    )]
    NotText { path: String, byte: usize },
    #[error("{path}, line {line}: {reason}; expected a JSON object such as {{\"text\": \"…\"}}")]
    Line {
        path: String,
        line: usize,
        reason: String,
    },
    #[error(
        "{path} has {bytes} bytes, which are not whole tokens of {width}; \
         files of 4-byte tokens are named ….u32.bin, all others hold 2-byte tokens"
    )]
    Cut {
        path: String,
        bytes: usize,
        width: usize,
    },
    #[error("{path}: token {token}, at byte {byte}, is not in 0..{vocab}, the model's vocabulary")]
    Token {
        path: String,
        token: u32,
        byte: u64,
        vocab: u64,
    },
    #[error(
        "a vocabulary of {vocabulary} does not fit 2-byte tokens; name the file ….u32.bin instead of {path}"
    )]
    Narrow { path: String, vocabulary: u64 },
    #[error(
        "this model reads token files (`data tokens`), and {path} is not named ….bin; make one with `odec tokenize`"
    )]
    NotTokens { path: String },
    #[error(
        "{what} has {}, and {needs} are needed {why}; {remedy}",
        count(*has as usize, "token")
    )]
    Short {
        what: String,
        has: u64,
        needs: u64,
        why: &'static str,
        remedy: &'static str,
    },
    #[error("the tokenizer has a vocabulary of {needs}; this model has a vocabulary of {vocab}")]
    Vocabulary { needs: u64, vocab: u64 },
    #[error("{percent} percent cannot be held out; give 0 to 99")]
    HeldOut { percent: u32 },
    #[error(
        "the data of this run have changed: {what}; restore it, or name the files to continue with by --data (the same files, to accept the change)"
    )]
    Changed { what: String },
    #[error("{path} has changed while it was read: {what}")]
    Altered { path: String, what: String },
    #[error(transparent)]
    Output(OutputError),
    #[error(transparent)]
    Tokenizer(TokenizerError),
}

impl DataError {
    /// What is wrong with a file or folder of images.
    fn images(path: &Path, reason: impl Into<String>) -> DataError {
        DataError::Images {
            path: path.shown(),
            reason: reason.into(),
        }
    }

    /// The same of a file of images, where it is said of one of texts.
    fn of_images(self) -> DataError {
        match self {
            DataError::Missing { path } => DataError::NoImagesAt { path },
            other => other,
        }
    }
}

/// What a dataset is made from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub data: &'a Data,
    pub tokenizer: &'a Tokenizer,
    /// Folder for token files made from texts.
    pub cache: &'a Path,
    /// The most positions of a row; longer texts are refused, left out or truncated.
    pub context: u64,
    /// Those of a source, of pairs.
    pub source_context: u64,
    pub show: Show,
}
