//! `velocity`: the mean square of what the velocity between noise and data is off (Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR).
//!
//! `x(t) = (1 − t) x₀ + t x₁` with normal noise x₀ and data x₁ moves with the velocity `x₁ − x₀`. Runs draw x₀ and t, as `time` says; the model is given
//! x(t) and t. So the loss itself is that of `mse`, over the rows of the input.

use super::numbers::{Comparison, OfNumbers};
use super::{Asked, incompatible};
use crate::arguments::{Argument, Called, Silent};
use crate::part::{About, Example, PartReading};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn};
use odec_program::bounds::Bounds;
use odec_program::manifest::{Loss, Times};

/// Largest magnitude of the mean, and largest deviation, of log(t / (1 − t)).
const MOST: f64 = 100.0;

/// Velocities at times that are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct OverTimes {
    pub times: Times,
}

pub type Velocity = OfNumbers<OverTimes>;

/// The laws of times: all from 0 to 1 alike, or log(t / (1 − t)) normal.
const UNIFORM: &str = "uniform";
const LOGIT_NORMAL: &str = "logit_normal";

const LAWS: &[Called] = &[
    Called {
        name: UNIFORM,
        arguments: &[],
    },
    Called {
        name: LOGIT_NORMAL,
        arguments: &[MEAN, STD],
    },
];
const MEAN: Argument = Argument::number(
    "mean",
    Bounds::Within(-MOST, MOST),
    Silent::Ratio(0, 1),
    "the mean of log(t/(1 − t))",
);
const STD: Argument = Argument::number(
    "std",
    Bounds::Within(1e-3, MOST),
    Silent::Ratio(1, 1),
    "its deviation",
);
const TIME: Argument = Argument::call(
    "time",
    LAWS,
    UNIFORM,
    "the law by which times are drawn: all from 0 to 1 alike, or log(t/(1 − t)) normal",
);

impl Comparison for OverTimes {
    const NAME: &'static str = "velocity";
    const ABOUT: About = About {
        summary: "How far off the velocity is by which noise becomes data: flow matching.",
        formula: "(v(x(t), t) − (x₁ − x₀))², the mean over columns, x(t) = (1 − t) x₀ + t x₁",
        source: "Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR; `logit_normal`: Esser et al. 2024, ICML, 3.1",
        notes: &[
            "x₀ is normal noise and x₁ data, images or vectors; both, and the time t from 0 to 1, are drawn for each row. The model reads x(t) as its input and t as a row or a condition: `embed linear(…), time_token`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[TIME];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "loss velocity",
            meaning: "times are drawn uniformly",
        },
        Example {
            text: "loss velocity(time: logit_normal)",
            meaning: "more of them in the middle",
        },
        Example {
            text: "loss velocity(time: logit_normal(mean: -1/2, std: 1))",
            meaning: "more of them near the noise",
        },
    ];

    fn read(r: &mut PartReading) -> Option<Self> {
        let times = r.call(&TIME, "this is no law of the time", |law, r| {
            if law == UNIFORM {
                return Some(Times::Uniform);
            }
            let (mean, std) = (r.number(&MEAN), r.number(&STD));
            Some(Times::LogitNormal {
                mean: mean?,
                std: std?,
            })
        });
        times.map(|times| OverTimes { times })
    }

    /// Says why the result is no velocity of the input.
    fn loss(&self, of: &Asked, sink: &mut Vec<Diagnostic>) -> Option<Loss> {
        let (moves, unit) = (of.input.value().ty, of.input.unit());
        let (message, help) = if of.input.vocab().is_some() {
            let what = format!(
                "`velocity` moves from noise to images or vectors, and this model reads {}",
                unit.many()
            );
            let inputs = "write `input patches(image: 28, patch: 4)` or `input vectors(width: 2, context: 1)`";
            (what, inputs.to_string())
        } else if !of.reads_time {
            let what = "`velocity` depends on the time, which this model does not read".to_string();
            (
                what,
                "write `embed linear(width: …), time_token, positions(learned)`".to_string(),
            )
        } else if of.targets != moves {
            let what = format!(
                "a velocity has {} numbers at each of the {}",
                moves.cols(),
                unit.many()
            );
            (
                what,
                format!("write `output … |> linear({})`", moves.cols()),
            )
        } else {
            return Some(Loss::Velocity);
        };
        sink.push(incompatible(of.term, &message).help(help));
        None
    }

    fn times(&self) -> Option<Times> {
        Some(self.times)
    }

    fn rows(b: &mut Builder, values: Value, targets: Value) -> TypeResult {
        nn::squared_error(b, values, targets)
    }
}
