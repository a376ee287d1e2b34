//! Counts evaluations of fields, and how many depend on each other.
//!
//! Takes stage programs; gives counts. The longest chain of dependent evaluations is what remains of a step's time when all independent
//! ones run at once (Jackson & Nørsett 1995, SIAM J. Numer. Anal. 32, 49: "parallel stages").

use super::stage::{Moment, StageInstr, StageProgram};
use super::unroll::Unrolled;
use odec_program::kernel::Share;
use odec_text::number::thousands;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepWork {
    /// Evaluations of each field, in the order of the first ones.
    pub fields: Vec<(String, u64)>,
    pub evaluations: u64,
    /// Evaluations of the longest chain.
    pub depth: u64,
}

/// Who decides which tokens take a step, by a router's scores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Routing {
    /// Each token, before the first step: it takes as many as it gives the largest score to.
    Tokens,
    /// Each step: of those that took the step before, it takes this share of a text's tokens, those with the largest scores.
    Steps(Vec<Share>),
}

/// All steps of an evolve, and what comes before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvolveWork {
    pub label: String,
    pub steps: u64,
    /// How many are taken is decided while the model runs: not more than these.
    pub at_most: bool,
    /// Which tokens take a step, where a router says so.
    pub routed: Option<Routing>,
    /// The distinct steps, each with how often it is taken.
    pub each: Vec<(u64, StepWork)>,
    /// Of all steps, and of what comes before the first.
    pub fields: Vec<(String, u64)>,
    pub evaluations: u64,
    pub depth: u64,
}

/// Depths of values of earlier steps: of each name, oldest first.
type Kept = BTreeMap<String, Vec<u64>>;

impl StepWork {
    pub fn of(p: &StageProgram) -> StepWork {
        let mut fields = vec![0; p.fields.len()];
        for i in &p.instrs {
            if let StageInstr::Eval { field, .. } = i {
                fields[*field] += 1;
            }
        }
        let names = p.fields.iter().map(|f| f.name.clone());
        StepWork {
            fields: names.zip(fields).filter(|(_, n)| *n > 0).collect(),
            evaluations: p.evaluations() as u64,
            depth: advance(p, 0, &mut Kept::new()),
        }
    }
}

impl EvolveWork {
    pub fn of(label: &str, unrolled: &Unrolled) -> EvolveWork {
        let each: Vec<StepWork> = unrolled.programs.iter().map(StepWork::of).collect();
        let mut distinct: Vec<(u64, StepWork)> = Vec::new();
        for n in &unrolled.steps {
            match distinct.iter_mut().find(|(_, w)| *w == each[*n]) {
                Some((times, _)) => *times += 1,
                None => distinct.push((1, each[*n].clone())),
            }
        }
        let (mut fields, mut depth, mut kept) = (Vec::new(), 0, Kept::new());
        for (_, n) in unrolled.phases() {
            depth = advance(&unrolled.programs[n], depth, &mut kept);
            for (name, more) in &each[n].fields {
                match fields.iter_mut().find(|(f, _)| f == name) {
                    Some((_, sum)) => *sum += more,
                    None => fields.push((name.clone(), *more)),
                }
            }
        }
        EvolveWork {
            label: label.to_string(),
            steps: unrolled.steps.len() as u64,
            at_most: false,
            routed: None,
            each: distinct,
            fields,
            evaluations: unrolled.evaluations() as u64,
            depth,
        }
    }
}

impl EvolveWork {
    /// With so many evaluations of a field that decides between steps, and which the next ones wait for.
    pub fn deciding(mut self, field: &str, times: u64) -> EvolveWork {
        match self.fields.iter_mut().find(|(f, _)| f == field) {
            Some((_, sum)) => *sum += times,
            None => self.fields.push((field.into(), times)),
        }
        self.evaluations += times;
        self.depth += times;
        self
    }
}

/// The depth of the state after a step from one of depth `x`.
fn advance(p: &StageProgram, x: u64, kept: &mut Kept) -> u64 {
    let mut depths = vec![x];
    for i in &p.instrs {
        let below = i.reads().iter().map(|v| depths[v.0 as usize]).max();
        depths.push(match i {
            StageInstr::Eval { .. } => below.unwrap_or(0) + 1,
            StageInstr::Past { name, when } => {
                let entries = kept.get(name).map_or(&[][..], Vec::as_slice);
                let entry = match when {
                    Moment::Start => entries.first(),
                    Moment::Ago(n) => entries.len().checked_sub(*n).and_then(|i| entries.get(i)),
                };
                entry.copied().unwrap_or(0)
            }
            _ => below.unwrap_or(0),
        });
    }
    for (name, v) in &p.keeps {
        let depth = depths[v.0 as usize];
        kept.entry(name.clone()).or_default().push(depth);
    }
    let reads = p.result.terms().map(|(v, _)| depths[v.0 as usize]);
    reads.max().unwrap_or(0)
}

/// `8 evaluations, 4 one after the other`, of the longest chain and all.
pub fn chain(depth: u64, evaluations: u64) -> String {
    let noun = if evaluations == 1 {
        "evaluation"
    } else {
        "evaluations"
    };
    let all = format!("{} {noun}", thousands(evaluations));
    match depth == evaluations {
        true => all,
        false => format!("{all}, {} one after the other", thousands(depth)),
    }
}

/// Evaluations by field, as JSON.
pub fn fields_json(of: &[(String, u64)]) -> Vec<Value> {
    of.iter()
        .map(|(name, n)| json!({ "name": name, "evaluations": n }))
        .collect()
}

impl StepWork {
    pub fn json(&self) -> Value {
        json!({ "evaluations": self.evaluations, "depth": self.depth, "fields": fields_json(&self.fields) })
    }
}
