//! `decay`: a number below 0 for each column, times the column.
//!
//! `λ = −rate·e^w` is a decay, however w moves. Alone it is a linear field: functions such as `exp(h*L)` act column by column.

use super::arguments::Silent;
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, Start, TypeResult,
    Weights,
};
use crate::scheme::args::Bounds;
use odec_graph::ops::{Exp, Mul};
use odec_graph::{Builder, Exact, Value, nn};

const RATE: Argument = Argument::number(
    "rate",
    Bounds::Within(1e-6, 1e6),
    Silent::Ratio(1, 1),
    "the initial rate of decay",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Decay {
    /// The path of w.
    log_rate: String,
    rate: Exact,
    width: u64,
}

impl Layer for Decay {
    const NAME: &'static str = "decay";
    const ABOUT: About = About {
        summary: "Multiplies each column by a trained number below 0.",
        formula: "λ x, λ = −rate · e^w for each column, w = 0 at the start",
        source: "Gu & Dao 2023, arXiv:2312.00752, for the form of λ",
        notes: &[
            "Alone it is a linear field for exponential integrators: `exp(h*L)(x)`, `phi1(h/2*L)(F(x))`.",
        ],
    };
    const ARGUMENTS: &'static [Argument] = &[RATE];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "decay",
            meaning: "every column decays as e^(−t) at the start",
        },
        Example {
            text: "decay(rate: 1/8)",
            meaning: "eight times as slowly",
        },
    ];
    const ROLE: Option<&'static str> = Some("decay");
    const FACTS: Facts = Facts {
        reads_time: false,
        diagonal: true,
    };
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = true;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let rate = r.number(&RATE);
        let log_rate = r.paths().path("decay", "log_rate");
        let decay = |rate| Decay {
            log_rate,
            rate,
            width,
        };
        Some((decay(rate?), width))
    }

    fn params(&self) -> Vec<LayerParam> {
        vec![LayerParam::vector(&self.log_rate, self.width, Start::Zeros)]
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let rates = self.lambda(b, w)?;
        b.push1(Mul, &[at.x, rates])
    }

    fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<Option<Value>> {
        self.lambda(b, w).map(Some)
    }
}

impl Decay {
    /// λ, a number for each column.
    fn lambda(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult {
        let logs = w.param(b, &self.log_rate)?;
        let rates = b.push1(Exp, &[logs])?;
        nn::combine(b, &[(-&self.rate, rates)])
    }
}
