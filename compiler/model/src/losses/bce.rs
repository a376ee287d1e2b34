//! `bce`: the negative log-likelihood of events, each of which happens or not.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::error::BuildError;
use crate::scheme::args::Args;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Bce;

impl LossTerm for Bce {
    const NAME: &'static str = "bce";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Numbers);

    fn read(_: &mut Args, _: u64, _: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        Some((Bce, Some(Loss::Bce)))
    }

    fn definition(&self) -> String {
        "−t log σ(y) − (1 − t) log(1 − σ(y)), t the target, the mean over columns".into()
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
        let (values, targets) = of.numbers()?;
        Ok(nn::binary_cross_entropy(b, values, targets)?)
    }
}
