//! `cosine`: a linear warm-up, then half a cosine.

use super::{Position, Schedule};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};

const WARMUP: Argument =
    Argument::optional("warmup", "w, steps in which the rate rises to its peak");
const FLOOR: Argument = Argument::optional("floor", "the share of the peak rate at the end");

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cosine {
    pub warmup: u64,
    pub floor: f64,
}

impl Choice for Cosine {
    fn name(&self) -> &'static str {
        "cosine"
    }

    fn about(&self) -> About {
        About {
            summary: "Rises linearly to the peak rate, then falls as half a cosine does.",
            formula: "t/w up to step t = w;  then floor + (1 − floor) (1 + cos π u)/2, u from 0 to 1",
            source: "Loshchilov & Hutter 2017, \"SGDR\", without restarts",
            notes: &[],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "cosine(warmup: 5%, floor: 10%)",
                meaning: "a warm-up of a twentieth of the steps, and a tenth of the rate at the end",
            },
            Example {
                text: "cosine(warmup: 200 steps)",
                meaning: "down to 0",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.steps(&WARMUP, &mut self.warmup);
        v.number(&FLOOR, Bounds::Share, &mut self.floor);
    }
}

impl Schedule for Cosine {
    fn warmup(&self) -> u64 {
        self.warmup
    }

    fn factor(&self, p: Position) -> f64 {
        p.rising(self.warmup).unwrap_or_else(|| {
            let u = p.behind(self.warmup);
            self.floor + (1.0 - self.floor) * 0.5 * (1.0 + (std::f64::consts::PI * u).cos())
        })
    }
}
