//! `cross_entropy`: the negative log-likelihood of the next token, or of the class.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::error::BuildError;
use crate::scheme::args::Args;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy;

impl LossTerm for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(_: &mut Args, _: u64, _: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        Some((CrossEntropy, Some(Loss::Next)))
    }

    fn definition(&self) -> String {
        "−log p(target)".into()
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
        let (softmax, targets) = of.logits()?;
        Ok(softmax.cross_entropy(b, targets)?)
    }
}
