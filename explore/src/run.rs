//! Runs what is planned and not there yet, several trials at once.
//!
//! Takes a plan and its folder; leaves a run and results of each trial. A trial is trained in this process as `odec train` would, with a checkpoint
//! now and then, so that an exploration that is killed goes on where its trials were. What goes wrong beside numbers
//! ends the exploration after the trials under way are saved. As many trials run at once as there are cores and memory for.

use crate::folder::Folder;
use crate::ladder::Next;
use crate::plan::{Candidate, Plan};
use crate::trial::carry_out;
use crate::work::{Options, Work, locked};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use odec_compiler::codes;
use odec_compiler::text::number;
use odec_driver::artifact;
use odec_driver::fail::{Done, Failure};
use odec_driver::source::{Parsed, report};
use odec_driver::terminal::count;
use odec_grammar::Diagnostic;
use odec_runtime::system::owned::METRICS;
use odec_runtime::{DeviceChoice, Run, Settings, Show, TrainError, errln};
use serde_json::Value as Json;
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Why it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Complete,
    TimeLimit,
    /// Nothing new was begun: the budget of the file is used up.
    Budget,
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

/// Runs all trials that have no result yet.
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
    let work = Work::new(plan, folder, base, path, set, o)?;
    if work.is_complete() {
        return Ok(Ended::Complete);
    }
    // Where all that are left wait for a promotion, that is still one trial.
    let left = work.left().max(1);
    let share = share(cores(), left, fit(plan, base, o)?, o.jobs);
    if o.show == Show::Auto {
        let text = format!(
            "{} ({} of {} known), {} at once, {} each",
            count(left, "trial"),
            plan.trials.len() - left,
            plan.trials.len(),
            share.jobs,
            count(share.threads, "thread")
        );
        errln!("{text}");
    }
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..share.jobs)
            .map(|n| scope.spawn(move || local(work, n, share.threads)))
            .collect();
        let mut display = Display::new(work, share.jobs);
        while threads.iter().any(|t| !t.is_finished()) {
            std::thread::sleep(Duration::from_millis(50));
            watch(work, &mut display);
        }
        display.finish(work);
    });
    ended(&work)
}

/// Looks whether it is time to stop, and shows where everything is.
pub(crate) fn watch(work: &Work, display: &mut Display) {
    let out_of_time = |limit| work.elapsed() >= limit;
    if work.o.stop.load(Ordering::Relaxed) || work.o.time_limit.is_some_and(out_of_time) {
        work.halt.store(true, Ordering::Relaxed);
    }
    if let Err(failure) = work.note_time(false) {
        work.refuse(failure);
    }
    display.show(work);
}

/// Why everything has ended.
pub(crate) fn ended(work: &Work) -> Done<Ended> {
    if let Some(failure) = work.refused() {
        return Err(failure);
    }
    work.note_time(true)?;
    Ok(match work.is_complete() {
        true => Ended::Complete,
        false if work.o.stop.load(Ordering::Relaxed) => Ended::Asked,
        // Trials that were stopped are the time limit's, not the budget's.
        false if work.halt.load(Ordering::Relaxed) => Ended::TimeLimit,
        false => Ended::Budget,
    })
}

/// Carries out one task after the other in this process.
fn local(work: &Work, worker: usize, threads: usize) {
    while !work.halt.load(Ordering::Relaxed) {
        let done = match work.next(worker) {
            Ok(Next::Task(task)) => work
                .request(task, threads)
                .and_then(|r| carry_out(&r, work.o.device, &work.halt))
                .and_then(|outcome| work.ended(worker, task, outcome)),
            Ok(Next::Nothing) => return,
            Ok(_) => {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = done {
            work.refuse(failure);
        }
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
pub(crate) struct Display {
    bars: Option<(MultiProgress, ProgressBar, Vec<ProgressBar>)>,
    looked: Option<Instant>,
}

impl Display {
    pub(crate) fn new(work: &Work, workers: usize) -> Display {
        let wanted = work.o.show == Show::Auto && std::io::stderr().is_terminal();
        let bars = wanted.then(|| {
            let all = MultiProgress::new();
            let line = |template: &str| {
                let style = ProgressStyle::with_template(template);
                style.unwrap_or_else(|_| ProgressStyle::default_bar())
            };
            let trials = all.add(ProgressBar::new(work.plan.trials.len() as u64));
            trials.set_style(line("{pos}/{len} trials {wide_bar}"));
            let each = (0..workers).map(|_| {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(line("  {wide_msg}"));
                bar
            });
            let each = each.collect();
            (all, trials, each)
        });
        Display { bars, looked: None }
    }

    fn show(&mut self, work: &Work) {
        let said = work.heard();
        let Some((all, trials, each)) = &self.bars else {
            if work.o.show == Show::Auto {
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
        trials.set_position((work.plan.trials.len() - work.left()) as u64);
        let under_way = locked(&work.under_way).clone();
        for (worker, bar) in each.iter().enumerate() {
            let Some(task) = under_way.get(&worker) else {
                bar.set_message("");
                continue;
            };
            let t = &work.plan.trials[task.trial];
            let run = t.hash.as_deref().map(|h| work.folder.run(h));
            let steps = work.plan.models[t.model].rungs[task.rung];
            let at = match run.and_then(|run| position(&run)) {
                Some((step, loss)) => format!("step {step}/{steps}  loss {loss:.3}"),
                None => "building".to_string(),
            };
            bar.set_message(format!("{}  {at}", work.name(task.trial)));
        }
    }

    pub(crate) fn finish(mut self, work: &Work) {
        self.show(work);
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
