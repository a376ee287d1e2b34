//! Rounds to bf16 what contractions and attention read. Takes and gives a graph, after derivatives are taken.
//!
//! | value | precision |
//! |---|---|
//! | factors of every contraction, those of mixtures among them, forward and backward; weights among them, while they are packed | bf16 |
//! | q, k, v that attention reads, forward and backward, and its result and that one's gradient where the backward pass reads them; kept keys and values | bf16 |
//! | activations saved for the backward pass, where maps or contractions read them: states before norms, stages; the forward pass reads them in f32 | bf16 |
//! | rows that a token reads of other tokens (shifts, convolutions), forward and backward | bf16 |
//! | results of linear maps, bias included, that only maps of the same evaluation read, none of them linear: gates before their SiLU, and in the backward pass gradients such as that of what SwiGLU gives its last matrix; but those of experts and of routed steps that not all tokens take | bf16 |
//! | all sums, the inside of attention (where a target multiplies pairs of bf16, all but its products: [`odec_program::kernel::Attend`]), states, stage combinations, histories, norms, softmax, loss, logits | f32 |
//! | parameters, moments, gradients of parameters | f32 |
//!
//! What the backward pass compares stays f32, also where maps lie between, since equal numbers must stay equal. So do numbers per row, and histories that
//! the last step reads: they are in memory in f32 anyway when the backward pass begins.
//!
//! Rounding a factor is part of the contraction ([`MatMul::rounded`]), so it does not matter to the result whether the
//! value was stored in bf16 before. It is, by an op [`Bf16`] behind its producer, where that saves memory: where it waits
//! for the backward pass and nothing else keeps it, or where a map makes it and only contractions read it; on GPUs always,
//! where factors are copied to tensor cores and cannot be rounded on their way. Gradients pass a rounding unchanged. What the
//! forward pass rounds follows from that alone, so that all entries, decoding included, compute the same bits.

use super::facts::{Facts, Role};
use super::recompute::{Scope, recompute};
use super::rewrite::rebuild;
use odec_graph::ops::{Bf16, Cache, Combine, GroupedMatMul, GroupedOuter, MatMul, OpKind};
use odec_graph::types::Elem;
use odec_graph::{Exact, Graph, Pass, Site, TypeError, Value};
use odec_program::Size;
use odec_program::manifest::Precision;
use std::collections::{BTreeMap, BTreeSet};

/// Chooses element types; `copied` says that factors are copied as they are stored.
pub fn round(
    graph: &Graph,
    precision: Precision,
    copied: bool,
) -> Result<Option<Graph>, TypeError> {
    if precision != Precision::Bf16 {
        return Ok(None);
    }
    // First of all, so that what is computed again is computed from what is saved, as it is rounded.
    let again = recompute(graph, Scope::Layers)?;
    let graph = again.as_ref().unwrap_or(graph);
    let reading = Reading {
        copied,
        ..Reading::of(graph)
    };
    let inner: BTreeSet<Value> = reading.values().filter(|v| reading.is_inner(*v)).collect();
    let saved: BTreeSet<Value> = reading.values().filter(|v| reading.is_saved(*v)).collect();
    let mut rounded: BTreeMap<Value, Value> = BTreeMap::new();
    let mut widened: BTreeMap<Value, Value> = BTreeMap::new();
    let made = rebuild(graph, |b, n, node, operands, _| {
        let reads = operands.iter().enumerate().map(|(i, new)| {
            let old = node.operands[i];
            let instead = match reading.rounds(n, i) {
                Some(Rounds::Kept) => widened.get(&old),
                Some(_) => rounded.get(&old),
                None if inner.contains(&old) => rounded.get(&old),
                None if saved.contains(&old) && node.site.pass == Pass::Backward => {
                    rounded.get(&old)
                }
                None => None,
            };
            instead.copied().unwrap_or(*new)
        });
        let reads: Vec<Value> = reads.collect();
        let op = match &node.op {
            OpKind::MatMul(m) => OpKind::from(MatMul {
                rounded: true,
                ..*m
            }),
            OpKind::GroupedMatMul(m) => OpKind::from(GroupedMatMul {
                rounded: true,
                ..*m
            }),
            OpKind::GroupedOuter(m) => OpKind::from(GroupedOuter {
                rounded: true,
                ..*m
            }),
            OpKind::Cache(c) if reading.halves.contains(&n) => OpKind::from(Cache {
                elem: Elem::Bf16,
                ..c.clone()
            }),
            op => op.clone(),
        };
        let made = b.push(op, &reads)?;
        for (port, new) in made.iter().enumerate() {
            let port = port as u32;
            let old = Value { node: n, port };
            if inner.contains(&old) || saved.contains(&old) || reading.is_stored(old) {
                let elsewhere = reading.step_of_readers(old);
                if let Some((evolve, step)) = elsewhere.filter(|_| saved.contains(&old)) {
                    (b.site.evolve, b.site.step) = (evolve.into(), step);
                }
                let half = b.push1(Bf16, &[*new])?;
                b.site = node.site.clone();
                rounded.insert(old, half);
                if reading.is_delayed(old) {
                    let coeffs = vec![Exact::one()];
                    widened.insert(old, b.push1(Combine::of(coeffs), &[half])?);
                }
            }
        }
        Ok(made)
    })?;
    Ok(Some(made))
}

