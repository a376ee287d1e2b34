//! The tensor graph: nodes in topological order, each with its operands, types, place in the model and source span.
//!
//! Takes ops and operands through [`Builder`], which infers types; gives a [`Graph`] that is never edited in
//! place: a pass reads one graph and builds the next. Node numbers are a topological order by construction. Of the ops it
//! knows that they infer types; the list of them is [`crate::ops`], where these types get their short names.

use crate::op::{InferTypes, TypeError};
use crate::shared::Shared;
use crate::types::TensorType;
use crate::value::Pair;
use crate::value::Value;
pub use odec_program::site::{Pass, Site};
use odec_solver::Solver;
use odec_source::Span;
use petgraph::graph::DiGraph;
use petgraph::visit::{GraphBase, IntoNeighbors, Visitable};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub struct Node<O> {
    pub op: O,
    pub operands: Vec<Value>,
    /// One per output.
    pub types: Shared<Vec<TensorType>>,
    pub site: Shared<Site>,
    pub span: Option<Span>,
}

/// A set of nodes, as petgraph's own graphs keep it.
pub type Nodes = <DiGraph<(), ()> as Visitable>::Map;

#[derive(Clone, Debug)]
pub struct Graph<O> {
    pub(crate) nodes: Vec<Node<O>>,
    pub(crate) outputs: Vec<(String, Value)>,
    /// In the order in which they were made.
    pub(crate) solutions: Vec<Solution>,
    /// What the source calls values, by node; for pictures alone. Passes drop it.
    pub(crate) names: BTreeMap<u32, String>,
}

/// A fixed point that was found without a derivative, and one more evaluation of its equation, which has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The fixed point and what the equation makes of it, for each unknown.
    pub pair: Pair,
    /// The same as `pair.f`, nodes of their own: what everything else reads.
    pub outs: Vec<Value>,
    /// How the cotangent's equation is solved.
    pub solver: Solver,
}

impl<O> Default for Graph<O> {
    fn default() -> Self {
        Graph {
            nodes: Vec::new(),
            outputs: Vec::new(),
            solutions: Vec::new(),
            names: BTreeMap::new(),
        }
    }
}

impl<O> Graph<O> {
    pub fn node(&self, n: u32) -> &Node<O> {
        &self.nodes[n as usize]
    }
    pub fn len(&self) -> u32 {
        self.nodes.len() as u32
    }
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
    /// Node numbers with their nodes, in topological order.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Node<O>)> {
        (0..).zip(&self.nodes)
    }
    pub fn ty(&self, v: Value) -> &TensorType {
        &self.node(v.node).types[v.port as usize]
    }
    /// Named results, in order.
    pub fn outputs(&self) -> &[(String, Value)] {
        &self.outputs
    }
    /// What the source calls the value that a node makes.
    pub fn name(&self, n: u32) -> Option<&str> {
        self.names.get(&n).map(String::as_str)
    }
    /// Fixed points with a gradient by the implicit function theorem, in the order in which they were made.
    pub fn solutions(&self) -> &[Solution] {
        &self.solutions
    }
    /// The nodes that one of `roots` depends on.
    pub fn live(&self, roots: impl IntoIterator<Item = Value>) -> Nodes {
        let mut live = self.visit_map();
        live.extend(roots.into_iter().map(|v| v.node as usize));
        // Operands stand before what reads them.
        for (n, node) in self.nodes.iter().enumerate().rev() {
            if live[n] {
                live.extend(node.operands.iter().map(|v| v.node as usize));
            }
        }
        live
    }
}

impl<O> Graph<O> {
    /// The nodes that results depend on, numbered anew, without names or solutions: what a pass leaves.
    pub fn without_dead(mut self) -> Graph<O> {
        self.solutions.clear();
        self.names.clear();
        let live = self.live(self.outputs.iter().map(|(_, v)| *v));
        if live.is_full() {
            return self;
        }
        let mut next = 0;
        let numbers: Vec<u32> = (0..self.nodes.len())
            .map(|n| {
                next += u32::from(live[n]);
                next.saturating_sub(1)
            })
            .collect();
        let mut old = 0..;
        self.nodes
            .retain(|_| old.next().is_some_and(|n: usize| live[n]));
        let operands = self.nodes.iter_mut().flat_map(|n| &mut n.operands);
        let read = operands.chain(self.outputs.iter_mut().map(|(_, v)| v));
        read.for_each(|v| v.node = numbers[v.node as usize]);
        self
    }
}

impl<O: Clone> Graph<O> {
    /// The nodes that results depend on, and no solutions: a graph that is not differentiated.
    pub fn pruned(&self) -> Graph<O> {
        let live = self.live(self.outputs.iter().map(|(_, v)| *v));
        let mut numbers: BTreeMap<u32, u32> = BTreeMap::new();
        let mut made = Graph::default();
        let moved = |numbers: &BTreeMap<u32, u32>, v: Value| Value {
            node: numbers[&v.node],
            ..v
        };
        for (n, node) in self.nodes().filter(|(n, _)| live[*n as usize]) {
            let operands = node.operands.iter().map(|v| moved(&numbers, *v));
            let operands = operands.collect();
            numbers.insert(n, made.len());
            if let Some(name) = self.name(n) {
                made.names.insert(made.len(), name.to_string());
            }
            made.nodes.push(Node {
                operands,
                ..node.clone()
            });
        }
        let results = self.outputs.iter();
        made.outputs = results
            .map(|(name, v)| (name.clone(), moved(&numbers, *v)))
            .collect();
        made
    }
}

