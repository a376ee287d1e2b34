//! The coefficients that a run has learned: those of its schemes, and step sizes.
//!
//! Takes a run; reads them from its checkpoint. What they are known by is the path of a parameter: `step.3.scheme.b`, `scheme.b`, `core.h`.

use crate::plot::{Across, Plot, SIZES, Unit, class};
use crate::runs::Run;
use odec_program::manifest::{Init, Param};
use odec_program::names::coefficient;
use odec_runtime::parameters::values;
use odec_runtime::system::owned::CHECKPOINT;
use odec_runtime::train::metrics::Record;
use std::collections::{BTreeMap, BTreeSet};

/// A coefficient, in every step that has one of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficient {
    /// Without its step: `core.scheme.b`.
    pub name: String,
    /// By step, `None` for one of all steps; what it began with, where that is one number, and what it is.
    pub values: BTreeMap<Option<u64>, (Option<f64>, Value)>,
}

/// A coefficient of one step while its run was trained: after so many steps of training, and what it was then.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub name: String,
    pub step: Option<u64>,
    pub points: Vec<(f64, f64)>,
}

/// The numbers of a coefficient, of which there may be one for each column of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    One(f64),
    Columns { mean: f64, low: f64, high: f64 },
}

fn begins(p: &Param) -> Option<f64> {
    match p.init {
        Init::Zeros => Some(0.0),
        Init::Ones => Some(1.0),
        Init::Constant(x) => Some(x),
        Init::Normal { .. } => None,
    }
}

/// The coefficients that a run has learned, by name.
///
/// # Errors
/// When the checkpoint is damaged.
pub fn learned(r: &Run) -> Result<Vec<Coefficient>, String> {
    let of = |p: &'_ Param| coefficient(&p.path);
    let wanted: Vec<(&Param, _)> = r
        .manifest
        .trained()
        .filter_map(|p| Some((p, of(p)?)))
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let shapes = wanted.iter().map(|(p, _)| (p.path.as_str(), &p.shape[..]));
    let found = values::read(&r.folder.join(CHECKPOINT), shapes).map_err(|e| e.to_string())?;
    let mut all: BTreeMap<String, Coefficient> = BTreeMap::new();
    for (p, (name, step)) in wanted {
        let value = match found.get(&p.path).map(Vec::as_slice) {
            Some([one]) => Value::One(*one),
            Some(many @ [_, ..]) => Value::Columns {
                mean: many.iter().sum::<f64>() / many.len() as f64,
                low: many.iter().copied().fold(f64::INFINITY, f64::min),
                high: many.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            },
            Some([]) | None => continue,
        };
        let values = BTreeMap::new();
        let coefficient = all
            .entry(name.clone())
            .or_insert(Coefficient { name, values });
        coefficient.values.insert(step, (begins(p), value));
    }
    Ok(all.into_values().collect())
}

/// Coefficients while a run was trained, from where they began, as its metrics say them, to the last checkpoint; by name and step.
pub fn paths(r: &Run, last: &[Coefficient]) -> Vec<Path> {
    let mut all: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    let mut add = |key: (String, Option<u64>), point| all.entry(key).or_default().push(point);
    for c in last {
        for (step, (began, _)) in &c.values {
            if let Some(x) = began {
                add((c.name.clone(), *step), (0.0, *x));
            }
        }
    }
    for record in &r.records {
        let Record::Movement(m) = record else {
            continue;
        };
        for (path, x) in &m.coefficients {
            if let Some(key) = coefficient(path) {
                add(key, (m.step as f64, *x));
            }
        }
    }
    for c in last {
        for (step, (_, now)) in &c.values {
            let now = match now {
                Value::One(x) => x,
                Value::Columns { mean, .. } => mean,
            };
            add((c.name.clone(), *step), (r.progress.step as f64, *now));
        }
    }
    let all = all.into_iter();
    all.map(|((name, step), points)| Path { name, step, points })
        .collect()
}

/// The picture of such paths, wide and narrow, a colour for each name; `id` is its own on the page.
pub fn picture(paths: &[Path], id: &str) -> Option<String> {
    let points = || paths.iter().flat_map(|p| &p.points);
    let fold = |from: f64, f: fn(f64, f64) -> f64| points().map(|p| p.1).fold(from, f);
    let (low, high) = (
        fold(f64::INFINITY, f64::min),
        fold(f64::NEG_INFINITY, f64::max),
    );
    if !(low.is_finite() && high.is_finite()) {
        return None;
    }
    let most = points().map(|p| p.0).fold(0.0, f64::max);
    let unit = Unit::count("step of training", most);
    let names: BTreeSet<&str> = paths.iter().map(|p| p.name.as_str()).collect();
    let drawn = SIZES.iter().map(|size| {
        let title = [
            "Learned coefficients while the run was trained",
            "coefficient",
        ];
        let mut plot = Plot::new(*size, id, &unit, Across::To(most), (low, high), title);
        for p in paths {
            let colour = names.iter().position(|n| *n == p.name).unwrap_or(0);
            let of = p.step.map_or(String::new(), |n| format!(", step {n}"));
            plot.series(colour, &format!("{}{of}", p.name));
            plot.line("curve", &p.points);
            plot.end();
        }
        plot.finish()
    });
    Some(drawn.collect())
}

/// The names of paths with the classes of their colours.
pub fn legend(paths: &[Path]) -> Vec<(String, String)> {
    let names: BTreeSet<&str> = paths.iter().map(|p| p.name.as_str()).collect();
    let each = names.into_iter().enumerate();
    each.map(|(n, name)| (class(n), name.to_string())).collect()
}
