//! Rows that are added to the embedding, one for each position: `embed learned(width: 256), positions(learned)`.
//!
//! A kind of rows is one file and one line in the list; nothing outside of this folder knows which there are.

use crate::codes;
use crate::embeddings::EmbedScope;
use crate::layers::{LayerParam, Sizes};
use crate::part::{Place, expect, parts};
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult};
use std::fmt::Debug;
use std::rc::Rc;

/// A row for each position, as wide as the state.
pub trait Positions: Debug {
    /// All parameters, by their paths below `embed`.
    fn params(&self, of: Sizes) -> Vec<LayerParam>;
    /// Says what state it has no meaning for.
    fn fit(&self, span: Span, of: Sizes, sink: &mut Vec<Diagnostic>);
    /// The rows of the positions that a run is given, at the builder's site.
    fn rows(&self, b: &mut Builder, w: &mut dyn EmbedScope, of: Sizes) -> TypeResult;
}

parts! { Positions: learned::Learned, sinusoidal::Sinusoidal, grid::Grid }

/// All kinds of rows.
pub static POSITIONS: Place<Rc<dyn Positions>> = Place {
    parts: PARTS,
    later: &[],
    example: EXAMPLE,
};

const EXAMPLE: &str = "embed learned(width: 256), positions(learned)";

/// Reads `positions(learned)`.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Rc<dyn Positions>> {
    let mut args = expect(e, "positions", &[], EXAMPLE, sink)?;
    let kinds: Vec<&Expr> = std::iter::from_fn(|| args.positional()).collect();
    let before = sink.len();
    args.finish(&[], sink);
    match kinds[..] {
        _ if sink.len() > before => None,
        [kind] => POSITIONS.read(kind, sink),
        _ => {
            let words = POSITIONS.declarations().map(|d| d.name);
            let words: Vec<String> = words.map(|w| format!("`positions({w})`")).collect();
            let message = "`positions` takes one word";
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, e.span, message);
            sink.push(d.help(format!("write {}", words.join(" or "))));
            None
        }
    }
}
