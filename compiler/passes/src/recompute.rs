//! Recomputes cheap values in the backward pass instead of storing them in the forward pass. Takes and gives a graph.
//!
//! A forward map without reductions, all of whose operands are kept anyway (or are parameters, small, or can
//! themselves be recomputed so), is cloned at its backward users: normalised activations from the state and its scale,
//! SiLU products from gate and up. What stands outside all steps is kept: its backward pass follows at once. Exact: a clone does the same operations on the same values. The clone usually
//! fuses with the backward map that reads the same operands, so it costs neither a launch nor a read.
//!
//! `precision` calls it before it rounds what is saved, and then only maps of layers are recomputed ([`Scope::Layers`]): states are not added up from
//! rounded stages, and a history does not lengthen what `revolve` keeps. A clone belongs to the step of its first reader, where `revolve` has its operands.

use super::facts::{Facts, Role};
use super::rewrite::{Map, pruned, rebuild};
use odec_graph::ops::OpKind;
use odec_graph::{Builder, Graph, Pass, Site, TypeError, Value};
use odec_program::Size;
use std::collections::{BTreeMap, BTreeSet};

/// Longest chain of maps that is recomputed only to recompute another.
const DEPTH: u32 = 4;

/// Which maps may be cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of layers and reports, not what schemes make of their results.
    Layers,
    All,
}

/// Clones what need not be kept.
pub fn recompute(graph: &Graph, scope: Scope) -> Result<Option<Graph>, TypeError> {
    let facts = Facts::new(graph);
    let again = worth_recomputing(graph, &facts, scope);
    if again.is_empty() {
        return Ok(pruned(graph));
    }
    let mut clones: BTreeMap<Value, Value> = BTreeMap::new();
    let made = rebuild(graph, |b, _, node, operands, map| {
        if node.site.pass == Pass::Forward {
            return b.copy(graph, node, operands);
        }
        let mut ops = Vec::new();
        for (old, new) in node.operands.iter().zip(operands) {
            ops.push(match again.contains(&old.node) {
                true => clone(b, graph, &again, (&node.site, &mut clones), map, *old)?,
                false => *new,
            });
        }
        b.site = node.site.clone();
        b.span = node.span;
        b.copy(graph, node, &ops)
    })?;
    // Forward maps that were needed only there are left over.
    Ok(Some(made.without_dead()))
}

/// The value computed once more for a reader, on recomputed operands.
fn clone(
    b: &mut Builder,
    graph: &Graph,
    again: &BTreeSet<u32>,
    (reader, clones): (&Site, &mut BTreeMap<Value, Value>),
    map: &Map,
    v: Value,
) -> Result<Value, TypeError> {
    if let Some(c) = clones.get(&v) {
        return Ok(*c);
    }
    let node = graph.node(v.node);
    let mut operands = Vec::new();
    for o in &node.operands {
        operands.push(match again.contains(&o.node) {
            true => clone(b, graph, again, (reader, clones), map, *o)?,
            false => map.get(*o),
        });
    }
    b.site = node.site.clone();
    b.site.pass = Pass::Backward;
    if reader.step.is_some() {
        (b.site.evolve, b.site.step) = (reader.evolve.clone(), reader.step);
    }
    b.span = node.span;
    let c = b.copy(graph, node, &operands)?[0];
    clones.insert(v, c);
    Ok(c)
}

/// The forward maps to clone.
fn worth_recomputing(graph: &Graph, facts: &Facts, scope: Scope) -> BTreeSet<u32> {
    let pass = |n: u32| graph.node(n).site.pass;
    let mut kept: BTreeSet<u32> = (0..graph.len())
        .filter(|n| {
            pass(*n) == Pass::Forward && facts.users(*n).iter().any(|u| pass(*u) == Pass::Backward)
        })
        .collect();
    let mut again = BTreeSet::new();
    let allowed = |n: &u32| scope == Scope::All || !graph.node(*n).site.path.is_empty();
    let in_a_step = |n: &u32| graph.node(*n).site.step.is_some();
    let candidates: Vec<u32> = kept.iter().rev().copied().filter(in_a_step).collect();
    for n in candidates {
        let mut through = Vec::new();
        let found = allowed(&n) && available(graph, facts, &kept, n, DEPTH, &mut through);
        if found && through.iter().all(allowed) {
            kept.remove(&n);
            again.insert(n);
            again.extend(through);
        }
    }
    again
}

/// Whether a large forward map can be had in the backward pass from what is kept; `through` collects maps on the way
/// that are not kept themselves.
fn available(
    graph: &Graph,
    facts: &Facts,
    kept: &BTreeSet<u32>,
    n: u32,
    depth: u32,
    through: &mut Vec<u32>,
) -> bool {
    let maps = match facts.role(n) {
        Role::Rows(rows) => !rows.reduces,
        role => *role == Role::View,
    };
    if !maps || depth == 0 || is_small(graph, n) {
        return false;
    }
    // Rounding what is computed again is no step of its own; rounding what a launch has made would keep it unrounded.
    let depth = match graph.node(n).op {
        OpKind::Bf16(_) if facts.rows(graph.node(n).operands[0].node).is_none() => return false,
        OpKind::Bf16(_) => depth + 1,
        // Nothing is computed for another shape.
        _ if *facts.role(n) == Role::View => depth + 1,
        _ => depth,
    };
    graph.node(n).operands.iter().all(|v| {
        let free = matches!(facts.role(v.node), Role::Source | Role::Scalar)
            || is_small(graph, v.node)
            || kept.contains(&v.node);
        free || (available(graph, facts, kept, v.node, depth - 1, through) && {
            through.push(v.node);
            true
        })
    })
}

/// A number per row, a vector or a scalar.
fn is_small(graph: &Graph, n: u32) -> bool {
    graph
        .node(n)
        .types
        .iter()
        .all(|t| t.cols() == 1 || t.rows() == Size::ONE)
}
