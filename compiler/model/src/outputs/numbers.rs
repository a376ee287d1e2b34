//! What outputs share whose results are numbers that are compared with given ones.

use super::rows::Rows;
use crate::layers::Sizes;
use crate::part::incompatible;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{TensorType, ops};
use odec_program::{Dim, names};

/// Says so of a model of tokens.
pub fn fit(name: &str, span: Span, of: Sizes, sink: &mut Vec<Diagnostic>) {
    if of.vocab.is_some() {
        let message = format!("`{name}` gives numbers, which are compared with given ones");
        let d = incompatible(span, &message);
        let d = d.label("this model reads tokens, and no data source gives numbers for them");
        sink.push(d.help("write `output logits`, or `input vectors(…)`"));
    }
}

/// Numbers for each row of the result.
pub fn targets(of: Rows, columns: u64) -> ops::Input {
    ops::Input {
        name: names::TARGETS.into(),
        ty: TensorType::real([Dim::Batch, of.dim(), Dim::Fixed(columns)]),
    }
}
