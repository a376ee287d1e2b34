//! The order of a general linear method with an exact starting procedure (Butcher 2006, Acta Numerica 15, 157, section 4; Hairer,
//! Nørsett & Wanner 1993, III.8).
//!
//! A starting procedure gives each value `y[0]` an expansion ξ over trees. The method has order p when there is one with ξ = (the state
//! itself) for the state, such that one step takes ξ at t to ξ at t + h up to order p:
//! `(Eξ)(t) = B ηD(t) + V ξ(t)`, `η(t) = A ηD(t) + U ξ(t)` for all trees of at most p vertices. Older states and evaluations at
//! states are then those of the exact solution, as in the order of a multistep method. The equations are linear in ξ(t) when ξ
//! of smaller trees is known; `l (I − V) = 0` with `l u = 1` makes one condition of them, ε(t) = 0.

use super::Glm;
use super::matrix::{Matrix, divided, dot, identity};
use crate::order::{Expansion, expected};
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;
use std::collections::BTreeMap;

/// Trees without some of their branches, with coefficients.
type Pruned = BTreeMap<TreeId, Exact>;

/// The expansion of the state after a step: 1/γ + ε.
pub struct Started {
    method: Glm,
    /// u: coefficients of the empty tree.
    empty: Vec<Exact>,
    /// l.
    left: Vec<Exact>,
    solver: Matrix,
    /// By tree, of the values: ξ.
    values: Vec<Vec<Exact>>,
    /// By tree, of the stages: η, and ηD.
    stages: Vec<Vec<Exact>>,
    products: Vec<Vec<Exact>>,
    /// ε.
    errors: Vec<Exact>,
    /// How a tree's expansion moves by h: the trees that are left when branches are cut and integrated.
    pruned: Vec<Pruned>,
    known: BTreeMap<(usize, Vec<TreeId>), TreeId>,
}

/// `(I − V + u eᵀ)⁻¹` for the unit vector e of the state: it solves `(I − V) x = y` with x 0 at the state, where `l y = 0`.
pub(super) fn solver(v: &Matrix, u: &[Exact], state: usize) -> Option<Matrix> {
    let one = identity(v.len());
    let mut m = one.clone();
    for (i, row) in m.iter_mut().enumerate() {
        for (x, v) in row.iter_mut().zip(&v[i]) {
            *x = &*x - v;
        }
        row[state] = &row[state] + &u[i];
    }
    Some(divided(&m, &one)?.0)
}

impl Started {
    /// `None`: the method is not pre-consistent, or 1 is no simple eigenvalue of V.
    pub fn new(method: &Glm) -> Option<Started> {
        let empty = method.preconsistency()?;
        Some(Started {
            left: method.left(&empty)?,
            solver: solver(&method.v, &empty, method.state)?,
            method: method.clone(),
            empty,
            values: Vec::new(),
            stages: Vec::new(),
            products: Vec::new(),
            errors: Vec::new(),
            pruned: Vec::new(),
            known: BTreeMap::new(),
        })
    }

    /// u: the coefficient of the state in each value.
    pub fn states(&self) -> &[Exact] {
        &self.empty
    }

    /// l: what a change of the values becomes in the state after many steps.
    pub fn left(&self) -> &[Exact] {
        &self.left
    }

    /// ξ of each value, so many steps later on the exact solution.
    pub fn later(&mut self, trees: &Trees, t: TreeId, steps: usize) -> Vec<Exact> {
        self.reach(trees, t);
        let n = Exact::int(steps as i64);
        let times = |from: TreeId| {
            let vertices = trees.order(t) - trees.order(from);
            (0..vertices).fold(Exact::one(), |p, _| &p * &n)
        };
        let whole = (0..trees.order(t)).fold(expected(trees, t), |p, _| &p * &n);
        let of = |(i, empty): (usize, &Exact)| -> Exact {
            let parts = self.pruned[t.0 as usize].iter();
            let parts = parts.map(|(s, c)| &(c * &times(*s)) * &self.values[s.0 as usize][i]);
            &parts.sum::<Exact>() + &(empty * &whole)
        };
        self.empty.iter().enumerate().map(of).collect()
    }

    fn reach(&mut self, trees: &Trees, t: TreeId) {
        while self.values.len() <= t.0 as usize {
            let tree = TreeId(self.values.len() as u32);
            self.extend(trees, tree);
        }
    }

    /// The tree with a branch more.
    fn grafted(&self, trees: &Trees, left: TreeId, right: TreeId) -> Option<TreeId> {
        let mut children = trees.children(left);
        let at = children.partition_point(|c| *c <= right);
        children.insert(at, right);
        self.known.get(&(trees.colour(left), children)).copied()
    }

    fn extend(&mut self, trees: &Trees, t: TreeId) {
        let m = &self.method;
        self.known.insert((trees.colour(t), trees.children(t)), t);
        let parts = trees.parts(t);
        let own = |i: usize| m.field_of[i] == trees.colour(t);
        let product = |i: usize| match parts {
            _ if !own(i) => Exact::zero(),
            None => Exact::one(),
            Some((l, r)) => &self.products[l.0 as usize][i] * &self.stages[r.0 as usize][i],
        };
        let products: Vec<Exact> = (0..m.stages()).map(product).collect();
        let mut pruned = Pruned::new();
        match parts {
            None => {
                pruned.insert(t, Exact::one());
            }
            Some((l, r)) => {
                let whole = expected(trees, r);
                for (left, c) in &self.pruned[l.0 as usize] {
                    let slot = pruned.entry(*left).or_default();
                    *slot = &*slot + &(c * &whole);
                    for (right, d) in &self.pruned[r.0 as usize] {
                        // Smaller than t, or t itself: all are known.
                        if let Some(tree) = self.grafted(trees, *left, *right) {
                            let slot = pruned.entry(tree).or_default();
                            *slot = &*slot + &(c * d);
                        }
                    }
                }
            }
        }
        let exact = expected(trees, t);
        let moved = |i: usize| -> Exact {
            let smaller = pruned.iter().filter(|(s, _)| **s != t);
            let rest: Exact = smaller
                .map(|(s, c)| c * &self.values[s.0 as usize][i])
                .sum();
            &rest + &(&self.empty[i] * &exact)
        };
        let rhs: Vec<Exact> = (0..m.values())
            .map(|i| &dot(&m.b[i], &products) - &moved(i))
            .collect();
        let error = dot(&self.left, &rhs);
        let held = rhs.iter().zip(&self.empty);
        let held: Vec<Exact> = held.map(|(r, u)| r - &(&error * u)).collect();
        let values: Vec<Exact> = self.solver.iter().map(|row| dot(row, &held)).collect();
        let stages = (0..m.stages()).map(|i| &dot(&m.a[i], &products) + &dot(&m.u[i], &values));
        self.stages.push(stages.collect());
        self.products.push(products);
        self.values.push(values);
        self.errors.push(error);
        self.pruned.push(pruned);
    }
}

impl Expansion for Started {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        self.reach(trees, t);
        &expected(trees, t) + &self.errors[t.0 as usize]
    }
}
