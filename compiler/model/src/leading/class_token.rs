//! `class_token`: a learned row, in whose last state the class is read.

use super::{Leading, Rows, Told, not_of_tokens};
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Builder;

/// The parameter, below `embed`.
const ROW: &str = "class_token";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassToken;

impl Part for ClassToken {
    const DECLARATION: Declaration = Declaration {
        name: "class_token",
        about: About {
            summary: "A row that is trained stands before those of the input; an output may read its last state alone.",
            formula: "x = [c; x₁; x₂; …], c [width]",
            source: "Dosovitskiy et al. 2021, ICLR, eq. 1",
            notes: &[
                "The context is one row longer than the input, and `positions` have a row for it. In fields, `context` stands for all rows.",
                "`odec exec` is given as many rows as the context has; the last one is not read.",
            ],
        },
        arguments: &[],
        examples: &[Example {
            text: "embed linear(width: 512, bias), class_token, positions(learned)",
            meaning: "as in ViT, with `output layernorm |> classes(10, of: class_token)`",
        }],
    };

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(ClassToken)
    }
}

impl Leading for ClassToken {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        not_of_tokens("a class token", span, of, sink);
    }

    fn told(&self) -> Told {
        Told::Nothing
    }

    fn count(&self) -> u64 {
        1
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        vec![LayerParam::vector(ROW, width, Start::Normal)]
    }

    fn rows(&self, b: &mut Builder, _: u64, w: &mut dyn EmbedScope) -> Rows {
        Ok(vec![w.param(b, ROW)?])
    }

    fn part(&self) -> &'static str {
        ROW
    }
}