/// What reads an operand in bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rounds {
    /// Rounds by itself, if need be.
    Contraction,
    /// Takes bf16 only, as what is kept of earlier tokens is.
    Attention,
    /// Takes a real that was rounded: rows of earlier tokens, which a shift would have rounded.
    Kept,
}

/// The last node of the forward pass inside of a step.
fn last_in_a_step(graph: &Graph) -> Option<u32> {
    let inside = |site: &Site| site.pass == Pass::Forward && site.step.is_some();
    (0..graph.len())
        .rev()
        .find(|n| inside(&graph.node(*n).site))
}

/// What reads bf16: shifts and convolutions of an even number of columns, and attention where queries, keys and values have such numbers (other
/// attention stays f32, all of it). With it, kept keys and values, whose rows begin at whole words; those of a source are made by a graph of its own, which
/// is there where all of them have such numbers.
fn halves(graph: &Graph) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for (n, node) in graph.nodes() {
        let (read, kept) = match node.op {
            OpKind::Append(_) => match &graph.node(node.operands[0].node).op {
                OpKind::Cache(cache) if cache.one => (1..2, 0..1),
                _ => continue,
            },
            OpKind::Attention(_) | OpKind::AttentionBackward(_) => (0..3, 0..0),
            OpKind::CachedAttention(_) => (0..3, 1..3),
            OpKind::ShiftTokens(_) | OpKind::Depthwise(_) => (0..1, 0..0),
            _ => continue,
        };
        let even = |v: &Value| graph.ty(*v).cols().is_multiple_of(2);
        if !node.operands[read].iter().all(even) {
            continue;
        }
        found.insert(n);
        for kept in &node.operands[kept] {
            found.insert(kept.node);
            found.extend(graph.node(kept.node).operands.first().map(|v| v.node));
        }
    }
    found
}

/// Nodes that compare, and nodes of the backward pass whose results they compare.
fn comparing(graph: &Graph) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for n in (0..graph.len()).rev() {
        let node = graph.node(n);
        let compares = matches!(
            node.op,
            OpKind::Heaviside(_) | OpKind::Equals(_) | OpKind::Exceeds(_) | OpKind::Predicate(_)
        );
        if !compares && !found.contains(&n) {
            continue;
        }
        found.insert(n);
        let backward = |v: &&Value| graph.node(v.node).site.pass == Pass::Backward;
        found.extend(node.operands.iter().filter(backward).map(|v| v.node));
    }
    found
}

/// The evolve of a step, and its number.
type Step<'g> = (&'g str, Option<u32>);

/// Who reads what.
struct Reading<'g> {
    graph: &'g Graph,
    facts: Facts<'g>,
    comparing: BTreeSet<u32>,
    /// The last node of the forward pass inside of a step.
    last: Option<u32>,
    halves: BTreeSet<u32>,
    /// Value → the nodes that read it, with the operand's number.
    readers: BTreeMap<Value, Vec<(u32, usize)>>,
    results: BTreeSet<Value>,
    /// Whether factors are copied as they are stored.
    copied: bool,
}

