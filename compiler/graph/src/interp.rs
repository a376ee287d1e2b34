//! The reference interpreter: the meaning of a graph, in f64.

use crate::graph::Site;
use crate::op::EvalError;
use crate::ops::{Graph, OpKind};
pub use crate::tensor::{EvalCx, Tensor};
use crate::types::TensorType;
use crate::value::Value;
use odec_program::Bindings;
use odec_source::Span;
use std::collections::BTreeMap;
use thiserror::Error;

/// Why a graph could not be evaluated.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RunError {
    #[error("nothing is given for `{0}`")]
    Missing(String),
    #[error("`{name}` has shape {got:?}; the graph needs {wanted:?} ({ty})")]
    Shape {
        name: String,
        got: Vec<u64>,
        wanted: Vec<u64>,
        ty: TensorType,
    },
    #[error("at `{site}`: {error}")]
    Op {
        site: Box<Site>,
        span: Option<Span>,
        error: EvalError,
    },
}

/// Evaluates the named outputs of a graph. `feeds` holds parameters, caches and carries by path and inputs by name; values die after their
/// last use.
pub fn run(
    graph: &Graph,
    feeds: &BTreeMap<String, Tensor>,
    bindings: Bindings,
) -> Result<BTreeMap<String, Tensor>, RunError> {
    let cx = EvalCx { bindings };
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    let mut uses: BTreeMap<Value, u32> = BTreeMap::new();
    let operands = graph.nodes().filter(|(n, _)| live[*n as usize]);
    let operands = operands.flat_map(|(_, node)| &node.operands);
    for v in operands.chain(graph.outputs().iter().map(|(_, v)| v)) {
        *uses.entry(*v).or_default() += 1;
    }
    let mut values: BTreeMap<Value, Tensor> = BTreeMap::new();
    for (n, node) in graph.nodes().filter(|(n, _)| live[*n as usize]) {
        let results = match &node.op {
            OpKind::Parameter(p) => vec![fed(&p.path, &node.types[0], feeds, bindings)?],
            OpKind::Cache(c) => vec![fed(&c.path, &node.types[0], feeds, bindings)?],
            OpKind::Carry(c) => vec![fed(&c.path, &node.types[0], feeds, bindings)?],
            OpKind::Input(i) => vec![fed(&i.name, &node.types[0], feeds, bindings)?],
            op => {
                let ins: Vec<&Tensor> = node.operands.iter().map(|v| &values[v]).collect();
                op.eval(&ins, &cx).map_err(|error| RunError::Op {
                    site: Box::new((*node.site).clone()),
                    span: node.span,
                    error,
                })?
            }
        };
        for v in &node.operands {
            let left = uses.get_mut(v).expect("counted above");
            *left -= 1;
            if *left == 0 {
                values.remove(v);
            }
        }
        for (port, t) in results.into_iter().enumerate() {
            let v = Value {
                node: n,
                port: port as u32,
            };
            if uses.contains_key(&v) {
                values.insert(v, t);
            }
        }
    }
    let named = graph.outputs().iter();
    Ok(named
        .map(|(name, v)| (name.clone(), values[v].clone()))
        .collect())
}

fn fed(
    name: &str,
    ty: &TensorType,
    feeds: &BTreeMap<String, Tensor>,
    bindings: Bindings,
) -> Result<Tensor, RunError> {
    let t = feeds
        .get(name)
        .ok_or_else(|| RunError::Missing(name.into()))?;
    let wanted = ty.concrete(bindings);
    if t.shape != wanted {
        return Err(RunError::Shape {
            name: name.into(),
            got: t.shape.clone(),
            wanted,
            ty: ty.clone(),
        });
    }
    Ok(t.clone())
}
