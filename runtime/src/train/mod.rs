//! The training loop: when to step, look at held-out text, save, and stop.
//!
//! Takes an artifact or a run's folder and [`Settings`]; leaves a finished run, or one that can be resumed: after its last
//! step, its time limit, or when it was asked to stop. Leaves what a step is to [`mod@crate::train::run`].

pub mod average;
pub mod chart;
pub mod dataset;
pub mod failure;
pub mod gradient;
pub mod kept;
pub mod lock;
pub mod metrics;
mod movement;
pub mod run;
pub(crate) mod stall;
pub mod step;

use crate::artifact::{Artifact, DeviceChoice, Unsigned};
use crate::infer::evaluate::{Evaluation, window};
use crate::parameters::import::Init;
use crate::system::progress::{Display, HeldOut, Show, State};
use crate::train::failure::TrainError;
use crate::train::run::Run;
use odec_program::schedules::Position;
use odec_text::number::{self, count};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How to train. What is `None` comes from the manifest, or from the run when it is resumed.
#[derive(Clone, Debug)]
pub struct Settings {
    pub steps: Option<u64>,
    /// A step after which the sitting ends, with a checkpoint. The run itself is as long as it was: so is its schedule.
    pub pause: Option<u64>,
    /// Seconds of training, over all sittings, evaluations included.
    pub time_limit: Option<f64>,
    /// Other files than the manifest's or the run's, when there are any.
    pub data: Vec<PathBuf>,
    /// Parameters to start from instead of the manifest's; ignored when a run is resumed.
    pub init: Option<Init>,
    /// Ignored when a run is resumed.
    pub seed: Option<u64>,
    pub device: DeviceChoice,
    pub threads: Option<usize>,
    /// What is done with the code of a run that was not made here; ignored when a run is started.
    pub unsigned: Unsigned,
    /// Held-out evaluations, evenly over the run (fewer when they would eat up a time limit), where the manifest does not say how many.
    pub evaluations: u64,
    /// Windows of each.
    pub held_out_windows: u64,
    /// Seconds between checkpoints (one is also written at each evaluation).
    pub checkpoint_seconds: f64,
    pub show: Show,
    /// Set from elsewhere (a signal) to have the run end after the step it is at, with a checkpoint.
    pub stop: Arc<AtomicBool>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            steps: None,
            pause: None,
            time_limit: None,
            data: Vec::new(),
            init: None,
            seed: None,
            device: DeviceChoice::Cpu,
            threads: None,
            unsigned: Unsigned::default(),
            evaluations: 10,
            held_out_windows: 64,
            checkpoint_seconds: 60.0,
            show: Show::Auto,
            stop: Arc::default(),
        }
    }
}

/// Why a sitting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All steps are done.
    Complete,
    TimeLimit,
    /// So many evaluations as the train block says have not lowered the held-out loss.
    Patience,
    /// [`Settings::stop`] was set.
    Asked,
    /// The step of [`Settings::pause`] is done, and others are left.
    Paused,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub steps: u64,
    pub seconds: f64,
    /// What its steps took, over all sittings.
    pub of_steps: OfSteps,
    /// The last training loss of this sitting.
    pub loss: Option<f64>,
    /// The latest evaluation; nothing when no text is held out, or none was due yet.
    pub held_out: Option<Evaluation>,
    /// Whether that was some of the held-out text: evaluations during training take so many windows at most.
    pub held_out_part: bool,
    /// What the run was warned of, in this sitting or an earlier one.
    pub warning: Option<String>,
    pub end: End,
}

/// What the steps of a run took; each is `None` where the run was begun by a version that did not count it, or lines are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfSteps {
    /// Floating-point operations that were launched for gradients,
    pub flops: Option<u64>,
    /// and by the optimiser.
    pub optimizer_flops: Option<u64>,
    /// Without evaluations and checkpoints.
    pub seconds: Option<f64>,
}

/// Trains a model from its start and keeps everything in the folder `out`.
///
/// # Errors
/// When the artifact cannot be trained, the text not used, or numbers stop being finite.
pub fn train(artifact: &Artifact, out: &Path, s: &Settings) -> Result<Summary, TrainError> {
    Run::start(artifact, out, s)?.finish(s)
}

/// Continues a run where its last checkpoint left it.
///
/// # Errors
/// As [`train`], or when `out` is not the folder of a run.
pub fn resume(out: &Path, s: &Settings) -> Result<Summary, TrainError> {
    Run::resume(out, s)?.finish(s)
}

