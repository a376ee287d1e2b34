//! `id`: the numbers at each position, as they are.

use super::{EmbedScope, Embedding, without_rows};
use crate::inputs::Input;
use crate::layers::{Grid, LayerParam};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value};
use odec_program::Dim;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity;

impl Part for Identity {
    const DECLARATION: Declaration = Declaration {
        name: "id",
        about: About {
            summary: "The numbers at each position are the first state, as they are.",
            formula: "x = input",
            source: "",
            notes: &["In fields, `width` stands for the numbers at a position. There is nothing to train."],
        },
        arguments: &[],
        examples: &[Example {
            text: "embed id",
            meaning: "particles that fields move; `odec simulate` draws their paths",
        }],
    };

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Identity)
    }
}

impl Embedding for Identity {
    fn width(&self, of: &dyn Input) -> u64 {
        of.value().ty.cols()
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        if of.vocab().is_some() {
            let d = incompatible(span, "`id` takes the numbers at each position");
            let d = d.label("the positions of this model's input hold tokens");
            sink.push(d.help("write `embed learned(width: 256)`"));
        }
    }

    fn params(&self, _: &dyn Input) -> Vec<LayerParam> {
        Vec::new()
    }

    fn table(&self) -> Option<&'static str> {
        None
    }

    fn grid(&self, of: &dyn Input) -> Option<Grid> {
        of.grid().map(|sides| Grid {
            sides,
            leading: 0,
            fixed: matches!(of.value().ty.tokens(), Dim::Fixed(_)),
        })
    }

    fn build(
        &self,
        _: &mut Builder,
        (_, input): (&dyn Input, Value),
        _: &mut dyn EmbedScope,
    ) -> TypeResult {
        Ok(input)
    }

    fn read_by(&self, _: &mut Builder, _: Value, _: &mut dyn EmbedScope) -> TypeResult {
        without_rows(Self::DECLARATION.name)
    }
}
