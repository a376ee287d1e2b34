//! `velocity`: the mean square of what the velocity between noise and data is off (Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR).
//!
//! `x(t) = (1 − t) x₀ + t x₁` with normal noise x₀ and data x₁ moves with the velocity `x₁ − x₀`. Runs draw x₀ and t, as `time` says; the model is given
//! x(t) and t. So the loss itself is that of `mse`, over the rows of the input.

use super::{Along, Compared, LossTerm, Predicted, StepTaken, Training};
use crate::codes;
use crate::error::BuildError;
use crate::scheme::args::{Args, Bounds};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Value, nn};
use odec_program::manifest::{Loss, Times};

/// Largest magnitude of the mean, and largest deviation, of log(t / (1 − t)).
const MOST: f64 = 100.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Velocity {
    pub times: Times,
}

/// `uniform`, or `logit_normal(mean: 0, std: 1)`.
fn times(args: &mut Args, sink: &mut Vec<Diagnostic>) -> Option<Times> {
    let Some(e) = args.labelled("time", sink) else {
        return Some(Times::Uniform);
    };
    let mut law = Args::of(e);
    let word = law.as_ref().map(|law| law.callee.name.clone());
    let before = sink.len();
    let times = match (word.as_deref(), &mut law) {
        (Some("uniform"), _) => Times::Uniform,
        (Some("logit_normal"), Some(law)) => {
            let mean = law.number("mean", Bounds::Within(-MOST, MOST), 0.0, sink);
            let std = law.number("std", Bounds::Within(1e-3, MOST), 1.0, sink);
            Times::LogitNormal {
                mean: mean?,
                std: std?,
            }
        }
        _ => {
            let message = "this is no law of the time";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
            sink.push(d.label("`uniform` or `logit_normal` is expected"));
            return None;
        }
    };
    law?.finish(&[], sink);
    (sink.len() == before).then_some(times)
}

impl LossTerm for Velocity {
    const NAME: &'static str = "velocity";
    const ASKS: bool = true;
    const IS_PLAIN: bool = true;
    const IS_OF_WEIGHTS: bool = false;
    const COMPARES: Option<Compared> = Some(Compared::Numbers);

    fn read(args: &mut Args, _: u64, sink: &mut Vec<Diagnostic>) -> Option<(Self, Option<Loss>)> {
        let times = times(args, sink)?;
        Some((Velocity { times }, Some(Loss::Velocity)))
    }

    fn definition(&self) -> String {
        "(v(x(t), t) − (x₁ − x₀))², the mean over columns, x(t) = (1 − t) x₀ + t x₁".into()
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
        let (values, targets) = of.numbers()?;
        Ok(nn::squared_error(b, values, targets)?)
    }
}