/// The mixture whose experts share their tokens least evenly: its path where there are several, and its shares.
fn least_even(experts: &BTreeMap<String, Vec<f64>>) -> Option<(Option<String>, Vec<f64>)> {
    // `experts Σ share²`: 1 where all are used alike.
    let uneven = |shares: &[f64]| shares.len() as f64 * shares.iter().map(|s| s * s).sum::<f64>();
    let worst = experts
        .iter()
        .max_by(|a, b| uneven(a.1).total_cmp(&uneven(b.1)));
    let several = experts.len() > 1;
    worst.map(|(router, shares)| (several.then(|| router.clone()), shares.clone()))
}

/// The mixture that drops the largest share of its choices: its path where there are several, and the share.
fn most_dropped(dropped: &BTreeMap<String, f64>) -> Option<(Option<String>, f64)> {
    let worst = dropped.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let several = dropped.len() > 1;
    worst.map(|(router, share)| (several.then(|| router.clone()), *share))
}

/// The first and the last number of each report.
fn ends(reports: &BTreeMap<String, Vec<f64>>) -> Vec<(String, [f64; 2])> {
    let each = reports.iter();
    let ends = each.filter_map(|(name, x)| Some((name.clone(), [*x.first()?, *x.last()?])));
    ends.collect()
}

impl Run {
    /// Trains to the end.
    ///
    /// # Errors
    /// As [`train`].
    pub fn finish(&mut self, s: &Settings) -> Result<Summary, TrainError> {
        let mut display = Display::new(s.show);
        let result = self.train_to_the_end(s, &mut display);
        display.finish();
        result
    }

    fn train_to_the_end(
        &mut self,
        s: &Settings,
        display: &mut Display,
    ) -> Result<Summary, TrainError> {
        let p = self.progress();
        let steps = p.steps;
        let manifest = self.executor().manifest();
        let (all, trained) = (manifest.param_count(), manifest.trained_count());
        let parameters = match all == trained {
            true => count(all as usize, "parameter"),
            false => format!("{trained} of {}", count(all as usize, "parameter")),
        };
        display.note(&format!(
            "training {} ({parameters}) on {}: {} to {}, seed {}, {}",
            manifest.name,
            p.data.files.join(", "),
            p.step,
            count(p.steps as usize, "step"),
            p.seed,
            self.executor().device_name(),
        ));
        if let Some(damage) = self.damage() {
            display.warn(&format!("warning: {damage}"));
        }
        if steps == 0 {
            display.note("no step is taken: the run has the parameters that it starts with");
        } else if p.step >= steps {
            display.note(&format!(
                "{} done already; continue with a larger --steps",
                match steps {
                    1 => "the only step is".to_string(),
                    n => format!("all {n} steps are"),
                }
            ));
        }
        let mut last_loss = None;
        let mut last_save = Instant::now();
        // Smoothed over about the last twenty steps, for people only.
        let (mut smooth, mut speed) = (None, None);
        let mut count = 0.0;
        let blend = |old: &mut Option<f64>, new: f64, count: f64| {
            *old.insert(old.map_or(new, |o| o + (1.0f64 / count).max(0.1) * (new - o)))
        };
        let evaluations = self.train.evaluations.unwrap_or(s.evaluations);
        let due = |p: Position| (p.fraction() * evaluations as f64 + 1e-9) as u64;
        // A run that goes on for longer than it was planned for is less far than it was.
        let mut looks = self.progress().looks.min(due(self.position()));
        let end = loop {
            let under_way = self.enqueued() - self.progress().step;
            if under_way == 0 {
                if self.progress().step >= steps {
                    break End::Complete;
                }
                if self.out_of_time() {
                    break End::TimeLimit;
                }
                if self.out_of_patience() {
                    display.note(&format!(
                        "{} without a lower held-out loss: the run ends at step {}",
                        number::count(self.waited() as usize, "evaluation"),
                        self.progress().step
                    ));
                    break End::Patience;
                }
                if s.pause.is_some_and(|at| self.progress().step >= at) {
                    if self.saved < self.progress().step {
                        self.save()?;
                    }
                    break End::Paused;
                }
                if s.stop.load(Ordering::Relaxed) {
                    self.save()?;
                    break End::Asked;
                }
            }
            // Behind a step that something comes after there is no other: it is looked at, then the held-out text.
            let save_due = |last: Instant| last.elapsed().as_secs_f64() >= s.checkpoint_seconds;
            let look_due = |run: &Run| due(run.position()) > looks && run.can_afford_a_look();
            let last_of_some = |run: &Run| {
                let asked = s.stop.load(Ordering::Relaxed) || run.out_of_time();
                let due = save_due(last_save) || look_due(run) || run.keep_due();
                let paused = s.pause.is_some_and(|at| run.enqueued() >= at);
                asked || paused || run.enqueued() >= steps || due
            };
            if under_way == 0 {
                self.enqueue()?;
            }
            while self.may_ask() && !last_of_some(self) {
                self.enqueue()?;
            }
            let Some(done) = self.await_step()? else {
                continue;
            };
            last_loss = Some(done.loss);
            if let Some(warning) = self.judge(&done)? {
                display.warn(&format!("warning: step {}: {warning}", done.step));
            }
            let position = self.position();
            count += 1.0;
            let loss = blend(&mut smooth, done.loss, count);
            let rate = blend(&mut speed, done.speed.number(), count);
            let at_end = done.step == steps || self.out_of_time();
            // Behind another step that is under way there is nothing to look at or to save.
            if self.enqueued() == done.step {
                if self.keep_due() {
                    self.keep()?;
                }
                let look = at_end || look_due(self);
                if look {
                    looks = due(position);
                    self.look(s.held_out_windows, looks)?;
                }
                if look || save_due(last_save) {
                    self.save()?;
                    last_save = Instant::now();
                }
                // Saving takes time, too. Where it took the last of it, what was saved does not say so.
                if !at_end && self.out_of_time() {
                    if !look {
                        self.look(s.held_out_windows, due(self.position()))?;
                    }
                    self.save()?;
                }
            }
            display.step(&State {
                step: done.step,
                steps,
                fraction: position.fraction(),
                loss,
                unit: self.dataset.unit().name(),
                held_out: self.held_out().map(|e| HeldOut {
                    loss: e.loss,
                    accuracy: e.accuracy,
                    number: e.of.number(),
                }),
                experts: least_even(&done.experts),
                dropped: most_dropped(&done.dropped),
                reports: ends(&done.reports),
                per_s: rate,
                seconds_left: self.seconds_left(rate),
            });
        };
        let p = self.progress();
        Ok(Summary {
            steps: p.step,
            seconds: p.seconds,
            of_steps: self.of_steps(),
            loss: last_loss,
            held_out: self.held_out(),
            held_out_part: self.held_out_windows() > s.held_out_windows,
            warning: self.warning(),
            end,
        })
    }

