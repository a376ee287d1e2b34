//! Which rows of the last state an output reads: all of them, their mean, or that of the class token.

use super::{Embedded, OutputScope};
use crate::arguments::Argument;
use crate::part::{PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::Dim;

/// Words of `of:`, in the order of [`Rows`].
const WORDS: [&str; 3] = ["class_token", "mean", "positions"];

/// The part of a site.
const MEAN: &str = "mean";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    ClassToken,
    Mean,
    Positions,
}

impl Rows {
    /// The argument of an output that says one thing of a whole sequence; the mean where nothing is said.
    pub const OF_ONE: Argument = Argument::word(
        "of",
        WORDS.split_at(2).0,
        "the mean of the last states, or that of the class token",
    );
    /// The argument of an output that may say something of each position, as it does where nothing is said.
    pub const OF: Argument = Argument::word(
        "of",
        &WORDS,
        "the last state at each position, their mean, or that of the class token",
    );

    pub fn read(r: &mut PartReading, a: &Argument) -> Option<Rows> {
        let rows = [Rows::ClassToken, Rows::Mean, Rows::Positions];
        r.word(a).map(|n| rows[n])
    }

    /// Says so where a class token is missing, or has no target.
    pub fn fit(self, span: Span, of: Embedded, sink: &mut Vec<Diagnostic>) {
        let (message, help) = match (self, of.class_token) {
            (Rows::ClassToken, false) => (
                "this model has no class token",
                "write `embed linear(width: …), class_token`",
            ),
            (Rows::Positions, true) => (
                "a class token is no position of the input, so there is nothing to compare it with",
                "write `of: class_token` or `of: mean`",
            ),
            (Rows::Mean, _) if of.registers => (
                "the mean would be one of registers too, which no output reads",
                "write `class_token, registers(…)` and `of: class_token`",
            ),
            (Rows::Positions, false) if of.own_tokens => (
                "the tokens of the last state are not those of the input, so there is nothing to compare them with",
                "write `of: mean`",
            ),
            _ => return,
        };
        sink.push(incompatible(span, message).help(help));
    }

    /// `[B, S, C]` → `[B, S, C]` or `[B, 1, C]`.
    pub fn build(self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult {
        match self {
            Rows::ClassToken => b.part("class_token", |b| nn::first_token(b, state)),
            Rows::Mean => b.part(MEAN, |b| match w.token_mask(b)? {
                Some(mask) => nn::masked_mean(b, state, mask),
                None => nn::mean_tokens(b, state),
            }),
            Rows::Positions => Ok(state),
        }
    }

    /// What is said of each position in the place of that position, zeros at the end: rows before those of the input are left out.
    pub fn at_positions(self, b: &mut Builder, result: Value, leading: u64) -> TypeResult {
        match self {
            Rows::Positions if leading > 0 => nn::leave_out_first(b, result, leading),
            Rows::ClassToken | Rows::Mean | Rows::Positions => Ok(result),
        }
    }

    /// How many rows of each sequence are left.
    pub fn dim(self) -> Dim {
        match self {
            Rows::ClassToken | Rows::Mean => Dim::Fixed(1),
            Rows::Positions => Dim::Seq,
        }
    }
}
