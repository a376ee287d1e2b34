//! What a model says of its last state: `output rmsnorm |> logits(tied)`. Each kind says its result, and what that is compared with.
//!
//! An output is one file and one line in the list; nothing outside of this folder knows which there are. Leaves what stands before it
//! to `layers/`, what becomes of its result while the model is trained to `losses/`.
//!
//! A model may have several outputs ([`OutputSpec`]), the one without a label first. What belongs to one with a label is called `label.name`
//! (`names::of_output`), what it is compared with `label.targets`, unless it is an exit, which is compared with what the first one is.

use crate::layers::network::Network;
use crate::layers::{LayerParam, Sizes};
use crate::losses::Predicted;
use crate::part::{Place, parts};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, ops};
use odec_program::manifest::{Loss, Predicts};
use odec_program::{ResultId, names};
use std::fmt::Debug;
use std::rc::Rc;

/// From the last state to a result.
pub trait Output: Debug {
    /// Says what model it has no meaning for.
    fn fit(&self, span: Span, sizes: Sizes, of: Embedded, sink: &mut Vec<Diagnostic>);
    /// All parameters, by their paths below `output`.
    fn params(&self, of: Sizes) -> Vec<LayerParam>;
    /// What the result is called.
    fn result(&self) -> ResultId<'static>;
    /// How many numbers a row of the result has.
    fn columns(&self, of: Sizes) -> u64;
    /// Appends its nodes at the builder's site.
    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult;
    /// What the graphs of the loss are given beside the input.
    fn targets(&self, of: Sizes) -> ops::Input;
    /// What these are.
    fn says(&self) -> Predicts;
    /// How many rows before the one that targets stand beside it is compared.
    fn ahead(&self) -> u64;
    /// What terms of the loss compare.
    fn predicted(&self, b: &mut Builder, result: Value, targets: Value) -> TypeResult<Predicted>;
}

/// How a result is made of the last state, or of that which an evolve before the last one ends with.
#[derive(Clone, Debug)]
pub struct OutputSpec {
    /// Empty: the one without a label.
    pub label: String,
    pub before: Option<Network>,
    pub kind: Rc<dyn Output>,
    /// What it is compared with in training.
    pub loss: Loss,
    pub span: Span,
}

impl OutputSpec {
    /// What the paths of its parameters begin with: `output`, `class.output`.
    pub fn path(&self) -> String {
        names::of_output(&self.label, OUTPUT)
    }

    /// What its result is called.
    pub fn result(&self) -> String {
        names::of_output(&self.label, &self.kind.result().to_string())
    }

    /// Whether it predicts what the output without a label does, beside it: tokens, of which there is one text.
    pub fn is_exit(&self) -> bool {
        !self.label.is_empty() && self.kind.says() == Predicts::Tokens
    }

    /// What the graphs of the loss are given to compare it with.
    pub fn targets(&self, of: Sizes) -> ops::Input {
        let targets = self.kind.targets(of);
        if self.is_exit() {
            return targets;
        }
        ops::Input {
            name: names::of_output(&self.label, &targets.name),
            ..targets
        }
    }
}

/// What the paths of its parameters end with, before their own.
pub const OUTPUT: &str = "output";

/// What an output may use of the other end.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    /// The parameter of the embedding that has a row for each kind of tokens.
    pub table: Option<&'static str>,
    /// Whether the first row is a class token.
    pub class_token: bool,
    /// Whether there are rows before the input that no output reads.
    pub registers: bool,
    /// Whether the last state has tokens of its own, and not those of the input.
    pub own_tokens: bool,
}

/// Where an output finds parameters while the graph is built.
pub trait OutputScope {
    /// By its path below `output`.
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult;
    /// A state times the rows that the embedding has for each kind of tokens.
    fn embedded(&mut self, b: &mut Builder, state: Value) -> TypeResult;
    /// Rows of the state before those of the input.
    fn leading(&self) -> u64;
    /// The padding mask: 1 for rows of tokens, 0 for padding, `[B, S, 1]`; `None` where rows have no padding.
    fn token_mask(&mut self, b: &mut Builder) -> TypeResult<Option<Value>>;
}

parts! { Output: logits::Logits, classes::Classes, linear::Linear, state::State }

mod numbers;
mod rows;

/// All outputs.
pub static OUTPUTS: Place<Rc<dyn Output>> = Place {
    parts: PARTS,
    later: &["mean", "class_token"],
    example: "output rmsnorm |> logits(tied)",
};
