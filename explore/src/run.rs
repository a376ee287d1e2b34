//! Runs what is planned and not there yet, several trials at once.
//!
//! Takes a plan and its folder; leaves a run and a result of each trial. A trial is trained in this process as `odec train` would, with a checkpoint
//! now and then, so that an exploration that is killed goes on where its trials were. Numbers that stop being finite are a result; everything else that
//! goes wrong ends the exploration after the trials under way are saved. As many trials run at once as there are cores and memory for.

use crate::folder::{Folder, Outcome, State};
use crate::plan::{Candidate, Plan, duration};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use odec_compiler::codes;
use odec_compiler::text::number;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::{Parsed, read, report};
use odec_driver::terminal::count;
use odec_grammar::Diagnostic;
use odec_runtime::system::owned::{CHECKPOINT, METRICS};
use odec_runtime::train::lock;
use odec_runtime::{
    DeviceChoice, End, Run, Settings, Show, Shown, TrainError, Weights, dataset_of, errln,
    evaluate, open_run_with,
};
use serde_json::Value as Json;
use std::collections::VecDeque;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How trials are run.
#[derive(Clone, Debug)]
pub struct Options {
    /// At once; as many as there are cores and memory for where nothing is said.
    pub jobs: Option<usize>,
    /// Bytes that trials may take together; what is free where nothing is said.
    pub memory: Option<u64>,
    /// Seconds after which all trials are saved and the exploration ends.
    pub time_limit: Option<f64>,
    pub checkpoint_seconds: f64,
    pub device: DeviceChoice,
    /// Set from elsewhere (a signal) to end after the steps under way, with checkpoints.
    pub stop: Arc<AtomicBool>,
    pub show: Show,
}

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Complete,
    TimeLimit,
    Asked,
}

/// How much runs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    pub jobs: usize,
    /// Of each trial.
    pub threads: usize,
}

/// How many trials run at once, and with how many threads each.
pub fn share(cores: usize, trials: usize, fit: usize, asked: Option<usize>) -> Share {
    let jobs = asked.unwrap_or(cores).min(trials).min(fit).max(1);
    Share {
        jobs,
        threads: (cores / jobs).max(1),
    }
}

