//! What is added to each token by those before it: `embed learned(width: 256), positions(learned), segments(2, separator: 10)`.
//!
//! A kind of marks is one file and one line in the list; nothing outside of this folder knows which there are. Leaves rows that only a token's
//! position decides to `positions/`.

use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::LayerParam;
use crate::part::{Place, parts};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value};
use std::fmt::Debug;
use std::rc::Rc;

/// A row for each token, as wide as the state, by what stands before the token.
pub trait Marks: Debug {
    /// Says what input they have no meaning for.
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>);
    /// The token that they are counted by, which is never hidden while a model is trained to guess tokens.
    fn separator(&self) -> u64;
    /// All parameters, by their paths below `embed`, for states of so many columns.
    fn params(&self, width: u64) -> Vec<LayerParam>;
    /// The rows of these tokens, at the builder's site.
    fn rows(&self, b: &mut Builder, tokens: Value, w: &mut dyn EmbedScope) -> TypeResult;
}

parts! { Marks: segments::Segments }

/// All kinds of marks.
pub static MARKS: Place<Rc<dyn Marks>> = Place {
    parts: PARTS,
    later: &[],
    example: "embed learned(width: 256), positions(learned), segments(2, separator: 10)",
};
