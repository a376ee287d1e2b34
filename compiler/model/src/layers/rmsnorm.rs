//! `rmsnorm`: columns divided by the root of their mean square, times a gain.

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
    "added to the mean square inside the root",
);

#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    gain: String,
    width: u64,
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
    const ARGUMENTS: &'static [Argument] = &[EPS];
    const EXAMPLES: &'static [Example] = &[
        Example {
            text: "rmsnorm",
            meaning: "with eps 1e-5",
        },
        Example {
            text: "rmsnorm(eps: 1e-6)",
            meaning: "as in LLaMA",
        },
    ];
    const ROLE: Option<&'static str> = Some("norm");
    const FACTS: Facts = Facts::NONE;
    const GIVES_SHARES: bool = false;

    fn read(r: &mut Reading) -> Option<(Self, u64)> {
        let width = r.width();
        let eps = r.number(&EPS);
        let gain = r.paths().path("norm", "gain");
        let norm = |eps| RmsNorm { gain, width, eps };
        Some((norm(eps?), width))
    }

    fn params(&self) -> Vec<LayerParam> {
        vec![LayerParam::vector(&self.gain, self.width, Start::Ones)]
    }

    fn reads(&self) -> Reads {
        Reads::default()
    }

    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult {
        let gain = w.param(b, &self.gain)?;
        let norm = |b: &mut Builder| nn::rmsnorm(b, at.x, gain, &self.eps);
        b.part(part_of(&self.gain), norm)
    }

    fn rates(&self, _: &mut Builder, _: &mut dyn Weights) -> TypeResult<Option<Value>> {
        Ok(None)
    }
}