impl<'g> Reading<'g> {
    fn of(graph: &'g Graph) -> Reading<'g> {
        let mut readers: BTreeMap<Value, Vec<(u32, usize)>> = BTreeMap::new();
        for (n, node) in graph.nodes() {
            for (i, v) in node.operands.iter().enumerate() {
                readers.entry(*v).or_default().push((n, i));
            }
        }
        Reading {
            graph,
            facts: Facts::new(graph),
            comparing: comparing(graph),
            last: last_in_a_step(graph),
            halves: halves(graph),
            readers,
            results: graph.outputs().iter().map(|(_, v)| *v).collect(),
            copied: false,
        }
    }

    /// Whether node `n` reads its operand `i` in bf16.
    fn rounds(&self, n: u32, i: usize) -> Option<Rounds> {
        let kept = self.is_delayed(self.graph.node(n).operands[i]);
        let attention = match self.graph.node(n).op {
            OpKind::MatMul(_) => return Some(Rounds::Contraction),
            OpKind::GroupedMatMul(_) if i != 1 => return Some(Rounds::Contraction),
            OpKind::GroupedOuter(_) if i != 0 => return Some(Rounds::Contraction),
            OpKind::Attention(_) => i < 3,
            OpKind::AttentionBackward(_) => i < 6 && i != 4,
            OpKind::CachedAttention(_) => i == 0,
            OpKind::ShiftTokens(_) | OpKind::Depthwise(_) => i == 0,
            OpKind::Append(_) => i == 1,
            _ => false,
        };
        match attention && self.halves.contains(&n) {
            true => Some(Rounds::Attention),
            false => kept.then_some(Rounds::Kept),
        }
    }

    /// Rows of earlier tokens that were kept as they are: they are rounded, as a shift or a convolution would.
    fn is_delayed(&self, v: Value) -> bool {
        let node = self.graph.node(v.node);
        let even = |x: &Value| self.graph.ty(*x).cols().is_multiple_of(2);
        matches!(node.op, OpKind::Delayed(_))
            && v.port == 0
            && node.operands.first().is_some_and(even)
    }

    fn values(&self) -> impl Iterator<Item = Value> {
        self.readers.keys().copied()
    }

    fn pass(&self, n: u32) -> Pass {
        self.graph.node(n).site.pass
    }

    /// A contraction, or the sum of one and a number per column.
    fn is_linear_map(&self, n: u32) -> bool {
        let operands = &self.graph.node(n).operands;
        let product = |v: &Value| matches!(self.graph.node(v.node).op, OpKind::MatMul(_));
        match self.graph.node(n).op {
            OpKind::MatMul(_) => true,
            OpKind::Add(_) => {
                operands.iter().any(product)
                    && operands.iter().any(|v| self.graph.ty(*v).rank() == 1)
            }
            _ => false,
        }
    }

    /// A linear map's result that stays inside its evaluation and its pass, where only maps read it that are not linear in it.
    fn is_inner(&self, v: Value) -> bool {
        let node = self.graph.node(v.node);
        if !self.is_linear_map(v.node)
            || node.site.evaluation.is_none()
            || self.results.contains(&v)
        {
            return false;
        }
        // Readers of the other pass do not count. Gradients of parameters stay f32: they have no row for each token.
        let rows = self.graph.ty(v).rows();
        let of_tokens = rows.batch > 0 || rows.seq > 0;
        let here = node.site.neighbourhood();
        let mut readers = self.readers[&v]
            .iter()
            .filter(|(n, _)| self.pass(*n) == node.site.pass)
            .peekable();
        readers.peek().is_some()
            && (node.site.pass == Pass::Forward || of_tokens)
            && readers.all(|(n, _)| {
                self.graph.node(*n).site.neighbourhood() == here && self.is_curved(*n)
            })
    }

    /// A map that is not linear in any operand of its own shape.
    fn is_curved(&self, n: u32) -> bool {
        let node = self.graph.node(n);
        match node.op {
            OpKind::Sigmoid(_)
            | OpKind::NormalCdf(_)
            | OpKind::NormalPdf(_)
            | OpKind::WherePositive(_)
            | OpKind::Exp(_)
            | OpKind::Log(_)
            | OpKind::Sqrt(_)
            | OpKind::Power(_)
            | OpKind::Rsqrt(_)
            | OpKind::Recip(_)
            | OpKind::Sin(_)
            | OpKind::Tanh(_)
            | OpKind::Softplus(_) => true,
            OpKind::Mul(_) => node
                .operands
                .iter()
                .all(|v| *self.graph.ty(*v) == node.types[0]),
            _ => false,
        }
    }

    /// Whether a value is saved for the backward pass in bf16.
    fn is_saved(&self, v: Value) -> bool {
        let node = self.graph.node(v.node);
        let ty = self.graph.ty(v);
        let whole = ty.elem == Elem::Real && ty.rows() != Size::ONE && ty.cols() > 1;
        let made = !matches!(
            self.facts.role(v.node),
            Role::Source | Role::Scalar | Role::View
        );
        if !whole || !made || node.site.pass != Pass::Forward || self.results.contains(&v) {
            return false;
        }
        let readers = self.readers[&v].iter();
        let (later, forward): (Vec<_>, Vec<_>) =
            readers.partition(|(n, _)| self.pass(*n) == Pass::Backward);
        let reads = |(n, i): &&(u32, usize)| {
            let known = matches!(self.facts.role(*n), Role::Rows(_) | Role::Columns);
            self.rounds(*n, *i).is_some() || (known && !self.comparing.contains(n))
        };
        let in_a_step = |(n, _): &&(u32, usize)| self.graph.node(*n).site.step.is_some();
        later.iter().any(in_a_step) && later.iter().all(reads) && !self.is_history(v, &forward)
    }

    /// Whether several steps read a value of an earlier one, the last step among them.
    fn is_history(&self, v: Value, forward: &[&(u32, usize)]) -> bool {
        let steps: BTreeSet<Step> = forward.iter().map(|r| self.step(r.0)).collect();
        let others = steps.iter().filter(|s| **s != self.step(v.node)).count();
        let by_last =
            |last| steps.contains(&self.step(last)) && self.step(last) != self.step(v.node);
        others > 1 && self.last.is_some_and(by_last)
    }

    /// The first other step whose forward pass reads a value. The rounding belongs to that step, so a step that is computed again rounds again.
    fn step_of_readers(&self, v: Value) -> Option<Step<'g>> {
        let forward = self.readers[&v]
            .iter()
            .filter(|(n, _)| self.pass(*n) == Pass::Forward);
        let mut steps = forward.map(|(n, _)| self.step(*n));
        steps.find(|s| s.1.is_some() && *s != self.step(v.node))
    }

