//! Rows that a model learns and puts before those of its input: `embed linear(width: 64), class_token, positions(learned)`.
//!
//! A kind of rows is one file and one line in the list; nothing outside of this folder knows which there are. They are there before positions are
//! added: the context is longer by them.

use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::LayerParam;
use crate::part::{Place, parts};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value};
use std::fmt::Debug;
use std::rc::Rc;

/// Rows before those of the input.
pub trait Leading: Debug {
    /// How many.
    fn rows(&self) -> u64;
    /// Says what input they have no meaning for.
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>);
    /// All parameters, by their paths below `embed`, for states of so many columns.
    fn params(&self, width: u64) -> Vec<LayerParam>;
    /// The states with these rows before them. As many rows at their end, which runs leave empty, are left out: a sequence stays as long as it is.
    fn build(&self, b: &mut Builder, x: Value, w: &mut dyn EmbedScope) -> TypeResult;
}

parts! { Leading: class_token::ClassToken }

/// All kinds of rows.
pub static LEADING: Place<Rc<dyn Leading>> = Place {
    parts: PARTS,
    later: &[],
    example: "embed linear(width: 64), class_token, positions(learned)",
};
