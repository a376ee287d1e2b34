//! How evenly mixtures of experts are used: the share of each expert, and of it the term `load_balance` of a loss.
//! ```text
//! E Σ_e f_e p_e      f_e: the share of the run's choices that are expert e;  p: the softmax of the router's logits, for a token
//! ```
//! Its mean over tokens is the auxiliary loss of Fedus et al. 2021 ("Switch Transformers", arXiv:2101.03961, equation 4), 1 where all experts are used
//! alike. No derivative goes through f, for choices have none; choices that full experts drop count. Shares, and that of dropped choices, are
//! results of the gradient's graph, where it is known which evaluations of a mixture count: in routed steps those of the tokens that take them.

use super::evolve::EvolveSpec;
use super::graph_builder::GraphBuilder;
use super::layers::{Routed, whole};
use super::losses::{Along, LoadBalance, LossTerm};
use super::step_count::StepCount;
use crate::error::BuildError;
use odec_graph::ops::{InverseCount, Maximum, Mul, Recip, Select, Shift, SumCols, SumRows};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::{ResultId, Size};

/// What is told of a router: its shares of each expert, or of what is dropped.
pub(super) struct Told {
    /// Of the result.
    name: String,
    each: Vec<Evaluated>,
    /// How many count, whatever is passed over from now on.
    settled: usize,
    /// How many tokens a run has.
    rows: Size,
}

/// At an evaluation, of the choices that all tokens would make,
struct Evaluated {
    share: Value,
    /// and the share of tokens that make one, where not all do.
    tokens: Option<Value>,
}

impl Told {
    /// What is not settled counts where `flag` is positive.
    pub(super) fn hold(&mut self, b: &mut Builder, flag: Value) -> Result<(), TypeError> {
        for e in &mut self.each[self.settled..] {
            for v in std::iter::once(&mut e.share).chain(&mut e.tokens) {
                let zero = nn::constant(b, Exact::zero())?;
                *v = b.push1(Select, &[flag, *v, zero])?;
            }
        }
        Ok(())
    }

    pub(super) fn settle(&mut self) {
        self.settled = self.each.len();
    }

    /// Of all choices that were made; 0 where none was.
    fn result(&self, b: &mut Builder) -> Result<Value, TypeError> {
        let all = |c: Exact| self.each.iter().map(move |e| (c.clone(), e.share));
        let of_some = self.each.iter().filter_map(|e| e.tokens);
        let of_some: Vec<(Exact, Value)> = of_some.map(|v| (Exact::one(), v)).collect();
        if of_some.is_empty() {
            let count = Exact::ratio(1, self.each.len() as i64);
            return nn::combine(b, &all(count).collect::<Vec<_>>());
        }
        let whole = self.each.len() - of_some.len();
        let sum = nn::combine(b, &all(Exact::one()).collect::<Vec<_>>())?;
        let some = nn::combine(b, &of_some)?;
        let by = Exact::int(whole as i64);
        let tokens = b.push1(Shift { by }, &[some])?;
        let over = one_over(b, tokens, self.rows)?;
        b.push1(Mul, &[sum, over])
    }
}

impl GraphBuilder<'_> {
    /// Notes what a router chose while the model is trained; `router` is the path of one whose shares are told.
    pub(super) fn routed(
        &mut self,
        b: &mut Builder,
        router: Option<&str>,
        at: Routed,
    ) -> Result<(), TypeError> {
        if !self.drops {
            return Ok(());
        }
        let balances = self.spec.objective.find(LoadBalance::NAME).is_some();
        let told = router.filter(|_| self.counts_evaluations(&b.site.evolve));
        if !balances && told.is_none() {
            return Ok(());
        }
        let used = b.part("balance", |b| share(b, at))?;
        if let Some(router) = told {
            self.tell(b, ResultId::Shares(router), at, used)?;
            if let Some(taken) = at.taken {
                let share = b.part("balance", |b| dropped(b, at, taken))?;
                self.tell(b, ResultId::Dropped(router), at, share)?;
            }
        }
        if balances {
            let rows = b.part("balance", |b| balance(b, at, used))?;
            self.collected.balances.push(rows);
        }
        Ok(())
    }

    /// Notes a result's value at an evaluation.
    fn tell(
        &mut self,
        b: &mut Builder,
        result: ResultId,
        at: Routed,
        share: Value,
    ) -> Result<(), TypeError> {
        let tokens = at.among.map(|taking| nn::mean_rows(b, taking));
        let evaluated = Evaluated {
            share,
            tokens: tokens.transpose()?,
        };
        let (name, all) = (result.to_string(), &mut self.collected.told);
        match all.iter_mut().find(|told| told.name == name) {
            Some(told) => told.each.push(evaluated),
            None => all.push(Told {
                name,
                each: vec![evaluated],
                settled: 0,
                rows: b.ty(at.chosen).rows(),
            }),
        }
        Ok(())
    }

    /// Whether it is known which evaluations of an evolve's fields count.
    fn counts_evaluations(&self, label: &str) -> bool {
        let evolve = self.spec.evolves.iter().find(|e| e.label == label);
        let known = |e: &EvolveSpec| match e.depth {
            StepCount::Known | StepCount::Routed(_) => !e.iterates(),
            StepCount::Adaptive(_) | StepCount::Random(_) | StepCount::Halting(_) => false,
        };
        evolve.is_some_and(known)
    }

    /// What is told of routers as results: means over evaluations, each as many tokens as it is of.
    pub(super) fn shares(&mut self, b: &mut Builder) -> Result<(), BuildError> {
        for told in std::mem::take(&mut self.collected.told) {
            let result = told.result(b)?;
            self.decided.push((told.name, result));
        }
        Ok(())
    }
}

/// The share of each expert in as many choices as all tokens of a run would make.
fn share(b: &mut Builder, at: Routed) -> Result<Value, TypeError> {
    let size = b.ty(at.chosen).rows();
    let used = b.push1(SumRows, &[at.chosen])?;
    let inverse = b.push1(InverseCount { size }, &[])?;
    let used = b.push1(Mul, &[used, inverse])?;
    nn::combine(b, &[(Exact::ratio(1, whole(at.top_k)), used)])
}

/// The share of these that is not among those `taken`.
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
        let (tokens, size) = (nn::mean_rows(b, taking)?, b.ty(taking).rows());
        let over = one_over(b, tokens, size)?;
        // Once for the share of each expert, once for the mean over tokens.
        for factor in [over, over, taking] {
            sum = b.push1(Mul, &[sum, factor])?;
        }
    }
    nn::combine(b, &[(Exact::int(whole(experts)), sum)])
}

/// 1 over a share of so many tokens; where there are none, as if there were one.
fn one_over(b: &mut Builder, share: Value, size: Size) -> Result<Value, TypeError> {
    let one = b.push1(InverseCount { size }, &[])?;
    let share = b.push1(Maximum, &[share, one])?;
    b.push1(Recip, &[share])
}
