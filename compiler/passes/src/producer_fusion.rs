//! Maps that are computed inside the sums over rows that read them.
//!
//! Takes a graph; says for every sum over rows (a gain's gradient, the loss) which maps its kernel evaluates itself,
//! so that they are neither stored nor read. Leaves everything else to `fuse`.

use super::chains::Chains;
use super::facts::{Domain, Facts, Role};
use odec_graph::{Graph, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maps computed inside sums over rows.
///
/// Maps without reductions that are used nowhere else, and, once more, maps whose operands are in memory anyway:
/// parameters, results of other launches, numbers per row, and in the backward pass what the forward pass has kept.
#[derive(Clone, Debug, Default)]
pub struct ProducerFusion {
    /// Sum → the maps computed in it.
    of: BTreeMap<u32, BTreeSet<u32>>,
    /// Those that need no launch of their own.
    pub only_there: BTreeSet<u32>,
}

impl ProducerFusion {
    pub fn new(graph: &Graph, facts: &Facts, chains: &Chains) -> ProducerFusion {
        let pass = |n: u32| graph.node(n).site.pass;
        let mut out = ProducerFusion::default();
        for (n, node) in graph
            .nodes()
            .filter(|(n, _)| *facts.role(*n) == Role::Columns)
        {
            let ty = graph.ty(node.operands[0]);
            let domain = Domain {
                rows: ty.rows(),
                cols: ty.cols(),
            };
            let in_memory = |v: &Value| match facts.role(v.node) {
                Role::Rows(_) if chains.terms.contains_key(&v.node) => true,
                Role::Rows(_) => graph.ty(*v).cols() == 1 || pass(v.node) != pass(n),
                _ => true,
            };
            let mut inside = BTreeSet::new();
            let mut todo = vec![(node.operands[0].node, true)];
            while let Some((p, reader_is_only_there)) = todo.pop() {
                let Some(row) = facts.rows(p).filter(|_| !chains.terms.contains_key(&p)) else {
                    continue;
                };
                let operands = &graph.node(p).operands;
                let only_there = reader_is_only_there && facts.uses(p) == 1;
                let again =
                    row.domain.cols > 1 && pass(p) == pass(n) && operands.iter().all(in_memory);
                let cheap = only_there || again;
                if !cheap || row.reduces || row.domain != domain {
                    continue;
                }
                inside.insert(p);
                if only_there {
                    out.only_there.insert(p);
                }
                let pointwise = operands
                    .iter()
                    .zip(&row.pointwise)
                    .filter(|(_, pointwise)| **pointwise);
                todo.extend(pointwise.map(|(v, _)| (v.node, only_there)));
            }
            out.of.insert(n, inside);
        }
        out
    }

    /// The nodes computed in the launch of a group, rising.
    pub fn with_members(&self, members: &[u32]) -> Vec<u32> {
        let feeders = members.iter().filter_map(|n| self.of.get(n)).flatten();
        let all: BTreeSet<u32> = members.iter().chain(feeders).copied().collect();
        all.into_iter().collect()
    }
}
