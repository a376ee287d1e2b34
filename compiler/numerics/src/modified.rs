//! Modified equations: the vector field `Σ h^{|t|−1} b(t)/σ(t) F(t)` whose flow is the method (Hairer, Lubich & Wanner 2006,
//! IX.9).
//!
//! Along that flow the derivative of a series c is `∂c(t) = Σ c(trunk) b(branch)` over the edges of t, so that
//! `a = Σ ∂ʲ⁻¹b / j!`: each tree gives b(t) from those of lower orders. On trees without branches the same sums are the logarithm of a
//! product of flows, word by word ([`crate::lie`]).

use crate::cuts::Cuts;
use crate::order::{Expansion, expected};
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// What is known of a tree: `∂ʲ⁻¹b(t) / j!` from j = 1.
type Derivatives = Vec<Exact>;

/// The modified field of a method, coefficient by coefficient.
pub struct Modified<'m> {
    method: &'m mut dyn Expansion,
    trees: Trees,
    cuts: Cuts,
    order: usize,
    known: Vec<Option<Derivatives>>,
}

impl<'m> Modified<'m> {
    /// Of a method with this order, 0 where nothing is known; `trees`: of its kind, none made yet.
    pub fn new(method: &'m mut dyn Expansion, trees: Trees, order: usize) -> Modified<'m> {
        Modified {
            method,
            trees,
            cuts: Cuts::default(),
            order,
            known: Vec::new(),
        }
    }

    /// Makes the trees up to an order; `false`: there would be too many.
    pub fn reach(&mut self, order: usize) -> bool {
        while self.trees.orders() < order {
            if !self.trees.grow() {
                return false;
            }
        }
        self.cuts.extend(&self.trees);
        self.known.resize(self.trees.len(), None);
        true
    }

    pub fn trees(&self) -> &Trees {
        &self.trees
    }
    pub fn cuts(&self) -> &Cuts {
        &self.cuts
    }
    /// The order that the method has.
    pub fn order(&self) -> usize {
        self.order
    }

    /// b of a tree that was made.
    pub fn coefficient(&mut self, t: TreeId) -> Exact {
        self.derivatives(t)[0].clone()
    }

    /// b of all trees up to an order that was reached.
    pub fn field(&mut self, order: usize) -> Vec<Exact> {
        let trees: Vec<TreeId> = (1..=order).flat_map(|n| self.trees.of_order(n)).collect();
        trees.into_iter().map(|t| self.coefficient(t)).collect()
    }

    /// The coefficients b(t)/σ(t) of an order that are not 0.
    pub fn terms(&mut self, order: usize) -> Vec<(TreeId, Exact)> {
        let all: Vec<TreeId> = self.trees.of_order(order).collect();
        let over = |t: &TreeId| Exact::ratio(1, self.trees.symmetry(*t) as i64);
        let over: Vec<Exact> = all.iter().map(over).collect();
        let terms = all.into_iter().zip(over);
        let terms = terms.map(|(t, over)| (t, &self.coefficient(t) * &over));
        terms.filter(|(_, c)| !c.is_zero()).collect()
    }

    fn derivatives(&mut self, t: TreeId) -> &Derivatives {
        if self.known[t.0 as usize].is_none() {
            let found = self.found(t);
            self.known[t.0 as usize] = Some(found);
        }
        self.known[t.0 as usize].as_ref().expect("just found")
    }

    fn found(&mut self, t: TreeId) -> Derivatives {
        let n = self.trees.order(t);
        let mut all = vec![Exact::zero(); n];
        if n <= self.order {
            // As of the equation itself.
            all[n - 1] = expected(&self.trees, t);
            return all;
        }
        for i in 0..self.cuts.of(t).len() {
            let cut = self.cuts.of(t)[i];
            let by = &self.coefficient(cut.branch) * &Exact::int(cut.times);
            if by.is_zero() {
                continue;
            }
            let trunk = self.derivatives(cut.trunk);
            let more: Vec<Exact> = trunk.iter().map(|d| d * &by).collect();
            for (j, d) in more.iter().enumerate() {
                all[j + 1] = &all[j + 1] + &(d * &Exact::ratio(1, j as i64 + 2));
            }
        }
        let higher: Exact = all[1..].iter().cloned().sum();
        all[0] = &self.method.coefficient(&self.trees, t) - &higher;
        all
    }
}
