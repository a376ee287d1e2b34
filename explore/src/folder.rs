//! The folder of an exploration: its plan, the runs of its trials, their results.
//!
//! `exploration.json` is the plan that was last run, `trials/HASH` an ordinary run, `results/HASH.json` what came out of it, `rungs/HASH-STEP.json` what it was
//! at the end of a rung, `promotions.json` which models went on and why, `time.json` how long was trained, `step_times.json` what was measured to make times alike, `ranking.json` the evidence, `ranking.svg` its picture, `executed.json` what trials took beside what was predicted. A result is written once, whole, after its run; so whoever kills an exploration loses what one trial did since its last checkpoint.
//! One process works in a folder. What is in it is known by its first trial, with which all others are compared: other trials may come and go.

use crate::plan::Plan;
use odec_driver::fail::{Done, Failure};
use odec_runtime::Shown;
use odec_runtime::system::files::{create_folder, write_file};
use odec_runtime::system::input;
use odec_runtime::system::output;
use odec_runtime::system::owned;
pub use odec_runtime::system::owned::exploration::{EXECUTED, PICTURE, PLAN, RANKING};
use odec_runtime::system::owned::exploration::{PROMOTIONS, RESULTS, RUNGS, STEP_TIMES, TIME};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder of all runs.
pub const TRIALS: &str = "trials";
const LOCK: &str = ".lock";

/// Most bytes of a file that is read back.
const LONGEST: u64 = 64 << 20;

/// What came out of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub state: State,
    /// Finished optimiser steps.
    pub steps: u64,
    /// Of training, over all sittings.
    pub seconds: f64,
    /// Of the steps alone. This and the next two: none where an odec trained that did not count them.
    #[serde(default)]
    pub step_seconds: Option<f64>,
    /// Floating-point operations that were launched for gradients, in all steps,
    #[serde(default)]
    pub flops: Option<u64>,
    /// and by the optimiser.
    #[serde(default)]
    pub optimizer_flops: Option<u64>,
    /// The mean loss on all held-out data; none of a run that diverged.
    pub held_out_loss: Option<f64>,
    /// What was predicted: `tokens`, `images`.
    pub of: Option<String>,
    pub number: Option<u64>,
    /// The share of classes that was predicted, where there are classes.
    pub accuracy: Option<f64>,
    /// Why a run has no result, as a sentence.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Complete,
    /// At the end of a rung; the run can go on.
    Stopped,
    /// Numbers stopped being finite.
    Diverged,
}

/// That the trials of a model go on to the next rung.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Promoted {
    /// What they are known by.
    pub trials: Vec<String>,
    /// What the model is called.
    pub label: String,
    /// The step at which the rung ended that they had finished,
    pub from: u64,
    /// and the one to which they go on.
    pub to: u64,
    /// How many models had finished that rung.
    pub among: usize,
}

/// What a file of promotions holds, in their order.
#[derive(Default, Serialize, Deserialize)]
struct Promotions {
    format: u32,
    promotions: Vec<Promoted>,
}

/// How long was trained in a folder, over all sittings.
#[derive(Default, Serialize, Deserialize)]
struct Time {
    seconds: f64,
}

/// Measured seconds of a training step, by what a model is known by.
#[derive(Default, Serialize, Deserialize)]
struct StepTimes {
    format: u32,
    seconds: BTreeMap<String, f64>,
}

/// The measured times that an exploration's trials were made alike by; none where there is no such folder.
///
/// # Errors
/// When the file is there and cannot be read.
pub fn step_times(path: &Path) -> Done<BTreeMap<String, f64>> {
    let remedy =
        "remove it, and steps are measured again: trials with other steps are other trials";
    let read: Option<StepTimes> = read_back(&path.join(STEP_TIMES), remedy)?;
    Ok(read.unwrap_or_default().seconds)
}

/// A folder in which this process alone works.
pub struct Folder {
    path: PathBuf,
    _lock: File,
}

