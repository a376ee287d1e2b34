//! `learned`: a row of numbers for each kind of tokens.

use super::{EmbedScope, Embedding};
use crate::arguments::Argument;
use crate::inputs::Input;
use crate::layers::{Grid, LayerParam, MAX_WIDTH, Start};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value, ops};

const WIDTH: Argument = Argument::size("width", "columns of the state");

/// The parameter, below `embed`.
const TABLE: &str = "token.weight";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    width: u64,
}

impl Part for Learned {
    const DECLARATION: Declaration = Declaration {
        name: "learned",
        about: About {
            summary: "A row of `width` numbers for each kind of tokens, which is trained.",
            formula: "x = W[token], W [vocab, width]",
            source: "",
            notes: &["In fields, `width` stands for this number."],
        },
        arguments: &[WIDTH],
        examples: &[Example {
            text: "embed learned(width: 512)",
            meaning: "tokens alone; `attention(…, rope)` or a field sees their order",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let width = r.size(&WIDTH, MAX_WIDTH)?;
        Some(Learned { width })
    }
}

impl Embedding for Learned {
    fn width(&self, _: &dyn Input) -> u64 {
        self.width
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        if of.vocab().is_none() {
            let d = incompatible(span, "`learned` has a row for each kind of tokens");
            let d = d.label("the positions of this model's input hold numbers");
            sink.push(d.help(format!("write `embed linear(width: {})`", self.width)));
        }
    }

    fn params(&self, of: &dyn Input) -> Vec<LayerParam> {
        let table = |vocab| LayerParam {
            path: TABLE.into(),
            shape: vec![vocab, self.width],
            start: Start::Normal,
        };
        of.vocab().map(table).into_iter().collect()
    }

    fn table(&self) -> Option<&'static str> {
        Some(TABLE)
    }

    fn grid(&self, _: &dyn Input) -> Option<Grid> {
        None
    }

    fn build(
        &self,
        b: &mut Builder,
        (_, input): (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult {
        let table = w.param(b, TABLE)?;
        b.push1(ops::Embedding, &[table, input])
    }
}
