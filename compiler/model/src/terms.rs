//! The terms of a loss in the graph: each term per token, and their sum.
//!
//! Takes states before and after steps as they are made, then the result; gives the total, with a result `loss.<term>` for each of
//! several terms. Sums over steps are collected per token and averaged at the end, as the cross-entropy is.

use super::balance::Told;
use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::loss::Summand;
use super::losses::{Choice, LossTerm, NAMES, Ponder, Predicted, StepTaken, Term, Training};
use super::outputs::OutputSpec;
use crate::error::BuildError;
use odec_graph::ops::{Equals, Select, Shift, StopGradient, WherePositive};
use odec_graph::{Builder, Exact, Site, TypeError, Value, nn};
use odec_program::manifest::Counted;
use odec_program::{ResultId, names};
use std::collections::BTreeMap;

/// What the steps of all evolves give to the terms of a loss, a number per token each.
pub(super) struct Collected {
    /// Of each term, in their order.
    each: Vec<Given>,
    /// Solutions that were looked at.
    solutions: usize,
    /// How evenly routers chose, of each evaluation since the last step that was asked.
    pub(super) balances: Vec<Value>,
    /// What is told of routers.
    pub(super) told: Vec<Told>,
    /// Of each report, a number per token after each step.
    pub(super) reports: BTreeMap<String, Vec<Value>>,
}

struct Given {
    term: &'static str,
    rows: Vec<Value>,
    /// How many are settled.
    settled: usize,
}

impl Default for Collected {
    fn default() -> Self {
        let given = |term: &&'static str| Given {
            term,
            rows: Vec::new(),
            settled: 0,
        };
        Collected {
            each: NAMES.iter().map(given).collect(),
            solutions: 0,
            balances: Vec::new(),
            told: Vec::new(),
            reports: BTreeMap::new(),
        }
    }
}

impl Collected {
    /// What steps gave to the term of this name.
    fn of(&self, term: &str) -> &[Value] {
        let found = self.each.iter().find(|given| given.term == term);
        found.map_or(&[], |given| &given.rows)
    }

    fn add(&mut self, term: &str, rows: Vec<Value>) {
        if let Some(given) = self.each.iter_mut().find(|given| given.term == term) {
            given.rows.extend(rows);
        }
    }

    /// What tokens have pondered that halt one by one.
    pub(super) fn pondered(&mut self, rows: Value) {
        self.add(Ponder::NAME, vec![rows]);
        self.settle();
    }

    /// What scores say of who takes a step.
    pub(super) fn compared(&mut self, rows: Value) {
        self.add(Choice::NAME, vec![rows]);
    }

    /// What the last step gave.
    fn last(&mut self) -> impl Iterator<Item = &mut Value> {
        let each = self.each.iter_mut();
        each.flat_map(|given| &mut given.rows[given.settled..])
    }

    /// What the last step gave counts only for tokens for which `open` is positive.
    pub(super) fn only(&mut self, b: &mut Builder, open: Value) -> Result<(), TypeError> {
        for v in self.last() {
            *v = b.push1(WherePositive, &[open, *v])?;
        }
        Ok(())
    }

    /// What the last step gave counts only where `flag` is positive.
    pub(super) fn hold(&mut self, b: &mut Builder, flag: Value) -> Result<(), TypeError> {
        for v in self.last() {
            let zero = nn::constant(b, Exact::zero())?;
            *v = b.push1(Select, &[flag, *v, zero])?;
        }
        for told in &mut self.told {
            told.hold(b, flag)?;
        }
        self.settle();
        Ok(())
    }

    /// What the last step gave counts.
    pub(super) fn settle(&mut self) {
        for given in &mut self.each {
            given.settled = given.rows.len();
        }
        self.told.iter_mut().for_each(Told::settle);
    }

    /// No gradient goes through what there is so far.
    pub(super) fn stop(&mut self, b: &mut Builder) -> Result<(), TypeError> {
        for v in self.each.iter_mut().flat_map(|given| &mut given.rows) {
            *v = b.push1(StopGradient, &[*v])?;
        }
        Ok(())
    }
}

impl Training for GraphBuilder<'_> {
    fn mask(&mut self, b: &mut Builder, place: String) -> Result<Option<(u32, Value)>, TypeError> {
        GraphBuilder::mask(self, b, place)
    }

    fn given(&self, term: &str) -> &[Value] {
        self.collected.of(term)
    }

    fn balances(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.collected.balances)
    }

    fn drift(&mut self, b: &mut Builder) -> Result<Value, BuildError> {
        GraphBuilder::drift(self, b)
    }
}

