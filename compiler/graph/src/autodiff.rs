//! Reverse-mode differentiation, graph to graph.
//!
//! Takes a graph, a scalar of it and the values to differentiate by; gives the graph with the derivative's nodes
//! appended, at the sites of the nodes they come from, in the backward pass. What a rule makes that nobody needs stays
//! in the graph: see [`Graph::live`]. A [`Solution`] of `z = f(z)` passes a cotangent v on as the u with
//! `u = v + (∂f/∂z)ᵀ u` (Bai, Kolter & Koltun 2019, NeurIPS, eq. 10–12), found as the solution itself was.

use crate::exact::Exact;
use crate::graph::{Nodes, Pass, Site, Solution};
use crate::op::{TypeError, Vjp};
use crate::ops::{Builder, Combine, Constant, Graph, OpKind, VjpCx};
use crate::solve::iterate;
use crate::types::TensorType;
use crate::value::Value;
use odec_source::Span;
use petgraph::visit::{Dfs, IntoNeighbors, NodeFiltered, Visitable};
use std::collections::BTreeMap;
use std::ops::Range;
use thiserror::Error;

#[derive(Clone, Debug, PartialEq, Error)]
pub enum DiffError {
    #[error("only a scalar can be differentiated, not {0}")]
    NotScalar(TensorType),
    #[error("`{op}` at `{site}` cannot be differentiated: {reason}")]
    NotDifferentiable {
        op: &'static str,
        site: Site,
        span: Option<Span>,
        reason: &'static str,
    },
    /// Our fault: a rule gave derivatives that do not match the operands.
    #[error("internal: the derivative of `{op}` at `{site}` is wrong: {what}")]
    Rule {
        op: &'static str,
        site: Site,
        what: String,
    },
    /// Our fault as well.
    #[error("internal: {0}")]
    Type(#[from] TypeError),
}

/// Appends the derivatives of `loss` by each of `wrt`; `None`: the loss does not depend on it.
///
/// Derivatives that reach a value from several users are added as they come, latest user first, two at a time
/// (`((g₁ + g₂) + g₃)`): each sum can be made in place of its first term.
pub fn gradient(
    graph: Graph,
    loss: Value,
    wrt: &[Value],
) -> Result<(Graph, Vec<Option<Value>>), DiffError> {
    if graph.ty(loss) != &TensorType::scalar() {
        return Err(DiffError::NotScalar(graph.ty(loss).clone()));
    }
    let from: Vec<u32> = wrt.iter().map(|v| v.node).collect();
    let needed = needed(&graph, 0..graph.len(), &from, [loss]);
    let flags = graph.nodes().filter_map(|(node, n)| match &n.op {
        OpKind::Predicate(f) => Some((f.region, Value { node, port: 0 })),
        _ => None,
    });
    let flags: Flags = flags.collect();
    let mut b = Builder::extend(graph);
    let mut sums = Sums::new();
    if needed.holds(loss.node) {
        enter(&mut b, loss.node);
        let one = Constant {
            value: Exact::one(),
        };
        let one = b.push1(one, &[]).expect("a constant has no operands");
        sums.insert(loss, one);
    }
    sweep(&mut b, &flags, &needed, &mut sums)?;
    let found = wrt.iter().map(|v| sums.get(v).copied()).collect();
    let graph = b.finish();
    debug_assert_eq!(crate::verify(&graph), Ok(()));
    Ok((graph, found))
}

/// The derivative by each value, as far as it is known.
type Sums = BTreeMap<Value, Value>;

/// The flag of each region that may not be made.
type Flags = BTreeMap<u32, Value>;

/// Goes backwards over some nodes; afterwards `sums` has the derivatives by all that they depend on.
fn sweep(
    b: &mut Builder,
    flags: &Flags,
    needed: &Needed,
    sums: &mut Sums,
) -> Result<(), DiffError> {
    let solved = |s: &Solution| s.outs.last().map(|v| v.node);
    let solutions: BTreeMap<u32, Solution> = b
        .graph()
        .solutions
        .iter()
        .filter_map(|s| Some((solved(s).filter(|n| needed.holds(*n))?, s.clone())))
        .collect();
    for n in needed.nodes().rev() {
        if let Some(s) = solutions.get(&n) {
            passed(b, flags, s, sums)?;
        }
        let node = b.graph().node(n).clone();
        let outs: Vec<Value> = (0..node.types.len() as u32)
            .map(|port| Value { node: n, port })
            .collect();
        let d_outs: Vec<Option<Value>> = outs.iter().map(|v| sums.get(v).copied()).collect();
        if d_outs.iter().all(Option::is_none) || node.operands.is_empty() {
            continue;
        }
        enter(b, n);
        let rule = node.op.vjp(&mut VjpCx {
            b,
            ins: &node.operands,
            outs: &outs,
            flags,
            d_outs: &d_outs,
        });
        let wrong = |what: String| DiffError::Rule {
            op: node.op.name(),
            site: (*node.site).clone(),
            what,
        };
        let derivatives = match rule {
            Vjp::Zero => continue,
            Vjp::NotDifferentiable(reason) => {
                return Err(DiffError::NotDifferentiable {
                    op: node.op.name(),
                    site: (*node.site).clone(),
                    span: node.span,
                    reason,
                });
            }
            Vjp::Rule(d) if d.len() != node.operands.len() => {
                let (n, of) = (d.len(), node.operands.len());
                return Err(wrong(format!("{n} derivatives of {of} operands")));
            }
            Vjp::Rule(d) => d,
        };
        for (x, d) in node.operands.iter().zip(derivatives) {
            let Some(d) = d.filter(|_| needed.holds(x.node)) else {
                continue;
            };
            if *b.ty(d) != b.ty(*x).widened() {
                return Err(wrong(format!("{} for {}", b.ty(d), b.ty(*x))));
            }
            let fail = |e: TypeError| wrong(e.to_string());
            plus(b, sums, *x, d).map_err(fail)?;
        }
    }
    Ok(())
}

fn plus(b: &mut Builder, sums: &mut Sums, x: Value, d: Value) -> Result<(), TypeError> {
    let sum = match sums.get(&x) {
        None => d,
        Some(earlier) => {
            let coeffs = vec![Exact::one(), Exact::one()];
            b.push1(Combine::of(coeffs), &[*earlier, d])?
        }
    };
    sums.insert(x, sum);
    Ok(())
}

/// Puts in the place of the cotangents of a solution what solves their equation. Each application of the equation is a sweep from
/// what it makes of the solution back to the solution, over derivatives by nothing else.
fn passed(b: &mut Builder, flags: &Flags, s: &Solution, sums: &mut Sums) -> Result<(), DiffError> {
    if s.outs.iter().all(|v| !sums.contains_key(v)) {
        return Ok(());
    }
    let first = s.outs[0].node;
    let here = |b: &mut Builder| {
        enter(b, first);
        b.site.path = "solve".into();
    };
    here(b);
    let mut v = Vec::new();
    for out in &s.outs {
        v.push(match sums.get(out) {
            Some(d) => *d,
            None => zero(b, *out)?,
        });
    }
    let from: Vec<u32> = s.pair.z.iter().map(|z| z.node).collect();
    let begin = from.iter().min().map_or(first, |n| *n);
    let needed = needed(b.graph(), begin..first, &from, s.pair.f.iter().copied());
    let u = iterate(&s.solver, b, v.clone(), |b, u| {
        let mut own = Sums::new();
        for (f, u) in s.pair.f.iter().zip(u) {
            if needed.holds(f.node) {
                plus(b, &mut own, *f, *u)?;
            }
        }
        sweep(b, flags, &needed, &mut own)?;
        here(b);
        let each = s.pair.z.iter().zip(&v).map(|(z, v)| match own.get(z) {
            None => Ok(*v),
            Some(d) => {
                let coeffs = vec![Exact::one(), Exact::one()];
                b.push1(Combine::of(coeffs), &[*v, *d])
            }
        });
        let each: Result<Vec<Value>, TypeError> = each.collect();
        Ok::<_, DiffError>(each?)
    })?;
    sums.extend(s.outs.iter().copied().zip(u));
    Ok(())
}

fn zero(b: &mut Builder, like: Value) -> Result<Value, TypeError> {
    let coeffs = vec![Exact::zero()];
    b.push1(Combine::of(coeffs), &[like])
}

/// New nodes come from node `n`.
fn enter(b: &mut Builder, n: u32) {
    let node = b.graph().node(n);
    let site = Site {
        pass: Pass::Backward,
        ..(*node.site).clone()
    };
    b.span = node.span;
    b.site = site.into();
}

/// Of some nodes, those that results depend on and that depend on what is differentiated by.
pub(crate) struct Needed(Nodes);

impl Needed {
    fn holds(&self, n: u32) -> bool {
        self.0.contains(n as usize)
    }
    pub(crate) fn nodes(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.0.ones().map(|n| n as u32)
    }
}

pub(crate) fn needed(
    graph: &Graph,
    nodes: Range<u32>,
    wrt: &[u32],
    results: impl IntoIterator<Item = Value>,
) -> Needed {
    let mut depends = graph.visit_map();
    let from = wrt.iter().filter(|n| nodes.contains(n));
    from.for_each(|n| depends.insert(*n as usize));
    for n in nodes {
        if graph.neighbors(n).any(|o| depends.contains(o as usize)) {
            depends.insert(n as usize);
        }
    }
    let depending = NodeFiltered(graph, &depends);
    let results = results.into_iter().map(|v| v.node);
    let results = results.filter(|n| depends.contains(*n as usize)).collect();
    let mut reached = Dfs::from_parts(results, depending.visit_map());
    while reached.next(&depending).is_some() {}
    Needed(reached.discovered)
}
