//! What trials took beside what was predicted of them: operations as the executor counted them, seconds as they passed.
//!
//! Takes a plan and the outcomes of a model's trials at the end of a rung; gives means over these trials. What is predicted is of the steps that were made: a trial that is out of
//! patience makes fewer than planned. Where all operations are known before, both are the same number. They are not where the plan has the most that there can be
//! ([`crate::examine::Examined::at_most`]), and of pairs of texts, whose rows are as long as the longest text among them. Launches are counted by their sizes: of routed steps, whose kernels leave rows out, more
//! is counted than the plan has.

use crate::folder::Outcome;
use crate::plan::Candidate;
use odec_compiler::text::number;
use odec_compiler::text::table::{Cell, Table};
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Means over the trials of a model; each is `None` where it is not known of all of them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Executed {
    /// Floating-point operations of the gradients, as they were launched,
    pub flops: Option<f64>,
    /// and as they were predicted for as many steps.
    pub predicted_flops: Option<f64>,
    /// Of the optimiser's matrix products, which the plan does not count.
    pub optimizer_flops: Option<f64>,
    /// Seconds of the steps, without evaluations and checkpoints,
    pub seconds: Option<f64>,
    /// and as they were predicted, where steps were measured before.
    pub predicted_seconds: Option<f64>,
}

/// A model in `executed.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Ended {
    /// Its place in the plan.
    pub model: usize,
    pub label: String,
    /// How many trials these are.
    pub seeds: usize,
    #[serde(flatten)]
    pub executed: Executed,
}

impl Ended {
    pub fn json(&self) -> Json {
        let mut json = self.executed.json();
        json["model"] = self.model.into();
        json["label"] = self.label.as_str().into();
        json["seeds"] = self.seeds.into();
        json
    }
}

/// What the trials of a model took, by their outcomes.
pub fn executed(m: &Candidate, outcomes: &[&Outcome]) -> Executed {
    let mean = |of: &dyn Fn(&Outcome) -> Option<f64>| -> Option<f64> {
        let sum: f64 = outcomes.iter().map(|o| of(o)).sum::<Option<f64>>()?;
        (!outcomes.is_empty()).then(|| sum / outcomes.len() as f64)
    };
    let of_step = m.examined.flops_per_step as f64;
    Executed {
        flops: mean(&|o| o.flops.map(|n| n as f64)),
        predicted_flops: mean(&|o| Some(of_step * o.steps as f64)),
        optimizer_flops: mean(&|o| o.optimizer_flops.map(|n| n as f64)),
        seconds: mean(&|o| o.step_seconds),
        predicted_seconds: mean(&|o| Some(m.seconds_per_step? * o.steps as f64)),
    }
}

/// What was, as a multiple of what was predicted.
fn ratio(is: Option<f64>, predicted: Option<f64>) -> Option<f64> {
    let (is, predicted) = is.zip(predicted)?;
    (predicted > 0.0).then(|| is / predicted)
}

impl Executed {
    /// Executed operations as a multiple of those that were predicted.
    pub fn flops_ratio(&self) -> Option<f64> {
        ratio(self.flops, self.predicted_flops)
    }

    pub fn seconds_ratio(&self) -> Option<f64> {
        ratio(self.seconds, self.predicted_seconds)
    }

    fn json(&self) -> Json {
        json!({
            "flops": self.flops, "predicted_flops": self.predicted_flops, "flops_to_predicted": self.flops_ratio(),
            "optimizer_flops": self.optimizer_flops,
            "seconds": self.seconds, "predicted_seconds": self.predicted_seconds, "seconds_to_predicted": self.seconds_ratio(),
        })
    }
}

/// Those models that something is known of, and what is to be known of the table; `None` where nothing is.
pub fn table<'a>(
    all: impl Iterator<Item = (&'a Candidate, &'a Executed)>,
) -> Option<(Table, Vec<&'static str>)> {
    let known: Vec<_> = all.filter(|(_, e)| e.flops.is_some()).collect();
    let any = |of: fn(&Executed) -> Option<f64>| known.iter().any(|(_, e)| of(e).is_some());
    let timed = any(|e| e.predicted_seconds);
    let optimizer = any(|e| e.optimizer_flops.filter(|n| *n > 0.0));
    let mut table = Table::new(1);
    let mut head = vec![Cell::left("model")];
    head.extend(["predicted FLOPs", "executed", "ratio"].map(Cell::right));
    if optimizer {
        head.push(Cell::right("optimiser"));
    }
    if timed {
        head.push(Cell::right("predicted time"));
    }
    head.push(Cell::right("time of steps"));
    if timed {
        head.push(Cell::right("ratio"));
    }
    table.row(head);
    table.rule();
    for (m, e) in &known {
        let most = if m.examined.at_most { "≤ " } else { "" };
        let flops = |x: Option<f64>| x.map_or("–".into(), number::flops);
        let time = |x: Option<f64>| x.map_or("–".into(), number::duration);
        let shown = |x: Option<f64>| match x {
            Some(1.0) => "1".to_string(),
            Some(x) => format!("{x:.3}"),
            None => "–".into(),
        };
        let predicted = format!("{most}{}", flops(e.predicted_flops));
        let mut cells = vec![Cell::left(&*m.label)];
        cells.extend([predicted, flops(e.flops), shown(e.flops_ratio())].map(Cell::Right));
        if optimizer {
            cells.push(Cell::Right(flops(e.optimizer_flops)));
        }
        if timed {
            cells.push(Cell::Right(time(e.predicted_seconds)));
        }
        cells.push(Cell::Right(time(e.seconds)));
        if timed {
            cells.push(Cell::Right(shown(e.seconds_ratio())));
        }
        table.row(cells);
    }
    let mut notes = vec![
        "Executed: operations of the kernels that were launched in training steps. Means over seeds, of the steps that were made; evaluations and checkpoints are aside.",
    ];
    let counted = || known.iter().filter(|(m, _)| !m.examined.drawn);
    let ratio = |is: fn(f64) -> bool| counted().any(|(_, e)| e.flops_ratio().is_some_and(is));
    if known.iter().any(|(m, _)| m.examined.drawn) {
        notes.push("Where numbers of steps are drawn, predicted is the mean over all draws; executed is that of the run's own.");
    }
    if ratio(|x| x < 1.0) {
        notes.push("A ratio below 1: predicted was the most that there can be, where steps are decided while the model runs, or rows are shorter than a context.");
    }
    if ratio(|x| x > 1.0) {
        notes.push("A ratio above 1: kernels leave out the rows of tokens that do not take a routed step; the plan does, and what is executed is counted by the sizes of launches.");
    }
    if optimizer {
        notes.push("Optimiser: its matrix products, which no prediction counts.");
    }
    (!known.is_empty()).then_some((table, notes))
}
