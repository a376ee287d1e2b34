//! What a model is trained on: `data text("corpus.txt", tokenizer: bytes)`. Each kind says what runs are told of it.
//!
//! A source is one file and one line in the list; nothing outside of this folder knows which there are. Files are named, not opened:
//! whether a `tokenizer.json` fits the model is for those to check who may read it, with the [`Tokenized`] place that is given back.

use crate::arguments::Argument;
use crate::codes;
use crate::inputs::Input;
use crate::layers::Sizes;
use crate::leading::Conditions;
use crate::outputs::{Output, OutputSpec};
use crate::part::{PartReading, Place, incompatible, parts};
use crate::scheme::scalar::name_of;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Data, Loss, Tokenizer};
use std::fmt::Debug;
use std::rc::Rc;

/// Tokens of the byte tokenizer.
pub const BYTES: u64 = 256;

/// What a model is trained on.
pub trait DataSource: Debug {
    /// What runs are told; says what model it does not fit.
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data>;
    /// How many kinds of tokens it gives, where that is known before a file is read.
    fn kinds(&self) -> Option<u64>;
    /// Whether it has something that outputs with labels are compared with.
    fn has_several(&self) -> bool;
    /// The file that says how tokens are made, and where it is named.
    fn tokenized(&self) -> Option<Tokenized>;
}

/// What a source is read for: the two ends of a model.
#[derive(Clone, Copy)]
pub struct Ends<'m> {
    pub input: &'m dyn Input,
    /// What an encoder reads, in models of two sequences.
    pub source: Option<&'m dyn Input>,
    pub output: &'m dyn Output,
    /// Those with labels.
    pub also: &'m [OutputSpec],
    /// Rows that the model puts before those of the input.
    pub leading: u64,
    /// The token that ends segments of the input, where they are told apart.
    pub separator: Option<u64>,
    /// What it is told beside the input.
    pub told: Conditions,
    pub sizes: Sizes,
}

impl Ends<'_> {
    /// What the model is to predict, unless its loss asks for something else. Of two sequences the last kind of token is padding.
    pub fn asks(self) -> Loss {
        match (self.output.asks(), self.source) {
            (Loss::Next, Some(_)) => Loss::Pairs {
                padding: self.input.vocab().unwrap_or(u64::MAX).saturating_sub(1),
            },
            (asks, _) => asks,
        }
    }

    /// The kinds of tokens that a model of one sequence knows; says so where it reads none, or two sequences. `which` begins the sentence.
    fn vocab(self, which: &str, span: Span, sink: &mut Vec<Diagnostic>) -> Option<u64> {
        if self.source.is_some() {
            let d = incompatible(span, &format!("{which} gives one sequence"));
            let d = d.label("this model reads two");
            sink.push(d.help("write `data pairs(\"train.en\", \"train.de\", tokenizer: bytes)`"));
            return None;
        }
        let vocab = self.input.vocab();
        if vocab.is_none() {
            let d = incompatible(span, &format!("{which} gives tokens"));
            let d = d.label(format!("this model reads {}", self.input.unit().many()));
            sink.push(match self.input.image() {
                Some(_) => d.help("write `data images(\"images.npz\", classes: 10)`"),
                None => d,
            });
        }
        vocab
    }
}

/// A tokenizer file, and where the source names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokenized {
    pub path: String,
    pub span: Span,
    /// Kinds of tokens that the source needs beside those of the file.
    pub more: u64,
}

parts! { DataSource: text::Text, sentences::Sentences, tokens::Tokens, images::Images, vectors::Vectors, pairs::Pairs }

/// All sources.
pub static SOURCES: Place<Rc<dyn DataSource>> = Place {
    parts: PARTS,
    later: &[],
    example: "data text(\"corpus.txt\", tokenizer: bytes)",
};

/// What makes tokens of texts.
const TOKENIZER: Argument = Argument::word_or_path(
    "tokenizer",
    BYTES_WORD,
    "a token per byte, or the Hugging Face `tokenizer.json` that makes tokens of the text",
);
const BYTES_WORD: &str = "bytes";

/// The tokenizer that is given, and where.
fn tokenizer(given: &Expr, r: &mut PartReading) -> Option<(Tokenizer, Span)> {
    let tokenizer = match &given.kind {
        ExprKind::Str(path) => Tokenizer::File(path.clone()),
        _ if name_of(given).is_some_and(|n| n.name == BYTES_WORD) => Tokenizer::Bytes,
        _ => {
            let message = "this is not a tokenizer";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, given.span, message);
            let label = "`bytes`, or the path of a tokenizer.json in quotes, is expected";
            return r.fail(d.label(label));
        }
    };
    Some((tokenizer, given.span))
}

/// How much of a corpus is held out, which every source is asked.
const HELD_OUT: Argument = Argument::percent(
    "held_out",
    (1, 50),
    10,
    "how much of it, at its end, is kept for evaluation",
);
/// What is said after a share that is out of range.
const NOT_HELD_OUT: &str = "of the text cannot be held out";

/// A vocabulary that the model has no room for; `which` begins the sentence.
pub fn too_many(span: Span, which: &str, needs: u64, vocab: u64) -> Diagnostic {
    Diagnostic::error(
        codes::VOCABULARY_MISMATCH,
        span,
        format!("{which} {needs} kinds of tokens, the model knows {vocab}"),
    )
    .help(format!("write `input tokens(vocab: {needs}, …)`"))
}
