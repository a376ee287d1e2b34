//! `kinetic`: how fast states move, for each token.

use super::{Along, Asks, Compared, LossTerm, Predicted, Rows, StepTaken, Training, incompatible, part_of, sum};
use crate::arguments::Argument;
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::{Mul, Recip, SumCols};
use odec_graph::{Builder, Value};
use odec_graph::{Exact, nn};

#[derive(Clone, Debug, PartialEq)]
pub struct Kinetic;

impl LossTerm for Kinetic {
    const NAME: &'static str = "kinetic";
    const ABOUT: About = About {
        summary: "How fast states move along the steps of all evolves.",
        formula: "1/(2 width) Σ over steps ‖x' − x‖²/h",
        source: "Finlay et al. 2020, ICML, arXiv:2002.02798",
        notes: &[
            "For each token ½∫‖dx/dt‖² per number, x' the state after a step of size h from x. Steps that are not made add nothing. Step sizes must be known, or those of adaptive steps.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "loss cross_entropy + 1e-4*kinetic",
        meaning: "prefers states that move little",
    }];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = None;

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Kinetic)
    }

    fn asks(&self) -> Option<&dyn Asks> {
        None
    }

    fn definition(&self) -> String {
        Self::ABOUT.formula.into()
    }

    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) {
        for e in evolves {
            if let Some(learned) = e.learned_h() {
                let message =
                    "`kinetic` divides by the step size, and a learned step size can become 0";
                let d = incompatible(span, message).also(learned, "learned here");
                sink.push(d.help("write `h = 1/steps`"));
            } else if !e.goes_forward() {
                let d = incompatible(span, "`kinetic` needs steps that go forward in time");
                sink.push(d.also(e.span(), "these steps").help("write `h = 1/steps`"));
            }
        }
    }

    fn step(
        &self,
        _: &mut dyn Training,
        b: &mut Builder,
        made: &StepTaken,
    ) -> Result<Vec<Value>, BuildError> {
        let (x, end) = (made.from, made.to);
        let moved = nn::combine(b, &[(Exact::one(), end), (Exact::int(-1), x)])?;
        let square = b.push1(Mul, &[moved, moved])?;
        let mut rows = b.push1(SumCols, &[square])?;
        let half = part_of(b.ty(x).cols().saturating_mul(2));
        let over = match made.h {
            Some(h) => {
                let over = b.push1(Recip, &[h])?;
                rows = b.push1(Mul, &[rows, over])?;
                half
            }
            None => {
                let over = made.known_h.as_ref().and_then(|h| h.recip().ok());
                &half * &over.ok_or_else(|| BuildError::Missing("1/h".into()))?
            }
        };
        Ok(vec![nn::combine(b, &[(over, rows)])?])
    }

    fn rows(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        _: &Predicted,
    ) -> Result<Value, BuildError> {
        sum(b, model.given(Self::NAME))
    }
}
