//! The orders up to which a method preserves energy and the symplectic form, from its modified equation.
//!
//! For `F = J∇H` the field of u ∘ v and that of v ∘ u belong to one function, with opposite signs (Hairer, Lubich & Wanner 2006,
//! IX.9.3): `H(u ∘ v) = −H(v ∘ u)`. So the modified field is Hamiltonian where `b(u ∘ v) + b(v ∘ u) = 0`, and it keeps H where `∇H·F(t) = −H(t ∘ ·)`,
//! with a leaf of each field hung at the root, sums up to 0 over all trees that differ by the place of the root (Faou, Hairer & Pham 2004;
//! Celledoni, McLachlan, Owren & Quispel 2010). Functions of trees that are halves of u ∘ u are 0. Fields are those of Hamiltonians that are
//! added up; up to an order, methods are called pseudo-symplectic (Aubry & Chartier 1998).

use crate::effective::Reached;
use crate::modified::Modified;
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// Trees of one order that differ by the place of the root: the first of each, and a sign.
struct Free {
    first: Vec<(usize, bool)>,
    /// H is 0.
    superfluous: Vec<bool>,
}

impl Free {
    fn new(m: &Modified, order: usize) -> Option<Free> {
        let trees = m.trees();
        let base = trees.of_order(order).next()?.0 as usize;
        let count = trees.of_order(order).count();
        let mut free = Free {
            first: (0..count).map(|i| (i, false)).collect(),
            superfluous: vec![false; count],
        };
        for (u, v) in halves(trees, order) {
            let place = |u, v| Some(m.cuts().product(trees, u, v)?.0 as usize - base);
            free.join(place(u, v)?, place(v, u)?);
        }
        Some(free)
    }

    /// The first tree, and whether the sign changes on the way to it.
    fn root(&self, mut at: usize) -> (usize, bool) {
        let mut minus = false;
        while self.first[at].0 != at {
            minus ^= self.first[at].1;
            at = self.first[at].0;
        }
        (at, minus)
    }

    fn join(&mut self, a: usize, b: usize) {
        let ((a, s), (b, t)) = (self.root(a), self.root(b));
        if a != b {
            self.first[b] = (a, s == t);
            self.superfluous[a] |= self.superfluous[b];
        } else if s == t {
            self.superfluous[a] = true;
        }
    }
}

/// All u and v with so many vertices together.
fn halves(trees: &Trees, order: usize) -> Vec<(TreeId, TreeId)> {
    let lower = |n: usize| {
        let all = trees.of_order(n);
        all.flat_map(move |u| trees.of_order(order - n).map(move |v| (u, v)))
    };
    let all = (1..=order / 2).flat_map(lower);
    all.filter(|(u, v)| u <= v).collect()
}

/// Whether the terms of an order keep the energy; `None`: there would be too many trees.
fn keeps_energy(m: &mut Modified, order: usize) -> Option<bool> {
    if !m.reach(order + 1) {
        return None;
    }
    let free = Free::new(m, order + 1)?;
    let base = m.trees().of_order(order + 1).next()?.0 as usize;
    let mut sums = vec![Exact::zero(); free.first.len()];
    for (t, c) in m.terms(order) {
        for leaf in m.trees().of_order(1) {
            let with_leaf = m.cuts().product(m.trees(), t, leaf)?;
            let (at, minus) = free.root(with_leaf.0 as usize - base);
            sums[at] = if minus {
                &sums[at] - &c
            } else {
                &sums[at] + &c
            };
        }
    }
    let mut open = sums.iter().zip(&free.superfluous);
    Some(open.all(|(sum, superfluous)| *superfluous || sum.is_zero()))
}

/// Whether the terms of an order are Hamiltonian; `None`: there would be too many trees.
fn is_hamiltonian(m: &mut Modified, order: usize) -> Option<bool> {
    if !m.reach(order) {
        return None;
    }
    let pairs = halves(m.trees(), order);
    let mut opposite = pairs.into_iter().map(|(u, v)| {
        let one = m.cuts().product(m.trees(), u, v)?;
        let two = m.cuts().product(m.trees(), v, u)?;
        let two = m.coefficient(two);
        Some(m.coefficient(one) == -&two)
    });
    opposite.try_fold(true, |all, holds| Some(all && holds?))
}

fn up_to(
    m: &mut Modified,
    most: usize,
    holds: fn(&mut Modified, usize) -> Option<bool>,
) -> Reached {
    for n in m.order() + 1..=most {
        if let Some(exactly) = match holds(m, n) {
            Some(true) => None,
            Some(false) => Some(true),
            None => Some(false),
        } {
            return Reached {
                order: n - 1,
                exactly,
            };
        }
    }
    Reached {
        order: most.max(m.order()),
        exactly: false,
    }
}

/// The order up to which energy is kept, of a method with order 1 at least.
pub fn energy(m: &mut Modified, most: usize) -> Reached {
    up_to(m, most, keeps_energy)
}

/// The order up to which the modified equation is Hamiltonian, of a method with order 1 at least.
pub fn symplectic(m: &mut Modified, most: usize) -> Reached {
    up_to(m, most, is_hamiltonian)
}
