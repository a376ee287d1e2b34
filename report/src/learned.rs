//! The coefficients that a run has learned: those of its schemes, and step sizes.
//!
//! Takes a run; reads them from its checkpoint. What they are known by is the path of a parameter: `step.3.scheme.b`, `scheme.b`, `core.h`.

use crate::runs::Run;
use odec_program::manifest::{Init, Param};
use odec_runtime::parameters::values;
use odec_runtime::system::owned::CHECKPOINT;
use std::collections::BTreeMap;

/// A coefficient, in every step that has one of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Coefficient {
    /// Without its step: `core.scheme.b`.
    pub name: String,
    /// By step, `None` for one of all steps; what it began with, where that is one number, and what it is.
    pub values: BTreeMap<Option<u64>, (Option<f64>, Value)>,
}

/// The numbers of a coefficient, of which there may be one for each column of the state.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    One(f64),
    Columns { mean: f64, low: f64, high: f64 },
}

/// The name of a coefficient and its step, from a parameter's path.
fn coefficient(path: &str) -> Option<(String, Option<u64>)> {
    let parts: Vec<&str> = path.split('.').collect();
    let at = parts.iter().position(|p| *p == "scheme");
    if at.is_none() && parts.last() != Some(&"h") {
        return None;
    }
    let before = &parts[..at.unwrap_or(parts.len() - 1)];
    let (step, label) = match before {
        [label @ .., "step", n] => (Some(n.parse().ok()?), label),
        label => (None, label),
    };
    let name = label.iter().chain(&parts[before.len()..]);
    Some((name.copied().collect::<Vec<_>>().join("."), step))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_are_known_by_their_paths() {
        let of = |path: &str| coefficient(path);
        let some = |name: &str, step| Some((name.to_string(), step));
        assert_eq!(of("step.3.scheme.b"), some("scheme.b", Some(3)));
        assert_eq!(
            of("core.step.10.scheme.beta.2"),
            some("core.scheme.beta.2", Some(10))
        );
        assert_eq!(of("scheme.alpha"), some("scheme.alpha", None));
        assert_eq!(of("step.0.h"), some("h", Some(0)));
        assert_eq!(of("core.h"), some("core.h", None));
        assert_eq!(of("step.3.att.q.weight"), None);
    }
}
