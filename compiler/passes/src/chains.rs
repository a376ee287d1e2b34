//! Finds sums that are accumulated in place instead of stored term by term.
//!
//! Takes a graph; says which sums are made by launches that add onto one buffer, and in which order. Leaves the
//! launches to `lower`.

use super::facts::{Facts, combine};
use odec_graph::{Graph, Value};
use std::collections::BTreeMap;

/// Sums whose terms are launches that can add their result in place.
///
/// `combine[1, …, 1](t₁, …, tₙ)` with every `tᵢ` used only there: t₁ writes, the others accumulate, in node order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chains {
    /// Sum node → its terms, in accumulation order.
    pub terms: BTreeMap<u32, Vec<u32>>,
    /// Term → (sum, place in it).
    pub place: BTreeMap<u32, (u32, usize)>,
}

impl Chains {
    pub fn new(graph: &Graph, facts: &Facts) -> Chains {
        let mut out = Chains::default();
        for (n, node) in graph.nodes() {
            if !is_chain(graph, facts, n) {
                continue;
            }
            let mut terms: Vec<u32> = node.operands.iter().map(|v| v.node).collect();
            terms.sort_unstable();
            for (i, t) in terms.iter().enumerate() {
                out.place.insert(*t, (n, i));
            }
            out.terms.insert(n, terms);
        }
        out
    }

    /// The node whose launch finishes a value.
    pub fn finisher(&self, node: u32) -> u32 {
        self.terms
            .get(&node)
            .and_then(|t| t.last())
            .copied()
            .unwrap_or(node)
    }
}

/// Whether a term of a sum can be added in place: used nowhere else, and a launch that accumulates.
pub fn is_chain_term(graph: &Graph, facts: &Facts, v: Value) -> bool {
    facts.role(v.node).accumulates()
        && facts.uses(v.node) == 1
        && graph.node(v.node).types.len() == 1
}

fn is_chain(graph: &Graph, facts: &Facts, n: u32) -> bool {
    let node = graph.node(n);
    combine(&node.op).is_some_and(|c| c.len() >= 2 && c.iter().all(|c| c.is_one()))
        && node
            .operands
            .iter()
            .all(|v| is_chain_term(graph, facts, *v))
}
