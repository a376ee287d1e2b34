//! Finds values that are only read by the side of a `select` that is not chosen, so that a run can skip them.
//!
//! Takes a graph; says of every node which flags, where they are not positive, leave its results unread. Leaves it to `lower` to
//! give launches one of them as their guard, and to the runtime to pass over them: an optimisation that changes no bit, because a
//! `select` looks at the chosen side alone. `fuse` joins only nodes with the same flags.

use super::facts::{Facts, Role};
use odec_graph::ops::OpKind;
use odec_graph::{Graph, Value};
use std::collections::BTreeSet;

/// The flags of every node, by their node numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predication {
    of: Vec<BTreeSet<u32>>,
}

impl Predication {
    pub fn new(graph: &Graph, facts: &Facts) -> Predication {
        // Nothing is known of what nobody has been seen to read.
        let mut of: Vec<Option<BTreeSet<u32>>> = vec![None; graph.len() as usize];
        for (n, node) in (0..graph.len()).rev().map(|n| (n, graph.node(n))) {
            let own = match facts.is_output[n as usize] {
                true => BTreeSet::new(),
                false => of[n as usize].take().unwrap_or_default(),
            };
            for (i, v) in node.operands.iter().enumerate() {
                let here = match (&node.op, i) {
                    (OpKind::Select(_), 1) => {
                        let flags = implied(graph, facts, node.operands[0]);
                        flags.chain(own.iter().copied()).collect()
                    }
                    _ => own.clone(),
                };
                let met = match of[v.node as usize].take() {
                    None => here,
                    Some(earlier) => earlier.intersection(&here).copied().collect(),
                };
                of[v.node as usize] = Some(met);
            }
            of[n as usize] = Some(own);
        }
        Predication {
            of: of.into_iter().map(Option::unwrap_or_default).collect(),
        }
    }

    /// Where any of these is not positive, nothing that is read needs the node.
    pub fn of(&self, node: u32) -> &BTreeSet<u32> {
        &self.of[node as usize]
    }

    /// The same for all of some nodes.
    pub fn of_all(&self, nodes: impl Iterator<Item = u32>) -> BTreeSet<u32> {
        let met = nodes.map(|n| self.of(n).clone());
        met.reduce(|a, b| a.intersection(&b).copied().collect())
            .unwrap_or_default()
    }

    /// All flags of all nodes.
    pub fn flags(&self) -> BTreeSet<u32> {
        self.of.iter().flatten().copied().collect()
    }
}

/// The flag, and those without which it is not positive: `select(g, t, c)` with c ≤ 0 needs g.
fn implied<'g>(graph: &'g Graph, facts: &'g Facts, flag: Value) -> impl Iterator<Item = u32> + 'g {
    let before = |v: &Value| {
        let node = graph.node(v.node);
        let needs = matches!(node.op, OpKind::Select(_)) && not_positive(graph, node.operands[2]);
        needs.then(|| node.operands[0])
    };
    let flags = std::iter::successors(Some(flag), before);
    flags
        .map(|v| facts.behind(graph, v).node)
        .filter(|n| *facts.role(*n) != Role::Scalar)
}

fn not_positive(graph: &Graph, v: Value) -> bool {
    match &graph.node(v.node).op {
        OpKind::Constant(c) => c.value.is_zero() || c.value.is_negative(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use odec_graph::ops::{Constant, Exp, Input, Log, Select};
    use odec_graph::{Builder, Exact, TensorType};

    #[test]
    fn a_node_is_needed_where_any_of_its_readers_is() {
        let mut b = Builder::new();
        let input = |b: &mut Builder, name: &str, ty| {
            let name = name.into();
            b.push1(Input { name, ty }, &[]).expect("an input")
        };
        let x = input(&mut b, "x", TensorType::state(2));
        let f = input(&mut b, "f", TensorType::scalar());
        let t = input(&mut b, "t", TensorType::scalar());
        let value = Exact::zero();
        let zero = b.push1(Constant { value }, &[]).expect("a number");
        let g = b.push1(Select, &[f, t, zero]).expect("a flag below f");
        // `one` is read inside both regions, `both` in the inner one, `all` in and outside of them.
        let [one, both, all] = [(); 3].map(|()| b.push1(Exp, &[x]).expect("a map"));
        let [made, inner] = [b.push1(Log, &[one]), b.push1(Log, &[both])].map(|v| v.expect("map"));
        let held = b.push1(Select, &[g, inner, one]).expect("held");
        let held = b.push1(Select, &[f, held, all]).expect("held");
        let other = b.push1(Select, &[f, made, all]).expect("held");
        b.output("y", held);
        b.output("z", other);
        let graph = b.finish();
        let guards = Predication::new(&graph, &Facts::new(&graph));
        let of = |v: Value| guards.of(v.node).iter().copied().collect::<Vec<_>>();
        assert_eq!(of(one), [f.node]);
        assert_eq!(of(both), [f.node, g.node]);
        assert_eq!(of(inner), [f.node, g.node]);
        assert!(of(all).is_empty() && of(x).is_empty() && of(f).is_empty());
        assert_eq!(of(t), [f.node]);
    }
}
