//! `masked(rate: 15%)`: cross-entropy of masked tokens.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::arguments::{Argument, Silent};
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::bounds::Bounds;
use odec_program::manifest::Loss;

const RATE: Argument = Argument::number(
    "rate",
    Bounds::PositiveShare,
    Silent::Needed,
    "the chance of each token to be hidden; at least one of every window is",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Masked {
    rate: f64,
}

impl LossTerm for Masked {
    const NAME: &'static str = "masked";
    const ABOUT: About = About {
        summary: "The cross-entropy of tokens that are hidden from the model, which fills them in.",
        formula: "−log p(target)",
        source: "Devlin et al. 2019, NAACL, 3.1",
        notes: &[
            "The mean is over hidden tokens. A hidden token is read as the last kind of token, so bytes need `tokens(vocab: 257, …)`; what separates `segments(…)` is not hidden. Which tokens are hidden depends on seed, step and place, and evaluations always hide the same ones.",
            "Such a model may attend to all tokens, without `causal`, and does not generate.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[RATE];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss masked(rate: 15%)",
        meaning: "hides as many tokens as BERT does",
    }];
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(r: &mut PartReading) -> Option<Self> {
        r.needed_number(&RATE).map(|rate| Masked { rate })
    }

    fn asks(&self, vocab: u64) -> Option<Loss> {
        Some(Loss::Masked {
            rate: self.rate,
            token: vocab.saturating_sub(1),
            kept: None,
        })
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
        let (softmax, targets) = of.logits()?;
        Ok(softmax.cross_entropy(b, targets)?)
    }
}
