//! `metrics.jsonl`: what happened in a run, one JSON object per line.
//!
//! A training step: `{"step":12,"loss":3.21,"lr":0.0006,"grad_norm":0.8,"tokens_per_s":41000,"seconds":1.4}`.
//! Where the loss is a sum, also its terms without their coefficients: `"terms":{"cross_entropy":3.1,"kinetic":0.2}`.
//! Of mixtures the share of each expert in what a router chose: `"experts":{"step.0.ffn.router":[0.3,0.7]}`, and where experts have a capacity the share of
//! choices that were dropped: `"dropped":{"step.0.ffn.router":0.02}`.
//! What evolves report, a number for each step: `"reports":{"energy":[2.5,1.25]}`. Where the number of an evolve's steps is decided while it runs, also `"solver_steps":5,"attempts":6`. An evaluation: `{"step":100,"held_out_loss":2.5,"tokens":16384,"seconds":12.9}`.
//! Of pairs the share of padding in their rows: `"padding":0.06`.
//! After the first step and the first one behind each evaluation, how far it moved each parameter, `‖w′ − w‖ / ‖w‖`, and the learned coefficients of schemes
//! and step sizes (of one for each column, their mean): `{"step":101,"update_to_weight":{"step.0.att.q.weight":0.0021},"coefficients":{"step.0.scheme.b":0.52},"seconds":12.9}`.
//! Of images, `images_per_s`, `images` and also `"accuracy":0.98`. A warning, once in a run: `{"step":23,"warning":"the gradient has been exactly zero for 3 steps: …"}`. Steps count from 1;
//! losses are nats per token, or per image, or what a loss of numbers is, and `null` where a held-out loss or a report is not finite; `seconds` is training time so far, over all sittings.
//!
//! A new value is a result with a name (`ResultId` in `program/src/names.rs`) that the graphs of the loss compute, as `reports.rs` and `balance.rs`
//! of `odec-model` do; `gradient.rs` and `infer/evaluate.rs` read it. What is seen in the parameters before and after a step is in `movement.rs`.
//! Either has a key here and in docs/json.md.

use crate::data::dataset::{Count, Unit};
use crate::system::files;
use crate::system::input;
use crate::system::shown::Shown;
use crate::train::chart::Curve;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Record {
    Step(Step),
    HeldOut(HeldOut),
    Warning(Warning),
    Movement(Movement),
}

/// A finished optimiser step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub step: u64,
    pub loss: f64,
    /// The terms of a loss that is a sum, without their coefficients.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub terms: BTreeMap<String, f64>,
    /// The share of each expert in what routers chose, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub experts: BTreeMap<String, Vec<f64>>,
    /// The share of what routers chose that full experts did not take, by their paths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, f64>,
    /// What evolves report, by name: a number for each of their steps.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lists_or_nan"
    )]
    pub reports: BTreeMap<String, Vec<f64>>,
    pub lr: f64,
    /// Before clipping.
    pub grad_norm: f64,
    #[serde(flatten)]
    pub speed: Speed,
    /// Floating-point operations that were launched for the gradient: matrix products, attention and recurrences, forward, backward and what is computed again. None in
    /// lines of versions that did not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flops: Option<u64>,
    /// The same of the optimiser, where it has matrix products.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub optimizer_flops: u64,
    /// Both, in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flop_per_s: Option<f64>,
    pub seconds: f64,
    /// Steps made where their number is decided while the model runs: drawn, or accepted; the mean over micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solver_steps: Option<f64>,
    /// The same of all attempts of adaptive steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<f64>,
    /// Of pairs: the share of padding in their rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<f64>,
}

/// The loss on held-out text after a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    pub step: u64,
    #[serde(deserialize_with = "or_nan")]
    pub held_out_loss: f64,
    #[serde(flatten)]
    pub of: Count,
    /// Of several outputs what each adds to the loss, without its coefficient.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "each_or_nan"
    )]
    pub terms: BTreeMap<String, f64>,
    /// The share of images whose class was predicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// What evolves report, by name: a number for each of their steps.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "lists_or_nan"
    )]
    pub reports: BTreeMap<String, Vec<f64>>,
    pub seconds: f64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A number; JSON has `null` in the place of those that are not finite.
fn or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Option::deserialize(from).map(|x| x.unwrap_or(f64::NAN))
}

/// The same of lists by their names.
fn each_or_nan<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, f64>, D::Error> {
    let each = BTreeMap::<String, Option<f64>>::deserialize(from)?.into_iter();
    Ok(each
        .map(|(name, x)| (name, x.unwrap_or(f64::NAN)))
        .collect())
}

fn lists_or_nan<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<String, Vec<f64>>, D::Error> {
    let lists = BTreeMap::<String, Vec<Option<f64>>>::deserialize(from)?;
    let numbers = |list: Vec<Option<f64>>| list.into_iter().map(|x| x.unwrap_or(f64::NAN));
    let lists = lists.into_iter();
    Ok(lists
        .map(|(name, l)| (name, numbers(l).collect()))
        .collect())
}

