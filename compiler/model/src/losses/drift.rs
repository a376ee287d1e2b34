//! `drift`: how far weights move from one step to the next.
//!
//! Leaves which weights these are, and their sum in the graph, to `model/drift.rs`.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, incompatible, no_effect};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct Drift;

impl LossTerm for Drift {
    const NAME: &'static str = "drift";
    const ABOUT: About = About {
        summary: "How far weights move from one step to the next.",
        formula: "Σ over steps ‖θ(k + 1) − θ(k)‖², θ(k) the weights of step k",
        source: "Haber & Ruthotto 2017, Inverse Problems 34, 014004, section 3.3, with a factor 1/(2h)",
        notes: &[
            "A number for the model and not for each token: squares are summed over all elements and over the pairs of consecutive steps of each evolve. It covers matrices, gains, shifts and biases of fields that both steps have, and leaves out learned coefficients and step sizes.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1e-3*drift",
        meaning: "prefers layers that resemble their neighbours",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = true;
    const COMPARES: Option<Compared> = None;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Drift)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    /// Says where no weights differ from one step to the next, or it is not known which.
    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        if let Some(e) = evolves.iter().find(|e| e.finds_weights()) {
            let d = incompatible(span, "`drift` needs a fixed number of steps");
            sink.push(d.also(e.span(), "this number is found or drawn while the model runs").help(
                "write `for 12 steps`, or leave `drift` out: weights of time are functions of t for any number of steps",
            ));
        } else if let (Some(e), false) = (evolves.first(), evolves.iter().any(|e| e.drifts())) {
            let message = "`drift` would be 0: consecutive steps share their weights";
            let d = no_effect(span, message);
            sink.push(
                d.also(e.span(), "all of these steps have the same weights")
                    .help("write `weights per step`, `every 2`, `cycle 2` or `of time { … }`"),
            );
        }
    }

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
        model.drift(b)
    }
}
