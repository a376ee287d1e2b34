//! `linear`: a linear warm-up, then a linear fall.

use super::{Position, Schedule};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};

const WARMUP: Argument =
    Argument::optional("warmup", "w, steps in which the rate rises to its peak");
const FLOOR: Argument = Argument::optional("floor", "the share of the peak rate at the end");

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Linear {
    pub warmup: u64,
    pub floor: f64,
}

impl Choice for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn about(&self) -> About {
        About {
            summary: "Rises linearly to the peak rate, then falls linearly.",
            formula: "t/w up to step t = w;  then 1 − (1 − floor) u, u from 0 to 1",
            source: "Devlin et al. 2019, BERT, appendix A.2",
            notes: &[],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "linear(warmup: 10%)",
                meaning: "down to 0",
            },
            Example {
                text: "linear(floor: 10%)",
                meaning: "without warm-up, down to a tenth of the rate",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.steps(&WARMUP, &mut self.warmup);
        v.number(&FLOOR, Bounds::Share, &mut self.floor);
    }
}

impl Schedule for Linear {
    fn warmup(&self) -> u64 {
        self.warmup
    }

    fn factor(&self, p: Position) -> f64 {
        let falling = || 1.0 - (1.0 - self.floor) * p.behind(self.warmup);
        p.rising(self.warmup).unwrap_or_else(falling)
    }
}
