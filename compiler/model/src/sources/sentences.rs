//! `sentences`: a text as passages of two segments, of which the second follows the first or stands elsewhere.

use super::text::{KEY, SEPARATOR};
use super::{
    BYTES, DataSource, Ends, HELD_OUT, NOT_HELD_OUT, TOKENIZER, Tokenized, tokenizer, too_many,
};
use crate::arguments::Argument;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{self, Data, Form, Loss, Tokenizer};

const FILES: Argument = Argument::paths("files", "texts, one after the other");

/// What the class of a passage is.
const CLASSES: u64 = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct Sentences {
    files: Vec<String>,
    tokenizer: Tokenizer,
    /// Where the tokenizer is named, and all of it.
    at: [Span; 2],
    key: String,
    separator: String,
    held_out_percent: u32,
}

impl Part for Sentences {
    const DECLARATION: Declaration = Declaration {
        name: "sentences",
        about: About {
            summary: "Files of text as passages of two segments: a sentence, and what stands behind it in the text or, in half of them, behind another sentence.",
            formula: "a row is `a b` of `context` tokens: a is a sentence with the separator that ends it, its last ⌊context/2⌋ tokens if it is longer; b fills the row. Its class is 0 where b stands behind a in the text, else 1",
            source: "Devlin et al. 2019, NAACL, 3.1 (next sentence prediction)",
            notes: &[
                "A sentence ends with the separator of `segments(2, separator: …)`, and has another token before it.",
                "The class is what the output with a label is compared with, `output follows: classes(2)` and `cross_entropy(of: follows)`; the output without a label says tokens, hidden ones by `masked`.",
                "Training goes through all sentences before any comes again. What is held out is the end of the text.",
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
            ],
        },
        arguments: &[FILES, TOKENIZER, KEY, SEPARATOR, HELD_OUT],
        examples: &[Example {
            text: "data sentences(\"corpus.txt\", tokenizer: bytes)",
            meaning: "with `embed …, segments(2, separator: 10)` lines are sentences",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let files = r.paths(&FILES);
        let given = r.needed(&TOKENIZER);
        let (key, separator) = (r.text(&KEY), r.text(&SEPARATOR));
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let (tokenizer, named) = tokenizer(given?, r)?;
        Some(Sentences {
            files: files?,
            tokenizer,
            at: [named, r.span()],
            key: key?,
            separator: separator?,
            held_out_percent: held_out_percent?,
        })
    }
}

impl DataSource for Sentences {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let [named, all] = self.at;
        let vocab = of.vocab("`sentences`", all, sink)?;
        if let Some(needs) = self.kinds().filter(|kinds| vocab < *kinds) {
            sink.push(too_many(named, "bytes are", needs, vocab));
        }
        let Some(end) = of.separator else {
            let d = incompatible(all, "this model knows no token that ends a sentence");
            sink.push(d.help("write `embed learned(width: …), segments(2, separator: 10)`"));
            return None;
        };
        let output = match of.also {
            [one] if is_of_two(one, of) => one.label.clone(),
            [] => {
                let d = incompatible(all, "`sentences` says whether the second segment follows the first");
                let d = d.label("this model has no output that is compared with it");
                sink.push(d.help("add `output follows: classes(2)` and `+ cross_entropy(of: follows)`, or write `data text(…)`"));
                return None;
            }
            [first, rest @ ..] => {
                let wrong = match is_of_two(first, of) {
                    true => rest.first().unwrap_or(first),
                    false => first,
                };
                let d = incompatible(wrong.span, "`sentences` compares one output with a label, which says one of two classes");
                let d = d.also(all, "the data").label("this is another one");
                sink.push(d.help("write `output follows: classes(2)` and no other beside the tokens"));
                return None;
            }
        };
        if of.sizes.context < 2 {
            let d = incompatible(all, "two segments have two tokens at least");
            sink.push(d.help("write a longer `context`"));
            return None;
        }
        Some(Data {
            files: self.files.clone(),
            form: Form::Sentences(manifest::Sentences {
                tokenizer: self.tokenizer.clone(),
                key: self.key.clone(),
                separator: self.separator.clone(),
                end,
                output,
            }),
            held_out_percent: self.held_out_percent,
        })
    }

    fn kinds(&self) -> Option<u64> {
        match self.tokenizer {
            Tokenizer::Bytes => Some(BYTES),
            Tokenizer::File(_) => None,
        }
    }

    fn has_several(&self) -> bool {
        true
    }

    fn tokenized(&self) -> Option<Tokenized> {
        match &self.tokenizer {
            Tokenizer::Bytes => None,
            Tokenizer::File(path) => Some(Tokenized {
                path: path.clone(),
                span: self.at[0],
                more: 0,
            }),
        }
    }
}

/// Whether an output says one of two classes of a row.
fn is_of_two(output: &crate::outputs::OutputSpec, of: Ends) -> bool {
    output.kind.asks() == Loss::Class && output.kind.columns(of.sizes) == CLASSES
}
