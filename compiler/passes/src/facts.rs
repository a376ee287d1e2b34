//! Read-only facts about a graph for later passes: users of a value, how a node becomes code, the domain of a row op.
//!
//! Takes a [`Graph`]; gives a read-only [`Facts`] beside it. Leaves decisions to `sums`, `recompute` and `fuse`.

use odec_graph::op::{Kind, Read, Scalars};
use odec_graph::ops::OpKind;
use odec_graph::{Graph, TensorType, Value};
use odec_program::expr::{ColMap, Expr};
use odec_program::{Access, Body, Size};
use std::cell::OnceCell;

/// Rows and columns that a row kernel runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Domain {
    pub rows: Size,
    pub cols: u64,
}

/// What a row op needs from its surroundings.
#[derive(Clone, Debug, PartialEq)]
pub struct RowFacts {
    pub domain: Domain,
    /// Which operands may be computed in the same kernel.
    pub pointwise: Vec<bool>,
    /// Sums or maxima over the columns of a row.
    pub reduces: bool,
    /// Reads the number of its column: means something else in a wider domain.
    pub indexes: bool,
    /// Scalar expressions it adds to a body.
    pub nodes: usize,
}

/// How a node becomes code.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// A buffer that exists already.
    Source,
    /// A launch argument.
    Scalar,
    /// Another value's memory.
    View,
    Rows(RowFacts),
    Columns,
    /// A launch that can add its only result onto an existing buffer.
    Contract,
    ScatterAdd,
    /// A launch that writes buffers of its own: attention, gather, append, recurrences.
    Fresh,
}

impl Role {
    /// Whether the result can be accumulated in place.
    pub fn accumulates(&self) -> bool {
        matches!(self, Role::Columns | Role::Contract | Role::ScatterAdd)
    }
}

/// Per-node answers, indexed by node number.
#[derive(Clone, Debug)]
pub struct Facts<'g> {
    graph: &'g Graph,
    /// Found where they are asked for.
    roles: Vec<OnceCell<Role>>,
    /// Nodes that read any result of a node, one entry per operand, rising: those of node n end where those of n + 1 begin.
    users: Vec<u32>,
    begin: Vec<u32>,
    /// Whether some result of a node is a result of the graph.
    pub is_output: Vec<bool>,
}

