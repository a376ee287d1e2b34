//! `masked(rate: 15%)`: cross-entropy of tokens that are hidden from the model.

use super::{LossTerm, Made, Predicted};
use crate::args::Args;
use crate::build::{BuildError, Model};
use crate::evolve::EvolveSpec;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::manifest::Loss;

use crate::args::{Bounds, real, report};

#[derive(Clone, Debug, PartialEq)]
pub struct Masked;

impl LossTerm for Masked {
    const NAME: &'static str = "masked";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;

    fn read(
        args: &mut Args,
        vocab: u64,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<(Self, Option<Loss>)> {
        let rate = args.required("rate", sink);
        let rate = rate.and_then(|e| report(real(e, Bounds::PositiveShare), sink));
        let token = vocab.saturating_sub(1);
        rate.map(|rate| (Masked, Some(Loss::Masked { rate, token })))
    }

    fn definition(&self) -> String {
        "−log p(target)".into()
    }

    fn fit(&self, _: Span, _: &[EvolveSpec], _: &mut Vec<Diagnostic>) {}

    fn step(&self, _: &mut Model, _: &mut Builder, _: &Made) -> Result<Vec<Value>, BuildError> {
        Ok(Vec::new())
    }

    fn rows(&self, _: &mut Model, b: &mut Builder, of: &Predicted) -> Result<Value, BuildError> {
        Ok(of.softmax.cross_entropy(b, of.targets)?)
    }
}
