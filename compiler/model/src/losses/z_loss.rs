//! `z_loss`: keeps the sum of the exponentials of the logits near 1.

use super::{Along, Asks, Compared, LossTerm, OF, Predicted, Rows, StepTaken, Training};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};

#[derive(Clone, Debug, PartialEq)]
pub struct ZLoss;

impl LossTerm for ZLoss {
    const NAME: &'static str = "z_loss";
    const ABOUT: About = About {
        summary: "Keeps the sum of the exponentials of the logits near 1.",
        formula: "(log Σ exp logits)²",
        source: "Chowdhery et al. 2023 (PaLM), arXiv:2204.02311, 5",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[OF];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1e-4*z_loss",
        meaning: "with the coefficient of the paper",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(ZLoss)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, _: Span, _: &[&dyn Along], _: &mut Vec<Diagnostic>) {}

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
        _: &mut dyn Training,
        b: &mut Builder,
        of: &Predicted,
    ) -> Result<Value, BuildError> {
        Ok(of.logits()?.0.z_loss(b)?)
    }
}