impl<'g> Facts<'g> {
    pub fn new(graph: &'g Graph) -> Facts<'g> {
        let n = graph.len() as usize;
        let mut is_output = vec![false; n];
        let reads = || {
            let nodes = graph.nodes();
            nodes.flat_map(|(i, node)| node.operands.iter().map(move |v| (i, v.node as usize)))
        };
        let mut begin = vec![0; n + 1];
        reads().for_each(|(_, of)| begin[of + 1] += 1);
        for i in 0..n {
            begin[i + 1] += begin[i];
        }
        let mut next = begin.clone();
        let mut users = vec![0; begin[n] as usize];
        for (user, of) in reads() {
            users[next[of] as usize] = user;
            next[of] += 1;
        }
        graph
            .outputs()
            .iter()
            .for_each(|(_, v)| is_output[v.node as usize] = true);
        Facts {
            graph,
            roles: vec![OnceCell::new(); n],
            users,
            begin,
            is_output,
        }
    }

    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    pub fn role(&self, node: u32) -> &Role {
        self.roles[node as usize].get_or_init(|| role(self.graph, node))
    }

    /// Nodes that read any result of a node, one entry per operand, rising.
    pub fn users(&self, node: u32) -> &[u32] {
        let ends = &self.begin[node as usize..][..2];
        &self.users[ends[0] as usize..ends[1] as usize]
    }

    pub fn rows(&self, node: u32) -> Option<&RowFacts> {
        match self.role(node) {
            Role::Rows(r) => Some(r),
            _ => None,
        }
    }

    /// The value whose memory a value is.
    pub fn behind(&self, graph: &Graph, mut v: Value) -> Value {
        while *self.role(v.node) == Role::View {
            v = graph.node(v.node).operands[0];
        }
        v
    }

    /// How often a node's results are used, results of the graph included.
    pub fn uses(&self, node: u32) -> usize {
        self.users(node).len() + self.is_output[node as usize] as usize
    }
}

/// The input types of a node.
pub fn in_types(graph: &Graph, node: u32) -> Vec<TensorType> {
    graph
        .node(node)
        .operands
        .iter()
        .map(|v| graph.ty(*v).clone())
        .collect()
}

/// The kind of a node.
pub fn kind(graph: &Graph, node: u32) -> Kind {
    graph.node(node).op.kind(&in_types(graph, node))
}

/// Coefficients of a linear combination, when a node is one.
pub fn combine(op: &OpKind) -> Option<&[odec_graph::Exact]> {
    match op {
        OpKind::Combine(c) => Some(&c.coeffs),
        _ => None,
    }
}

fn role(graph: &Graph, node: u32) -> Role {
    match kind(graph, node) {
        Kind::Source | Kind::FromPast => Role::Source,
        Kind::Scalar(_) => Role::Scalar,
        Kind::View => Role::View,
        Kind::Columns => Role::Columns,
        Kind::Contract { .. } => Role::Contract,
        Kind::ScatterAdd => Role::ScatterAdd,
        Kind::Attend(_) | Kind::AttendBackward(_) | Kind::AttendCached(..) => Role::Fresh,
        Kind::Append { .. } | Kind::One(_) => Role::Fresh,
        Kind::Grouped { .. } | Kind::GroupedOuter { .. } => Role::Fresh,
        Kind::Rows { reads, rule } => {
            let (mut body, mut coeffs) = (Body::default(), Vec::new());
            let mut args = Vec::new();
            for (i, read) in reads.iter().enumerate() {
                match read {
                    Read::Pointwise => args.push(body.load(i as u32, Access::full(2))),
                    Read::Through(accesses) => {
                        args.extend(accesses.iter().map(|a| body.load(i as u32, *a)))
                    }
                }
            }
            rule(
                &mut Scalars {
                    body: &mut body,
                    coeffs: &mut coeffs,
                },
                &args,
            );
            Role::Rows(RowFacts {
                domain: domain(graph, node, &reads),
                pointwise: reads.iter().map(|r| *r == Read::Pointwise).collect(),
                reduces: body.nodes.iter().any(|e| matches!(e, Expr::Reduce(..))),
                indexes: body
                    .nodes
                    .iter()
                    .any(|e| matches!(e, Expr::RowIndex | Expr::ColIndex))
                    || reads.iter().any(by_column),
                nodes: body.nodes.len(),
            })
        }
    }
}

/// Whether an operand is read from memory at the number of the column.
fn by_column(read: &Read) -> bool {
    match read {
        Read::Pointwise => false,
        Read::Through(accesses) => accesses.iter().any(|a| a.col != ColMap::Zero),
    }
}

/// The widest among a node's pointwise operands and its result: the most rows, and with them the most columns.
fn domain(graph: &Graph, node: u32, reads: &[Read]) -> Domain {
    let operands = in_types(graph, node).into_iter().zip(reads);
    let pointwise = operands.filter(|(_, read)| **read == Read::Pointwise);
    let mut types: Vec<TensorType> = pointwise.map(|(t, _)| t).collect();
    types.push(graph.node(node).types[0].clone());
    let by_extent = |s: &Size| {
        let tokens = s.seq + s.source;
        (s.batch + tokens, s.batch, tokens, s.factor)
    };
    let rows = types
        .iter()
        .map(TensorType::rows)
        .max_by_key(by_extent)
        .expect("a node has a type");
    let cols = types
        .iter()
        .filter(|t| t.rows() == rows)
        .map(TensorType::cols)
        .max()
        .expect("one has these rows");
    Domain { rows, cols }
}

/// How an operand of type `ty` is read, element by element, over a domain.
///
/// Missing or single dimensions are broadcast; `[S, C]` in a domain of B·S rows is read by position.
pub fn pointwise_access(ty: &TensorType, domain: Domain) -> Option<Access> {
    use odec_program::expr::RowMap;
    let (rows, cols) = (ty.rows(), ty.cols());
    let col = match cols {
        1 => ColMap::Zero,
        c if c == domain.cols => ColMap::Col,
        _ => return None,
    };
    let row = if rows == Size::ONE {
        RowMap::Zero
    } else if rows == domain.rows {
        RowMap::Row
    } else if (rows == Size::SEQ && domain.rows.seq == 1)
        || (rows == Size::SOURCE && domain.rows.source == 1)
    {
        RowMap::Position
    } else {
        return None;
    };
    Some(Access {
        row,
        col,
        stride: if row == RowMap::Zero { 0 } else { cols },
    })
}

/// The value itself where a node has one result.
pub fn only(node: u32) -> Value {
    Value { node, port: 0 }
}
