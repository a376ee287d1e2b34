//! `masked(rate: 15%)`: cross-entropy of masked tokens.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::error::BuildError;
use crate::scheme::args::{Args, Bounds, real, report};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Masked;

impl LossTerm for Masked {
    const NAME: &'static str = "masked";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(
        args: &mut Args,
        vocab: u64,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<(Self, Option<Loss>)> {
        let rate = args.required("rate", sink);
        let rate = rate.and_then(|e| report(real(e, Bounds::PositiveShare), sink));
        let token = vocab.saturating_sub(1);
        let kept = None;
        rate.map(|rate| (Masked, Some(Loss::Masked { rate, token, kept })))
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
