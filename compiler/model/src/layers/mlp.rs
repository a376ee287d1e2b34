//! An activation, alone or between the two linear maps of an MLP, which `gelu` and `relu` have in common.

use super::arguments::Silent;
use super::function::X;
use super::network::{Network, values};
use super::{
    Argument, Form, Inputs, LayerParam, MAX_WIDTH, Map, Reading, Reads, TypeResult, Weights,
};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, nn};

pub const BIAS: Argument = Argument::flag("bias", "both maps of the MLP have a bias");
pub const HIDDEN: Argument = Argument::unnamed(
    "hidden",
    Form::Whole,
    Silent::Follows("no maps: the function element by element"),
    "columns between the two maps of an MLP",
);

/// `activation(x)`, or `down(activation(up(x)))`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    of: Network,
    maps: Option<[Map; 2]>,
    activation: nn::Activation,
}

impl Mlp {
    /// `activation`: reads what the layer says of it, between what it is applied to and the maps.
    pub fn read(
        r: &mut Reading,
        activation: impl FnOnce(&mut Reading) -> Option<nn::Activation>,
    ) -> Option<(Mlp, u64)> {
        let bias = r.flag(&BIAS);
        let [(of, width)] = r.operands([&X])?;
        let activation = activation(r);
        let hidden = r.given(&HIDDEN);
        let paths = r.paths();
        let maps = match hidden {
            Some(e) => {
                let hidden = r.whole(e, MAX_WIDTH)?;
                let up = paths.map("up", bias, [hidden, width]);
                Some([up, paths.map("down", bias, [width, hidden])])
            }
            None if bias => {
                let message = format!("`{}` without `hidden` has no maps", r.name());
                let d = Diagnostic::error(codes::MISSING_ARGUMENT, r.span(), message);
                let help = format!("write `{}(hidden: …, bias)`", r.name());
                return r.refuse(d.label("`bias` is for its linear maps").help(help));
            }
            None => None,
        };
        let activation = activation?;
        let mlp = Mlp {
            of,
            maps,
            activation,
        };
        Some((mlp, width))
    }

    pub fn params(&self) -> Vec<LayerParam> {
        let maps = self.maps.iter().flatten().flat_map(Map::params);
        self.of.params().into_iter().chain(maps).collect()
    }

    pub fn reads(&self) -> Reads {
        self.of.reads()
    }

    pub fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let of = values(std::slice::from_ref(&self.of), b, at, w)?;
        match &self.maps {
            Some([up, down]) => {
                let (up, down) = (up.build(b, w)?, down.build(b, w)?);
                nn::mlp(b, of[0], up, down, self.activation)
            }
            None => self.activation.of(b, of[0]),
        }
    }
}
