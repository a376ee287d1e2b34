//! `segments`: a row for each segment of a text, which separators end.

use super::Marks;
use crate::arguments::{Argument, Form, Silent};
use crate::codes;
use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::{LayerParam, Start};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::matmul::Layout;
use odec_graph::ops::{Equals, MatMul, OneHot};
use odec_graph::{Builder, Exact, TypeResult, Value, nn};

/// The most segments of a text: a token's is a column of a matrix.
const MOST: u64 = 4096;
/// Beyond all vocabularies.
const MOST_TOKENS: u64 = 1 << 32;

const NUMBER: Argument = Argument::unnamed(
    "number",
    Form::UnnamedWhole,
    Silent::Needed,
    "how many segments there are; all that stands behind the last separator that counts is the last one",
);
const SEPARATOR: Argument = Argument::needed_index(
    "separator",
    "the number of the token that ends a segment and belongs to it",
);

/// The parameter, below `embed`, and the part of a site.
const TABLE: &str = "segment.weight";
const PART: &str = "segment";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    number: u64,
    separator: u64,
}

impl Part for Segments {
    const DECLARATION: Declaration = Declaration {
        name: "segments",
        about: About {
            summary: "A row of numbers for each segment of a text, which is trained; a token has that of its segment.",
            formula: "x = x + G[min(separators before the token, number − 1)], G [number, width]",
            source: "Devlin et al. 2019, NAACL, figure 2 (two segments, and `[SEP]` between them)",
            notes: &[
                "Separators are counted from the beginning of each row of a batch. With `loss masked(…)` none of them is hidden.",
            ],
        },
        arguments: &[NUMBER, SEPARATOR],
        examples: &[Example {
            text: "embed learned(width: 512), positions(learned), segments(2, separator: 102)",
            meaning: "as in BERT, whose vocabulary has `[SEP]` at 102",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let number = r.unnamed_size(&NUMBER, MOST);
        let separator = r.needed_index(&SEPARATOR, MOST_TOKENS);
        Some(Segments {
            number: number?,
            separator: separator?,
        })
    }
}

impl Marks for Segments {
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        let Some(vocab) = of.vocab() else {
            let d = incompatible(span, "`segments` are counted by tokens");
            let what = of.unit().many();
            return sink.push(d.label(format!("this model reads {what}")));
        };
        if self.separator >= vocab {
            let message = format!("{} is no token of this model", self.separator);
            let d = Diagnostic::error(codes::OUT_OF_RANGE, span, message);
            sink.push(d.label(format!("its tokens are 0 to {}", vocab - 1)));
        }
        if self.number < 2 {
            let message = "one segment is the same for all tokens";
            let d = Diagnostic::error(codes::NO_EFFECT, span, message);
            sink.push(d.help("write `segments(2, …)`, or leave it out"));
        }
    }

    fn separator(&self) -> u64 {
        self.separator
    }

    fn params(&self, width: u64) -> Vec<LayerParam> {
        vec![LayerParam {
            path: TABLE.into(),
            shape: vec![self.number, width],
            start: Start::Normal,
        }]
    }

    fn rows(&self, b: &mut Builder, tokens: Value, w: &mut dyn EmbedScope) -> TypeResult {
        let table = w.param(b, TABLE)?;
        b.part(PART, |b| {
            let to = self.separator;
            let separates = b.push1(Equals { to }, &[tokens])?;
            let carry = w.carry(b, PART, [1, 1])?;
            // A separator is of the segment that it ends: it counts for the tokens after it.
            let counted = nn::scan(b, &[separates], carry, 1)?;
            let before = nn::combine(
                b,
                &[(Exact::one(), counted), (Exact::int(-1), separates)],
            )?;
            let cols = self.number;
            let segment = b.push1(OneHot { cols }, &[before])?;
            b.push1(MatMul::new(Layout::Nn), &[segment, table])
        })
    }
}
