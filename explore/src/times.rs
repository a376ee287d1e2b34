//! Times of training steps, measured.
//!
//! Takes a file with settings; gives the seconds of a step, the median of a few on its data. Times that trials were made alike by are kept with an exploration, so that
//! they stay alike by the same numbers: a model that is added later is measured beside the first one, and told as if the machine were as fast as it was then.

use crate::examine::{Examined, Settings as Set, applied};
use crate::identity;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::Parsed;
use odec_runtime::artifact::Artifact;
use odec_runtime::{DeviceChoice, Run, Settings, Show, TrainError};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// Steps of a measurement, at least and at most, behind the first one, which also fetches pages and code;
const LEAST: usize = 7;
const MOST: u64 = 1000;
/// and seconds that are enough.
const ENOUGH: f64 = 1.0;

/// How steps are measured.
#[derive(Clone, Copy, Debug)]
pub struct Measuring<'m> {
    /// The file that is explored,
    pub path: &'m Path,
    /// and settings over it that all trials have.
    pub set: &'m [String],
    pub device: DeviceChoice,
    pub threads: usize,
}

impl Measuring<'_> {
    /// Seconds of a training step, the median of a few; `None` where numbers stop being finite before.
    ///
    /// # Errors
    /// When the model cannot be trained.
    pub fn step(&self, settings: &Set) -> Done<Option<f64>> {
        let mut all = self.set.to_vec();
        let each = settings.iter();
        all.extend(each.map(|(path, v)| format!("{path}={}", v.text)));
        let trainable = artifact::trainable(self.path, &all, self.device, false, |_| Ok(()));
        let (artifact, _guard) = trainable?;
        let folder = tempfile::tempdir().map_err(Failure::input)?;
        let run = folder.path().join("run");
        let settings = Settings {
            steps: Some(MOST),
            threads: Some(self.threads),
            device: self.device,
            show: Show::Nothing,
            ..Settings::default()
        };
        match median(&artifact, &run, &settings) {
            Ok(seconds) => Ok(Some(seconds)),
            Err(TrainError::NonFinite { .. }) => Ok(None),
            Err(e) => Err(Failure::input(e)),
        }
    }
}

/// The median time of the first steps of a run, but for the first one.
fn median(artifact: &Artifact, run: &Path, s: &Settings) -> Result<f64, TrainError> {
    let mut run = Run::start(artifact, run, s)?;
    run.step()?;
    let start = Instant::now();
    let mut times: Vec<f64> = Vec::new();
    while times.len() < LEAST
        || (times.len() as u64) < MOST && start.elapsed().as_secs_f64() < ENOUGH
    {
        let start = Instant::now();
        run.step()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// What a model is known by.
fn key(base: &Parsed, settings: &Set, e: &Examined) -> Done<String> {
    let source = identity::source(&applied(base, settings)?);
    Ok(identity::trial(
        &source,
        &e.imports,
        &identity::data(&e.train)?,
    ))
}

/// What trials are made alike by.
pub struct Times<'m> {
    measuring: Measuring<'m>,
    /// Seconds of a step by what a model is known by, those of earlier sittings among them.
    known: BTreeMap<String, f64>,
    first: Option<First>,
}

/// The model that others are matched to.
struct First {
    settings: Vec<(String, crate::space::Value)>,
    seconds: f64,
    /// How slow the machine is now, as a multiple of what it was when `seconds` was measured; `None`: not known yet.
    pace: Option<f64>,
}

impl<'m> Times<'m> {
    /// Times of earlier sittings are those of [`Times::known`].
    pub fn new(measuring: Measuring<'m>, known: BTreeMap<String, f64>) -> Times<'m> {
        Times {
            measuring,
            known,
            first: None,
        }
    }

    pub fn known(&self) -> &BTreeMap<String, f64> {
        &self.known
    }

    /// Seconds of a step of a model, measured where they are not known. Whoever is asked for first is what others are matched to.
    ///
    /// # Errors
    /// When it cannot be trained, or its data are not there.
    pub fn of(&mut self, base: &Parsed, settings: &Set, e: &Examined) -> Done<Option<f64>> {
        let key = key(base, settings, e)?;
        let before = self.known.get(&key).copied();
        let seconds = match before {
            Some(known) => known,
            None => {
                let Some(now) = self.measuring.step(settings)? else {
                    return Ok(None);
                };
                let Some(pace) = self.pace()? else {
                    return Ok(None);
                };
                now / pace
            }
        };
        self.known.insert(key, seconds);
        if self.first.is_none() {
            self.first = Some(First {
                settings: settings.to_vec(),
                seconds,
                pace: before.is_none().then_some(1.0),
            });
        }
        Ok(Some(seconds))
    }

    /// What is known of a model, of earlier sittings too; nothing is measured.
    ///
    /// # Errors
    /// When its data are not there.
    pub fn told(&self, base: &Parsed, settings: &Set, e: &Examined) -> Done<Option<f64>> {
        let key = key(base, settings, e)?;
        Ok(self.known.get(&key).copied())
    }

    fn pace(&mut self) -> Done<Option<f64>> {
        let Some(first) = &mut self.first else {
            return Ok(Some(1.0));
        };
        if first.pace.is_none() {
            let now = self.measuring.step(&first.settings)?;
            first.pace = now.map(|now| now / first.seconds);
        }
        Ok(first.pace)
    }
}
