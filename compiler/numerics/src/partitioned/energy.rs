//! The order of the energy error of one step: `H(q₁, p₁) − H(q₀, p₀) = O(hⁿ)` for all `H = T(p) + U(q)`, `A = T'`, `B = −U'`.
//!
//! T and U of the result are sums over trees without a root: U at a vertex of B whose branches are the expansion of q, T at one of A
//! whose branches are that of p. Both are the same tensors, contracted along the edges, with opposite signs. So the energy is kept
//! in hⁿ when, for each tree of n + 1 vertices, the products of the branches' coefficients, summed over the vertices of A, are those summed over the
//! vertices of B (compare Faou, Hairer & Pham 2004; Hairer, Lubich & Wanner 2006, IX.9).

use super::{A, B, Partitioned};
use crate::order::{Expansion, Weights};
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;
use std::collections::BTreeMap;

/// A tree as a graph.
struct Graph {
    colour: Vec<usize>,
    neighbours: Vec<Vec<usize>>,
}

impl Graph {
    fn of(trees: &Trees, t: TreeId) -> Graph {
        let mut g = Graph {
            colour: vec![trees.colour(t)],
            neighbours: vec![Vec::new()],
        };
        let mut open = vec![(t, 0)];
        while let Some((tree, vertex)) = open.pop() {
            for child in trees.children(tree) {
                let number = g.colour.len();
                g.colour.push(trees.colour(child));
                g.neighbours.push(vec![vertex]);
                g.neighbours[vertex].push(number);
                open.push((child, number));
            }
        }
        g
    }

    /// The tree that hangs at a vertex, seen from a neighbour.
    fn branch(&self, vertex: usize, from: usize, known: &Known) -> Option<TreeId> {
        let below = self.neighbours[vertex].iter().filter(|n| **n != from);
        let children: Option<Vec<TreeId>> = below.map(|n| self.branch(*n, vertex, known)).collect();
        let mut children = children?;
        children.sort();
        known.get(&(self.colour[vertex], children)).copied()
    }
}

type Known = BTreeMap<(usize, Vec<TreeId>), TreeId>;

/// The power of h in which a step changes the energy first, with p as the velocity or momentum at the time of q; `None`: none up to `up_to`.
pub fn first_change(m: &Partitioned, up_to: usize) -> Option<usize> {
    let mut weights = Weights::new(m.tableau())?;
    let mut trees = m.trees();
    let mut known = Known::new();
    for n in 1..=up_to + 1 {
        if !trees.grow() {
            return None;
        }
        for t in trees.of_order(n) {
            known.insert((trees.colour(t), trees.children(t)), t);
        }
        let roots = trees.of_order(n).filter(|t| trees.colour(*t) == B);
        for t in roots.filter(|_| n > 1) {
            let graph = Graph::of(&trees, t);
            let mut balance = Exact::zero();
            for (v, colour) in graph.colour.iter().enumerate() {
                let mut product = Exact::one();
                for neighbour in &graph.neighbours[v] {
                    let branch = graph.branch(*neighbour, v, &known)?;
                    product = &product * &weights.coefficient(&trees, branch);
                }
                balance = match *colour {
                    A => &balance + &product,
                    _ => &balance - &product,
                };
            }
            if !balance.is_zero() {
                return Some(n - 1);
            }
        }
    }
    None
}
