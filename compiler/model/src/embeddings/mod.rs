//! How the first state is made of what a model reads: `embed learned(width: 256)`.
//!
//! An embedding is one file and one line in the list; nothing outside of this folder knows which there are. Leaves rows of positions, which
//! are added to it, to `positions/`. An embedding of two parts, `learned(…) |> linear(…)`, is read by `factorised.rs`. How a tied output reads an
//! embedding is its `read_by`.

use crate::inputs::Input;
use crate::layers::{Grid, LayerParam};
use crate::part::{Part, Place, parts};
use crate::scheme::args::Args;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeError, TypeResult, Value};
use std::fmt::Debug;
use std::rc::Rc;

/// From an input to states.
pub trait Embedding: Debug {
    /// Columns of the state that is made of an input.
    fn width(&self, of: &dyn Input) -> u64;
    /// Says what input it has no meaning for.
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>);
    /// All parameters, by their paths below `embed`.
    fn params(&self, of: &dyn Input) -> Vec<LayerParam>;
    /// The parameter that has a row for each kind of tokens, which an output may use as well.
    fn table(&self) -> Option<&'static str>;
    /// The grid that its states stand on; whether windows may lie over it, for what they stand before.
    fn grid(&self, of: &dyn Input) -> Option<Grid>;
    /// Appends its nodes at the builder's site.
    fn build(
        &self,
        b: &mut Builder,
        made_of: (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult;
    /// A state times the rows that it adds to states, `x Rᵀ`: what an output tied to it gives. The parameters are those of [`Embedding::build`].
    fn read_by(&self, b: &mut Builder, state: Value, w: &mut dyn EmbedScope) -> TypeResult;
}

/// Of an embedding whose rows no output reads.
fn without_rows(name: &'static str) -> TypeResult {
    Err(TypeError {
        op: name,
        what: "has no rows that an output reads".into(),
    })
}

/// Where an embedding and its positions find parameters and tables while the graph is built.
pub trait EmbedScope {
    /// By its path below `embed`.
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult;
    /// The rows of a table with one for each position that a run is given.
    fn rows(&mut self, b: &mut Builder, table: Value) -> TypeResult;
    /// What a run leaves to the next under a name, as [`crate::layers::Weights::carry`].
    fn carry(&mut self, b: &mut Builder, name: &str, shape: [u64; 2]) -> TypeResult<Option<Value>>;
    /// Sinusoids of these positions, as wide as the state.
    fn sinusoids(&mut self, b: &mut Builder) -> TypeResult;
}

mod factorised;

pub use factorised::read;

parts! { Embedding: learned::Learned, linear::Linear, conv::Conv, id::Identity }

const LEARNED: &str = Learned::DECLARATION.name;
const LINEAR: &str = Linear::DECLARATION.name;

/// Whether what an expression names may begin a state of the one before it: a stage of its own.
pub fn continues(e: &Expr) -> bool {
    is_named(e, &[LINEAR, Conv::DECLARATION.name])
}

/// Whether what an expression names makes a grid of its own.
pub fn makes_grid(e: &Expr) -> bool {
    is_named(e, &[Conv::DECLARATION.name])
}

fn is_named(e: &Expr, names: &[&str]) -> bool {
    Args::of(e).is_some_and(|args| names.contains(&args.callee.name.as_str()))
}

/// All embeddings.
pub static EMBEDDINGS: Place<Rc<dyn Embedding>> = Place {
    parts: PARTS,
    later: &["positions"],
    example: "learned(width: 256)",
};
