//! `bce`: the negative log-likelihood of events, each of which happens or not.

use super::numbers::{Comparison, OfNumbers};
use crate::scheme::args::Args;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Events;

pub type Bce = OfNumbers<Events>;

impl Comparison for Events {
    const NAME: &'static str = "bce";
    const DEFINITION: &'static str = "−t log σ(y) − (1 − t) log(1 − σ(y)), t the target, the mean over columns";
    const LOSS: Loss = Loss::Bce;

    fn read(_: &mut Args, _: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Events)
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::binary_cross_entropy(b, values, targets)
    }
}
