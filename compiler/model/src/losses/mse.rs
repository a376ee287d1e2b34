//! `mse`: the mean square of what is off.

use super::numbers::{Comparison, OfNumbers};
use super::{Asked, OF};
use crate::arguments::Argument;
use crate::part::{About, Example, PartReading};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::manifest::{Loss, Times};

#[derive(Clone, Debug, PartialEq)]
pub struct Square;

pub type Mse = OfNumbers<Square>;

impl Comparison for Square {
    const NAME: &'static str = "mse";
    const ABOUT: About = About {
        summary: "The mean square of what numbers are off.",
        formula: "(y − target)², the mean over columns",
        source: "",
        notes: &[
            "y are the numbers that the output `linear(…)` gives.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[OF];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss mse",
        meaning: "compares numbers with those that `data vectors(…)` has",
    }];

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Square)
    }

    fn loss(&self, _: &Asked, _: &mut Vec<Diagnostic>) -> Option<Loss> {
        Some(Loss::Mse)
    }

    fn times(&self) -> Option<Times> {
        None
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::squared_error(b, values, targets)
    }
}
