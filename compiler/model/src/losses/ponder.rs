//! `ponder`: the number of steps of each token under `halting`.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, no_effect, sum};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct Ponder;

impl LossTerm for Ponder {
    const NAME: &'static str = "ponder";
    const ABOUT: About = About {
        summary: "How many steps tokens make that halt one by one.",
        formula: "the steps that it makes, and the weight of the last one",
        source: "Graves 2016, arXiv:1603.08983, 2.1",
        notes: &[
            "N + R with N the number of steps and R the weight of the last, summed over the evolves `for halting(…) steps`. N is a constant to the gradient.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1e-2*ponder",
        meaning: "prefers few steps",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = None;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Ponder)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        if evolves.iter().any(|e| e.halts()) {
            return;
        }
        sink.push(
            no_effect(span, "no token of this model halts by itself")
                .label("`ponder` counts the steps of tokens that do")
                .help("write `for halting(field, max: 12, threshold: 0.99) steps`"),
        );
    }

    /// Nothing: `halting.rs` says how long tokens pondered when all steps are made.
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
