//! `time`: features of the time at which a field is evaluated.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    SINUSOID_BASE, TypeResult, Weights,
};
use odec_graph::ops::{Broadcast, Reshape};
use odec_graph::{Builder, Value};
use odec_program::manifest::Waves;

const EMBED: Argument = Argument::size("embed", "columns: waves, sine and cosine in turn");

#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    width: u64,
}

impl Layer for Time {
    const NAME: &'static str = "time";
    const ABOUT: About = About {
        summary: "Features of the time at which the field is evaluated, the same for all tokens. Its input does not matter.",
        formula: "sin(t / 10⁴^(2i/embed)) at column 2i, the cosine at column 2i + 1",
        source: "Vaswani et al. 2017, NeurIPS, for a number that need not be whole; Dehghani et al. 2019, ICLR",
        notes: &["Time is 0 at the start of an evolve and grows by h with each step."],
    };
    const ARGUMENTS: &'static [Argument] = &[EMBED];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "time(embed: 16)",
        meaning: "as in `concat(id, time(embed: 16)) |> linear`",
    }];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts {
        reads_time: true,
        diagonal: false,
    };
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.size(&EMBED, MAX_WIDTH)?;
        Some((Time { width }, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let width = self.width;
        let waves = Waves::Positions {
            width,
            base: SINUSOID_BASE,
        };
        let row = w.time(b, waves)?;
        let row = b.push1(Reshape::fixed(&[width]), &[row])?;
        let to = b.ty(at.x).with_cols(width);
        b.push1(Broadcast { to }, &[row])
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
