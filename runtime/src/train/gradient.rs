//! The gradient of a step, from one batch or from several micro-batches.
//!
//! Takes batches; runs entry `grad` on each and, where the program takes several in a step, `accumulate` after each:
//! `sums ← keep·sums + share·grads`, the share being the micro-batch's part of all target tokens. So loss and gradient
//! are those of the mean over all tokens of the step, as in one large batch, up to the rounding of the sums. What was found may be
//! looked at later ([`enqueue`]), so that a device which works by itself does not wait for this process. Leaves drawing batches
//! to [`crate::data`] and what is done with the gradient to entry `update`.

use crate::data::dataset::Batch;
use crate::executor::io_buffers::Ticket;
use crate::executor::step_count::StepsMade;
use crate::executor::{Executor, RunError, Value};
use odec_program::manifest::named;
use odec_program::{Bindings, DType, EntryId, ResultId, names, noise};
use std::collections::{BTreeMap, VecDeque};

/// What a gradient's runs found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub loss: f64,
    /// The terms of a loss that is a sum, by their names, without their coefficients.
    pub terms: BTreeMap<String, f64>,
    /// The share of each expert in what routers chose, by their paths.
    pub experts: BTreeMap<String, Vec<f64>>,
    /// The share of what routers chose that full experts did not take, by their paths.
    pub dropped: BTreeMap<String, f64>,
    /// What evolves report, by name: a number for each step.
    pub reports: BTreeMap<String, Vec<f64>>,
    /// Steps of evolves whose number is decided while they run, the mean over micro-batches by their tokens.
    pub made: StepsMade,
}

/// An enqueued gradient, the numbers of steps drawn for it, and what is known about it so far.
pub struct Enqueued {
    drawn: Vec<(String, i32)>,
    /// Runs whose results have not been read yet, and their shares.
    runs: VecDeque<(f64, Ticket)>,
    found: Found,
}

/// Computes the gradient that `update` reads; `drawn` are numbers of steps ([`crate::executor::step_count::drawn`]), the same for all micro-batches.
///
/// # Errors
/// When a batch does not fit the program, or adaptive steps do not reach their end.
pub fn gradient(
    x: &mut Executor,
    batches: &[Batch],
    drawn: &[(String, i32)],
) -> Result<Found, RunError> {
    enqueue(x, batches, drawn)?.found(x)
}

/// The same, without waiting for it where the device works by itself. Runs that are too many to be under way at once are looked at
/// in their order, the first ones already here.
///
/// # Errors
/// As [`gradient`].
pub fn enqueue(
    x: &mut Executor,
    batches: &[Batch],
    drawn: &[(String, i32)],
) -> Result<Enqueued, RunError> {
    let total: u64 = batches.iter().map(|b| b.predicted).sum();
    let several = x.has_entry(EntryId::Accumulate);
    let mut asked = Enqueued {
        drawn: drawn.to_vec(),
        runs: VecDeque::new(),
        found: Found {
            loss: 0.0,
            terms: BTreeMap::new(),
            experts: BTreeMap::new(),
            dropped: BTreeMap::new(),
            reports: BTreeMap::new(),
            made: StepsMade::default(),
        },
    };
    for (n, batch) in batches.iter().enumerate() {
        let ticket = queue(x, batch, drawn)?;
        if !several {
            asked.runs.push_back((1.0, ticket));
            asked.look(x, x.ahead())?;
            break;
        }
        let share = batch.predicted as f64 / total as f64;
        asked.runs.push_back((share, ticket));
        asked.look(x, x.ahead())?;
        let keep = f64::from(u8::from(n > 0));
        let scalars = [(named::KEEP, keep), (named::SHARE, share)];
        // It has no outputs.
        drop(x.queue(EntryId::Accumulate, Bindings::new(1, 1), &[], &scalars)?);
    }
    Ok(asked)
}

impl Enqueued {
    /// The loss, when all runs were looked at already.
    pub fn known(&self) -> Option<f64> {
        self.runs.is_empty().then_some(self.found.loss)
    }

    /// Waits for what is not known yet.
    ///
    /// # Errors
    /// When adaptive steps have not reached their end.
    pub fn found(mut self, x: &mut Executor) -> Result<Found, RunError> {
        self.look(x, 0)?;
        let rounded = |sum: f64| match x.real() {
            DType::F64 => sum,
            _ => f64::from(sum as f32),
        };
        let Found {
            loss,
            terms,
            experts,
            dropped,
            reports,
            made,
        } = self.found;
        let terms = terms.into_iter().map(|(name, t)| (name, rounded(t)));
        Ok(Found {
            loss: rounded(loss),
            terms: terms.collect(),
            experts,
            dropped,
            reports,
            made,
        })
    }

    /// Looks at the first runs until no more than `most` are left.
    fn look(&mut self, x: &mut Executor, most: usize) -> Result<(), RunError> {
        while self.runs.len() > most
            && let Some((share, ticket)) = self.runs.pop_front()
        {
            let depths = x.manifest().depths.clone();
            let out = x.take(ticket)?;
            self.found.loss += share * out.scalar(names::LOSS)?;
            for (output, _) in out.shapes() {
                match ResultId::of(output) {
                    ResultId::Term(name) => {
                        let sum = self.found.terms.entry(name.to_string()).or_insert(0.0);
                        *sum += share * out.scalar(output)?;
                    }
                    ResultId::Shares(router) => {
                        let sums = self.found.experts.entry(router.to_string()).or_default();
                        out.reals(output)?.add_to(sums, share);
                    }
                    ResultId::Report(name) => {
                        let sums = self.found.reports.entry(name.to_string()).or_default();
                        out.reals(output)?.add_to(sums, share);
                    }
                    ResultId::Dropped(router) => {
                        let sum = self.found.dropped.entry(router.to_string()).or_insert(0.0);
                        *sum += share * out.scalar(output)?;
                    }
                    _ => {}
                }
            }
            let made = StepsMade::of(&depths, &self.drawn, &out);
            self.found.made.add_share(share, made);
        }
        Ok(())
    }
}

/// Asks for loss and gradient of one batch.
fn queue(x: &mut Executor, batch: &Batch, drawn: &[(String, i32)]) -> Result<Ticket, RunError> {
    let at = batch.at();
    let key = [batch.key];
    let mut io: Vec<_> = batch.fed().collect();
    if x.has_input(EntryId::Grad, noise::KEY) {
        io.push((noise::KEY, Value::I32(&key)));
    }
    let numbers = drawn.iter();
    io.extend(numbers.map(|(name, n)| (name.as_str(), Value::I32(std::slice::from_ref(n)))));
    x.queue(EntryId::Grad, at, &io, &[])
}
