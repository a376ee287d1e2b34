//! `swiglu`: an MLP whose hidden columns are multiplied by a gate.

use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, MAX_WIDTH, Map, Reading, Reads,
    TypeResult, Weights,
};
use odec_graph::{Builder, Value, nn};

const BIAS: Argument = Argument::flag("bias", "all three maps have a bias");
const HIDDEN: Argument = Argument::size("hidden", "columns of gate and up");

#[derive(Clone, Debug, PartialEq)]
pub struct SwiGlu {
    gate: Map,
    up: Map,
    down: Map,
}

impl Layer for SwiGlu {
    const NAME: &'static str = "swiglu";
    const ABOUT: About = About {
        summary: "An MLP applied to each token: its hidden columns are multiplied by a gate of the same width.",
        formula: "down(silu(gate(x)) · up(x)), silu(z) = z / (1 + e^(−z))",
        source: "Shazeer 2020, arXiv:2002.05202",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[BIAS, HIDDEN];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "swiglu(hidden: 4*width)",
            meaning: "four times as wide as the state",
        },
        Example {
            text: "swiglu(hidden: 24, bias)",
            meaning: "with biases",
        },
    ];
    const ROLE: Option<&'static str> = Some("mlp");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let bias = r.flag(&BIAS);
        let hidden = r.size(&HIDDEN, MAX_WIDTH);
        let paths = r.paths();
        let hidden = hidden?;
        let layer = SwiGlu {
            gate: paths.map("gate", bias, [hidden, width]),
            up: paths.map("up", bias, [hidden, width]),
            down: paths.map("down", bias, [width, hidden]),
        };
        Some((layer, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        let maps = [&self.gate, &self.up, &self.down];
        maps.into_iter().flat_map(Map::params).collect()
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let gate = self.gate.build(b, w)?;
        let (up, down) = (self.up.build(b, w)?, self.down.build(b, w)?);
        nn::swiglu(b, at.x, gate, up, down)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
