//! Fusion: which nodes of a graph run in one launch, and in which order launches run.
//!
//! Takes a graph after the graph passes; gives [`Unit`]s in execution order. Row ops over the same rows and columns
//! are joined with their producers, and with row ops of the same evaluation that read the same values, as long as a
//! topological order of the launches remains (`order`). Maps that feed only a sum over rows are computed inside that
//! sum (`producer_fusion`). Sums of products that can be accumulated in place become chains of accumulating launches (`chains`).
//!
//! Fusion is exact: a fused kernel does the same primitive operations in the same order on the same values, only
//! without storing what nobody else reads. Leaves kernels to `body` and `lower`.

use super::chains::Chains;
use super::facts::{Domain, Facts, Role, only};
use super::order::{GroupId, Groups};
use super::predication::Predication;
use super::producer_fusion::ProducerFusion;
use odec_grammar::work;
use odec_graph::ops::OpKind;
use odec_graph::ops::matmul::Layout;
use odec_graph::{Graph, Node, Value};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Most operands of a fused kernel, inputs and outputs.
pub const MAX_OPERANDS: usize = 24;
/// Most scalar expressions of a fused kernel, before equal ones are shared.
pub const MAX_EXPRESSIONS: usize = 200;

/// What runs in one launch; results are the same bits either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fusion {
    #[default]
    On,
    /// Row ops are fused, but none with a contraction ([`mod@super::epilogue_fusion`]).
    Rows,
    /// One launch per node: for tests of fusion.
    Off,
}

/// What becomes one launch (with the packing it needs).
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Nodes computed in it, rising. Of a sum over rows, the sum is the last and the others are maps that feed it;
    /// such a map may also be computed elsewhere.
    pub nodes: Vec<u32>,
    pub shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Rows(Domain),
    /// Any other launch: of the last node.
    Single,
}

/// The units of a graph, and how sums are accumulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Units {
    pub in_order: Vec<Unit>,
    pub chains: Chains,
    /// Values that some unit reads without computing them, and results: they are stored.
    pub stored: BTreeSet<Value>,
    /// Where nodes need not be computed; the flags are stored.
    pub guards: Predication,
}

/// Cuts a graph into launches. Where contractions can store their results in bf16 (`halves`), the rounding of one that nothing else reads is
/// left to it, and not joined with other maps.
pub fn fuse(facts: &Facts, fusion: Fusion, halves: bool) -> Units {
    let graph = facts.graph();
    let chains = Chains::new(graph, facts);
    let producers = match fusion {
        Fusion::On | Fusion::Rows => ProducerFusion::new(graph, facts, &chains),
        Fusion::Off => ProducerFusion::default(),
    };
    let guards = Predication::new(graph, facts);
    let mut state = State::new(graph, facts, &guards, &chains, &producers);
    if halves && fusion == Fusion::On {
        state.apart = roundings_of_products(graph, facts, &chains);
    }
    if fusion != Fusion::Off {
        state.join_all();
    }
    let in_order: Vec<Unit> = state
        .groups
        .in_order()
        .map(|g| {
            let nodes = producers.with_members(&state.groups.members[g]);
            let last = *nodes.last().expect("groups in the order have members");
            let shape = match facts.rows(last) {
                Some(_) => Shape::Rows(domain_of(facts, &nodes)),
                None => Shape::Single,
            };
            Unit { nodes, shape }
        })
        .collect();
    let stored = graph.outputs().iter().map(|(_, v)| facts.behind(graph, *v));
    let mut stored: Vec<Value> = stored.collect();
    for unit in &in_order {
        let operands = unit.nodes.iter().flat_map(|n| &graph.node(*n).operands);
        let outside = operands.filter(|v| unit.nodes.binary_search(&v.node).is_err());
        stored.extend(outside.map(|v| facts.behind(graph, *v)));
    }
    let made = |n: &u32| facts.rows(*n).is_some();
    stored.extend(guards.flags().into_iter().filter(made).map(only));
    let stored: BTreeSet<Value> = stored.into_iter().collect();
    debug_assert!(
        in_order.iter().all(|unit| unit.shape == Shape::Single
            || unit.nodes.iter().any(|n| stored.contains(&only(*n)))),
        "every launch over rows stores something"
    );
    Units {
        in_order,
        chains,
        stored,
        guards,
    }
}

