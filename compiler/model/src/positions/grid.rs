//! `positions(grid)`: sines and cosines of the row and of the column of a token on its grid.

use super::Positions;
use crate::codes;
use crate::embeddings::EmbedScope;
use crate::layers::{LayerParam, SINUSOID_BASE, Sizes};
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Table;
use odec_graph::{Builder, TypeError, TypeResult};
use odec_program::manifest;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid;

impl Part for Grid {
    const DECLARATION: Declaration = Declaration {
        name: "grid",
        about: About {
            summary: "Sine and cosine of each token's row on the grid, in the first half of the columns, and of its column in the second half; nothing is trained.",
            formula: "sin(y / 10⁴^(4i/width)) at column 2i, the cosine at column 2i + 1, the same of x at column width/2 + 2i and + 1; zeros for a class token",
            source: "He et al. 2022, CVPR, appendix A.1 (whose code puts x first, and sines before cosines)",
            notes: &["The width is a multiple of 4."],
        },
        arguments: &[],
        examples: &[Example {
            text: "embed linear(width: 512), positions(grid)",
            meaning: "patches of images by their rows and columns",
        }],
    };

    fn read(_: &mut PartReading) -> Option<Self> {
        Some(Grid)
    }
}

impl Positions for Grid {
    fn params(&self, _: Sizes) -> Vec<LayerParam> {
        Vec::new()
    }

    fn fit(&self, span: Span, of: Sizes, sink: &mut Vec<Diagnostic>) {
        if of.grid.is_none() {
            let d = incompatible(span, "`positions(grid)` are those of tokens on a grid");
            let d = d.label("the tokens of this state stand in a row");
            sink.push(d.help("write `positions(sinusoidal)`"));
        } else if !of.width.is_multiple_of(4) {
            let message = format!("{} columns do not hold sines and cosines of two axes", of.width);
            let d = Diagnostic::error(codes::WIDTH_MISMATCH, span, message);
            sink.push(d.label("a multiple of 4 is expected"));
        }
    }

    fn rows(&self, b: &mut Builder, w: &mut dyn EmbedScope, of: Sizes) -> TypeResult {
        let grid = of.grid.ok_or_else(|| TypeError {
            op: "positions",
            what: "stand on no grid".into(),
        })?;
        let table = manifest::Table::Grid {
            leading: grid.leading,
            sides: grid.sides,
            width: of.width,
            base: SINUSOID_BASE,
        };
        let table = b.push1(Table { table }, &[])?;
        w.rows(b, table)
    }
}
