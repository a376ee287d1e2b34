//! `choice`: how well scores say which tokens take the steps that choose them, before later tokens are known (Raposo et al. 2024,
//! arXiv:2404.02258, 3.5: a binary cross-entropy with the scores as logits).
//!
//! Leaves scores and choices to `model/routed.rs`.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, no_effect, sum};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct Choice;

impl LossTerm for Choice {
    const NAME: &'static str = "choice";
    const ABOUT: About = About {
        summary: "How well scores alone say which tokens take the steps that choose them, before later tokens are known.",
        formula: "Σ over routed steps that it may take of −log σ(s) where it takes the step, else −log(1 − σ(s)); s its score",
        source: "Raposo et al. 2024, arXiv:2404.02258, 3.5",
        notes: &[
            "For evolves `for routed(…, choice: expert) steps` that choose some of the tokens. The choice is a constant to the gradient. With a `threshold` the model needs this term, for then tokens take a step while text is generated where σ(s) is above it.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1/1000*choice",
        meaning: "for steps with `capacity: [1, 1/2]`",
    }];
    const PLAIN: Option<Rows> = None;
    const COMPARES: Option<Compared> = None;
    const IS_OF_WEIGHTS: bool = false;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Choice)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        if evolves.iter().any(|e| e.leaves_tokens_out()) {
            return;
        }
        let d = no_effect(span, "no step of this model leaves out tokens by comparing their scores");
        sink.push(
            d.label("`choice` is about steps that choose some of the tokens").help(
                "write, for example, `routed(route, max: 3, choice: expert, capacity: [1, 2/3, 1/3], threshold: 1/2)`",
            ),
        );
    }

    /// Nothing: `routed.rs` compares scores before the step is made.
    fn step(
        &self,
        _: &mut dyn Training,
        _: &mut Builder,
        _: &StepTaken,
    ) -> Result<Vec<Value>, BuildError> {
        Ok(Vec::new())
    }

    fn rows(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        _: &Predicted,
    ) -> Result<Value, BuildError> {
        sum(b, model.given(Self::NAME))
    }
}
