//! `mse`: the mean square of what is off.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::error::BuildError;
use crate::scheme::args::Args;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Mse;

impl LossTerm for Mse {
    const NAME: &'static str = "mse";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Numbers);

    fn read(_: &mut Args, _: u64, _: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        Some((Mse, Some(Loss::Mse)))
    }

    fn definition(&self) -> String {
        "(y − target)², the mean over columns".into()
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
        Ok(nn::squared_error(b, values, targets)?)
    }
}
