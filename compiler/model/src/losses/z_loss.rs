//! `z_loss`: keeps the sum of the exponentials of the logits near 1.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::error::BuildError;
use crate::scheme::args::Args;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct ZLoss;

impl LossTerm for ZLoss {
    const NAME: &'static str = "z_loss";
    const ASKS: bool = false;
    const IS_PLAIN: bool = false;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(_: &mut Args, _: u64, _: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        Some((ZLoss, None))
    }

    fn definition(&self) -> String {
        "(log Σ exp logits)²".into()
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
