//! `rmsnorm`: columns divided by the root of their mean square, times a gain.

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
    "added to the mean square inside the root",
);

#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    gain: String,
    /// Of a head.
    width: u64,
    heads: u64,
    eps: Exact,
}

impl Layer for RmsNorm {
    const NAME: &'static str = "rmsnorm";
    const ABOUT: About = About {
        summary: "Divides each token's columns by the root of their mean square, and multiplies them by a trained gain.",
        formula: "x / √(mean(x²) + eps) · gain",
        source: "Zhang & Sennrich 2019, NeurIPS",
        notes: &[],
    };
    const ARGUMENTS: &'static [Argument] = &[EPS, HEADS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "rmsnorm",
            meaning: "with eps 1e-5",
        },
        Example {
            text: "rmsnorm(eps: 1e-6)",
            meaning: "as in LLaMA",
        },
        Example {
            text: "rmsnorm(heads: 8)",
            meaning: "each of eight heads by itself, with one gain for all: queries and keys of Qwen3",
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
        let gain = r.paths().path("norm", "gain");
        let (eps, heads) = (eps?, heads?);
        let norm = RmsNorm {
            gain,
            width: width / heads,
            heads,
            eps,
        };
        Some((norm, width))
    }

    fn params(&self) -> Vec<LayerParam> {
        vec![LayerParam::vector(&self.gain, self.width, Start::Ones)]
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let gain = w.param(b, &self.gain)?;
        at.place(b, part_of(&self.gain), |b| {
            nn::per_head(b, at.x, self.heads, |b, x| {
                nn::rmsnorm(b, x, gain, &self.eps)
            })
        })
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
