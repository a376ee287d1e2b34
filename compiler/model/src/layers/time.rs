//! `time`: the time at which a field is evaluated, or features of it.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Reading, Reads,
    SINUSOID_BASE, TypeResult, Weights,
};
use odec_graph::ops::{Broadcast, Reshape};
use odec_graph::{Builder, Value};
use odec_program::manifest::Waves;

const EMBED: Argument = Argument::whole(
    "embed",
    "the time itself, one column",
    "columns: waves, sine and cosine in turn",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Time {
    waves: Waves,
}

impl Layer for Time {
    const NAME: &'static str = "time";
    const ABOUT: About = About {
        summary: "The time at which the field is evaluated, or features of it, the same for all tokens. Its input does not matter.",
        formula: "t; with `embed`, sin(t / 10⁴^(2i/embed)) at column 2i, the cosine at column 2i + 1",
        source: "Vaswani et al. 2017, NeurIPS, for a number that need not be whole; Dehghani et al. 2019, ICLR",
        notes: &["Time is 0 at the start of an evolve and grows by h with each step."],
    };
    const ARGUMENTS: &'static [Argument] = &[EMBED];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "time(embed: 16)",
            meaning: "as in `concat(id, time(embed: 16)) |> linear`",
        },
        Example {
            text: "time",
            meaning: "as in `1/20*time*linear`, a map that grows with time",
        },
    ];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts {
        reads_time: true,
        diagonal: false,
    };
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let waves = match r.given(&EMBED) {
            Some(e) => Waves::Positions {
                width: r.whole(e, MAX_WIDTH)?,
                base: SINUSOID_BASE,
            },
            None => Waves::NONE,
        };
        Some((Time { waves }, waves.columns()))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let width = self.waves.columns();
        let row = w.time(b, self.waves)?;
        let row = b.push1(Reshape::fixed(&[width]), &[row])?;
        let to = b.ty(at.x).with_cols(width);
        b.push1(Broadcast { to }, &[row])
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
