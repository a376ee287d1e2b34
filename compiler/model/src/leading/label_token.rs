//! `label_token`: a row that says of what class the output is to be.

use super::{Leading, Rows, Told, not_of_tokens};
use crate::arguments::Argument;
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, MAX_WIDTH, Start};
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TensorType, nn, ops};
use odec_program::{Dim, names};

const CLASSES: Argument = Argument::size("classes", "how many classes there are");
const DROPPED: Argument = Argument::percent(
    "dropped",
    (0, 50),
    0,
    "how many of the labels are left out in training (l is 0 then), so that `odec generate --guidance` has a velocity without a class (Ho & Salimans 2022)",
);

/// What is said after a share that is out of range.
const NOT_DROPPED: &str = "of the labels cannot be left out";

/// The part of a site, and the parameter below `embed`.
const PART: &str = "label_token";
const WEIGHT: &str = "label_token.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelToken {
    classes: u64,
    dropped_percent: u32,
}

impl Part for LabelToken {
    const DECLARATION: Declaration = Declaration {
        name: "label_token",
        about: About {
            summary: "A row before those of the input, which is trained for each class of the data.",
            formula: "x = [W l; x₁; x₂; …], l 1 at the class and 0 at all others; W [width, classes]",
            source: "Bao et al. 2023, CVPR (U-ViT)",
            notes: &[
                "For `loss velocity`, whose data give l as an input `label`, [batch, 1, classes]. `odec generate` draws samples of the class that it is asked for.",
            ],
        },
        arguments: &[CLASSES, DROPPED],
        examples: &[
            Example {
                text: "embed linear(width: 512, bias), time_token, label_token(classes: 10)",
                meaning: "with `data images(…, classes: 10)`",
            },
            Example {
                text: "embed linear(width: 512, bias), time_token, label_token(classes: 10, dropped: 10%)",
                meaning: "for guidance",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let classes = r.size(&CLASSES, MAX_WIDTH);
        let dropped_percent = r.percent(&DROPPED, NOT_DROPPED);
        Some(LabelToken {
            classes: classes?,
            dropped_percent: dropped_percent?,
        })
    }
}

impl Leading for LabelToken {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        not_of_tokens("a row of the class", span, of, sink);
    }

    fn told(&self) -> Told {
        Told::Class {
            classes: self.classes,
            dropped_percent: self.dropped_percent,
        }
    }

    fn count(&self) -> u64 {
        1
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        vec![LayerParam {
            path: WEIGHT.into(),
            shape: vec![width, self.classes],
            start: Start::Normal,
        }]
    }

    fn rows(&self, b: &mut Builder, _: u64, w: &mut dyn EmbedScope) -> Rows {
        let label = ops::Input {
            name: names::LABEL.into(),
            ty: TensorType::real([Dim::Batch, Dim::Fixed(1), Dim::Fixed(self.classes)]),
        };
        let label = b.push1(label, &[])?;
        let weight = w.param(b, WEIGHT)?;
        Ok(vec![b.part(PART, |b| nn::linear(b, label, weight))?])
    }

    fn part(&self) -> &'static str {
        PART
    }
}
