//! Rows that a model puts before those of its input: `embed linear(width: 64), class_token, positions(learned)`.
//!
//! A kind of rows is one file and one line in the list; nothing outside of this folder knows which there are. They are there before positions are
//! added: the context is longer by them. Several stand in the order in which they are written.

use crate::embeddings::EmbedScope;
use crate::inputs::Input;
use crate::layers::LayerParam;
use crate::part::{Place, incompatible, parts};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Add;
use odec_graph::{Builder, TypeError, TypeResult, Value, nn};
use std::fmt::Debug;
use std::rc::Rc;

/// Rows, or why there are none.
pub type Rows = Result<Vec<Value>, TypeError>;

/// Rows before those of the input.
pub trait Leading: Debug {
    /// Says what input it has no meaning for.
    fn fit(&self, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>);
    /// What they are made of beside parameters.
    fn told(&self) -> Told;
    /// How many they are.
    fn count(&self) -> u64;
    /// All parameters, by their paths below `embed`, for states of so many columns.
    fn params(&self, width: u64) -> Vec<LayerParam>;
    /// The rows in order, of so many columns: `[batch, 1, width]`, or `[width]` where one is the same for all inputs.
    fn rows(&self, b: &mut Builder, width: u64, w: &mut dyn EmbedScope) -> Rows;
    /// What they are called in sites.
    fn part(&self) -> &'static str;
}

/// The states with rows before them. As many last rows, which runs leave empty, are left out: a sequence stays as long as it is.
pub fn before(b: &mut Builder, x: Value, rows: &dyn Leading, w: &mut dyn EmbedScope) -> TypeResult {
    let width = b.ty(x).cols();
    let first = rows.rows(b, width, w)?;
    // The last one first: each is put before all that stand there.
    b.part(rows.part(), |b| {
        first
            .into_iter()
            .rev()
            .try_fold(x, |x, row| nn::put_first(b, x, row))
    })
}

/// The sum of rows, which fields read as `condition`: `[batch, 1, width]`.
pub fn condition(
    b: &mut Builder,
    rows: &[Rc<dyn Leading>],
    width: u64,
    w: &mut dyn EmbedScope,
) -> Result<Option<Value>, TypeError> {
    let mut sum = None;
    let mut all = Vec::new();
    for rows in rows {
        all.extend(rows.rows(b, width, w)?);
    }
    for row in all {
        sum = Some(match sum {
            None => row,
            Some(sum) => b.push1(Add, &[sum, row])?,
        });
    }
    Ok(sum)
}

/// What a row is made of beside parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Of a class token.
    Nothing,
    /// Nothing either, and no output reads them.
    Registers,
    /// The time between noise and data.
    Time,
    /// The class, one of so many; of some rows in training not even that.
    Class { classes: u64, dropped_percent: u32 },
}

/// What a model is told of a row beside the input.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// How far it is between noise and data.
    pub time: bool,
    /// The class, one of so many.
    pub classes: Option<u64>,
    /// Of how many rows it is not told in training.
    pub dropped_percent: u32,
    /// Where the rows are written that read it.
    pub at: Span,
}

parts! { Leading: class_token::ClassToken, registers::Registers, time_token::TimeToken, label_token::LabelToken }

/// All kinds of rows.
pub static LEADING: Place<Rc<dyn Leading>> = Place {
    parts: PARTS,
    later: &[],
    example: "embed linear(width: 64), class_token, positions(learned)",
};

/// Says so of a model of tokens, which come one after the other; `which` begins the sentence.
fn not_of_tokens(which: &str, span: Span, of: &dyn Input, sink: &mut Vec<Diagnostic>) {
    if of.grows() {
        let d = incompatible(span, &format!("{which} stands before patches or vectors"));
        sink.push(d.label("this model reads tokens, which come one after the other"));
    }
}
