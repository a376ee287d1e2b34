//! `smooth(10%)`: cross-entropy with label smoothing.

use super::{Along, Asked, Asks, Compared, LossTerm, OF, Predicted, Rows, StepTaken, Training};
use crate::arguments::{Argument, Form, Silent};
use crate::error::BuildError;
use crate::part::{About, Example, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_graph::{Builder, Value};
use odec_program::bounds::Bounds;
use odec_program::manifest::{Loss, Times};

const SHARE: Argument = Argument::unnamed(
    "share",
    Form::UnnamedNumber(Bounds::BelowOne),
    Silent::Needed,
    "the share of the target that is spread over all tokens or classes",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Smooth {
    share: Exact,
}

impl LossTerm for Smooth {
    const NAME: &'static str = "smooth";
    const ABOUT: About = About {
        summary: "Cross-entropy with targets of which a share is spread over all kinds of tokens or all classes.",
        formula: "−Σ q log p, q = 1 − share at the target + share/n at each of n",
        source: "Szegedy et al. 2016, CVPR, arXiv:1512.00567, 7",
        notes: &[
            "The model is evaluated by `cross_entropy`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[SHARE, OF];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "loss smooth(10%)",
            meaning: "one tenth of each target is spread",
        },
        Example {
            text: "loss smooth(share: 1/10) + 1e-4*z_loss",
            meaning: "the same with the argument's name, and another term",
        },
    ];
    const PLAIN: Option<Rows> = None;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Logits);

    fn read(r: &mut PartReading) -> Option<Self> {
        r.share(&SHARE).map(|share| Smooth { share })
    }

    fn asks(&self) -> Option<&dyn Asks> {
        Some(self)
    }

    fn definition(&self) -> String {
        let share = &self.share;
        format!("−Σ q log p, q = 1 − {share} at the target + {share}/n at each of n")
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
        Ok(softmax.smooth_cross_entropy(b, targets, &self.share)?)
    }
}

impl Asks for Smooth {
    fn loss(&self, of: &Asked, _: &mut Vec<Diagnostic>) -> Option<Loss> {
        Some(of.given)
    }

    fn times(&self) -> Option<Times> {
        None
    }
}
