//! The folder of an exploration: its plan, the runs of its trials, their results.
//!
//! `exploration.json` is the plan that was last run, `trials/HASH` an ordinary run, `results/HASH.json` what came out of it, `ranking.json` the
//! evidence, `ranking.svg` its picture. A result is written once, whole, after its run; so whoever kills an exploration loses what one trial did since its last checkpoint.
//! One process works in a folder. What is in it is known by its first trial, with which all others are compared: other trials may come and go.

use crate::plan::Plan;
use odec_driver::fail::{Done, Failure};
use odec_runtime::Shown;
use odec_runtime::system::files::{create_folder, write_file};
use odec_runtime::system::input;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use std::fs::{File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

pub const PLAN: &str = "exploration.json";
const RANKING: &str = "ranking.json";
/// The picture of the ranking.
pub const PICTURE: &str = "ranking.svg";
/// The folder of all runs.
pub const TRIALS: &str = "trials";
const RESULTS: &str = "results";
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
    /// Numbers stopped being finite.
    Diverged,
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
        for folder in [path.to_path_buf(), path.join(TRIALS), path.join(RESULTS)] {
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

    fn result(&self, hash: &str) -> PathBuf {
        self.path.join(RESULTS).join(format!("{hash}.json"))
    }

    /// What came out of a trial, if it has ended.
    ///
    /// # Errors
    /// When the file is there and cannot be read.
    pub fn outcome(&self, hash: &str) -> Done<Option<Outcome>> {
        let path = self.result(hash);
        if !path.exists() {
            return Ok(None);
        }
        let text = input::read_text(&path, LONGEST);
        let text = text.map_err(|e| Failure::Input(format!("{}: {e}", path.shown())))?;
        let read = serde_json::from_str(&text);
        read.map(Some).map_err(|e| {
            let path = path.shown();
            Failure::Input(format!(
                "{path} is damaged ({e}); remove it, and the trial is evaluated again"
            ))
        })
    }

    /// Keeps what came out of a trial.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep(&self, hash: &str, outcome: &Outcome) -> Done {
        let json = serde_json::to_value(outcome).map_err(Failure::internal)?;
        self.write_to(&self.result(hash), &json)
    }

    /// Writes the ranking and its picture.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn keep_ranking(&self, ranking: &Json, picture: &str) -> Done {
        self.write(RANKING, ranking)?;
        write_text(&self.path.join(PICTURE), picture)
    }

    fn write(&self, name: &str, json: &Json) -> Done {
        self.write_to(&self.path.join(name), json)
    }

    fn write_to(&self, path: &Path, json: &Json) -> Done {
        write_text(path, &format!("{json:#}\n"))
    }
}

fn write_text(path: &Path, text: &str) -> Done {
    let written = write_file(path, |w| w.write_all(text.as_bytes()));
    written.map_err(|e| Failure::Input(format!("cannot write {}: {e}", path.shown())))
}

/// Whether only what begins an exploration is in a folder.
fn is_begun(path: &Path) -> bool {
    let known = [TRIALS, RESULTS, LOCK];
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
