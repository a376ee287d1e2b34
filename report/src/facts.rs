//! What the compiler says of the model of a run: its schemes as they are computed, its work, its graph.
//!
//! Takes an artifact's manifest; checks its source again, with what was set and imported. Gives nothing where that makes another model than the
//! artifact holds, as it may where the library has changed since. Leaves proofs to `odec-analysis` and counting to `odec-compiler`.

use crate::runs::Run;
use odec_compiler::analysis::report::{self, Report};
use odec_compiler::cost::{Training, training};
use odec_compiler::model::{Built, Checked};
use odec_driver::library::LIBRARY;
use odec_driver::source::of_artifact;
use odec_program::manifest::{Form, Manifest};
use std::collections::BTreeSet;

/// A model, built again.
pub struct ModelFacts {
    checked: Checked,
    pub built: Built,
    pub training: Training,
}

/// Builds the model of an artifact again.
///
/// # Errors
/// Why that cannot be, in a sentence.
pub fn model(m: &Manifest) -> Result<ModelFacts, String> {
    let (_, mut checked) = of_artifact(m)
        .map_err(|why| format!("the source of the run cannot be checked by this odec: {why}"))?;
    let mut built = checked.built.take().ok_or("the source has no model")?;
    let has: BTreeSet<_> = m.params.iter().map(|p| (&p.path, &p.shape)).collect();
    let gives: BTreeSet<_> = built.params.iter().map(|p| (&p.path, &p.shape)).collect();
    if has != gives {
        let why = "the source of the run gives another model now: it was built by an odec that did not keep what was set, or with another library";
        return Err(why.into());
    }
    // A budget was resolved where the artifact was built.
    if let (Some(now), Some(then)) = (&mut built.train, &m.train) {
        now.memory = then.memory;
    }
    let training = training(&built).map_err(|e| e.to_string())?;
    Ok(ModelFacts {
        checked,
        built,
        training,
    })
}

/// The models of runs, each built once however many runs have it.
pub struct Models {
    keys: Vec<String>,
    all: Vec<Result<ModelFacts, String>>,
    /// By run.
    of: Vec<usize>,
}

impl Models {
    /// `report` is told how many runs have been looked at.
    pub fn of(runs: &[Run], report: &mut dyn FnMut(usize)) -> Models {
        let mut models = Models {
            keys: Vec::new(),
            all: Vec::new(),
            of: Vec::new(),
        };
        for (n, run) in runs.iter().enumerate() {
            report(n);
            let key = key(&run.manifest);
            let known = models.keys.iter().position(|k| *k == key);
            models.of.push(known.unwrap_or_else(|| {
                models.keys.push(key);
                models.all.push(model(&run.manifest));
                models.all.len() - 1
            }));
        }
        models
    }

    /// Of a run, by its number.
    pub fn get(&self, run: usize) -> Option<&ModelFacts> {
        self.all[self.of[run]].as_ref().ok()
    }

    /// Each model, or why there is none, with the runs that have it.
    pub fn each(&self) -> impl Iterator<Item = (&Result<ModelFacts, String>, Vec<usize>)> {
        let runs = |n: usize| {
            (0..self.of.len())
                .filter(|run| self.of[*run] == n)
                .collect()
        };
        self.all.iter().enumerate().map(move |(n, m)| (m, runs(n)))
    }
}

/// What a model is built from: the source without what is set of its training alone.
fn key(m: &Manifest) -> String {
    const OF_TRAINING: [&str; 7] = [
        "train.lr",
        "train.seed",
        "train.steps",
        "train.batch",
        "train.clip",
        "train.optimizer",
        "train.schedule",
    ];
    let of_training = |given: &&String| {
        let path = given.split('=').next().unwrap_or_default().trim();
        let mut known = OF_TRAINING.iter();
        known.any(|k| path == *k || path.starts_with(&format!("{k}.")))
    };
    let set: Vec<&String> = m.settings.iter().filter(|s| !of_training(s)).collect();
    let imports: Vec<_> = m.imports.iter().map(|i| (&i.path, &i.text)).collect();
    let memory = m.train.as_ref().map(|t| t.memory);
    format!("{}\n{set:?}\n{imports:?}\n{memory:?}", m.source)
}

impl ModelFacts {
    /// The flows of the model as they are computed, with what is proved of them.
    pub fn flows(&self) -> Vec<Report> {
        let evolved = self.checked.evolved.iter();
        evolved.map(|e| report::evolve(e, LIBRARY)).collect()
    }

    /// The picture of its graph.
    pub fn graph(&self) -> String {
        odec_graph::svg::svg(&self.built.forward, &self.built.name, &self.built.weights)
    }

    /// Floating-point operations of a training step of so many rows of full length.
    pub fn step_flops(&self, rows: u64) -> f64 {
        self.training.whole.flops() as f64 * rows as f64 / self.training.batch as f64
    }

    /// Whether [`ModelFacts::step_flops`] is the most that there can be.
    pub fn is_at_most(&self, form: &Form) -> bool {
        // Rows of texts are as long as the longest text among them.
        self.training.at_most || form.is_padded()
    }
}
