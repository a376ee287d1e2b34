//! `smooth(10%)`: cross-entropy with label smoothing.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::codes;
use crate::error::BuildError;
use crate::scheme::args::{Args, Bounds, bounded, report};
use crate::scheme::scalar::{Scope, exact};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_graph::{Builder, Value};
use odec_program::manifest::Loss;

#[derive(Clone, Debug, PartialEq)]
pub struct Smooth {
    /// The part.
    eps: Exact,
}

impl LossTerm for Smooth {
    const NAME: &'static str = "smooth";
    const ASKS: bool = true;
    const IS_PLAIN: bool = false;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(args: &mut Args, _: u64, sink: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        let Some(part) = args.positional() else {
            let message =
                "`smooth` needs the share of the target that is spread over all tokens or classes";
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, args.span, message);
            sink.push(d.help("write `smooth(10%)`"));
            return None;
        };
        let eps = exact(part, &Scope::new());
        let eps = eps.and_then(|eps| bounded(eps, Bounds::BelowOne, part.span));
        let eps = report(eps, sink)?;
        Some((Smooth { eps }, Some(Loss::Next)))
    }

    fn definition(&self) -> String {
        let eps = &self.eps;
        format!("−Σ q log p, q = 1 − {eps} at the target + {eps}/n at each of n")
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
        Ok(softmax.smooth_cross_entropy(b, targets, &self.eps)?)
    }
}
