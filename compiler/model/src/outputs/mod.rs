//! What a model says of its last state: `output rmsnorm |> logits(tied)`. Each kind says its result, and what that is compared with.
//!
//! An output is one file and one line in the list; nothing outside of this folder knows which there are. Leaves what stands before it
//! to `layers/`, what becomes of its result while the model is trained to `losses/`.

use crate::layers::{LayerParam, Sizes};
use crate::losses::Predicted;
use crate::part::{Place, parts};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, ops};
use odec_program::ResultId;
use odec_program::manifest::Loss;
use std::fmt::Debug;
use std::rc::Rc;

/// From the last state to a result.
pub trait Output: Debug {
    /// Says what model it has no meaning for. `table`: the parameter of the embedding that it may use as well.
    fn fit(&self, span: Span, of: Sizes, table: Option<&str>, sink: &mut Vec<Diagnostic>);
    /// All parameters, by their paths below `output`.
    fn params(&self, of: Sizes) -> Vec<LayerParam>;
    /// What the result is called.
    fn result(&self) -> ResultId<'static>;
    /// How many numbers a row of the result has.
    fn columns(&self, of: Sizes) -> u64;
    /// Appends its nodes at the builder's site.
    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult;
    /// What the graphs of the loss are given beside the input.
    fn targets(&self) -> ops::Input;
    /// What these are, for runs.
    fn asks(&self) -> Loss;
    /// What terms of the loss compare.
    fn predicted(&self, b: &mut Builder, result: Value, targets: Value) -> TypeResult<Predicted>;
}

/// Where an output finds parameters while the graph is built.
pub trait OutputScope {
    /// By its path below `output`.
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult;
    /// The parameter of the embedding that has a row for each kind of tokens.
    fn embedding(&mut self, b: &mut Builder) -> TypeResult;
}

parts! { Output: logits::Logits, classes::Classes }

/// All outputs.
pub static OUTPUTS: Place<Rc<dyn Output>> = Place {
    parts: PARTS,
    later: &["linear", "mean", "class_token", "state"],
    example: "output rmsnorm |> logits(tied)",
};