/// Bytes that programs may still take, as Linux says; `None` elsewhere.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// How many of the largest trials fit into memory; a trial that does not is told where its value is written.
///
/// # Errors
/// When one needs more than there is.
pub fn fit(plan: &Plan, base: &Parsed, o: &Options) -> Done<usize> {
    let room = match (o.memory, o.device) {
        (Some(room), _) => room,
        (None, DeviceChoice::Cpu | DeviceChoice::Reference) => free_memory().unwrap_or(u64::MAX),
        // A GPU's memory is asked for by the program that is built for it; its trials run one by one.
        (None, DeviceChoice::Cuda(_) | DeviceChoice::Dry { .. }) => return Ok(1),
    };
    let too_large = |m: &&Candidate| m.examined.memory > room;
    let refused: Vec<Diagnostic> = (plan.models.iter().filter(too_large))
        .filter_map(|m| {
            let at = m.settings.first().map(|(_, v)| v.span)?;
            let needs = number::bytes(m.examined.memory);
            let message = format!("`{}` needs {needs} of memory", m.label);
            let d = Diagnostic::error(codes::TOO_LARGE, at, message);
            let d = d.label(format!("there are {}", number::bytes(room)));
            Some(d.help("a smaller batch, `accumulate`, or `memory revolve(slots: 3)` takes less"))
        })
        .collect();
    report(&refused, &base.sources)?;
    let largest = plan.models.iter().map(|m| m.examined.memory).max();
    let fit = room / largest.unwrap_or(1).max(1);
    Ok(usize::try_from(fit).unwrap_or(usize::MAX))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What all threads know.
struct Shared<'p> {
    plan: &'p Plan,
    folder: &'p Folder,
    path: &'p Path,
    /// What the file held when it was planned.
    text: &'p str,
    /// Settings over the file that all trials have.
    set: &'p [String],
    o: &'p Options,
    share: Share,
    left: Mutex<VecDeque<usize>>,
    /// By thread: the trial that it runs.
    under_way: Vec<Mutex<Option<usize>>>,
    halt: Arc<AtomicBool>,
    ended: AtomicUsize,
    refused: Mutex<Option<Failure>>,
    /// Lines about trials that have ended.
    said: Mutex<Vec<String>>,
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs all trials that have no result; gives the results of all.
///
/// # Errors
/// When a trial cannot be run, for another reason than its numbers.
pub fn run(
    plan: &Plan,
    folder: &Folder,
    base: &Parsed,
    path: &Path,
    set: &[String],
    o: &Options,
) -> Done<Ended> {
    let mut left = VecDeque::new();
    for n in 0..plan.trials.len() {
        if outcome(plan, folder, n)?.is_none() {
            left.push_back(n);
        }
    }
    if left.is_empty() {
        return Ok(Ended::Complete);
    }
    let share = share(cores(), left.len(), fit(plan, base, o)?, o.jobs);
    let known = plan.trials.len() - left.len();
    if o.show == Show::Auto {
        let text = format!(
            "{} ({known} of {} known), {} at once, {} each",
            count(left.len(), "trial"),
            plan.trials.len(),
            share.jobs,
            count(share.threads, "thread")
        );
        errln!("{text}");
    }
    let shared = Shared {
        plan,
        folder,
        path,
        text: base.sources.text(base.main),
        set,
        o,
        share,
        left: Mutex::new(left),
        under_way: (0..share.jobs).map(|_| Mutex::new(None)).collect(),
        halt: Arc::default(),
        ended: AtomicUsize::new(known),
        refused: Mutex::new(None),
        said: Mutex::new(Vec::new()),
    };
    let start = Instant::now();
    let out_of_time = |start: Instant| {
        o.time_limit
            .is_some_and(|limit| start.elapsed().as_secs_f64() >= limit)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..share.jobs)
            .map(|n| {
                scope.spawn({
                    let shared = &shared;
                    move || shared.work(n)
                })
            })
            .collect();
        let mut display = Display::new(&shared);
        while threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            if o.stop.load(Ordering::Relaxed) || out_of_time(start) {
                shared.halt.store(true, Ordering::Relaxed);
            }
            display.show(&shared);
        }
        display.show(&shared);
        display.finish();
    });
    if let Some(failure) = locked(&shared.refused).take() {
        return Err(failure);
    }
    match locked(&shared.left).is_empty()
        && shared.ended.load(Ordering::Relaxed) == plan.trials.len()
    {
        true => Ok(Ended::Complete),
        false if o.stop.load(Ordering::Relaxed) => Ok(Ended::Asked),
        false => Ok(Ended::TimeLimit),
    }
}

/// What came out of a trial of a plan, if it has ended.
///
/// # Errors
/// When its result cannot be read.
pub fn outcome(plan: &Plan, folder: &Folder, trial: usize) -> Done<Option<Outcome>> {
    folder.outcome(hash(plan, trial)?)
}

/// What a trial is known by.
fn hash(plan: &Plan, trial: usize) -> Done<&str> {
    let known = plan.trials[trial].hash.as_deref();
    known.ok_or_else(|| Failure::internal("a trial is run without its data"))
}

