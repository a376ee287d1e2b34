//! `bce`: the negative log-likelihood of events, each of which happens or not.

use super::numbers::{Comparison, OfNumbers};
use super::{Asked, OF};
use crate::arguments::Argument;
use crate::part::{About, Example, PartReading};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::manifest::{Loss, Times};

#[derive(Clone, Debug, PartialEq)]
pub struct Events;

pub type Bce = OfNumbers<Events>;

impl Comparison for Events {
    const NAME: &'static str = "bce";
    const ABOUT: About = About {
        summary: "How unlikely the model says it is what happened, of events each of which happens or not.",
        formula: "−t log σ(y) − (1 − t) log(1 − σ(y)), t the target, the mean over columns",
        source: "",
        notes: &[
            "In nats. Each number y of the output is the logit of an event, σ(y) = 1/(1 + exp(−y)) its chance; t is from 0 to 1.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[OF];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss bce",
        meaning: "numbers say how likely events are",
    }];

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Events)
    }

    fn loss(&self, _: &Asked, _: &mut Vec<Diagnostic>) -> Option<Loss> {
        Some(Loss::Bce)
    }

    fn times(&self) -> Option<Times> {
        None
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::binary_cross_entropy(b, values, targets)
    }
}
