//! Fuses maps into the sums over rows that read them.
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
    /// Those that need no launch of their own: nothing reads them from memory.
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
            let in_memory = |v: &Value| {
                let v = facts.behind(graph, *v);
                match facts.role(v.node) {
                    Role::Rows(_) if chains.terms.contains_key(&v.node) => true,
                    Role::Rows(_) => graph.ty(v).cols() == 1 || pass(v.node) != pass(n),
                    _ => true,
                }
            };
            let computed = |stored: &BTreeSet<u32>| {
                let mut inside = BTreeSet::new();
                let mut todo = vec![(node.operands[0].node, true)];
                while let Some((p, reader_is_only_there)) = todo.pop() {
                    let free = !chains.terms.contains_key(&p) && !stored.contains(&p);
                    let Some(row) = facts.rows(p).filter(|_| free) else {
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
                    let pointwise = operands
                        .iter()
                        .zip(&row.pointwise)
                        .filter(|(_, pointwise)| **pointwise);
                    todo.extend(pointwise.map(|(v, _)| (v.node, only_there)));
                }
                inside
            };
            // What a map of the kernel reads at other elements must be stored before the kernel runs.
            let mut stored = BTreeSet::new();
            let inside = loop {
                let inside = computed(&stored);
                let before = stored.len();
                stored.extend(read_elsewhere(graph, facts, &inside));
                if stored.len() == before {
                    break inside;
                }
            };
            out.of.insert(n, inside);
        }
        out.only_there = out.unread(facts);
        out
    }

    /// The maps of all sums that no launch reads from memory: each of their readers is computed where they are.
    fn unread(&self, facts: &Facts) -> BTreeSet<u32> {
        let mut sums_of: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (sum, inside) in &self.of {
            inside
                .iter()
                .for_each(|p| sums_of.entry(*p).or_default().push(*sum));
        }
        let computes = |launch: u32, p: u32| self.of.get(&launch).is_some_and(|i| i.contains(&p));
        let mut unread = BTreeSet::new();
        // Readers come behind what they read.
        for p in sums_of.keys().rev().copied() {
            let launches = |reader: u32| {
                let own = Some(reader).filter(|r| !unread.contains(r));
                own.into_iter()
                    .chain(sums_of.get(&reader).into_iter().flatten().copied())
            };
            let readers = facts.users(p).iter().copied();
            let is_read = readers.flat_map(launches).any(|l| !computes(l, p));
            if !is_read && !facts.is_output[p as usize] {
                unread.insert(p);
            }
        }
        unread
    }

    /// The nodes computed in the launch of a group, rising.
    pub fn with_members(&self, members: &[u32]) -> Vec<u32> {
        if !members.iter().any(|n| self.of.contains_key(n)) {
            return members.to_vec();
        }
        let feeders = members.iter().filter_map(|n| self.of.get(n)).flatten();
        let all: BTreeSet<u32> = members.iter().chain(feeders).copied().collect();
        all.into_iter().collect()
    }
}

/// The maps among some of which others of them read more than the element at hand.
fn read_elsewhere(graph: &Graph, facts: &Facts, inside: &BTreeSet<u32>) -> Vec<u32> {
    let read = |p: &u32| {
        let pointwise = facts.rows(*p).into_iter().flat_map(|row| &row.pointwise);
        let operands = graph.node(*p).operands.iter().zip(pointwise);
        operands.filter(|(_, pointwise)| !**pointwise)
    };
    let read = inside.iter().flat_map(read).map(|(v, _)| v.node);
    read.filter(|p| inside.contains(p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::only;
    use crate::fuse::{Fusion, Shape, fuse};
    use odec_graph::text::parse;

    /// The names of the maps of a graph that only sums compute; every other row launch stores something.
    #[track_caller]
    fn only_in_sums(lines: &str) -> Vec<&'static str> {
        let text = format!(
            "%x = input() name=x : [B, S, 4]\n%g = parameter() path=g init=ones : [4]\n\
             %p = mul(%x, %g) : [B, S, 4]\n%q = mul(%p, %p) : [B, S, 4]\n{lines}"
        );
        let graph = parse(&text).unwrap_or_else(|e| panic!("{e}"));
        let units = fuse(&Facts::new(&graph), Fusion::On, false);
        for unit in units.in_order.iter().filter(|u| u.shape != Shape::Single) {
            let stores = unit.nodes.iter().any(|n| units.stored.contains(&only(*n)));
            assert!(stores, "{unit:?} of\n{text}");
        }
        let facts = Facts::new(&graph);
        let found = ProducerFusion::new(&graph, &facts, &Chains::new(&graph, &facts)).only_there;
        found
            .iter()
            .map(|n| ["x", "g", "p", "q"][*n as usize])
            .collect()
    }

    /// Were it computed in the sum, the shift would read what nobody has written.
    #[test]
    fn a_map_that_another_reads_at_other_rows_is_stored() {
        let text = "%x = input() name=x : [B, S, 4]\n%g = parameter() path=g init=ones : [4]\n\
                    %p = mul(%x, %g) : [B, S, 4]\n%e = shift_tokens(%p) by=[1] : [B, S, 4]\n\
                    %f = mul(%e, %p) : [B, S, 4]\n%s = sum_rows(%f) : [4]\noutput s = %s\n";
        let graph = parse(text).unwrap_or_else(|e| panic!("{e}"));
        let units = fuse(&Facts::new(&graph), Fusion::On, false);
        let stored: Vec<u32> = units.stored.iter().map(|v| v.node).collect();
        assert_eq!(stored, [0, 1, 2, 5], "x, g, p and the sum");
    }

    #[test]
    fn a_map_is_stored_where_something_reads_it_from_memory() {
        let sum = |of: &str| format!("%s_{of} = sum_rows(%{of}) : [4]\noutput s_{of} = %s_{of}\n");
        let exp = "%e = exp(%p) : [B, S, 4]\noutput e = %e\n";
        // Read twice, by a map of the same sum.
        assert_eq!(only_in_sums(&sum("q")), ["p", "q"]);
        // Read by two sums, each of which computes it.
        assert_eq!(only_in_sums(&(sum("p") + &sum("q"))), ["p", "q"]);
        // Read by a launch, or from outside, as well.
        assert_eq!(only_in_sums(&(sum("q") + exp)), ["q"]);
        assert_eq!(only_in_sums(&(sum("q") + "output p = %p\n")), ["q"]);
        assert_eq!(
            only_in_sums(&(sum("q") + "output q = %q\n")),
            Vec::<&str>::new()
        );
    }
}
