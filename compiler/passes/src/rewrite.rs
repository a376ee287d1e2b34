//! The frame of graph passes: rebuilds a graph node by node.
//!
//! Takes a graph and a rule that gives the replacement of each live node; gives the new graph with the same results, sites and spans.
//! Dead nodes are dropped.

use odec_graph::{Builder, Graph, Node, TypeError, Value};

/// Old values → new values, as far as the rebuild has come.
#[derive(Clone, Debug)]
pub struct Map {
    /// Where the results of each node begin.
    first: Vec<u32>,
    values: Vec<Value>,
}

impl Map {
    pub fn get(&self, v: Value) -> Value {
        self.values[(self.first[v.node as usize] + v.port) as usize]
    }
    pub fn all(&self, values: &[Value]) -> Vec<Value> {
        values.iter().map(|v| self.get(*v)).collect()
    }
}

/// Builds a new graph from the live nodes of `graph`. `rule` gets each with its new operands, the builder standing
/// at its site and span, and gives its new results; [`Builder::copy`] keeps the node.
pub fn rebuild<F>(graph: &Graph, mut rule: F) -> Result<Graph, TypeError>
where
    F: FnMut(&mut Builder, u32, &Node, &[Value], &Map) -> Result<Vec<Value>, TypeError>,
{
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    let mut b = Builder::with_capacity(graph.len());
    let mut map = Map {
        first: vec![u32::MAX; graph.len() as usize],
        values: Vec::with_capacity(graph.len() as usize),
    };
    let mut operands = Vec::new();
    for (n, node) in graph.nodes().filter(|(n, _)| live[*n as usize]) {
        b.site = node.site.clone();
        b.span = node.span;
        operands.clear();
        operands.extend(node.operands.iter().map(|v| map.get(*v)));
        let made = rule(&mut b, n, node, &operands, &map)?;
        map.first[n as usize] = map.values.len() as u32;
        map.values.extend(made);
    }
    for (name, v) in graph.outputs() {
        b.output(name.clone(), map.get(*v));
    }
    Ok(b.finish())
}

/// Without its dead nodes; none: it has none.
pub fn pruned(graph: &Graph) -> Option<Graph> {
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    (!live.is_full()).then(|| graph.clone().without_dead())
}
