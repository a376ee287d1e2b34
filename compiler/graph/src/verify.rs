//! The invariants of a graph, checked after every pass in debug builds.
//!
//! Takes a graph; gives the first invariant that does not hold, which is always our fault: users meet diagnostics
//! long before.

use crate::graph::Pass;
use crate::op::{InferTypes, TypeError};
use crate::ops::{Graph, OpKind};
use crate::types::TensorType;
use crate::value::Value;
use std::collections::BTreeSet;
use thiserror::Error;

/// An internal error: a pass made a graph that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum VerifyError {
    #[error("%{node} reads %{}.{}, which does not come before it", value.node, value.port)]
    Order { node: u32, value: Value },
    #[error("%{node} cannot be typed: {error}")]
    Untyped { node: u32, error: TypeError },
    #[error("%{node} is typed {found:?}, its op says {inferred:?}")]
    Types {
        node: u32,
        found: Vec<TensorType>,
        inferred: Vec<TensorType>,
    },
    #[error("%{node} of the forward pass reads %{operand} of the backward pass")]
    Pass { node: u32, operand: u32 },
    #[error("two sources are named `{0}`")]
    SourceTwice(String),
    #[error("two outputs are named `{0}`")]
    OutputTwice(String),
    #[error("output `{0}` names no value")]
    NoOutput(String),
}

/// Checks that operands come before their users, types are what the ops infer, the forward pass does
/// not read the backward pass, and names (of all that is fed together, of outputs) are unique.
pub fn verify(graph: &Graph) -> Result<(), VerifyError> {
    let mut sources = BTreeSet::new();
    for (n, node) in graph.nodes() {
        if let Some(value) = node.operands.iter().find(|v| !exists(graph, **v, n)) {
            return Err(VerifyError::Order {
                node: n,
                value: *value,
            });
        }
        let ins: Vec<TensorType> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
        let inferred = node.op.infer(&ins);
        let inferred = inferred.map_err(|error| VerifyError::Untyped { node: n, error })?;
        if inferred != *node.types {
            return Err(VerifyError::Types {
                node: n,
                found: node.types.to_vec(),
                inferred,
            });
        }
        if node.site.pass == Pass::Forward {
            let backward = |v: &&Value| graph.node(v.node).site.pass == Pass::Backward;
            if let Some(v) = node.operands.iter().find(backward) {
                return Err(VerifyError::Pass {
                    node: n,
                    operand: v.node,
                });
            }
        }
        let name = match &node.op {
            OpKind::Parameter(p) => &p.path,
            OpKind::Input(i) => &i.name,
            OpKind::Cache(c) => &c.path,
            OpKind::Carry(c) => &c.path,
            _ => continue,
        };
        if !sources.insert(name) {
            return Err(VerifyError::SourceTwice(name.clone()));
        }
    }
    let mut names = BTreeSet::new();
    for (name, v) in graph.outputs() {
        if !exists(graph, *v, graph.len()) {
            return Err(VerifyError::NoOutput(name.clone()));
        }
        if !names.insert(name) {
            return Err(VerifyError::OutputTwice(name.clone()));
        }
    }
    Ok(())
}

/// Whether `v` is a result of a node before `n`.
fn exists(graph: &Graph, v: Value, n: u32) -> bool {
    v.node < n && (v.port as usize) < graph.node(v.node).types.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Builder;
    use crate::ops::{Exp, Input, SumCols};

    fn two() -> (Graph, Value) {
        let mut b = Builder::new();
        let input = Input {
            name: "x".into(),
            ty: TensorType::state(3),
        };
        let x = b.push1(input, &[]).expect("an input");
        let y = b.push1(Exp, &[x]).expect("a map");
        b.output("y", y);
        (b.finish(), y)
    }

    /// Breaks one thing of a good graph.
    fn broken(f: impl FnOnce(&mut Graph)) -> VerifyError {
        let (mut g, _) = two();
        verify(&g).expect("good before");
        f(&mut g);
        verify(&g).expect_err("broken")
    }

    #[test]
    fn every_invariant_can_fail() {
        let node = |g: &mut Graph, n: usize| std::mem::take(&mut g.nodes[n].operands);
        let ahead = Value { node: 1, port: 0 };
        assert!(matches!(
            broken(|g| g.nodes[1].operands = vec![ahead]),
            VerifyError::Order { node: 1, .. }
        ));
        assert!(matches!(
            broken(|g| drop(node(g, 1))),
            VerifyError::Untyped { node: 1, .. }
        ));
        assert!(matches!(
            broken(|g| g.nodes[1].op = SumCols.into()),
            VerifyError::Types { node: 1, .. }
        ));
        assert!(matches!(
            broken(|g| g.nodes[0].site.pass = Pass::Backward),
            VerifyError::Pass {
                node: 1,
                operand: 0
            }
        ));
        assert_eq!(
            broken(|g| g.outputs.push(("y".into(), Value { node: 0, port: 0 }))),
            VerifyError::OutputTwice("y".into())
        );
        assert_eq!(
            broken(|g| g.outputs.push(("z".into(), Value { node: 0, port: 1 }))),
            VerifyError::NoOutput("z".into())
        );
        let again = |g: &mut Graph| {
            let input = g.node(0).clone();
            g.nodes.push(input);
        };
        assert_eq!(broken(again), VerifyError::SourceTwice("x".into()));
    }
}
