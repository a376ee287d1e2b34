//! Two linear maps with an activation between them, which `gelu` and `relu` have in common.

use super::{Argument, Inputs, LayerParam, MAX_WIDTH, Map, Reading, TypeResult, Weights};
use odec_graph::{Builder, nn};

pub const BIAS: Argument = Argument::flag("bias", "both maps have a bias");
pub const HIDDEN: Argument = Argument::size("hidden", "columns between the two maps");

/// `down(activation(up(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    up: Map,
    down: Map,
    activation: nn::Activation,
}

impl Mlp {
    /// `activation`: none, where something else is wrong.
    pub fn read(r: &mut Reading, activation: Option<nn::Activation>) -> Option<(Mlp, u64)> {
        let width = r.width();
        let bias = r.flag(&BIAS);
        let hidden = r.size(&HIDDEN, MAX_WIDTH);
        let paths = r.paths();
        let (hidden, activation) = (hidden?, activation?);
        let mlp = Mlp {
            up: paths.map("up", bias, [hidden, width]),
            down: paths.map("down", bias, [width, hidden]),
            activation,
        };
        Some((mlp, width))
    }

    pub fn params(&self) -> Vec<LayerParam> {
        [self.up.params(), self.down.params()].concat()
    }

    pub fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let (up, down) = (self.up.build(b, w)?, self.down.build(b, w)?);
        nn::mlp(b, at.x, up, down, self.activation)
    }
}
