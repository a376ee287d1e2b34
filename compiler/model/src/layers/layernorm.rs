//! `layernorm`: columns without their mean, divided by their deviation, times a gain, plus a bias.

use super::arguments::Silent;
use super::{
    About, Argument, Example, Facts, Inputs, Layer, LayerParam, Reading, Reads, Start, TypeResult,
    Weights, part_of,
};
use crate::scheme::args;
use odec_graph::{Builder, Exact, Value, nn};

const EPS: Argument = Argument::number(
    "eps",
    args::EPS,
    Silent::Ratio(1, 100_000),
    "added to the variance inside the root",
);

#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    gain: String,
    bias: String,
    width: u64,
    eps: Exact,
}

impl Layer for LayerNorm {
    const NAME: &'static str = "layernorm";
    const ABOUT: About = About {
        summary: "Subtracts the mean of each token's columns, divides by their standard deviation, multiplies by a trained gain and adds a trained bias.",
        formula: "(x − mean(x)) / √(var(x) + eps) · gain + bias",
        source: "Ba, Kiros & Hinton 2016, arXiv:1607.06450",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[EPS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "layernorm",
            meaning: "with eps 1e-5",
        },
        Example {
            text: "layernorm(eps: 1e-12)",
            meaning: "as in BERT",
        },
    ];
    const ROLE: Option<&'static str> = Some("norm");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let eps = r.number(&EPS);
        let paths = r.paths();
        let norm = LayerNorm {
            gain: paths.path("norm", "gain"),
            bias: paths.path("norm", "bias"),
            width,
            eps: eps?,
        };
        Some((norm, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        vec![
            LayerParam::vector(&self.gain, self.width, Start::Ones),
            LayerParam::vector(&self.bias, self.width, Start::Zeros),
        ]
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let (gain, bias) = (w.param(b, &self.gain)?, w.param(b, &self.bias)?);
        let norm = |b: &mut Builder| nn::layernorm(b, at.x, gain, bias, &self.eps);
        b.part(part_of(&self.gain), norm)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
