//! `positions(sinusoidal)`: sines and cosines of rising wave lengths.

use super::Positions;
use crate::embeddings::EmbedScope;
use crate::layers::{LayerParam, Sizes};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sinusoidal;

impl Part for Sinusoidal {
    const DECLARATION: Declaration = Declaration {
        name: "sinusoidal",
        about: About {
            summary: "Sine and cosine of each position, for waves of many lengths; nothing is trained.",
            formula: "sin(p / 10⁴^(2i/width)) at column 2i, the cosine at column 2i + 1, p the position",
            source: "Vaswani et al. 2017, NeurIPS",
            notes: &["The paper multiplies the embedding by √width; odec does not."],
        },
        arguments: &[],
        examples: &[Example {
            text: "embed learned(width: 512), positions(sinusoidal)",
            meaning: "as in the first Transformer",
        }],
    };

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Sinusoidal)
    }
}

impl Positions for Sinusoidal {
    fn params(&self, _: Sizes) -> Vec<LayerParam> {
        Vec::new()
    }

    fn fit(&self, _: Span, _: Sizes, _: &mut Vec<Diagnostic>) {}

    fn rows(&self, b: &mut Builder, w: &mut dyn EmbedScope, _: Sizes) -> TypeResult {
        w.sinusoids(b)
    }
}