impl Shared<'_> {
    /// Runs one trial after the other.
    fn work(&self, thread: usize) {
        while !self.halt.load(Ordering::Relaxed) {
            let Some(trial) = locked(&self.left).pop_front() else {
                break;
            };
            *locked(&self.under_way[thread]) = Some(trial);
            let done = self.trial(trial);
            *locked(&self.under_way[thread]) = None;
            match done {
                Ok(true) => {
                    self.ended.fetch_add(1, Ordering::Relaxed);
                }
                Ok(false) => locked(&self.left).push_back(trial),
                Err(failure) => {
                    self.halt.store(true, Ordering::Relaxed);
                    locked(&self.refused).get_or_insert(failure);
                }
            }
        }
    }

    fn name(&self, trial: usize) -> String {
        let t = &self.plan.trials[trial];
        format!("{}, seed {}", self.plan.models[t.model].label, t.seed)
    }

    /// Trains a trial to its end and keeps what came out; whether that was reached.
    fn trial(&self, n: usize) -> Done<bool> {
        let hash = hash(self.plan, n)?;
        let run = self.folder.run(hash);
        let settings = Settings {
            device: self.o.device,
            threads: Some(self.share.threads),
            unsigned: artifact::unsigned(false),
            checkpoint_seconds: self.o.checkpoint_seconds,
            show: Show::Nothing,
            stop: self.halt.clone(),
            ..Settings::default()
        };
        let outcome = match self.train(n, &run, &settings)? {
            Ok(summary) if summary.end == End::Asked => return Ok(false),
            Ok(summary) => {
                let held_out = self.evaluated(&run)?;
                Outcome {
                    state: State::Complete,
                    steps: summary.steps,
                    seconds: summary.seconds,
                    ..held_out
                }
            }
            Err(TrainError::NonFinite {
                what, step, place, ..
            }) => Outcome {
                state: State::Diverged,
                steps: step,
                seconds: 0.0,
                held_out_loss: None,
                of: None,
                number: None,
                accuracy: None,
                why: Some(format!("the {what} is not finite at step {step}{place}")),
            },
            Err(e) => return Err(Failure::Input(format!("{}: {e}", self.name(n)))),
        };
        self.folder.keep(hash, &outcome)?;
        let said = match (&outcome.held_out_loss, &outcome.why) {
            (Some(loss), _) => format!("held-out loss {loss:.4}, {}", duration(outcome.seconds)),
            (None, why) => why.clone().unwrap_or_default(),
        };
        let line = format!("{hash}  {}: {said}", self.name(n));
        locked(&self.said).push(line);
        Ok(true)
    }

    fn train(
        &self,
        n: usize,
        out: &Path,
        s: &Settings,
    ) -> Done<Result<odec_runtime::Summary, TrainError>> {
        if out.join(CHECKPOINT).exists() {
            return Ok(Run::resume(out, s).and_then(|mut run| run.finish(s)));
        }
        // What was planned is what is trained.
        if read(self.path)? != self.text {
            let path = self.path.shown();
            return Err(Failure::Input(format!(
                "{path} was changed while it was explored; start the exploration again"
            )));
        }
        let mut set = self.set.to_vec();
        set.extend(self.plan.trials[n].overrides());
        let claim = |_: &str| lock::claim(out).map_err(Failure::input);
        let (artifact, _guard) = artifact::trainable(self.path, &set, s.device, false, claim)?;
        Ok(Run::start(&artifact, out, s).and_then(|mut run| run.finish(s)))
    }

    /// What `odec eval` says of a run.
    fn evaluated(&self, run: &Path) -> Done<Outcome> {
        let threads = Some(self.share.threads);
        let trust = artifact::unsigned(false);
        let x = open_run_with(run, self.o.device, threads, trust, Weights::default());
        let mut x = x.map_err(Failure::input)?;
        let data = dataset_of(run, &[], Show::Nothing).map_err(Failure::input)?;
        let e = evaluate(&mut x, &*data, None, &mut |_| {}).map_err(Failure::input)?;
        let finite = e.loss.is_finite();
        Ok(Outcome {
            state: State::Complete,
            steps: 0,
            seconds: 0.0,
            held_out_loss: Some(e.loss).filter(|_| finite),
            of: Some(e.of.unit().name().to_string()),
            number: Some(e.of.number()),
            accuracy: e.accuracy,
            why: (!finite).then(|| "the held-out loss is not finite".to_string()),
        })
    }
}

/// Where a run stands: its step and the loss there.
fn position(run: &Path) -> Option<(u64, f64)> {
    const TAIL: u64 = 8192;
    let mut file = std::fs::File::open(run.join(METRICS)).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))
        .ok()?;
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let mut lines = text.lines().rev();
    lines.find_map(|l| {
        let record: Json = serde_json::from_str(l).ok()?;
        Some((record["step"].as_u64()?, record["loss"].as_f64()?))
    })
}

/// On a terminal a bar of all trials and a line for each that runs; elsewhere a line for each that has ended.
struct Display {
    bars: Option<(MultiProgress, ProgressBar, Vec<ProgressBar>)>,
    looked: Option<Instant>,
}