impl GraphBuilder<'_> {
    /// Looks at a step from `x` to `made`, of a size that is known or computed.
    pub(super) fn collect(
        &mut self,
        b: &mut Builder,
        (e, k): (&EvolveSpec, usize),
        [x, made]: [Value; 2],
        h: Option<Value>,
    ) -> Result<(), BuildError> {
        let new = b.graph().solutions().len();
        let before = std::mem::replace(&mut self.collected.solutions, new);
        if !self.drops {
            return Ok(());
        }
        let outer = (b.site.clone(), b.span);
        let step = StepTaken {
            from: x,
            to: made,
            h,
            known_h: e.h.get(k).cloned(),
            solutions: b.graph().solutions()[before..].to_vec(),
        };
        let objective = &self.spec.objective;
        for term in NAMES.iter().filter_map(|name| objective.find(name)) {
            b.site = Site {
                evolve: e.label.clone(),
                step: Some(k as u32),
                path: term.name().into(),
                ..Site::default()
            }
            .into();
            let mut rows = term.step(self, b, &step)?;
            for v in &mut rows {
                *v = self.over_targets(b, *v)?;
            }
            self.collected.add(term.name(), rows);
        }
        // What terms compute again has solutions of its own, where equations stand in equations.
        self.collected.solutions = b.graph().solutions().len();
        (b.site, b.span) = outer;
        Ok(())
    }

    /// The loss of all tokens: while the model is trained the sum of all terms, else what evaluation computes. `compared`: what each output says,
    /// with what that is compared with.
    pub(super) fn loss(
        &mut self,
        b: &mut Builder,
        compared: &[(Value, Value)],
    ) -> Result<Value, BuildError> {
        let objective = &self.spec.objective;
        let mut outputs = Vec::new();
        for (output, (made, targets)) in self.spec.outputs().zip(compared) {
            outputs.push(Compared {
                output,
                weights: self.counted(b, output, *targets)?,
                predicted: output.kind.predicted(b, *made, *targets)?,
            });
        }
        let missing = || BuildError::Missing("an output".into());
        let first = outputs.first().ok_or_else(missing)?;
        let plain = objective.terms.is_empty() || outputs.len() == 1 && !self.drops;
        if plain || objective.is_plain() {
            let rows = first.predicted.plain(b, self.spec.output.loss)?;
            return Ok(mean(b, rows, first.weights)?);
        }
        let of = |s: &Summand| {
            let named = outputs.iter().find(|o| o.output.label == s.of);
            named.ok_or_else(missing)
        };
        if !self.drops {
            let mut total = Vec::new();
            let only_exits = self.spec.also.iter().all(OutputSpec::is_exit);
            for s in objective.terms.iter().filter(|s| s.term.asks().is_some()) {
                let compared = of(s)?;
                let loss = compared.output.loss;
                let rows = compared.predicted.plain(b, loss)?;
                let value = mean(b, rows, compared.weights)?;
                let name = names::of_output(&s.of, loss.measured());
                self.decided
                    .push((ResultId::Term(&name).to_string(), value));
                // Runs with exits compare with those without.
                let coefficient = match only_exits {
                    true => Exact::one(),
                    false => s.coefficient.clone(),
                };
                if !compared.output.is_exit() {
                    total.push((coefficient, value));
                }
            }
            return Ok(nn::combine(b, &total)?);
        }
        let mut rows = Vec::new();
        for s in &objective.terms {
            rows.push(s.term.rows(self, b, &of(s)?.predicted)?);
        }
        let mut total = Vec::new();
        for (s, rows) in objective.terms.iter().zip(rows) {
            let value = match s.term.is_of_weights() {
                true => rows,
                false => {
                    let weights = self.weights(b, &s.term, of(s)?)?;
                    mean(b, rows, weights)?
                }
            };
            self.decided
                .push((ResultId::Term(&s.name()).to_string(), value));
            total.push((s.coefficient.clone(), value));
        }
        Ok(nn::combine(b, &total)?)
    }

    /// Which rows of a term count. Of a state these are all tokens, or those that are compared.
    fn weights(
        &self,
        b: &mut Builder,
        term: &Term,
        compared: &Compared,
    ) -> Result<Option<Value>, TypeError> {
        match (term.compares(), compared.output.loss.counted()) {
            (None, Counted::All | Counted::OfInput) => self.token_mask(b),
            (Some(_), _) | (None, Counted::Hidden(_) | Counted::Except(_)) => Ok(compared.weights),
        }
    }

    /// The weight of each token, where not all count.
    fn counted(
        &self,
        b: &mut Builder,
        output: &OutputSpec,
        targets: Value,
    ) -> Result<Option<Value>, BuildError> {
        match output.loss.counted() {
            Counted::All => match output.kind.ahead() {
                0 => Ok(None),
                ahead => Ok(Some(nn::all_but_first(b, ahead)?)),
            },
            // Results stand where their positions are in the input, which is shorter than the state.
            Counted::OfInput => {
                let leading = self.spec.begin.embed.leading_rows();
                Ok(Some(nn::all_but_last(b, leading)?))
            }
            Counted::Hidden(token) => {
                let missing = || BuildError::Missing("the input".into());
                let tokens = self.input.ok_or_else(missing)?;
                Ok(Some(b.push1(Equals { to: token }, &[tokens])?))
            }
            Counted::Except(padding) => {
                let padded = b.push1(Equals { to: padding }, &[targets])?;
                let minus = nn::combine(b, &[(Exact::int(-1), padded)])?;
                let by = Exact::one();
                Ok(Some(b.push1(Shift { by }, &[minus])?))
            }
        }
    }
}

/// An output beside its targets.
struct Compared<'s> {
    output: &'s OutputSpec,
    predicted: Predicted,
    /// Which of its rows count.
    weights: Option<Value>,
}

fn mean(b: &mut Builder, rows: Value, weights: Option<Value>) -> Result<Value, TypeError> {
    match weights {
        None => nn::mean_rows(b, rows),
        Some(weights) => nn::weighted_mean(b, rows, weights),
    }
}
