//! Reverse-mode differentiation, graph to graph.
//!
//! Takes a graph, a scalar of it and the values to differentiate by; gives the graph with the derivative's nodes
//! appended, at the sites of the nodes they come from, in the backward pass. What a rule makes that nobody needs stays
//! in the graph: see [`Graph::live`].

use crate::exact::Exact;
use crate::graph::{Builder, Graph, Pass, Site, Value};
use crate::op::{TypeError, Vjp, VjpCx};
use crate::ops::{Combine, Constant};
use crate::types::TensorType;
use odec_grammar::Span;
use std::collections::BTreeMap;
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
    let needed = needed(&graph, loss, wrt);
    let mut b = Builder::extend(graph);
    let mut sums: BTreeMap<Value, Value> = BTreeMap::new();
    if needed[loss.node as usize] {
        enter(&mut b, loss.node);
        let one = Constant {
            value: Exact::one(),
        };
        let one = b.push1(one, &[]).expect("a constant has no operands");
        sums.insert(loss, one);
    }
    for n in (0..needed.len() as u32)
        .rev()
        .filter(|n| needed[*n as usize])
    {
        let node = b.graph().node(n).clone();
        let outs: Vec<Value> = (0..node.types.len() as u32)
            .map(|port| Value { node: n, port })
            .collect();
        let d_outs: Vec<Option<Value>> = outs.iter().map(|v| sums.get(v).copied()).collect();
        if d_outs.iter().all(Option::is_none) || node.operands.is_empty() {
            continue;
        }
        enter(&mut b, n);
        let rule = node.op.vjp(&mut VjpCx {
            b: &mut b,
            ins: &node.operands,
            outs: &outs,
            d_outs: &d_outs,
        });
        let wrong = |what: String| DiffError::Rule {
            op: node.op.name(),
            site: node.site.clone(),
            what,
        };
        let derivatives = match rule {
            Vjp::Zero => continue,
            Vjp::NotDifferentiable(reason) => {
                return Err(DiffError::NotDifferentiable {
                    op: node.op.name(),
                    site: node.site,
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
            let Some(d) = d.filter(|_| needed[x.node as usize]) else {
                continue;
            };
            if *b.ty(d) != b.ty(*x).widened() {
                return Err(wrong(format!("{} for {}", b.ty(d), b.ty(*x))));
            }
            let sum = match sums.get(x) {
                None => d,
                Some(earlier) => {
                    let coeffs = vec![Exact::one(), Exact::one()];
                    let fail = |e: TypeError| wrong(e.to_string());
                    b.push1(Combine { coeffs }, &[*earlier, d]).map_err(fail)?
                }
            };
            sums.insert(*x, sum);
        }
    }
    let found = wrt.iter().map(|v| sums.get(v).copied()).collect();
    let graph = b.finish();
    debug_assert_eq!(crate::verify(&graph), Ok(()));
    Ok((graph, found))
}

/// New nodes come from node `n`.
fn enter(b: &mut Builder, n: u32) {
    let node = b.graph().node(n);
    let site = Site {
        pass: Pass::Backward,
        ..node.site.clone()
    };
    b.span = node.span;
    b.site = site;
}

/// For every node: whether the loss depends on it and it on one of `wrt`.
fn needed(graph: &Graph, loss: Value, wrt: &[Value]) -> Vec<bool> {
    let mut depends = vec![false; graph.len() as usize];
    for (n, node) in graph.nodes() {
        depends[n as usize] = wrt.iter().any(|v| v.node == n)
            || node.operands.iter().any(|v| depends[v.node as usize]);
    }
    let live = graph.live([loss]);
    depends.iter().zip(live).map(|(d, l)| *d && l).collect()
}
