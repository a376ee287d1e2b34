//! How evenly mixtures of experts are used, for the term `load_balance` of a loss.
//! ```text
//! E Σ_e f_e p_e      f_e: the share of the run's choices that are expert e;  p: the softmax of the router's logits, for a token
//! ```
//! Its mean over tokens is the auxiliary loss of Fedus et al. 2021 ("Switch Transformers", arXiv:2101.03961, equation 4), 1 where all experts are used
//! alike. No derivative goes through f, for choices have none.

use super::graph_builder::GraphBuilder;
use super::layers::Routed;
use super::losses::{LoadBalance, LossTerm};
use odec_graph::ops::{Exp, InverseCount, Mul, Recip, SumCols, SumRows};
use odec_graph::{Builder, Exact, TypeError, Value, nn};

impl GraphBuilder<'_> {
    /// Notes what a router chose, where the loss asks for it.
    pub(super) fn routed(&mut self, b: &mut Builder, at: Routed) -> Result<(), TypeError> {
        if self.drops && self.spec.objective.find(LoadBalance::NAME).is_some() {
            let rows = b.part("balance", |b| balance(b, at))?;
            self.collected.balances.push(rows);
        }
        Ok(())
    }
}

/// `E Σ_e f_e p_e` for each token.
fn balance(b: &mut Builder, at: Routed) -> Result<Value, TypeError> {
    let (size, experts) = (b.ty(at.chosen).rows(), b.ty(at.chosen).cols());
    let used = b.push1(SumRows, &[at.chosen])?;
    let inverse = b.push1(InverseCount { size }, &[])?;
    let used = b.push1(Mul, &[used, inverse])?;
    let shifted = nn::normaliser(b, at.logits)?.shifted;
    let e = b.push1(Exp, &[shifted])?;
    let total = b.push1(SumCols, &[e])?;
    let over = b.push1(Recip, &[total])?;
    let shares = b.push1(Mul, &[e, over])?;
    let each = b.push1(Mul, &[shares, used])?;
    let sum = b.push1(SumCols, &[each])?;
    let whole = |n: u64| n.try_into().unwrap_or(i64::MAX);
    nn::combine(b, &[(Exact::ratio(whole(experts), whole(at.top_k)), sum)])
}