/// The domain of joined row ops: that of the widest.
fn domain_of(facts: &Facts, nodes: &[u32]) -> Domain {
    let domains = nodes
        .iter()
        .filter_map(|n| facts.rows(*n))
        .map(|r| r.domain);
    domains
        .max_by_key(|d| d.cols)
        .expect("row ops have a domain")
}

/// Roundings to bf16 of a contraction's result that nothing else reads.
fn roundings_of_products(graph: &Graph, facts: &Facts, chains: &Chains) -> BTreeSet<u32> {
    let product = |v: &Value| {
        let alone = facts.uses(v.node) == 1 && !facts.is_output[v.node as usize];
        let chained = chains.place.contains_key(&v.node) || chains.terms.contains_key(&v.node);
        alone
            && !chained
            && matches!(graph.node(v.node).op, OpKind::MatMul(m) if m.layout != Layout::Tn)
    };
    let rounded = |(n, node): (u32, &Node)| {
        matches!(node.op, OpKind::Bf16(_))
            && product(&node.operands[0])
            && !facts.is_output[n as usize]
    };
    graph
        .nodes()
        .filter(|n| rounded((n.0, n.1)))
        .map(|(n, _)| n)
        .collect()
}

struct State<'a> {
    graph: &'a Graph,
    facts: &'a Facts<'a>,
    guards: &'a Predication,
    groups: Groups,
    /// What is not joined with anything.
    apart: BTreeSet<u32>,
}

/// A number for the neighbourhood of each node.
fn places(graph: &Graph) -> Vec<u32> {
    let mut known = FxHashMap::default();
    let sites = graph.nodes().map(|(_, node)| node.site.neighbourhood());
    sites
        .map(|place| {
            let next = known.len() as u32;
            *known.entry(place).or_insert(next)
        })
        .collect()
}

