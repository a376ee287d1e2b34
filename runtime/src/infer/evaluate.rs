//! Loss on held-out data, and the share of rows whose class is predicted.

use crate::data::dataset::{Batch, Count, Dataset};
use crate::data::{DataError, mask};
use crate::executor::{Executor, RunError};
use crate::infer::confusion::{Confusion, largest};
use odec_program::manifest::{Form, Loss, Manifest, Predicts, Train};
use odec_program::{Bindings, EntryId, ResultId, names};
use std::collections::BTreeMap;

/// How well a model predicts a text, or classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean negative log-likelihood in nats per token (per byte with the byte tokenizer), or per image; or what is made small of numbers.
    pub loss: f64,
    /// What `loss` is called, as of [`Train::measured`].
    pub measure: Option<&'static str>,
    /// Of several outputs what each adds to the loss, by name, without its coefficient.
    pub terms: BTreeMap<String, f64>,
    /// What was predicted: tokens, all but the first or those that were hidden; images; or sequences.
    pub of: Count,
    /// The share of images, or sequences, whose class has the largest logit.
    pub accuracy: Option<f64>,
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

/// An output that tells classes: its label, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    output: String,
    pub count: u64,
    /// What they are called, where they have names.
    pub names: Vec<String>,
}

impl Classes {
    /// Those of a model, of its first output that has some.
    pub fn of(m: &Manifest) -> Option<Classes> {
        let train = m.train.as_ref()?;
        if train.loss.predicts() == Predicts::Class {
            let names = match &train.data.form {
                Form::Labelled(l) => l.names.clone(),
                _ => Vec::new(),
            };
            return Some(Classes {
                output: String::new(),
                count: m.model.vocab,
                names,
            });
        }
        let mut also = train.also.iter();
        let (label, _) = also.find(|(_, loss)| loss.predicts() == Predicts::Class)?;
        Some(Classes {
            output: label.clone(),
            count: *m.model.also.get(label)?,
            names: Vec::new(),
        })
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

/// The same of a source.
pub fn source_window(x: &Executor) -> u64 {
    let m = x.manifest();
    m.model.source.min(m.program.maxima.source)
}

/// Evaluates the held-out part through entry `loss`, in windows that each start without memory of what came before.
/// A masked model sees every window with some tokens hidden, always the same ones.
/// `most` limits the number of windows or images (spread evenly); `report` hears of what is done.
///
/// # Errors
/// When the text is too short, or the program has no such entry.
pub fn evaluate(
    x: &mut Executor,
    dataset: &dyn Dataset,
    most: Option<u64>,
    report: &mut dyn FnMut(u64),
) -> Result<Evaluation, EvaluateError> {
    Ok(judge(x, dataset, most, report)?.0)
}

/// The same, and of classes how often each class was predicted for which.
///
/// # Errors
/// As [`evaluate`].
pub fn judge(
    x: &mut Executor,
    dataset: &dyn Dataset,
    most: Option<u64>,
    report: &mut dyn FnMut(u64),
) -> Result<(Evaluation, Option<Confusion>), EvaluateError> {
    let (rows, columns) = (x.manifest().program.maxima.longest().batch, window(x));
    let train = x.manifest().train.as_ref();
    let loss = train.map_or(Loss::default(), |t| t.loss);
    let measure = train.and_then(Train::measured);
    let (stream, mut window) = (mask::held_out(), 0);
    let (mut sum, mut predicted) = (0.0, 0);
    let classes = Classes::of(x.manifest());
    let mut table = classes.as_ref().map(|c| Confusion::new(c.count as usize));
    let mut terms: BTreeMap<String, f64> = BTreeMap::new();
    let mut reports: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for batch in dataset.held_out_batches(rows, columns, most)? {
        let mut batch = batch?;
        mask::prepare(&mut batch, loss, &stream, window);
        window += batch.rows;
        let at = batch.at();
        let given: Vec<_> = batch.fed().collect();
        let out = x.run(EntryId::Loss, at, &given, &[])?;
        let n = batch.predicted;
        sum += out.scalar(names::LOSS)? * n as f64;
        for (output, _) in out.shapes() {
            match ResultId::of(output) {
                ResultId::Report(name) => {
                    let sums = reports.entry(name.to_string()).or_default();
                    out.reals(output)?.add_to(sums, n as f64);
                }
                ResultId::Term(name) => {
                    let sum = terms.entry(name.to_string()).or_default();
                    *sum += out.scalar(output)? * n as f64;
                }
                _ => {}
            }
        }
        predicted += n;
        if let (Some(classes), Some(table)) = (&classes, &mut table) {
            classify(x, &batch, classes, table)?;
        }
        report(predicted);
    }
    let all = predicted.max(1) as f64;
    let sums = reports.values_mut().flatten().chain(terms.values_mut());
    sums.for_each(|sum| *sum /= all);
    let e = Evaluation {
        loss: sum / all,
        measure,
        terms,
        reports,
        of: dataset.unit().count(predicted),
        accuracy: table.as_ref().map(Confusion::accuracy),
    };
    Ok((e, table))
}

/// Adds the classes that entry `forward` predicts for a batch.
fn classify(
    x: &mut Executor,
    batch: &Batch,
    of: &Classes,
    table: &mut Confusion,
) -> Result<(), RunError> {
    let [said, asked] =
        [names::LOGITS, names::TARGETS].map(|name| names::of_output(&of.output, name));
    let classes = of.count as usize;
    let entries = &x.manifest().program.entries;
    let planned = entries.get(&EntryId::Forward).map_or(1, |e| e.maxima.batch);
    let read = [names::TOKENS, names::PATCHES, names::VECTORS];
    let mut inputs = batch.inputs.iter();
    let Some((name, given)) = inputs.find(|(name, _)| read.contains(&&**name)) else {
        return Ok(());
    };
    let targets = batch.whole(&asked);
    let together = planned.min(batch.rows).max(1) as usize;
    for (n, targets) in targets.chunks(together).enumerate() {
        let rows = n * together..n * together + targets.len();
        let at = Bindings::new(targets.len() as u64, batch.columns);
        let given = [(&**name, given.rows(rows, batch.rows))];
        let logits = x.run(EntryId::Forward, at, &given, &[])?;
        let logits: Vec<f64> = logits.reals(&said)?.iter().collect();
        for (of_one, class) in logits.chunks_exact(classes).zip(targets) {
            table.add(*class as usize, largest(of_one));
        }
    }
    Ok(())
}