// Petgraph's algorithms walk a graph from its results to its sources: the operands are the edges, and there are no others.

impl<O> GraphBase for Graph<O> {
    type NodeId = u32;
    /// Node, and number of the operand.
    type EdgeId = (u32, u32);
}

impl<'g, O> IntoNeighbors for &'g Graph<O> {
    type Neighbors = std::iter::Map<std::slice::Iter<'g, Value>, fn(&Value) -> u32>;

    fn neighbors(self, n: u32) -> Self::Neighbors {
        self.node(n).operands.iter().map(|v| v.node)
    }
}

impl<O> Visitable for Graph<O> {
    type Map = Nodes;

    fn visit_map(&self) -> Nodes {
        Nodes::with_capacity(self.nodes.len())
    }
    fn reset_map(&self, map: &mut Nodes) {
        *map = self.visit_map();
    }
}

/// Makes graphs. New nodes take the builder's current site and span.
#[derive(Clone, Debug)]
pub struct Builder<O> {
    pub(crate) graph: Graph<O>,
    pub site: Shared<Site>,
    pub span: Option<Span>,
    /// Numbers of rows, where the linear maps of layers are computed for some rows only: those with 0 or more.
    pub rows: Option<Value>,
}

impl<O> Default for Builder<O> {
    fn default() -> Self {
        Builder {
            graph: Graph::default(),
            site: Shared::default(),
            span: None,
            rows: None,
        }
    }
}

impl<O: InferTypes> Builder<O> {
    pub fn new() -> Self {
        Builder::default()
    }

    /// A builder of a graph of about so many nodes.
    pub fn with_capacity(nodes: u32) -> Self {
        let mut b = Builder::default();
        b.graph.nodes.reserve(nodes as usize);
        b
    }

    /// Goes on building after an existing graph: its values stay valid.
    pub fn extend(graph: Graph<O>) -> Self {
        Builder {
            graph,
            ..Builder::default()
        }
    }

    /// Appends a node; its operands must be values of this builder.
    pub fn push(&mut self, op: impl Into<O>, operands: &[Value]) -> Result<Vec<Value>, TypeError> {
        let op = op.into();
        let ins: Vec<TensorType> = operands.iter().map(|v| self.ty(*v).clone()).collect();
        let types = op.infer(&ins)?;
        Ok(self.append(op, operands, types.into()))
    }

    /// [`Builder::push`] of a node of another graph. On operands of its types it has its types, and none are inferred.
    pub fn copy(
        &mut self,
        from: &Graph<O>,
        node: &Node<O>,
        operands: &[Value],
    ) -> Result<Vec<Value>, TypeError>
    where
        O: Clone,
    {
        let mut both = node.operands.iter().zip(operands);
        match both.all(|(old, new)| from.ty(*old) == self.ty(*new)) {
            true => Ok(self.append(node.op.clone(), operands, node.types.clone())),
            false => self.push(node.op.clone(), operands),
        }
    }

    fn append(&mut self, op: O, operands: &[Value], types: Shared<Vec<TensorType>>) -> Vec<Value> {
        let (number, ports) = (self.graph.len(), types.len() as u32);
        self.graph.nodes.push(Node {
            op,
            operands: operands.to_vec(),
            types,
            site: self.site.clone(),
            span: self.span,
        });
        let port = |port| Value { node: number, port };
        (0..ports).map(port).collect()
    }

    /// [`Builder::push`] for ops with one result.
    pub fn push1(&mut self, op: impl Into<O>, operands: &[Value]) -> Result<Value, TypeError> {
        Ok(self.push(op, operands)?[0])
    }

    /// Builds inside a part of the current site: `att` → `att.q`.
    pub fn part<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.site.path.len();
        if outer > 0 {
            self.site.path.push('.');
        }
        self.site.path.push_str(name);
        let made = build(self);
        self.site.path.truncate(outer);
        made
    }

    pub fn ty(&self, v: Value) -> &TensorType {
        self.graph.ty(v)
    }
    pub fn graph(&self) -> &Graph<O> {
        &self.graph
    }
    /// Names a result.
    pub fn output(&mut self, name: impl Into<String>, v: Value) {
        self.graph.outputs.push((name.into(), v));
    }
    /// Says what the source calls a value; the first name stays.
    pub fn name(&mut self, v: Value, name: &str) {
        let names = &mut self.graph.names;
        names.entry(v.node).or_insert_with(|| name.to_string());
    }
    pub fn finish(self) -> Graph<O> {
        self.graph
    }
}
