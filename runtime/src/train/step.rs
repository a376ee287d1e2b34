//! One optimiser step: enqueued, and later awaited.
//!
//! Each step draws a batch by (seed, step), runs entry `grad`, then `update`. [`Run::enqueue`] asks for that and [`Run::await_step`]
//! looks at loss and gradient norm, the step before last at the latest: a device that works by itself goes from one step to the
//! next while this process prepares another and looks at the last. On a device in step everything is known when it was asked for,
//! and a loss is looked at before the update. Leaves when to do either to [`mod@crate::train`].
//!
//! A step whose loss or gradient norm is not finite ends the run, and what was asked for behind it does not count: nothing
//! is saved while a step is under way.

use crate::data::dataset::{Batch, Draw, InTokens};
use crate::data::{DataError, mask};
use crate::device::reals::decimal;
use crate::executor::io_buffers::Ticket;
use crate::executor::step_count;
use crate::executor::{RunError, State};
use crate::system::owned::CHECKPOINT;
use crate::system::shown::Shown;
use crate::train::failure::TrainError;
use crate::train::gradient::{Enqueued, Found, enqueue, gradient};
use crate::train::metrics::{Record, Speed, Step};
use crate::train::movement::{self, Before};
use crate::train::run::Run;
use odec_program::manifest::{StepCount, Train};
use odec_program::{Bindings, DType, EntryId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Reports in as few digits as their numbers have.
fn decimals(mut reports: BTreeMap<String, Vec<f64>>, real: DType) -> BTreeMap<String, Vec<f64>> {
    let all = reports.values_mut().flatten();
    all.for_each(|x| *x = decimal(*x, real));
    reports
}

/// The share of padding in what a step reads of pairs.
fn padded(batches: &[Batch]) -> Option<f64> {
    let padding = batches.iter().map(|b| b.padding);
    let padding = padding.sum::<Option<u64>>()?;
    let places: u64 = batches.iter().map(Batch::places).sum();
    Some(padding as f64 / places.max(1) as f64)
}

/// Steps that were enqueued and not awaited yet, in their order.
#[derive(Default)]
pub(crate) struct Pending {
    steps: VecDeque<UnderWay>,
    /// When a step was last looked at.
    looked: Option<Instant>,
}

struct UnderWay {
    start: Instant,
    lr: f64,
    /// What was trained before it, where it is said how far the step moves that.
    before: Option<Before>,
    batches: Vec<Batch>,
    drawn: Vec<(String, i32)>,
    gradient: Enqueued,
    update: Ticket,
    flops: Flops,
}

/// Floating-point operations that a step launched, two for each multiply-add.
struct Flops {
    gradient: u64,
    optimizer: u64,
}

impl Flops {
    fn all(&self) -> u64 {
        self.gradient.saturating_add(self.optimizer)
    }
}

impl Run {
    /// Steps that were enqueued since the model's start.
    pub fn enqueued(&self) -> u64 {
        self.progress.step + self.pending.steps.len() as u64
    }

    /// Whether another step may be asked for before the first of those under way is looked at: one, where the device works by
    /// itself. More would not keep it busier. None, where it is looked at how far the first one moves the parameters.
    pub fn may_ask(&self) -> bool {
        let looked_at = self.pending.steps.iter().any(|s| s.before.is_some());
        self.pending.steps.len() <= self.x.ahead().min(1) && !looked_at
    }

    /// One optimiser step, and those under way before it.
    ///
    /// # Errors
    /// When the loss or the gradient's norm is not finite.
    pub fn step(&mut self) -> Result<Step, TrainError> {
        self.enqueue()?;
        loop {
            let done = self.await_step()?;
            if let Some(done) = done.filter(|_| self.pending.steps.is_empty()) {
                return Ok(done);
            }
        }
    }

    /// Asks for the next optimiser step.
    ///
    /// # Errors
    /// As [`Run::step`], when it is known already; when the data cannot be read.
    pub fn enqueue(&mut self) -> Result<(), TrainError> {
        let start = Instant::now();
        let step = self.enqueued();
        let factor = self.train.schedule.factor(self.position());
        let lr = self.train.optimizer.rate() * factor;
        let scalars = self.train.scalars(step + 1, factor);
        let scalars: Vec<_> = scalars
            .iter()
            .map(|(name, x)| (name.as_str(), *x))
            .collect();
        let batches = self.batches(step).map_err(|e| self.cannot_read(e))?;
        let before = match step == self.progress.last_look {
            true => Some(movement::before(&mut self.x)?),
            false => None,
        };
        let drawn = step_count::drawn(&self.x.manifest().depths, self.progress.seed, step);
        let counted = self.x.multiply_adds();
        let gradient = enqueue(&mut self.x, &batches, &drawn)?;
        let of_gradient = self.x.multiply_adds() - counted;
        if gradient.known().is_some_and(|loss| !loss.is_finite()) {
            return Err(self.broken("loss", &batches, &drawn));
        }
        let update = self
            .x
            .queue(EntryId::Update, Bindings::new(1, 1), &[], &scalars)?;
        let all = self.x.multiply_adds() - counted;
        self.pending.steps.push_back(UnderWay {
            start,
            lr,
            before,
            batches,
            drawn,
            gradient,
            update,
            flops: Flops {
                gradient: 2 * of_gradient,
                optimizer: 2 * (all - of_gradient),
            },
        });
        Ok(())
    }

    /// How what a step trains on is drawn.
    pub(crate) fn draw(&self, step: u64) -> Draw {
        draw(&self.train, self.progress.seed, step)
    }

    /// What a step trains on.
    fn batches(&self, step: u64) -> Result<Vec<Batch>, DataError> {
        let rows = self.train.batch / self.train.accumulate;
        let draw = self.draw(step);
        let stream = mask::training(draw.seed);
        let columns = crate::infer::evaluate::window(&self.x);
        let batches = (0..self.train.accumulate).map(|n| {
            let rows = n * rows..(n + 1) * rows;
            let window_number = step.wrapping_shl(16).wrapping_add(rows.start);
            let mut batch = self.dataset.training_batch(draw, rows, columns)?;
            mask::prepare(&mut batch, self.train.loss, &stream, window_number);
            Ok(batch)
        });
        batches.collect()
    }

    /// Looks at the first of the steps under way, when it is done; `None` when there is none.
    ///
    /// # Errors
    /// When the loss or the gradient's norm is not finite; all steps under way are then forgotten.
    pub fn await_step(&mut self) -> Result<Option<Step>, TrainError> {
        let Some(first) = self.pending.steps.pop_front() else {
            return Ok(None);
        };
        let Found {
            loss,
            terms,
            experts,
            dropped,
            reports,
            made,
        } = first.gradient.found(&mut self.x)?;
        if !loss.is_finite() {
            return Err(self.broken("loss", &first.batches, &first.drawn));
        }
        let grad_norm = self.x.take(first.update)?.scalar("grad_norm")?;
        if !grad_norm.is_finite() {
            return Err(self.broken("gradient norm", &first.batches, &first.drawn));
        }
        // A step under way behind another has had the device since that one was done.
        let now = Instant::now();
        let since = self
            .pending
            .looked
            .map_or(first.start, |looked| looked.max(first.start));
        self.pending.looked = Some(now);
        let seconds = now.duration_since(since).as_secs_f64();
        self.progress.step += 1;
        self.progress.seconds += seconds;
        if let Some(of_steps) = &mut self.progress.of_steps {
            *of_steps += seconds;
        }
        let unit = self.dataset.unit();
        let read: u64 = first.batches.iter().map(|b| b.count(unit)).sum();
        let speed = Speed::new(unit, read as f64 / seconds.max(1e-9));
        let real = self.x.real();
        // A share is of a few thousand choices.
        let rounded = |x: f64| (x * 1e4).round() / 1e4;
        let all = |shares: Vec<f64>| shares.into_iter().map(rounded).collect();
        let depths = &self.x.manifest().depths;
        let adaptive = |d: &StepCount| matches!(d, StepCount::Adaptive { .. });
        let done = Step {
            step: self.progress.step,
            loss: decimal(loss, real),
            terms: terms
                .into_iter()
                .map(|(name, t)| (name, decimal(t, real)))
                .collect(),
            experts: experts.into_iter().map(|(r, s)| (r, all(s))).collect(),
            dropped: dropped.into_iter().map(|(r, s)| (r, rounded(s))).collect(),
            reports: decimals(reports, real),
            lr: first.lr,
            grad_norm: decimal(grad_norm, real),
            speed,
            flops: Some(first.flops.gradient),
            optimizer_flops: first.flops.optimizer,
            flop_per_s: Some(first.flops.all() as f64 / seconds.max(1e-9)),
            seconds: self.progress.seconds,
            solver_steps: (!depths.is_empty()).then_some(made.steps),
            padding: padded(&first.batches).map(rounded),
            attempts: depths.iter().any(adaptive).then_some(made.attempts),
        };
        self.record(Record::Step(done.clone()))?;
        if let Some(before) = first.before {
            let movement = movement::after(&before, &self.progress, &mut self.x)?;
            self.record(Record::Movement(movement))?;
        }
        Ok(Some(done))
    }

    /// Runs the step after the last good one again, watching every launch, to say where numbers stop being finite. The update of a gradient
    /// that is not finite has left the parameters as they were; an update asked for behind it, or that of a finite gradient, has not, and
    /// then there may be nothing to say.
    fn broken(&mut self, what: &str, batches: &[Batch], drawn: &[(String, i32)]) -> TrainError {
        self.pending.steps.clear();
        match self.place(batches, drawn) {
            Ok(place) => self.not_finite(what, self.progress.step + 1, place),
            Err(e) => e.into(),
        }
    }

    /// Where numbers stop being finite, as a clause.
    fn place(&mut self, batches: &[Batch], drawn: &[(String, i32)]) -> Result<String, RunError> {
        if let Some(tensor) = self.x.not_finite()? {
            return Ok(format!(": {tensor} has not been since the step before"));
        }
        self.x.set_check_nonfinite(true);
        let watched = gradient(&mut self.x, batches, drawn);
        self.x.set_check_nonfinite(false);
        if let Err(e @ RunError::NonFinite { .. }) = watched {
            return Ok(format!(": {e}"));
        }
        let gradients = self.gradients();
        Ok(match self.x.largest(gradients)? {
            Some((path, size)) => {
                format!(": its squares overflow, the largest ({size:.1e}) in that of {path}")
            }
            None => String::new(),
        })
    }

    /// Where `update` reads gradients.
    fn gradients(&self) -> State {
        match self.train.accumulate {
            1 => State::Grads,
            _ => State::Sums,
        }
    }

    /// That something was not finite at a step.
    pub(crate) fn not_finite(&self, what: &str, step: u64, place: String) -> TrainError {
        TrainError::NonFinite {
            what: what.into(),
            step,
            place,
            checkpoint: self.out.join(CHECKPOINT).shown(),
            saved: self.saved,
            advice: match step {
                // No step has changed a parameter yet.
                1 => {
                    "Look for functions without a value for the numbers that the model begins with, or take a smaller step size h"
                }
                _ => "A lower learning rate, a longer warm-up or a smaller step size h may help",
            },
        }
    }
}

/// How what a step of a run of this seed trains on is drawn.
pub(crate) fn draw(train: &Train, seed: u64, step: u64) -> Draw {
    let parts = train.accumulate;
    Draw {
        seed,
        step,
        batch: train.batch,
        tokens: train.tokens_at_once().map(|most| InTokens { most, parts }),
    }
}
