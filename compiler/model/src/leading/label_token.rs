//! `label_token`: a row that says of what class the output is to be.

use super::{Leading, Told, not_of_tokens};
use crate::arguments::Argument;
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, MAX_WIDTH, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TensorType, TypeResult, nn, ops};
use odec_program::{Dim, names};

const CLASSES: Argument = Argument::size("classes", "how many classes there are");

/// The part of a site, and the parameter below `embed`.
const PART: &str = "label_token";
const WEIGHT: &str = "label_token.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelToken {
    classes: u64,
}

impl Part for LabelToken {
    const DECLARATION: Declaration = Declaration {
        name: "label_token",
        about: About {
            summary: "A row before those of the input, which is trained for each class of the data.",
            formula: "x = [W l; x₁; x₂; …], l 1 at the class and 0 at all others; W [width, classes]",
            source: "Bao et al. 2023, CVPR (U-ViT)",
            notes: &[
                "For `loss velocity`, whose data give l as an input `label`, [batch, 1, classes]. `odec generate` draws images of the class that it is asked for.",
            ],
        },
        arguments: &[CLASSES],
        examples: &[Example {
            text: "embed linear(width: 512, bias), time_token, label_token(classes: 10)",
            meaning: "with `data images(…, classes: 10)`",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let classes = r.size(&CLASSES, MAX_WIDTH)?;
        Some(LabelToken { classes })
    }
}

impl Leading for LabelToken {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        not_of_tokens("a row of the class", span, of, sink);
    }

    fn told(&self) -> Told {
        Told::Class(self.classes)
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        vec![LayerParam {
            path: WEIGHT.into(),
            shape: vec![width, self.classes],
            start: Start::Normal,
        }]
    }

    fn row(&self, b: &mut Builder, _: u64, w: &mut dyn EmbedScope) -> TypeResult {
        let label = ops::Input {
            name: names::LABEL.into(),
            ty: TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(self.classes)]),
        };
        let label = b.push1(label, &[])?;
        let weight = w.param(b, WEIGHT)?;
        b.part(PART, |b| nn::linear(b, label, weight))
    }

    fn part(&self) -> &'static str {
        PART
    }
}
