//! What terms share that compare numbers with given ones, row by row.

use super::{Along, Asked, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Term, Training};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value};
use odec_program::manifest::{Loss, Times};
use std::fmt::Debug;

/// How numbers are compared.
pub trait Comparison: Clone + Debug + PartialEq {
    const NAME: &'static str;
    const ABOUT: About;
    const ARGUMENTS: &'static [Argument];
    const EXAMPLES: &'static [Example];

    /// Reads its arguments.
    fn read(r: &mut PartReading) -> Option<Self>;
    /// As [`Asks::loss`].
    fn loss(&self, of: &Asked, sink: &mut Vec<Diagnostic>) -> Option<Loss>;
    /// As [`Asks::times`].
    fn times(&self) -> Option<Times>;
    /// Of each row, the mean over columns.
    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult;
}

/// The term of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct OfNumbers<C>(pub C);

impl<C: Comparison> LossTerm for OfNumbers<C>
where
    OfNumbers<C>: Into<Term>,
{
    const NAME: &'static str = C::NAME;
    const ABOUT: About = C::ABOUT;
    const ARGUMENTS: &'static [Argument] = C::ARGUMENTS;
    const EXAMPLES: &'static [Example] = C::EXAMPLES;
    const PLAIN: Option<Rows> = Some(rows::<C>);
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Numbers);

    fn read(r: &mut PartReading) -> Option<Self> {
        C::read(r).map(OfNumbers)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        Some(self)
    }

    fn definition(&self) -> String {
        C::ABOUT.formula.into()
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
        rows::<C>(b, of)
    }
}

impl<C: Comparison> Asks for OfNumbers<C> {
    fn loss(&self, of: &Asked, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        self.0.loss(of, sink)
    }

    fn times(&self) -> Option<Times> {
        self.0.times()
    }
}

fn rows<C: Comparison>(b: &mut Builder, of: &Predicted) -> Result<Value, BuildError> {
    let (values, targets) = of.numbers()?;
    Ok(C::rows(b, values, targets)?)
}
