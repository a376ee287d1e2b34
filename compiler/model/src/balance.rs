//! How evenly mixtures of experts are used: the share of each expert, and of it the term `load_balance` of a loss.
//! ```text
//! E Σ_e f_e p_e      f_e: the share of the run's choices that are expert e;  p: the softmax of the router's logits, for a token
//! ```
//! Its mean over tokens is the auxiliary loss of Fedus et al. 2021 ("Switch Transformers", arXiv:2101.03961, equation 4), 1 where all experts are used
//! alike. No derivative goes through f, for choices have none; choices that full experts drop count. Shares, and that of dropped choices, are
//! results of the gradient's graph, where it is known which evaluations of a mixture count.

use super::graph_builder::GraphBuilder;
use super::layers::{Routed, whole};
use super::losses::{Along, LoadBalance, LossTerm};
use super::step_count::StepCount;
use crate::error::BuildError;
use odec_graph::ops::{InverseCount, Maximum, Mul, Recip, SumCols, SumRows};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::ResultId;

impl GraphBuilder<'_> {
    /// Notes what a router chose while the model is trained.
    pub(super) fn routed(
        &mut self,
        b: &mut Builder,
        router: String,
        at: Routed,
    ) -> Result<(), TypeError> {
        if !self.drops {
            return Ok(());
        }
        let balances = self.spec.objective.find(LoadBalance::NAME).is_some();
        let counted = self.counts_evaluations(&b.site.evolve);
        if !balances && !counted {
            return Ok(());
        }
        let used = b.part("balance", |b| share(b, at))?;
        if counted {
            self.tell(ResultId::Shares(&router), used);
            if let Some(taken) = at.taken {
                let share = b.part("balance", |b| dropped(b, at, taken))?;
                self.tell(ResultId::Dropped(&router), share);
            }
        }
        if balances {
            let rows = b.part("balance", |b| balance(b, at, used))?;
            self.collected.balances.push(rows);
        }
        Ok(())
    }

    /// Notes a result's value at an evaluation.
    fn tell(&mut self, result: ResultId, value: Value) {
        let (name, shares) = (result.to_string(), &mut self.collected.shares);
        match shares.iter_mut().find(|(other, _)| *other == name) {
            Some((_, each)) => each.push(value),
            None => shares.push((name, vec![value])),
        }
    }

    /// Whether an evolve evaluates its fields a number of times that is known before.
    fn counts_evaluations(&self, label: &str) -> bool {
        let evolve = self.spec.evolves.iter().find(|e| e.label == label);
        evolve.is_some_and(|e| e.depth == StepCount::Known && !e.iterates())
    }

    /// What is told of routers as results: means over evaluations.
    pub(super) fn shares(&mut self, b: &mut Builder) -> Result<(), BuildError> {
        for (name, each) in std::mem::take(&mut self.collected.shares) {
            let one = Exact::ratio(1, each.len() as i64);
            let terms: Vec<(Exact, Value)> = each.into_iter().map(|v| (one.clone(), v)).collect();
            let mean = nn::combine(b, &terms)?;
            self.decided.push((name, mean));
        }
        Ok(())
    }
}

/// The share of each expert in all choices of a run, of the tokens that take the step at hand.
fn share(b: &mut Builder, at: Routed) -> Result<Value, TypeError> {
    let size = b.ty(at.chosen).rows();
    let used = b.push1(SumRows, &[at.chosen])?;
    let inverse = b.push1(InverseCount { size }, &[])?;
    let mut used = b.push1(Mul, &[used, inverse])?;
    if let Some(taking) = at.among {
        let over = all_over(b, taking)?;
        used = b.push1(Mul, &[used, over])?;
    }
    nn::combine(b, &[(Exact::ratio(1, whole(at.top_k)), used)])
}

/// The share of a run's choices that is not among those `taken`.
fn dropped(b: &mut Builder, at: Routed, taken: Value) -> Result<Value, TypeError> {
    let left = nn::combine(b, &[(Exact::one(), at.chosen), (Exact::int(-1), taken)])?;
    let left = b.push1(SumCols, &[left])?;
    let mean = nn::mean_rows(b, left)?;
    nn::combine(b, &[(Exact::ratio(1, whole(at.top_k)), mean)])
}

/// `E Σ_e f_e p_e` for each token; where only some take the step at hand, the mean over all tokens is that over these.
fn balance(b: &mut Builder, at: Routed, used: Value) -> Result<Value, TypeError> {
    let experts = b.ty(at.chosen).cols();
    let shares = nn::softmax(b, at.logits)?;
    let each = b.push1(Mul, &[shares, used])?;
    let mut sum = b.push1(SumCols, &[each])?;
    if let Some(taking) = at.among {
        let over = all_over(b, taking)?;
        let own = b.push1(Mul, &[taking, over])?;
        sum = b.push1(Mul, &[sum, own])?;
    }
    nn::combine(b, &[(Exact::int(whole(experts)), sum)])
}

/// How many tokens there are for each that takes the step at hand; where none does, as if one did.
fn all_over(b: &mut Builder, taking: Value) -> Result<Value, TypeError> {
    let size = b.ty(taking).rows();
    let share = nn::mean_rows(b, taking)?;
    let one = b.push1(InverseCount { size }, &[])?;
    let share = b.push1(Maximum, &[share, one])?;
    b.push1(Recip, &[share])
}
