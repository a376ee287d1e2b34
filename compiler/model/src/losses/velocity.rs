//! `velocity`: the mean square of what the velocity between noise and data is off (Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR).
//!
//! `x(t) = (1 − t) x₀ + t x₁` with normal noise x₀ and data x₁ moves with the velocity `x₁ − x₀`. Runs draw x₀ and t, as `time` says; the model is given
//! x(t) and t. So the loss itself is that of `mse`, over the rows of the input.

use super::numbers::{Comparison, OfNumbers};
use crate::codes;
use crate::scheme::args::{Args, Bounds};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::manifest::{Loss, Times};

/// Largest magnitude of the mean, and largest deviation, of log(t / (1 − t)).
const MOST: f64 = 100.0;

/// Velocities at times that are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTimes {
    pub times: Times,
}

pub type Velocity = OfNumbers<OverTimes>;

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

impl Comparison for OverTimes {
    const NAME: &'static str = "velocity";
    const DEFINITION: &'static str =
        "(v(x(t), t) − (x₁ − x₀))², the mean over columns, x(t) = (1 − t) x₀ + t x₁";
    const LOSS: Loss = Loss::Velocity;

    fn read(args: &mut Args, sink: &mut Vec<Diagnostic>) -> Option<Self> {
        times(args, sink).map(|times| OverTimes { times })
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::squared_error(b, values, targets)
    }
}