/// What was read in a second: `"tokens_per_s":41000`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    TokensPerS(f64),
    ImagesPerS(f64),
    SequencesPerS(f64),
}

impl Default for Speed {
    fn default() -> Speed {
        Speed::TokensPerS(0.0)
    }
}

impl Speed {
    pub fn new(unit: Unit, per_s: f64) -> Speed {
        match unit {
            Unit::Tokens => Speed::TokensPerS(per_s),
            Unit::Images => Speed::ImagesPerS(per_s),
            Unit::Sequences => Speed::SequencesPerS(per_s),
        }
    }

    pub fn number(self) -> f64 {
        match self {
            Speed::TokensPerS(n) | Speed::ImagesPerS(n) | Speed::SequencesPerS(n) => n,
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Speed::TokensPerS(_) => Unit::Tokens,
            Speed::ImagesPerS(_) => Unit::Images,
            Speed::SequencesPerS(_) => Unit::Sequences,
        }
    }

    fn rounded(self) -> Speed {
        match self {
            Speed::TokensPerS(n) => Speed::TokensPerS(n.round()),
            Speed::ImagesPerS(n) => Speed::ImagesPerS(n.round()),
            Speed::SequencesPerS(n) => Speed::SequencesPerS(n.round()),
        }
    }
}

/// That a run learns nothing, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    pub step: u64,
    pub warning: String,
}

/// How far a step moved the parameters, and where learned coefficients were then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Movement {
    pub step: u64,
    /// `‖w′ − w‖ / ‖w‖` by the paths of parameters; none of those that were zero.
    pub update_to_weight: BTreeMap<String, f64>,
    /// Coefficients of schemes, and step sizes, by their paths: the mean of those that have one for each column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub coefficients: BTreeMap<String, f64>,
    pub seconds: f64,
}

impl Record {
    pub fn step(&self) -> u64 {
        match self {
            Record::Step(s) => s.step,
            Record::HeldOut(h) => h.step,
            Record::Warning(w) => w.step,
            Record::Movement(m) => m.step,
        }
    }
}

/// A file that grows by a line at a time, and everything in it.
pub struct Metrics {
    file: File,
    records: Vec<Record>,
    damage: Option<String>,
}

