//! `metrics.jsonl`: what happened in a run, one JSON object per line.
//!
//! A training step: `{"step":12,"loss":3.21,"lr":0.0006,"grad_norm":0.8,"tokens_per_s":41000,"seconds":1.4}`.
//! Where the loss is a sum, also its terms without their coefficients: `"terms":{"cross_entropy":3.1,"kinetic":0.2}`. Where the number of an evolve's steps is decided while it runs, also `"solver_steps":5,"attempts":6`. An evaluation: `{"step":100,"held_out_loss":2.5,"tokens":16384,"seconds":12.9}`. Steps count from 1;
//! losses are nats per token; `seconds` is training time so far, over all sittings.

use crate::chart::Curve;
use crate::files;
use crate::input;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    Step(Step),
    HeldOut(HeldOut),
}

/// A finished optimiser step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub step: u64,
    pub loss: f64,
    /// The terms of a loss that is a sum, without their coefficients.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<String, f64>,
    pub lr: f64,
    /// Before clipping.
    pub grad_norm: f64,
    pub tokens_per_s: f64,
    pub seconds: f64,
    /// Steps made where their number is decided while the model runs: drawn, or accepted; the mean over micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver_steps: Option<f64>,
    /// The same of all attempts of adaptive steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<f64>,
}

/// The loss on held-out text after a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    pub step: u64,
    pub held_out_loss: f64,
    pub tokens: u64,
    pub seconds: f64,
}

impl Record {
    pub fn step(&self) -> u64 {
        match self {
            Record::Step(s) => s.step,
            Record::HeldOut(h) => h.step,
        }
    }
}

/// A file that grows by a line at a time, and everything in it.
pub struct Metrics {
    file: File,
    records: Vec<Record>,
}

impl Metrics {
    /// Starts a new file, or continues one after `step`: later lines belong to steps that were lost.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(path: &Path, step: u64) -> io::Result<Metrics> {
        let mut records = match input::read_text(path, input::most::METRICS) {
            Ok(text) => parse(&text),
            Err(e) if e.kind() == io::ErrorKind::NotFound => vec![],
            Err(e) => return Err(e),
        };
        records.retain(|r| r.step() <= step);
        files::write_file(path, |w| records.iter().try_for_each(|r| line(w, r)))?;
        Ok(Metrics {
            file: OpenOptions::new().append(true).open(path)?,
            records,
        })
    }

    /// Adds a line. Times and speeds are rounded to what can be measured.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn add(&mut self, mut r: Record) -> io::Result<()> {
        let milli = |x: f64| (x * 1e3).round() / 1e3;
        match &mut r {
            Record::Step(s) => {
                s.tokens_per_s = s.tokens_per_s.round();
                s.seconds = milli(s.seconds);
            }
            Record::HeldOut(h) => h.seconds = milli(h.seconds),
        }
        line(&mut self.file, &r)?;
        self.records.push(r);
        Ok(())
    }

    /// Makes the lines so far durable.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

/// The losses in a metrics file, without a title.
///
/// # Errors
/// When the file cannot be read.
pub fn curve(path: &Path) -> io::Result<Curve> {
    Ok(Curve::of(
        "",
        &parse(&input::read_text(path, input::most::METRICS)?),
    ))
}

/// The lines that can be read; the last one may have been cut short when a process ended.
pub fn parse(text: &str) -> Vec<Record> {
    text.lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect()
}

fn line(w: &mut dyn Write, r: &Record) -> io::Result<()> {
    let mut text = serde_json::to_vec(r)?;
    text.push(b'\n');
    w.write_all(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continued_file_forgets_lost_steps_and_cut_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let step = |n| {
            let (lr, grad_norm, tokens_per_s, seconds) = (0.5, 1.0, 2.0, 3.0);
            Record::Step(Step {
                step: n,
                loss: 0.1,
                terms: (n == 3)
                    .then(|| ("kinetic".into(), 2.5))
                    .into_iter()
                    .collect(),
                lr,
                grad_norm,
                tokens_per_s,
                seconds,
                solver_steps: (n == 2).then_some(5.5),
                attempts: None,
            })
        };
        let held_out = Record::HeldOut(HeldOut {
            step: 2,
            held_out_loss: 0.3,
            tokens: 4,
            seconds: 3.0,
        });
        let mut m = Metrics::open(&path, 0).unwrap();
        for r in [step(1), step(2), held_out.clone(), step(3)] {
            m.add(r).unwrap();
        }
        m.file.write_all(b"{\"step\":4,\"lo").unwrap();
        let mut m = Metrics::open(&path, 2).unwrap();
        assert_eq!(m.records(), [step(1), step(2), held_out]);
        m.add(step(3)).unwrap();
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap());
    }
}
