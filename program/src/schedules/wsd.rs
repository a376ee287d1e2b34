//! `wsd`: a linear warm-up, a constant rate, then a short fall.

use super::{Position, Schedule};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};

const WARMUP: Argument =
    Argument::optional("warmup", "w, steps in which the rate rises to its peak");
const DECAY: Argument = Argument::needed("decay", "d, steps at the end in which the rate falls");
const SHAPE: Argument = Argument::optional("shape", "how it falls: f(u) = u, or f(u) = √u");
const FLOOR: Argument = Argument::optional("floor", "the share of the peak rate at the end");

const LINEAR: &str = "linear";
const SQRT: &str = "sqrt";
const SHAPES: [&str; 2] = [LINEAR, SQRT];

#[derive(Clone, Debug, PartialEq)]
pub struct Wsd {
    pub warmup: u64,
    pub decay: u64,
    /// `linear` or `sqrt`.
    pub shape: &'static str,
    pub floor: f64,
}

impl Default for Wsd {
    fn default() -> Wsd {
        Wsd {
            warmup: 0,
            decay: 0,
            shape: LINEAR,
            floor: 0.0,
        }
    }
}

impl Choice for Wsd {
    fn name(&self) -> &'static str {
        "wsd"
    }

    fn about(&self) -> About {
        About {
            summary: "Rises linearly to the peak rate, stays there, and falls in the last steps: warm-up, stable, decay.",
            formula: "t/w up to step t = w;  then 1;  in the last d steps 1 − (1 − floor) f(u), u from 0 to 1",
            source: "Hu et al. 2024, \"MiniCPM\", arXiv:2404.06395, section 4; `sqrt`: Hägele et al. 2024, arXiv:2405.18392, section 3",
            notes: &[
                "A run that is resumed from a checkpoint before its decay, with more `--steps`, goes on at the peak rate: d counts from the end. With a time limit the decay takes the same share of the time as d is of the steps.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "wsd(warmup: 1%, decay: 10%)",
                meaning: "a linear fall to 0 in the last tenth of the steps",
            },
            Example {
                text: "wsd(decay: 20%, shape: sqrt, floor: 10%)",
                meaning: "without warm-up; a fall to a tenth of the rate that is fast at first",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.steps(&WARMUP, &mut self.warmup);
        v.steps(&DECAY, &mut self.decay);
        v.word(&SHAPE, &SHAPES, &mut self.shape);
        v.number(&FLOOR, Bounds::Share, &mut self.floor);
    }
}

impl Schedule for Wsd {
    fn warmup(&self) -> u64 {
        self.warmup
    }

    fn factor(&self, p: Position) -> f64 {
        let falling = || {
            let stable = p.steps.saturating_sub(self.decay).max(self.warmup);
            let u = p.behind(stable).max(0.0);
            let fallen = if self.shape == SQRT { u.sqrt() } else { u };
            1.0 - (1.0 - self.floor) * fallen
        };
        p.rising(self.warmup).unwrap_or_else(falling)
    }
}
