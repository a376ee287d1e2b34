//! `linear`: numbers that are compared with given ones, at each position or for a whole sequence.

use super::rows::Rows;
use super::{Embedded, Output, OutputScope, numbers};
use crate::arguments::{Argument, Form, Silent};
use crate::layers::{LayerParam, MAX_WIDTH, Sizes, Start};
use crate::losses::Predicted;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, nn, ops};
use odec_program::ResultId;
use odec_program::manifest::Predicts;

const COLUMNS: Argument = Argument::unnamed(
    "number",
    Form::UnnamedWhole,
    Silent::Needed,
    "how many numbers there are",
);
const BIAS: Argument = Argument::flag("bias", "the map has a bias");

/// The part of a site, and the parameters below `output`.
const PART: &str = "linear";
const WEIGHT: &str = "linear.weight";
const BIAS_PATH: &str = "linear.bias";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    columns: u64,
    bias: bool,
    of: Rows,
}

impl Part for Linear {
    const DECLARATION: Declaration = Declaration {
        name: "linear",
        about: About {
            summary: "Numbers, linear in the last state at each position, in the mean of all of them, or in that of the class token.",
            formula: "y = x·Wᵀ + b, W [number, width]",
            source: "",
            notes: &[
                "The result is `values`, [batch, positions, number], or [batch, 1, number] of a whole sequence. What is compared with it are the targets of `data vectors(…)` (`mse`, `bce`), or the velocity between noise and `data images(…)` (`velocity`).",
            ],
        },
        arguments: &[COLUMNS, BIAS, Rows::OF],
        examples: &[
            Example {
                text: "output rmsnorm |> linear(3)",
                meaning: "three numbers at each position",
            },
            Example {
                text: "output rmsnorm |> linear(1, bias, of: mean)",
                meaning: "a number for the whole sequence",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let columns = r.unnamed_size(&COLUMNS, MAX_WIDTH);
        let bias = r.flag(&BIAS);
        let of = Rows::read(r, &Rows::OF);
        Some(Linear {
            columns: columns?,
            bias,
            of: of?,
        })
    }
}

impl Output for Linear {
    fn fit(&self, span: Span, sizes: Sizes, of: Embedded, sink: &mut Vec<Diagnostic>) {
        numbers::fit("linear", span, sizes, sink);
        self.of.fit(span, of, sink);
    }

    fn params(&self, of: Sizes) -> Vec<LayerParam> {
        let weight = LayerParam {
            path: WEIGHT.into(),
            shape: vec![self.columns, of.width],
            start: Start::Normal,
        };
        let bias = || LayerParam::vector(BIAS_PATH, self.columns, Start::Zeros);
        [weight].into_iter().chain(self.bias.then(bias)).collect()
    }

    fn result(&self) -> ResultId<'static> {
        ResultId::Values
    }

    fn columns(&self, _: Sizes) -> u64 {
        self.columns
    }

    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult {
        let x = self.of.build(b, state, w)?;
        let weight = w.param(b, WEIGHT)?;
        let bias = match self.bias {
            true => Some(w.param(b, BIAS_PATH)?),
            false => None,
        };
        b.part(PART, |b| {
            let y = nn::affine(b, x, nn::Affine { weight, bias })?;
            self.of.at_positions(b, y, w.leading())
        })
    }

    fn targets(&self, of: Sizes) -> ops::Input {
        numbers::targets(self.of, self.columns(of))
    }

    fn says(&self) -> Predicts {
        Predicts::Numbers
    }

    fn ahead(&self) -> u64 {
        0
    }

    fn predicted(&self, _: &mut Builder, values: Value, targets: Value) -> TypeResult<Predicted> {
        Ok(Predicted::Numbers { values, targets })
    }
}
