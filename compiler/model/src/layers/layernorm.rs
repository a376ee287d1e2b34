//! `layernorm`: columns without their mean, divided by their deviation, times a gain, plus a bias.

use super::arguments::Silent;
use super::function::{HEADS, heads};
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
    /// Of a head.
    width: u64,
    heads: u64,
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
    const ARGUMENTS: &'static [Argument] = &[EPS, HEADS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "layernorm",
            meaning: "with eps 1e-5",
        },
        Example {
            text: "layernorm(eps: 1e-12)",
            meaning: "as in BERT",
        },
        Example {
            text: "layernorm(heads: 4)",
            meaning: "each of four heads by itself, with one gain and one bias for all",
        },
    ];
    const ROLE: Option<&'static str> = Some("norm");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;
    const ROW_BY_ROW: bool = true;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let eps = r.number(&EPS);
        let heads = heads(r, width);
        let paths = r.paths();
        let (eps, heads) = (eps?, heads?);
        let norm = LayerNorm {
            gain: paths.path("norm", "gain"),
            bias: paths.path("norm", "bias"),
            width: width / heads,
            heads,
            eps,
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
        at.place(b, part_of(&self.gain), |b| {
            nn::per_head(b, at.x, self.heads, |b, x| {
                nn::layernorm(b, x, gain, bias, &self.eps)
            })
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
