//! `state`: the last state itself.

use super::rows::Rows;
use super::{Embedded, Output, OutputScope, numbers};
use crate::layers::{LayerParam, Sizes};
use crate::losses::Predicted;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, ops};
use odec_program::ResultId;
use odec_program::manifest::Predicts;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    of: Rows,
}

impl Part for State {
    const DECLARATION: Declaration = Declaration {
        name: "state",
        about: About {
            summary: "The last state as it is, after the layers before this; nothing is trained.",
            formula: "y = x",
            source: "",
            notes: &[
                "The result is `values`, [batch, positions, width], or [batch, 1, width] of a whole sequence, compared as those of `linear` are.",
            ],
        },
        arguments: &[Rows::OF],
        examples: &[Example {
            text: "output state",
            meaning: "where the points of a flow are at its end",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        Rows::read(r, &Rows::OF).map(|of| State { of })
    }
}

impl Output for State {
    fn fit(&self, span: Span, sizes: Sizes, of: Embedded, sink: &mut Vec<Diagnostic>) {
        numbers::fit("state", span, sizes, sink);
        self.of.fit(span, of, sink);
    }

    fn params(&self, _: Sizes) -> Vec<LayerParam> {
        Vec::new()
    }

    fn result(&self) -> ResultId<'static> {
        ResultId::Values
    }

    fn columns(&self, of: Sizes) -> u64 {
        of.width
    }

    fn build(&self, b: &mut Builder, state: Value, w: &mut dyn OutputScope) -> TypeResult {
        let x = self.of.build(b, state, w)?;
        self.of.at_positions(b, x, w.leading())
    }

    fn targets(&self, of: Sizes) -> ops::Input {
        numbers::targets(self.of, of.width)
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
