//! `positions`: a row for each token's position.

use super::arguments::Silent;
use super::{
    About, Argument, Example, Facts, Form, Inputs, Layer, LayerParam, Reading, Reads, TypeResult,
    Weights,
};
use crate::codes;
use crate::scheme::scalar::not_supported;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Broadcast;
use odec_graph::{Builder, Exact, Value, nn};

const LEARNED: Argument = Argument::flag(
    "learned",
    "not supported in a field: write `embed learned(width: …), positions(learned)`",
);
const SINUSOIDAL: Argument = Argument::unnamed(
    "sinusoidal",
    Form::Flag,
    Silent::Needed,
    "sines and cosines of many wavelengths",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Positions {
    width: u64,
}

impl Layer for Positions {
    const NAME: &'static str = "positions";
    const ABOUT: About = About {
        summary: "A row for each token's position, as wide as the state. Its input does not matter.",
        formula: "sin(p / 10⁴^(2i/width)) at column 2i, the cosine at column 2i + 1, p the position",
        source: "Vaswani et al. 2017, NeurIPS",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[LEARNED, SINUSOIDAL];
    const EXAMPLES: &'static [Example] = &[Example {
        text: "positions(sinusoidal)",
        meaning: "as in `field clock = time(embed: width) + positions(sinusoidal)`",
    }];
    const ROLE: Option<&'static str> = None;
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const READS_INPUT: bool = false;
    const ROW_BY_ROW: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let (learned, sinusoidal) = (r.flag(&LEARNED), r.flag(&SINUSOIDAL));
        if learned {
            let d = not_supported(r.span(), "`positions(learned)` inside a field");
            return r.refuse(d.help(
                "write `positions(sinusoidal)`, or `embed learned(width: …), positions(learned)`",
            ));
        }
        if !sinusoidal {
            let message = "`positions` takes one word";
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, r.span(), message);
            return r.refuse(d.help("write `positions(sinusoidal)`"));
        }
        let width = r.state_width();
        Some((Positions { width }, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        Vec::new()
    }

    fn reads(&self) -> Reads {
        Reads {
            sinusoids: true,
            ..Reads::default()
        }
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let table = w.positions(b)?;
        let to = b.ty(at.x).with_cols(self.width);
        let none = nn::constant(b, Exact::zero())?;
        let none = b.push1(Broadcast { to }, &[none])?;
        nn::with_positions(b, none, table)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