    fn step(&self, n: u32) -> Step<'g> {
        let site = &self.graph.node(n).site;
        (&site.evolve, site.step)
    }

    /// Whether a value is stored in bf16 for those who read it so.
    fn is_stored(&self, v: Value) -> bool {
        let Some(readers) = self.readers.get(&v) else {
            return false;
        };
        let how = |(n, i): &(u32, usize)| self.rounds(*n, *i);
        if readers
            .iter()
            .any(|r| matches!(how(r), Some(Rounds::Attention | Rounds::Kept)))
        {
            return true;
        }
        let role = self.facts.role(v.node);
        let ty = self.graph.ty(v);
        if matches!(role, Role::Source | Role::Scalar) || ty.rows() == Size::ONE || ty.cols() == 1 {
            return false;
        }
        let later = |(n, _): &(u32, usize)| self.pass(*n) == Pass::Backward;
        let (round, others): (Vec<_>, Vec<_>) = readers.iter().partition(|r| how(r).is_some());
        if round.is_empty() {
            return false;
        }
        if self.copied {
            return true;
        }
        let site = &self.graph.node(v.node).site;
        let forward = site.pass == Pass::Forward;
        let waits = forward && round.iter().copied().any(later);
        let kept_anyway = others.iter().copied().any(later);
        // Outside of all steps the gradient of the logits takes their place, which it could not in bf16.
        let fused = matches!(role, Role::Rows(_)) && (forward || site.step.is_some());
        let alone = others.is_empty() && !self.results.contains(&v);
        (waits && !kept_anyway) || (fused && alone)
    }
}
