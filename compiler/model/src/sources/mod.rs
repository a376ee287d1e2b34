//! What a model is trained on: `data text("corpus.txt", tokenizer: bytes)`. Each kind says what runs are told of it.
//!
//! A source is one file and one line in the list; nothing outside of this folder knows which there are. Files are named, not opened:
//! whether a `tokenizer.json` fits the model is for those to check who may read it, with the [`Tokenized`] place that is given back.
//!
//! A source sees both ends of the model ([`Ends`]), and says which it does not fit. By `has_targets` it says that it has something for an output
//! with a label, which it gives as a `Target` of the manifest. What runs are told is a variant of `Form` in `program/src/manifest/data.rs`; a file
//! in `runtime/src/data/sources/` reads it.

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
use odec_program::manifest::{Data, Form, Loss, Predicts, Tokenizer};
use std::fmt::Debug;
use std::rc::Rc;

/// Tokens of the byte tokenizer.
pub const BYTES: u64 = 256;

/// What a model is trained on.
pub trait DataSource: Debug {
    /// What runs are told; says what model it does not fit.
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data>;
    /// Whether it has something that an output with a label is compared with.
    fn has_targets(&self, of: &OutputSpec) -> bool;
    /// What makes tokens of texts, where they are no tokens yet.
    fn tokenizer(&self) -> Option<&NamedTokenizer>;
}

/// What a source is read for: the two ends of a model.
#[derive(Clone, Copy)]
pub struct Ends<'m> {
    pub input: &'m dyn Input,
    /// What the first encoder reads, in models of several sequences.
    pub source: Option<&'m dyn Input>,
    /// The labels of all inputs that encoders read.
    pub labels: &'m [String],
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
    /// What the model is to predict, unless its loss asks for something else. Of several sequences the last kind of token is padding.
    pub fn asks(self) -> Loss {
        match (self.output.says(), self.source) {
            (Predicts::Tokens, Some(_)) => Loss::Pairs {
                padding: self.input.vocab().unwrap_or(u64::MAX).saturating_sub(1),
            },
            (says, _) => says.loss(),
        }
    }

    /// Says so where the model classifies texts. `which` begins the sentence.
    fn predicts_tokens(self, which: &str, span: Span, sink: &mut Vec<Diagnostic>) -> Option<()> {
        if self.output.says() != Predicts::Class {
            return Some(());
        }
        let d = incompatible(span, &format!("{which} is for models that predict tokens"));
        let d = d.label("this model classifies texts");
        sink.push(d.help(
            "write `data labelled(\"train.jsonl\", tokenizer: bytes)`, or `output … |> logits`",
        ));
        None
    }

    /// The kinds of tokens that a model of one sequence knows; says so where it reads none, or several sequences. `which` begins the sentence.
    fn vocab(self, which: &str, span: Span, sink: &mut Vec<Diagnostic>) -> Option<u64> {
        if self.source.is_some() {
            let d = incompatible(span, &format!("{which} gives one sequence"));
            let d = d.label("this model reads several");
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

parts! { DataSource: text::Text, sentences::Sentences, tokens::Tokens, images::Images, vectors::Vectors, pairs::Pairs, labelled::Labelled }

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

/// What makes tokens of texts, and where it is named.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTokenizer {
    tokenizer: Tokenizer,
    span: Span,
    /// Kinds of tokens that the source needs beside those of the texts.
    more: u64,
}

impl NamedTokenizer {
    /// The tokenizer that is given.
    fn read(given: &Expr, more: u64, r: &mut PartReading) -> Option<NamedTokenizer> {
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
        Some(NamedTokenizer {
            tokenizer,
            span: given.span,
            more,
        })
    }

    /// How many kinds of tokens the source gives, where that is known before a file is read.
    pub fn kinds(&self) -> Option<u64> {
        match self.tokenizer {
            Tokenizer::Bytes => Some(BYTES + self.more),
            Tokenizer::File(_) => None,
        }
    }

    /// The tokens before a text, after it and in the place of none, which are the last three of so many; says so where these leave too few for texts.
    fn special(&self, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<[u64; 3]> {
        let needs = self.kinds().unwrap_or(self.more + 1);
        if vocab < needs {
            let which = match self.tokenizer {
                Tokenizer::Bytes => "with three special ones bytes are",
                Tokenizer::File(_) => "with three special ones a tokenizer has at least",
            };
            sink.push(too_many(self.span, which, needs, vocab));
            return None;
        }
        Some([3, 2, 1].map(|n| vocab - n))
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<Tokenized> {
        match &self.tokenizer {
            Tokenizer::Bytes => None,
            Tokenizer::File(path) => Some(Tokenized {
                path: path.clone(),
                span: self.span,
                more: self.more,
            }),
        }
    }
}

/// Texts, and what makes tokens of them: what `text` and `sentences` are given.
#[derive(Clone, Debug, PartialEq)]
struct Texts {
    files: Vec<String>,
    tokenizer: NamedTokenizer,
    /// All of it.
    span: Span,
    key: String,
    separator: String,
    held_out_percent: u32,
}

impl Texts {
    const ARGUMENTS: &[Argument] = &[FILES, TOKENIZER, KEY, SEPARATOR, HELD_OUT];

    fn read(r: &mut PartReading) -> Option<Texts> {
        let files = r.paths(&FILES);
        let given = r.needed(&TOKENIZER);
        let (key, separator) = (r.text(&KEY), r.text(&SEPARATOR));
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let tokenizer = NamedTokenizer::read(given?, 0, r)?;
        Some(Texts {
            files: files?,
            tokenizer,
            span: r.span(),
            key: key?,
            separator: separator?,
            held_out_percent: held_out_percent?,
        })
    }

    /// Says so where the model does not read such tokens. `which` begins the sentence.
    fn fit(&self, which: &str, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<()> {
        let vocab = of.vocab(which, self.span, sink)?;
        of.predicts_tokens(which, self.span, sink)?;
        if let Some(needs) = self.tokenizer.kinds().filter(|kinds| vocab < *kinds) {
            sink.push(too_many(self.tokenizer.span, "bytes are", needs, vocab));
        }
        Some(())
    }

    /// What runs are told of them, in this form.
    fn data(&self, form: Form) -> Data {
        Data {
            files: self.files.clone(),
            form,
            held_out_percent: self.held_out_percent,
        }
    }
}

const FILES: Argument = Argument::paths("files", "texts, one after the other");
const KEY: Argument = Argument::text(
    "key",
    "text",
    "in files named `….jsonl`: where a line of JSON has its text",
);
const SEPARATOR: Argument = Argument::text(
    "separator",
    "\n",
    "in files named `….jsonl`: what follows the text of each line",
);

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
