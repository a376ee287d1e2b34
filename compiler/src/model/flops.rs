//! Floating-point operations per token, counted on the graph: contractions and attention, as papers count them.

use odec_graph::ops::{MatMul, OpKind, matmul::Layout};
use odec_graph::{Graph, Kind, TensorType};
use odec_program::Bindings;

/// Operations of one sequence of `context` tokens, divided by its tokens. A multiply-add counts 2. Causal attention
/// counts the lower triangle; its backward pass counts five products (scores are recomputed) against two forward.
pub fn per_token(graph: &Graph, context: u64) -> f64 {
    let bindings = Bindings::new(1, context);
    let live = graph.live(graph.outputs().iter().map(|(_, v)| *v));
    let total: f64 = graph
        .nodes()
        .filter(|(n, _)| live[*n as usize])
        .map(|(_, node)| {
            let ins: Vec<TensorType> = node.operands.iter().map(|v| graph.ty(*v).clone()).collect();
            let rows = |t: &TensorType| t.rows().at(bindings).unwrap_or(u64::MAX) as f64;
            if let OpKind::MatMul(MatMul { layout, .. }) = &node.op {
                let inner = match layout {
                    Layout::Tn => rows(&ins[0]),
                    Layout::Nt | Layout::Nn => ins[0].cols() as f64,
                };
                return 2.0 * rows(&node.types[0]) * node.types[0].cols() as f64 * inner;
            }
            let attend = |products: f64, causal: bool| {
                let full = 2.0 * (context as f64) * (context as f64) * ins[0].cols() as f64;
                products * if causal { full / 2.0 } else { full }
            };
            match node.op.kind(&ins) {
                Kind::Attend(a) => attend(2.0, a.causal),
                Kind::AttendBackward(a) => attend(5.0, a.causal),
                _ => 0.0,
            }
        })
        .sum();
    total / context as f64
}
