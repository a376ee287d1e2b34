//! Loss on held-out text.

use crate::data::dataset::Dataset;
use crate::data::{DataError, mask};
use crate::executor::{Executor, RunError};
use odec_program::manifest::Loss;
use odec_program::{Bindings, EntryId, ResultId, names};
use std::collections::BTreeMap;

/// How well a model predicts a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean negative log-likelihood in nats per token (per byte with the byte tokenizer).
    pub loss: f64,
    /// Predicted tokens: all but the first, or those that were hidden.
    pub tokens: u64,
    /// What evolves report, by name: a number for each step.
    pub reports: BTreeMap<String, Vec<f64>>,
}

impl Evaluation {
    /// `e^loss`: the effective number of choices per token.
    pub fn perplexity(&self) -> f64 {
        self.loss.exp()
    }

    /// The loss in bits per token.
    pub fn bits(&self) -> f64 {
        self.loss / std::f64::consts::LN_2
    }
}

/// Why a model cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    #[error(transparent)]
    Data(#[from] DataError),
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Longest window that the program takes: the model's context, unless it was planned for less.
pub fn window(x: &Executor) -> u64 {
    x.manifest()
        .model
        .context
        .min(x.manifest().program.maxima.seq)
}

/// Evaluates the held-out part through entry `loss`, in windows that each start without memory of what came before.
/// A masked model sees every window with some tokens hidden, always the same ones.
/// `most` limits the number of windows (spread evenly); `report` hears of tokens done.
///
/// # Errors
/// When the text is too short, or the program has no such entry.
pub fn evaluate(
    x: &mut Executor,
    dataset: &dyn Dataset,
    most: Option<u64>,
    report: &mut dyn FnMut(u64),
) -> Result<Evaluation, EvaluateError> {
    let (rows, columns) = (x.manifest().program.maxima.batch, window(x));
    let loss = x.manifest().train.as_ref().map_or(Loss::Next, |t| t.loss);
    let (stream, mut window) = (mask::held_out(), 0);
    let (mut sum, mut tokens) = (0.0, 0);
    let mut reports: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for batch in dataset.held_out_batches(rows, columns, most)? {
        let mut batch = batch?;
        mask::prepare(&mut batch, loss, &stream, window);
        window += batch.rows;
        let at = Bindings::new(batch.rows, batch.columns);
        let out = x.run(EntryId::Loss, at, &batch.fed(), &[])?;
        let n = batch.predicted();
        sum += out.scalar(names::LOSS)? * n as f64;
        for (output, _) in out.shapes() {
            if let ResultId::Report(name) = ResultId::of(output) {
                let sums = reports.entry(name.to_string()).or_default();
                out.reals(output)?.add_to(sums, n as f64);
            }
        }
        tokens += n;
        report(tokens);
    }
    let all = tokens.max(1) as f64;
    let sums = reports.values_mut().flatten();
    sums.for_each(|sum| *sum /= all);
    Ok(Evaluation {
        loss: sum / all,
        tokens,
        reports,
    })
}