    /// Against a time limit, looking at held-out text may take a twentieth of the time.
    fn can_afford_a_look(&self) -> bool {
        let p = self.progress();
        p.time_limit.is_none() || p.looked <= 0.05 * p.seconds
    }

    /// Windows of the held-out text, or images.
    fn held_out_windows(&self) -> u64 {
        self.dataset.held_out_rows(window(self.executor()))
    }

    /// By the steps that are left at this rate, or the time limit.
    fn seconds_left(&self, per_s: f64) -> f64 {
        let p = self.progress();
        let of_step = self
            .dataset
            .expected(self.draw(p.step), window(self.executor()));
        let left = p.steps.saturating_sub(p.step) as f64 * of_step;
        let by_steps = left / per_s.max(1e-9);
        p.time_limit
            .map_or(by_steps, |limit| by_steps.min(limit - p.seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_even_mixture_is_shown() {
        let shares = |of: &[(&str, &[f64])]| -> BTreeMap<String, Vec<f64>> {
            of.iter()
                .map(|(path, s)| (path.to_string(), s.to_vec()))
                .collect()
        };
        assert_eq!(least_even(&shares(&[])), None);
        let one = ("a.router", &[0.5, 0.5][..]);
        assert_eq!(least_even(&shares(&[one])), Some((None, vec![0.5, 0.5])));
        let other = ("b.router", &[0.25, 0.75][..]);
        let want = Some((Some("b.router".into()), vec![0.25, 0.75]));
        assert_eq!(least_even(&shares(&[one, other])), want);
    }

    #[test]
    fn the_mixture_that_drops_most_is_shown() {
        let of = |dropped: &[(&str, f64)]| -> BTreeMap<String, f64> {
            let each = dropped.iter();
            each.map(|(path, share)| (path.to_string(), *share))
                .collect()
        };
        assert_eq!(most_dropped(&of(&[])), None);
        assert_eq!(most_dropped(&of(&[("a.router", 0.0)])), Some((None, 0.0)));
        let two = of(&[("a.router", 0.25), ("b.router", 0.125)]);
        assert_eq!(most_dropped(&two), Some((Some("a.router".into()), 0.25)));
    }
}