impl<'a> State<'a> {
    fn new(
        graph: &'a Graph,
        facts: &'a Facts<'a>,
        guards: &'a Predication,
        chains: &Chains,
        producers: &ProducerFusion,
    ) -> State<'a> {
        let is_launch = |n: u32| {
            let passive = matches!(facts.role(n), Role::Source | Role::Scalar | Role::View)
                || chains.terms.contains_key(&n);
            !passive && !producers.only_there.contains(&n)
        };
        let members = (0..graph.len())
            .filter(|n| is_launch(*n))
            .map(|n| vec![n])
            .collect();
        let depends = |n: u32| {
            let computed = producers.with_members(&[n]);
            let read = computed.iter().flat_map(|n| &graph.node(*n).operands);
            let outside = read.filter(|v| computed.binary_search(&v.node).is_err());
            let made = outside.map(|v| chains.finisher(facts.behind(graph, *v).node));
            let mut out: Vec<u32> = made.collect();
            if let Some((sum, i)) = chains.place.get(&n).filter(|(_, i)| *i > 0) {
                out.push(chains.terms[sum][i - 1]);
            }
            // A launch is passed over only by a flag that is known by then: one may not move behind what it guards.
            out.extend(guards.of(n).range(..n));
            out
        };
        let groups = Groups::new(graph.len() as usize, members, depends);
        State {
            graph,
            facts,
            guards,
            groups,
            apart: BTreeSet::new(),
        }
    }

    /// Joins every row op with its producers, then with its neighbours that read the same values.
    fn join_all(&mut self) {
        let (graph, facts) = (self.graph, self.facts);
        for n in 0..self.graph.len() {
            if self.facts.rows(n).is_none() || self.groups.of(n).is_none() {
                continue;
            }
            for v in &graph.node(n).operands {
                self.try_join(v.node, n);
            }
        }
        let near = places(graph);
        // Maps so far that read large values of each node, by place.
        let mut readers: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for n in 0..self.graph.len() {
            let node = graph.node(n);
            for v in node.operands.iter().filter(|_| facts.rows(n).is_some()) {
                if !self.is_large(*v) {
                    continue;
                }
                let before = readers.get(&(v.node, near[n as usize]));
                for m in before.into_iter().flatten() {
                    self.try_join(*m, n);
                }
            }
            let read = node.operands.iter().filter(|_| facts.rows(n).is_some());
            for v in read.filter(|v| self.is_large(**v)) {
                let here = readers.entry((v.node, near[n as usize])).or_default();
                here.push(n);
            }
        }
    }

    /// Sharing a read is worth a join for whole rows, not for gains and scalars.
    fn is_large(&self, v: Value) -> bool {
        let ty = self.graph.ty(v);
        ty.rows() != odec_program::Size::ONE && ty.cols() > 1
    }

    fn try_join(&mut self, a: u32, b: u32) {
        let apart = self.apart.contains(&a) || self.apart.contains(&b);
        if apart || !self.meet(a, b) || self.guards.of(a) != self.guards.of(b) {
            return;
        }
        let row_group = |n: u32| self.facts.rows(n).and(self.groups.of(n));
        let (Some(ga), Some(gb)) = (row_group(a), row_group(b)) else {
            return;
        };
        // Asked first, as most of many readers of one value lie too far apart.
        if ga == gb || !self.groups.are_near(ga, gb) {
            return;
        }
        work::add(1);
        if self.fits(ga, gb) {
            self.groups.merge(ga, gb);
        }
    }

    /// Forward and backward ops are joined only where the passes meet, outside all steps: elsewhere a result for the
    /// backward pass would be made, and kept, from the forward pass on.
    fn meet(&self, a: u32, b: u32) -> bool {
        let (a, b) = (&self.graph.node(a).site, &self.graph.node(b).site);
        a.pass == b.pass || (a.step.is_none() && b.step.is_none())
    }

    /// Whether the joined kernel can be written: one domain, reductions at full width, nothing read across elements
    /// that is computed here, within the limits.
    fn fits(&self, a: GroupId, b: GroupId) -> bool {
        let (a, b) = (&self.groups.members[a], &self.groups.members[b]);
        let mut nodes = [&a[..], b].concat();
        nodes.sort_unstable();
        let has = |n: u32| nodes.binary_search(&n).is_ok();
        let rows = |n: &u32| {
            self.facts
                .rows(*n)
                .expect("members of row groups are row ops")
        };
        // Asked first: a sum may have very many terms.
        let mut inputs: Vec<Value> = Vec::new();
        for v in nodes.iter().flat_map(|n| &self.graph.node(*n).operands) {
            work::add(1);
            let read = !has(v.node) && *self.facts.role(v.node) != Role::Scalar;
            if read && !inputs.contains(v) {
                inputs.push(*v);
            }
            if inputs.len() > MAX_OPERANDS {
                return false;
            }
        }
        let domain = domain_of(self.facts, &nodes);
        let same = |n: &u32| {
            let r = rows(n);
            let narrow = r.domain.cols == 1 && !r.reduces && !r.indexes;
            r.domain.rows == domain.rows && (r.domain.cols == domain.cols || narrow)
        };
        let local = |n: &u32| {
            let operands = self.graph.node(*n).operands.iter().zip(&rows(n).pointwise);
            operands.into_iter().all(|(v, pointwise)| {
                let from = self.facts.behind(self.graph, *v);
                (*pointwise && from == *v) || !has(from.node)
            })
        };
        if !nodes.iter().all(|n| same(n) && local(n))
            || nodes.iter().map(|n| rows(n).nodes).sum::<usize>() > MAX_EXPRESSIONS
        {
            return false;
        }
        let read_outside = |n: &&u32| {
            let users = self.facts.users(**n);
            self.facts.is_output[**n as usize] || users.iter().any(|u| !has(*u))
        };
        inputs.len() + nodes.iter().filter(read_outside).count() <= MAX_OPERANDS
    }
}