impl Display {
    fn new(shared: &Shared) -> Display {
        let wanted = shared.o.show == Show::Auto && std::io::stderr().is_terminal();
        let bars = wanted.then(|| {
            let all = MultiProgress::new();
            let line = |template: &str| {
                let style = ProgressStyle::with_template(template);
                style.unwrap_or_else(|_| ProgressStyle::default_bar())
            };
            let trials = all.add(ProgressBar::new(shared.plan.trials.len() as u64));
            trials.set_style(line("{pos}/{len} trials {wide_bar}"));
            let each = (0..shared.share.jobs).map(|_| {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(line("  {wide_msg}"));
                bar
            });
            let each = each.collect();
            (all, trials, each)
        });
        Display { bars, looked: None }
    }

    fn show(&mut self, shared: &Shared) {
        let said = std::mem::take(&mut *locked(&shared.said));
        let Some((all, trials, each)) = &self.bars else {
            if shared.o.show == Show::Auto {
                said.iter().for_each(|line| errln!("{line}"));
            }
            return;
        };
        for line in said {
            // A terminal that is gone is no reason to stop.
            let _ = all.println(line);
        }
        if self
            .looked
            .is_some_and(|at| at.elapsed() < Duration::from_millis(500))
        {
            return;
        }
        self.looked = Some(Instant::now());
        trials.set_position(shared.ended.load(Ordering::Relaxed) as u64);
        for (bar, trial) in each.iter().zip(&shared.under_way) {
            let Some(n) = *locked(trial) else {
                bar.set_message("");
                continue;
            };
            let t = &shared.plan.trials[n];
            let run = t.hash.as_deref().map(|h| shared.folder.run(h));
            let steps = shared.plan.models[t.model].steps;
            let at = match run.and_then(|run| position(&run)) {
                Some((step, loss)) => format!("step {step}/{steps}  loss {loss:.3}"),
                None => "building".to_string(),
            };
            bar.set_message(format!("{}  {at}", shared.name(n)));
        }
    }

    fn finish(self) {
        if let Some((all, ..)) = self.bars {
            let _ = all.clear();
        }
    }
}

/// Steps of a measurement; the first one also fetches pages and code.
const MEASURED: u64 = 6;

/// Seconds of a training step of each model, from a few steps on its data.
///
/// # Errors
/// When a model cannot be trained.
pub fn measure(plan: &mut Plan, path: &Path, set: &[String], o: &Options, fit: usize) -> Done {
    let share = share(cores(), plan.trials.len(), fit, o.jobs);
    for n in 0..plan.models.len() {
        let model = &plan.models[n];
        let mut all = set.to_vec();
        let each = model.settings.iter();
        all.extend(each.map(|(path, v)| format!("{path}={}", v.text)));
        let (artifact, guard) = artifact::trainable(path, &all, o.device, false, |_| Ok(()))?;
        let folder = tempfile::tempdir().map_err(Failure::input)?;
        let run = folder.path().join("run");
        let settings = Settings {
            steps: Some(MEASURED.min(model.steps)),
            threads: Some(share.threads),
            device: o.device,
            held_out_windows: 0,
            checkpoint_seconds: f64::INFINITY,
            show: Show::Nothing,
            ..Settings::default()
        };
        let trained = Run::start(&artifact, &run, &settings).and_then(|mut r| r.finish(&settings));
        match trained {
            Ok(_) => plan.models[n].seconds_per_step = median(&run),
            Err(TrainError::NonFinite { .. }) => {}
            Err(e) => return Err(Failure::input(e)),
        }
        drop(guard);
    }
    Ok(())
}

/// The median time of the steps of a run, but for the first.
fn median(run: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(run.join(METRICS)).ok()?;
    let steps = text.lines().filter_map(|l| {
        let record: Json = serde_json::from_str(l).ok()?;
        record["loss"].as_f64()?;
        record["seconds"].as_f64()
    });
    let ends: Vec<f64> = steps.collect();
    let mut times: Vec<f64> = ends.windows(2).map(|w| w[1] - w[0]).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}
