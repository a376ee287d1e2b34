//! `positions(learned)`: a row for each position, which is trained.

use super::Positions;
use crate::embeddings::EmbedScope;
use crate::layers::{LayerParam, Sizes, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult};

/// The parameter, below `embed`.
const TABLE: &str = "position.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned;

impl Part for Learned {
    const DECLARATION: Declaration = Declaration {
        name: "learned",
        about: About {
            summary: "A row of numbers for each position up to `context`, which is trained.",
            formula: "x = x + P[position], P [context, width]",
            source: "Devlin et al. 2019, NAACL",
            notes: &[],
        },
        arguments: &[],
        examples: &[Example {
            text: "embed learned(width: 512), positions(learned)",
            meaning: "as in BERT and GPT-2",
        }],
    };

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Learned)
    }
}

impl Positions for Learned {
    fn params(&self, of: Sizes) -> Vec<LayerParam> {
        vec![LayerParam {
            path: TABLE.into(),
            shape: vec![of.context, of.width],
            start: Start::Normal,
        }]
    }

    fn fit(&self, _: Span, _: Sizes, _: &mut Vec<Diagnostic>) {}

    fn rows(&self, b: &mut Builder, w: &mut dyn EmbedScope, _: Sizes) -> TypeResult {
        let table = w.param(b, TABLE)?;
        w.rows(b, table)
    }
}
