//! `mse`: the mean square of what is off.

use super::numbers::{Comparison, OfNumbers};
use crate::scheme::args::Args;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Square;

pub type Mse = OfNumbers<Square>;

impl Comparison for Square {
    const NAME: &'static str = "mse";
    const DEFINITION: &'static str = "(y − target)², the mean over columns";
    const LOSS: Loss = Loss::Mse;

    fn read(_: &mut Args, _: &mut Vec<Diagnostic>) -> Option<Self> {
        Some(Square)
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::squared_error(b, values, targets)
    }
}
