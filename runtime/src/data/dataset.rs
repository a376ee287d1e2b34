//! What a source gives to training and evaluation: batches that can be drawn again, and what the files are known by.

use crate::data::DataError;
use crate::data::identity::Identity;
use crate::executor::Value;
use odec_program::names;
use std::ops::Range;

/// Batches of a source in two parts: training, and held out for evaluation.
pub trait Dataset {
    /// The files, as they were named.
    fn name(&self) -> &str;
    /// What the files are known by: a run goes on with the same ones.
    fn files(&self) -> &[Identity];
    /// Tokens of both parts.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool;
    /// Some rows of one training step. The same seed, step and row give the same numbers.
    ///
    /// # Errors
    /// When the training part is too short, or a file has changed.
    fn training_batch(
        &self,
        seed: u64,
        step: u64,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError>;
    /// Rows of the held-out part, of at most so many positions; none, where there is nothing to predict.
    fn held_out_rows(&self, context: u64) -> u64;
    /// The held-out part, `rows` at a time; the last batches may be smaller. With `most`, at most so many rows, spread evenly
    /// over the part.
    ///
    /// # Errors
    /// When there is nothing to predict; each batch, when a file has changed.
    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError>;
    /// Makes all of it the held-out part, to evaluate on files of one's own.
    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset>;
}

/// Batches, one after the other.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, DataError>> + 'a>;

/// Inputs and targets, each `[rows, columns]` of tokens, row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub tokens: Vec<i32>,
    pub targets: Vec<i32>,
    pub rows: u64,
    pub columns: u64,
    /// Tokens to be filled in, where only they count.
    pub hidden: Option<u64>,
    /// What dropout chooses its masks by, below 2²⁴.
    pub key: i32,
}

impl Batch {
    /// Targets that count in the loss.
    pub fn predicted(&self) -> u64 {
        self.hidden.unwrap_or(self.targets.len() as u64)
    }

    /// What entries are given: values by the names of their inputs.
    pub fn fed(&self) -> [(&'static str, Value<'_>); 2] {
        [
            (names::TOKENS, Value::I32(&self.tokens)),
            (names::TARGETS, Value::I32(&self.targets)),
        ]
    }

    /// Adds a window: all but the last token as inputs, all but the first as targets.
    pub(super) fn push(&mut self, window: Vec<i32>) {
        self.tokens.extend(&window[..window.len() - 1]);
        self.targets.extend(&window[1..]);
    }
}