impl Metrics {
    /// Starts a new file, or continues one after `step`: later lines belong to steps that were lost. Earlier ones that cannot be read are left
    /// out; [`Metrics::damage`] says so.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn open(path: &Path, step: u64) -> io::Result<Metrics> {
        let text = match input::open(path).and_then(|f| input::all(f, input::most::METRICS)) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => String::new(),
            Err(e) => return Err(e),
        };
        let damage = damage(&text, step).map(|what| format!("{}: {what}", path.shown()));
        let mut records = parse(&text);
        records.retain(|r| r.step() <= step);
        files::write_file(path, |w| records.iter().try_for_each(|r| line(w, r)))?;
        Ok(Metrics {
            file: OpenOptions::new().append(true).open(path)?,
            records,
            damage,
        })
    }

    /// What the file lacked when it was opened, as a sentence.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Adds a line. Times and speeds are rounded to what can be measured.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn add(&mut self, mut r: Record) -> io::Result<()> {
        let milli = |x: f64| (x * 1e3).round() / 1e3;
        match &mut r {
            Record::Step(s) => {
                s.speed = s.speed.rounded();
                s.flop_per_s = s.flop_per_s.map(f64::round);
                s.seconds = milli(s.seconds);
            }
            Record::HeldOut(h) => h.seconds = milli(h.seconds),
            Record::Movement(m) => m.seconds = milli(m.seconds),
            Record::Warning(_) => {}
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

/// Floating-point operations of the first `steps` steps, for gradients and by the optimiser; `None` where a line is missing or does not say.
pub fn flops(records: &[Record], steps: u64) -> Option<[u64; 2]> {
    let (mut lines, mut sum) = (0, [0u64; 2]);
    for record in records {
        let Record::Step(s) = record else { continue };
        if s.step <= steps {
            lines += 1;
            sum[0] = sum[0].saturating_add(s.flops?);
            sum[1] = sum[1].saturating_add(s.optimizer_flops);
        }
    }
    (lines == steps).then_some(sum)
}

/// The lines that can be read; the last one may have been cut short when a process ended.
pub fn parse(text: &str) -> Vec<Record> {
    text.lines()
        .filter_map(|l| serde_json::from_str(l).ok())
        .collect()
}

/// What is missing of the steps up to a checkpoint: lines that cannot be read before the last of them, and steps without a line.
fn damage(text: &str, step: u64) -> Option<String> {
    let lines = text.lines().enumerate();
    let lines: Vec<(usize, Option<Record>)> = lines
        .map(|(n, l)| (n + 1, serde_json::from_str(l).ok()))
        .collect();
    let kept = |r: &Option<Record>| r.as_ref().is_some_and(|r| r.step() <= step);
    let until = lines.iter().rposition(|(_, r)| kept(r)).unwrap_or(0);
    let unreadable = lines[..until].iter().filter(|(_, r)| r.is_none());
    let unreadable: Vec<String> = unreadable.map(|(n, _)| n.to_string()).collect();
    let steps = lines.iter().filter_map(|(_, r)| match r {
        Some(Record::Step(s)) if s.step <= step => Some(s.step),
        _ => None,
    });
    let missing = step - (steps.collect::<BTreeSet<_>>().len() as u64).min(step);
    let shown = unreadable
        .iter()
        .take(5)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let and_more = if unreadable.len() > 5 { ", …" } else { "" };
    let lost = format!("{missing} of the {step} steps before the checkpoint have no line");
    let left_out = match unreadable.len() {
        1 => format!("1 line cannot be read and is left out (line {shown})"),
        n => format!("{n} lines cannot be read and are left out (line {shown}{and_more})"),
    };
    match (unreadable.len(), missing) {
        (0, 0) => None,
        (0, _) => Some(format!("{lost}; the curve has gaps")),
        (_, 0) => Some(left_out),
        (_, _) => Some(format!("{left_out}; {lost}")),
    }
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
        let energy = || ("energy".to_string(), vec![1.5, 0.25]);
        let step = |n| {
            let (lr, grad_norm, seconds) = (0.5, 1.0, 3.0);
            let speed = Speed::TokensPerS(2.0);
            Record::Step(Step {
                step: n,
                loss: 0.1,
                terms: (n == 3)
                    .then(|| ("kinetic".into(), 2.5))
                    .into_iter()
                    .collect(),
                experts: (n == 3)
                    .then(|| ("step.0.ffn.router".into(), vec![0.75, 0.25]))
                    .into_iter()
                    .collect(),
                dropped: (n == 3)
                    .then(|| ("step.0.ffn.router".into(), 0.0625))
                    .into_iter()
                    .collect(),
                reports: (n == 3).then(energy).into_iter().collect(),
                lr,
                grad_norm,
                speed,
                flops: (n != 3).then_some(1200),
                optimizer_flops: 40 * u64::from(n == 2),
                flop_per_s: (n != 3).then_some(600.0),
                seconds,
                solver_steps: (n == 2).then_some(5.5),
                attempts: None,
                padding: (n == 3).then_some(0.125),
            })
        };
        let held_out = Record::HeldOut(HeldOut {
            step: 2,
            held_out_loss: 0.3,
            reports: [energy()].into(),
            terms: BTreeMap::new(),
            of: Count::Tokens(4),
            accuracy: None,
            seconds: 3.0,
        });
        let mut m = Metrics::open(&path, 0).unwrap();
        for r in [step(1), step(2), held_out.clone(), step(3)] {
            m.add(r).unwrap();
        }
        m.file.write_all(b"{\"step\":4,\"lo").unwrap();
        let mut m = Metrics::open(&path, 2).unwrap();
        assert_eq!(m.records(), [step(1), step(2), held_out.clone()]);
        m.add(step(3)).unwrap();
        assert_eq!(m.damage(), None, "lost steps are no damage");
        insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap());
        // What happened before the checkpoint and cannot be read is said.
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&b"{\"step\":\xff\n\n"[..], &whole].concat()).unwrap();
        let m = Metrics::open(&path, 3).unwrap();
        let said = m.damage().unwrap().rsplit_once(": ").unwrap().1;
        assert_eq!(said, "2 lines cannot be read and are left out (line 1, 2)");
        assert_eq!(std::fs::read(&path).unwrap(), whole);
        // Numbers that are not finite leave their lines.
        let mut m = Metrics::open(&path, 3).unwrap();
        let Record::HeldOut(of) = held_out else {
            unreachable!()
        };
        m.add(Record::HeldOut(HeldOut {
            held_out_loss: f64::NAN,
            reports: [("energy".to_string(), vec![f64::INFINITY, 0.25])].into(),
            ..of
        }))
        .unwrap();
        let Record::Step(diverging) = step(3) else {
            unreachable!()
        };
        m.add(Record::Step(Step {
            reports: [("energy".to_string(), vec![1.5, f64::NAN])].into(),
            ..diverging
        }))
        .unwrap();
        let m = Metrics::open(&path, 3).unwrap();
        assert_eq!((m.records().len(), m.damage()), (6, None));
        match &m.records()[4..] {
            [Record::HeldOut(h), Record::Step(s)] => {
                assert!(h.held_out_loss.is_nan());
                assert!(h.reports["energy"][0].is_nan() && h.reports["energy"][1] == 0.25);
                assert!(s.reports["energy"][0] == 1.5 && s.reports["energy"][1].is_nan());
            }
            other => panic!("{other:?}"),
        }
        std::fs::remove_file(&path).unwrap();
        let m = Metrics::open(&path, 3).unwrap();
        let said = "3 of the 3 steps before the checkpoint have no line; the curve has gaps";
        assert!(m.damage().unwrap().ends_with(said), "{:?}", m.damage());
    }
}
