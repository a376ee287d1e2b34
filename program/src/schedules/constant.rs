//! `constant`: one rate for all steps.

use super::{Position, Schedule};
use crate::choice::{About, Choice, Example, Visitor};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constant;

impl Choice for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn about(&self) -> About {
        About {
            summary: "The same rate for all steps; what is meant where no schedule is named.",
            formula: "1",
            source: "",
            notes: &[],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[Example {
            text: "constant",
            meaning: "no warm-up, no fall",
        }]
    }

    fn arguments(&mut self, _: &mut dyn Visitor) {}
}

impl Schedule for Constant {
    fn warmup(&self) -> u64 {
        0
    }

    fn factor(&self, _: Position) -> f64 {
        1.0
    }
}
