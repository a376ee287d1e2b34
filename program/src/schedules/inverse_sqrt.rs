//! `inverse_sqrt`: a linear warm-up, then one over the root of the step.

use super::{Position, Schedule};
use crate::choice::{About, Argument, Choice, Example, Visitor};

const WARMUP: Argument = Argument::needed(
    "warmup",
    "w, steps in which the rate rises to its peak; 0 is taken for 1",
);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct InverseSqrt {
    pub warmup: u64,
}

impl Choice for InverseSqrt {
    fn name(&self) -> &'static str {
        "inverse_sqrt"
    }

    fn about(&self) -> About {
        About {
            summary: "Rises linearly to the peak rate, then falls as one over the root of the step: the rate does not depend on how long the run is.",
            formula: "min(t/w, √(w/t)) at step t, counted from 1",
            source: "Vaswani et al. 2017, section 5.3",
            notes: &[
                "There the rate at the peak is 1/√(width · w): write it as the optimiser's `lr`.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[Example {
            text: "inverse_sqrt(warmup: 400 steps)",
            meaning: "a quarter of the peak rate after 6400 steps",
        }]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.steps(&WARMUP, &mut self.warmup);
    }
}

impl Schedule for InverseSqrt {
    fn warmup(&self) -> u64 {
        self.warmup
    }

    fn factor(&self, p: Position) -> f64 {
        let warmup = self.warmup.max(1);
        let falling = || (warmup as f64 / (p.at + 1.0)).sqrt();
        p.rising(warmup).unwrap_or_else(falling)
    }
}
