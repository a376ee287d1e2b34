//! `cross_entropy`: the negative log-likelihood of the next token, or of the class.

use super::{Along, Asked, Asks, Compared, LossTerm, OF, Predicted, Rows, StepTaken, Training};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value};
use odec_program::manifest::{Loss, Times};

#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy;

impl LossTerm for CrossEntropy {
    const NAME: &'static str = "cross_entropy";
    const ABOUT: About = About {
        summary: "How unlikely the model says the right token or class is.",
        formula: "−log p(target)",
        source: "",
        notes: &[
            "In nats. p is the softmax of the logits that `logits` and `classes` give; the mean is over all target tokens, or over texts, images or sequences that have a class. A model that predicts tokens or a class has this loss where its train block says none, and is evaluated by this term whatever its loss is.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[OF];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "loss cross_entropy",
            meaning: "predicts the next token, or the class",
        },
        Example {
            text: "loss masked(rate: 15%) + cross_entropy(of: follows)",
            meaning: "beside tokens, what an output `output follows: classes(2)` says",
        },
    ];
    const PLAIN: Option<Rows> = Some(rows);
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(CrossEntropy)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        Some(self)
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
        rows(b, of)
    }
}

impl Asks for CrossEntropy {
    fn loss(&self, of: &Asked, _: &mut Vec<Diagnostic>) -> Option<Loss> {
        Some(of.given)
    }

    fn times(&self) -> Option<Times> {
        None
    }
}

pub(super) fn rows(b: &mut Builder, of: &Predicted) -> Result<Value, BuildError> {
    let (softmax, targets) = of.logits()?;
    Ok(softmax.cross_entropy(b, targets)?)
}
