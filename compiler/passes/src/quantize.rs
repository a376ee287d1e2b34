//! Reads weights in integers. Takes and gives a graph whose contractions say so ([`MatMul::weights`]).
//!
//! | value | read in |
//! |---|---|
//! | matrices of linear maps and of the output: parameters [out, in] or [in, out] that a product of rows reads as they are | integers, in groups along the inner length |
//! | the same matrix where tokens choose rows of it (an embedding tied to the output) | reals |
//! | matrices of experts, taps of convolutions, matrices made of several parameters; vectors, tables, parameters of schemes | reals |
//!
//! Parameters stay as they are: integers are made of them where they are packed, once for many runs in generation. Takes graphs without derivatives, after
//! [`super::precision`].

use super::rewrite::rebuild;
use odec_graph::ops::{MatMul, OpKind, matmul::Layout};
use odec_graph::{Graph, TypeError};
use odec_program::Quantized;
use odec_program::manifest::added;

/// Lets contractions read their weights in integers.
pub fn quantize(graph: &Graph, q: Quantized) -> Result<Graph, TypeError> {
    rebuild(graph, |b, n, node, operands, _| {
        let op = match &node.op {
            OpKind::MatMul(m) if reads_weights(graph, n, m) => OpKind::from(MatMul {
                weights: Some(q),
                ..*m
            }),
            op => op.clone(),
        };
        b.push(op, operands)
    })
}

/// Whether a contraction's second factor is a matrix that is a parameter.
fn reads_weights(graph: &Graph, n: u32, m: &MatMul) -> bool {
    let [left, right] = graph.node(n).operands[..] else {
        return false;
    };
    let rows = graph.ty(left).rows();
    let of_tokens = rows.batch > 0 || rows.seq > 0;
    match &graph.node(right.node).op {
        OpKind::Parameter(p) => {
            of_tokens
                && m.layout != Layout::Tn
                && p.shape.len() == 2
                && added::factor_of(&p.path).is_none()
        }
        _ => false,
    }
}
