//! `learned(width: 64) |> linear(width: 256)`: a table with a row for each kind of tokens, and a matrix that widens its rows (Lan et al. 2020, ICLR, section 3.1).
//!
//! Leaves both parts, with their parameters, to their files: the second reads the rows of the first as a stage reads the state before it.

use super::{EMBEDDINGS, EmbedScope, Embedding, LEARNED, LINEAR, is_named};
use crate::inputs::{Ended, Input, Unit};
use crate::layers::{Grid, LayerParam, Sizes};
use crate::part::incompatible;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, TypeResult, Value};
use std::rc::Rc;

#[derive(Clone, Debug)]
pub struct Factorised {
    table: Rc<dyn Embedding>,
    map: Rc<dyn Embedding>,
}

/// Reads an embedding, which may be made of two.
pub fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Rc<dyn Embedding>> {
    let ExprKind::Pipe(first, second) = &e.kind else {
        return EMBEDDINGS.read(e, sink);
    };
    for (part, is) in [(first, LEARNED), (second, LINEAR)] {
        if !is_named(part, &[is]) {
            let message =
                "an embedding of two parts is a table of narrow rows and a matrix that widens them";
            let d = incompatible(part.span, message);
            let d = d.label(format!("`{is}` is expected"));
            sink.push(d.help("write `embed learned(width: 64) |> linear(width: 256)`"));
            return None;
        }
    }
    let (table, map) = (EMBEDDINGS.read(first, sink), EMBEDDINGS.read(second, sink));
    Some(Rc::new(Factorised {
        table: table?,
        map: map?,
    }))
}

impl Factorised {
    /// What the matrix reads.
    fn rows(&self, of: &dyn Input) -> Ended {
        let sizes = Sizes {
            vocab: None,
            context: of.context(),
            width: self.table.width(of),
            grid: None,
        };
        Ended {
            sizes,
            unit: Unit::Vector,
        }
    }
}

impl Embedding for Factorised {
    fn width(&self, of: &dyn Input) -> u64 {
        self.map.width(&self.rows(of))
    }

    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
        self.table.fit(span, of, sink);
    }

    fn params(&self, of: &dyn Input) -> Vec<LayerParam> {
        let table = self.table.params(of).into_iter();
        table.chain(self.map.params(&self.rows(of))).collect()
    }

    fn table(&self) -> Option<&'static str> {
        self.table.table()
    }

    fn grid(&self, _: &dyn Input) -> Option<Grid> {
        None
    }

    fn build(
        &self,
        b: &mut Builder,
        (of, input): (&dyn Input, Value),
        w: &mut dyn EmbedScope,
    ) -> TypeResult {
        let rows = self.table.build(b, (of, input), w)?;
        self.map.build(b, (&self.rows(of), rows), w)
    }

    /// `(x W) Eᵀ`, W `[width, columns of E]`: the state times the rows `E Wᵀ`.
    fn read_by(&self, b: &mut Builder, state: Value, w: &mut dyn EmbedScope) -> TypeResult {
        let narrow = self.map.read_by(b, state, w)?;
        self.table.read_by(b, narrow, w)
    }
}
