//! How far weights move from one step to the next: `drift = Σₖ ‖θₖ₊₁ − θₖ‖²`.
//!
//! θₖ is all that the fields of step k are made of, matrices (with their factors), gains, shifts and biases: under `weights of time` their values at the
//! step's beginning, or at its end with `at: right`. Squares are summed over all elements and over the pairs of consecutive steps of
//! each evolve; nothing is averaged. A weight counts where both steps have one of its name and shape. Under Euler steps this is what
//! keeps a network near a flow (Haber & Ruthotto 2017, Inverse Problems 34, 014004, section 3.3, there divided by h).
//! Takes evolves; gives the pairs, and their sum in the graph. Leaves the coefficient to `loss.rs`.

use super::evolve::{EvolveSpec, Sharing};
use super::graph_builder::GraphBuilder;
use super::params::{factor_path, field_name, field_path};
use super::step_count::StepCount;
use super::time_dependent::{Time, TimeDependent, Timed};
use crate::error::BuildError;
use crate::scheme::stage::Phase;
use odec_graph::ops::{Mul, SumCols, SumRows};
use odec_graph::{Builder, Exact, Site, Value, nn};
use std::collections::BTreeMap;

/// A weight of a step.
#[derive(Clone, Debug, PartialEq)]
struct Weight {
    path: String,
    shape: Vec<u64>,
    /// How it depends on time, when it is taken, and the path of its factors.
    at: Option<(TimeDependent, Exact, String)>,
}

impl EvolveSpec {
    /// Whether two consecutive steps have weights that may differ, and how many there are is known.
    pub(super) fn drifts(&self) -> bool {
        (1..self.steps as usize).any(|k| !self.moves(k).is_empty())
    }

    /// The weights of the step before step `k` and of step `k`, where they are not the same.
    fn moves(&self, k: usize) -> Vec<[Weight; 2]> {
        if self.depth != StepCount::Known {
            return Vec::new();
        }
        let mut before = self.weights(k - 1);
        let now = self.weights(k).into_iter();
        let pairs = now.filter_map(|(name, w)| Some([before.remove(&name)?, w]));
        pairs
            .filter(|[a, b]| a != b && a.shape == b.shape)
            .collect()
    }

    /// The parameters of a step's fields, by names without the step.
    fn weights(&self, k: usize) -> BTreeMap<String, Weight> {
        let n = self.unrolled.steps[k];
        let program = &self.unrolled.programs[n];
        let mut found = BTreeMap::new();
        for (field, layer) in self.layers[n].iter().enumerate() {
            let policy = self.policies[n][field];
            let time = match policy {
                Sharing::TimeDependent(o) => self.t.get(k).map(|t| match o.at_end {
                    true => (o, t + &self.h[k]),
                    false => (o, t.clone()),
                }),
                _ => None,
            };
            let uses = match policy {
                Sharing::PerUse => program.usages[field],
                _ => program.usages[field].min(1),
            };
            for usage in 0..uses {
                let name = field_name(self, n, field, usage);
                let prefix = field_path(self, n, field, usage, Phase::Step(k));
                let factors = factor_path(self, n, field, usage, Phase::Step(k));
                for p in layer.params() {
                    let at = time
                        .clone()
                        .map(|(o, t)| (o, t, format!("{factors}.{}", p.path)));
                    let weight = Weight {
                        path: format!("{prefix}.{}", p.path),
                        shape: p.shape,
                        at,
                    };
                    found.insert(format!("{name}.{}", p.path), weight);
                }
            }
        }
        found
    }
}

impl GraphBuilder<'_> {
    /// The sum over all evolves.
    pub(super) fn drift(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        let outer = b.site.clone();
        let mut terms = Vec::new();
        for e in &self.spec.evolves {
            b.site = Site {
                evolve: e.label.clone(),
                path: "drift".into(),
                ..Site::default()
            }
            .into();
            for k in 1..e.steps as usize {
                self.timed = Timed::default();
                for [before, now] in e.moves(k) {
                    let (x, y) = (self.weight(b, &before)?, self.weight(b, &now)?);
                    let moved = nn::combine(b, &[(Exact::one(), y), (Exact::int(-1), x)])?;
                    let square = b.push1(Mul, &[moved, moved])?;
                    let rows = b.push1(SumCols, &[square])?;
                    terms.push((Exact::one(), b.push1(SumRows, &[rows])?));
                }
            }
        }
        b.site = outer;
        let missing = || BuildError::Missing("the drift of weights".into());
        terms.first().ok_or_else(missing)?;
        Ok(nn::combine(b, &terms)?)
    }

    fn weight(&mut self, b: &mut Builder, w: &Weight) -> Result<Value, BuildError> {
        Ok(match &w.at {
            Some((of, t, factors)) => {
                self.param_at(b, &w.path, *of, &Time::Known(t.clone()), factors)?
            }
            None => self.param(b, &w.path)?,
        })
    }
}