impl Folder {
    /// Opens the folder of an exploration, or begins one.
    ///
    /// # Errors
    /// When it holds something else, or another process works in it.
    pub fn open(path: &Path, plan: &Plan) -> Done<Folder> {
        output::check_folder(path).map_err(Failure::input)?;
        if let Some(other) = owned::exploration_around(path) {
            let (path, other) = (path.shown(), other.shown());
            return Err(Failure::Input(format!(
                "{path} is in the exploration {other}, which holds its own runs alone; choose another folder with --out"
            )));
        }
        let shown = path.shown();
        let known = path.join(PLAN);
        let there = std::fs::read_dir(path).map(|mut d| d.any(|e| e.is_ok()));
        if known.exists() {
            same(&known, &shown, plan)?;
        } else if there.unwrap_or(false) && !is_begun(path) {
            return Err(Failure::Input(format!(
                "{shown} holds something else than an exploration; choose another folder with --out"
            )));
        }
        let write = |e: std::io::Error| Failure::Input(format!("cannot write {shown}: {e}"));
        let below = [TRIALS, RESULTS, RUNGS].map(|name| path.join(name));
        for folder in [path.to_path_buf()].into_iter().chain(below) {
            create_folder(&folder).map_err(write)?;
        }
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK));
        let lock = lock.map_err(write)?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::Input(format!(
                    "another process explores in {shown}; wait for it, or choose another folder"
                )));
            }
            // Some network file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        let folder = Folder {
            path: path.to_path_buf(),
            _lock: lock,
        };
        folder.write(PLAN, &plan.json())?;
        Ok(folder)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run of a trial.
    pub fn run(&self, hash: &str) -> PathBuf {
        self.path.join(TRIALS).join(hash)
    }

    /// Of its end, or of the end of a rung.
    fn result(&self, hash: &str, rung: Option<u64>) -> PathBuf {
        match rung {
            None => self.path.join(RESULTS).join(format!("{hash}.json")),
            Some(step) => self.path.join(RUNGS).join(format!("{hash}-{step}.json")),
        }
    }

    /// What came out of a trial, if it has ended; at the end of a rung where its last step is given.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn outcome(&self, hash: &str, rung: Option<u64>) -> Done<Option<Outcome>> {
        read_back(
            &self.result(hash, rung),
            "remove it, and the trial is evaluated again",
        )
    }

    /// Keeps what came out of a trial, or of the part of it that ends with a rung.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep(&self, hash: &str, rung: Option<u64>, outcome: &Outcome) -> Done {
        let json = serde_json::to_value(outcome).map_err(Failure::internal)?;
        self.write_to(&self.result(hash, rung), &json)
    }

    /// Which models went on, in the order in which that was decided.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn promotions(&self) -> Done<Vec<Promoted>> {
        let remedy = "remove it, and results of rungs decide again";
        let read: Option<Promotions> = read_back(&self.path.join(PROMOTIONS), remedy)?;
        Ok(read.unwrap_or_default().promotions)
    }

    /// Keeps all of them, before any of those models goes on.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_promotions(&self, all: &[Promoted]) -> Done {
        let all = Promotions {
            format: 1,
            promotions: all.to_vec(),
        };
        let json = serde_json::to_value(all).map_err(Failure::internal)?;
        self.write(PROMOTIONS, &json)
    }

    /// Keeps measured times, before anything is trained.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_step_times(&self, seconds: &BTreeMap<String, f64>) -> Done {
        let times = StepTimes {
            format: 1,
            seconds: seconds.clone(),
        };
        let json = serde_json::to_value(times).map_err(Failure::internal)?;
        self.write(STEP_TIMES, &json)
    }

    /// Seconds of all sittings so far.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn seconds(&self) -> Done<f64> {
        let remedy = "remove it, and the budget begins anew";
        let read: Option<Time> = read_back(&self.path.join(TIME), remedy)?;
        Ok(read.unwrap_or_default().seconds)
    }

    /// Keeps them.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_seconds(&self, seconds: f64) -> Done {
        let json = serde_json::to_value(Time { seconds }).map_err(Failure::internal)?;
        self.write(TIME, &json)
    }

    /// Writes the ranking and its picture, and what trials took.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_ranking(&self, ranking: &Json, executed: &Json, picture: &str) -> Done {
        self.write(RANKING, ranking)?;
        self.write(EXECUTED, executed)?;
        write_text(&self.path.join(PICTURE), picture)
    }

    fn write(&self, name: &str, json: &Json) -> Done {
        self.write_to(&self.path.join(name), json)
    }

    fn write_to(&self, path: &Path, json: &Json) -> Done {
        write_text(path, &format!("{json:#}\n"))
    }
}

/// What came out of a trial at the end of the last of its rungs that it has finished, for whoever only reads the folder; `rungs` are the steps at which they end. `None`, too, where it
/// cannot be read.
pub fn latest(folder: &Path, hash: &str, rungs: &[u64]) -> Option<Outcome> {
    let result = |folder: PathBuf, name: String| read_back(&folder.join(name), "").ok()?;
    let at = |step: &u64| result(folder.join(RUNGS), format!("{hash}-{step}.json"));
    let whole: Option<Outcome> = result(folder.join(RESULTS), format!("{hash}.json"));
    whole.or_else(|| rungs.iter().rev().find_map(at))
}

/// What a file of this folder holds, if it is there.
fn read_back<T: for<'d> Deserialize<'d>>(path: &Path, remedy: &str) -> Done<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let shown = path.shown();
    let text = input::read_text(path, LONGEST);
    let text = text.map_err(|e| Failure::Input(format!("{shown}: {e}")))?;
    let read = serde_json::from_str(&text);
    read.map(Some)
        .map_err(|e| Failure::Input(format!("{shown} is damaged ({e}); {remedy}")))
}

fn write_text(path: &Path, text: &str) -> Done {
    let written = write_file(path, |w| w.write_all(text.as_bytes()));
    written.map_err(|e| Failure::Input(format!("cannot write {}: {e}", path.shown())))
}

/// Whether only what begins an exploration is in a folder.
fn is_begun(path: &Path) -> bool {
    let known = [TRIALS, RESULTS, RUNGS, LOCK];
    std::fs::read_dir(path).is_ok_and(|entries| {
        entries.flatten().all(|e| {
            let name = e.file_name();
            let name = name.to_string_lossy();
            known.contains(&&*name) || name.starts_with(odec_runtime::system::files::PREFIX)
        })
    })
}

/// Whether a folder's exploration is this one, with other trials perhaps.
fn same(known: &Path, shown: &str, plan: &Plan) -> Done {
    let text = input::read_text(known, LONGEST);
    let text = text.map_err(|e| Failure::Input(format!("{}: {e}", known.shown())))?;
    let read: Result<Json, _> = serde_json::from_str(&text);
    let was = read.map_err(|e| Failure::Input(format!("{} is damaged: {e}", known.shown())))?;
    let first = plan.trials.first().and_then(|t| t.hash.as_deref());
    if was["trials"][0]["hash"].as_str() == first {
        return Ok(());
    }
    let (file, label) = (was["file"].as_str(), was["models"][0]["label"].as_str());
    Err(Failure::Input(format!(
        "{shown} holds another exploration, of {} with `{}` first; choose another folder with --out",
        file.unwrap_or("another file"),
        label.unwrap_or("another trial"),
    )))
}
