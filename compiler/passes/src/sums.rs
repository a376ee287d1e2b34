//! Groups terms of sums so that they can be accumulated in place. Takes and gives a graph.
//!
//! `Σ rᵢ + Σ tⱼ = Σ rᵢ + s, s = Σ tⱼ`, where the `tⱼ` are products, sums over rows or scatter-adds used only here:
//! `s` becomes one buffer that each of them adds to, and no term is ever stored by itself. Nested sums that are used
//! once are opened first. Not exact in floating point: it changes the order of summation.

use super::chains::is_chain_term;
use super::facts::{Facts, combine};
use super::rewrite::{pruned, rebuild};
use odec_grammar::work;
use odec_graph::ops::Combine;
use odec_graph::{Exact, Graph, TypeError, Value};
use std::collections::BTreeMap;

/// Groups accumulable terms.
pub fn group_sums(graph: &Graph) -> Result<Option<Graph>, TypeError> {
    let grouped = grouped(graph);
    if grouped.is_empty() {
        return Ok(pruned(graph));
    }
    let made = rebuild(graph, |b, n, node, operands, map| {
        let Some((chain, rest)) = grouped.get(&n) else {
            return b.copy(graph, node, operands);
        };
        let plain = |n: usize| Combine::of(vec![Exact::one(); n]);
        let s = b.push1(plain(chain.len()), &map.all(chain))?;
        if rest.is_empty() {
            return Ok(vec![s]);
        }
        let terms: Vec<Value> = map.all(rest).into_iter().chain([s]).collect();
        b.push(plain(terms.len()), &terms)
    })?;
    // Opened inner sums are left over.
    Ok(Some(made.without_dead()))
}

/// The sums to group, each with the terms that one buffer takes, and the others.
fn grouped(graph: &Graph) -> BTreeMap<u32, (Vec<Value>, Vec<Value>)> {
    let facts = Facts::new(graph);
    let inner = opened(graph, &facts);
    // An inner sum is grouped as part of the outer one, and left over: a chain of sums is opened once.
    let outer = |n: &u32| is_plain_sum(graph, *n) && !inner[*n as usize];
    let split = |n: u32| {
        let mut leaves = Vec::new();
        open(graph, &facts, n, &mut leaves);
        let (chain, rest): (Vec<Value>, Vec<Value>) = leaves
            .into_iter()
            .partition(|v| is_chain_term(graph, &facts, *v));
        let whole = rest.is_empty() && chain.len() == graph.node(n).operands.len();
        (chain.len() >= 2 && !whole).then_some((n, (chain, rest)))
    };
    let sums = (0..graph.len()).filter(outer);
    sums.filter_map(split).collect()
}

/// A sum of two or more terms, all with coefficient one.
fn is_plain_sum(graph: &Graph, n: u32) -> bool {
    combine(&graph.node(n).op).is_some_and(|c| c.len() >= 2 && c.iter().all(Exact::is_one))
}

/// Which sums are opened as part of another.
fn opened(graph: &Graph, facts: &Facts) -> Vec<bool> {
    let mut inner = vec![false; graph.len() as usize];
    for (_, node) in graph.nodes().filter(|(n, _)| is_plain_sum(graph, *n)) {
        for v in node.operands.iter().filter(|v| opens(graph, facts, **v)) {
            inner[v.node as usize] = true;
        }
    }
    inner
}

/// Whether a term of a sum is a sum of its own, used only there.
fn opens(graph: &Graph, facts: &Facts, v: Value) -> bool {
    is_plain_sum(graph, v.node) && facts.uses(v.node) == 1
}

/// The terms of a sum and of all that it opens, from left to right.
fn open(graph: &Graph, facts: &Facts, n: u32, leaves: &mut Vec<Value>) {
    let mut left: Vec<Value> = graph.node(n).operands.iter().rev().copied().collect();
    while let Some(v) = left.pop() {
        work::add(1);
        match opens(graph, facts, v) {
            true => left.extend(graph.node(v.node).operands.iter().rev()),
            false => leaves.push(v),
        }
    }
}
