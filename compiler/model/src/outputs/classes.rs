//! `classes`: a number for each class of a whole image, text or sequence of vectors, of which the softmax is how likely it is.

use super::rows::Rows;
use super::{Embedded, Output, OutputScope};
use crate::arguments::{Argument, Form, Silent};
use crate::layers::{LayerParam, MAX_WIDTH, Sizes, Start};
use crate::losses::Predicted;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TensorType, TypeResult, Value, nn, ops};
use odec_program::manifest::Predicts;
use odec_program::{Dim, ResultId, names};

const CLASSES: Argument = Argument::unnamed(
    "number",
    Form::UnnamedWhole,
    Silent::Needed,
    "how many classes there are, which are numbered from 0",
);

/// The part of a site, and the parameters below `output`.
const PART: &str = "classes";
const WEIGHT: &str = "classes.weight";
const BIAS: &str = "classes.bias";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    classes: u64,
    of: Rows,
}

impl Part for Classes {
    const DECLARATION: Declaration = Declaration {
        name: "classes",
        about: About {
            summary: "A number for each class of an image, a text or a sequence of vectors, linear in the mean of its last states, or in that of the class token.",
            formula: "y = mean(x)·Wᵀ + b over all positions, or c·Wᵀ + b, W [number, width]",
            source: "Dosovitskiy et al. 2021, ICLR, eq. 4 (class token); Zhai et al. 2022, CVPR (the mean in its place)",
            notes: &[
                "What is compared with them is the class of each image, sequence or text (`cross_entropy`, `smooth`).",
                "Of texts, the classes are those of `data labelled(…)`. The first token of a row is `begin`, whose last state `of: class_token` reads; the mean leaves padding out.",
                "An output with a label, beside `logits`, predicts the class of `data sentences(…)`: whether the second segment follows the first.",
            ],
        },
        arguments: &[CLASSES, Rows::OF_ONE],
        examples: &[Example {
            text: "output rmsnorm |> classes(10)",
            meaning: "digits; with a class token, `classes(10, of: class_token)`",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let classes = r.unnamed_size(&CLASSES, MAX_WIDTH);
        let of = Rows::read(r, &Rows::OF_ONE);
        Some(Classes {
            classes: classes?,
            of: of?,
        })
    }
}

impl Output for Classes {
    fn fit(&self, span: Span, _: Sizes, of: Embedded, sink: &mut Vec<Diagnostic>) {
        self.of.fit(span, of, sink);
    }

    fn params(&self, of: Sizes) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: WEIGHT.into(),
            shape: vec![self.classes, of.width],
            start: Start::Normal,
        };
        let bias = LayerParam::vector(BIAS, self.classes, Start::Zeros);
        vec![weight, bias]
    }

    fn result(&self) -> ResultId<'static> {
        ResultId::Logits
    }

    fn columns(&self, _: Sizes) -> u64 {
        self.classes
    }

    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult {
        let x = self.of.build(b, state, w)?;
        let weight = w.param(b, WEIGHT)?;
        let bias = Some(w.param(b, BIAS)?);
        b.part(PART, |b| nn::affine(b, x, nn::Affine { weight, bias }))
    }

    fn targets(&self, _: Sizes) -> ops::Input {
        ops::Input {
            name: names::TARGETS.into(),
            ty: TensorType::index([Dim::Batch, Dim::Fixed(1), Dim::Fixed(1)]),
        }
    }

    fn says(&self) -> Predicts {
        Predicts::Class
    }

    fn ahead(&self) -> u64 {
        0
    }

    fn predicted(&self, b: &mut Builder, result: Value, targets: Value) -> TypeResult<Predicted> {
        let softmax = nn::normaliser(b, result)?;
        Ok(Predicted::Logits { softmax, targets })
    }
}
