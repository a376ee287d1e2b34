//! `text`: files of text, and what makes tokens of them.

use super::{
    BYTES, DataSource, Ends, HELD_OUT, NOT_HELD_OUT, TOKENIZER, Tokenized, tokenizer, too_many,
};
use crate::arguments::Argument;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Data, Form, Tokenizer};

const FILES: Argument = Argument::paths("files", "texts, one after the other");
pub(super) const KEY: Argument = Argument::text(
    "key",
    "text",
    "in files named `….jsonl`: where a line of JSON has its text",
);
pub(super) const SEPARATOR: Argument = Argument::text(
    "separator",
    "\n",
    "in files named `….jsonl`: what follows the text of each line",
);

#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    files: Vec<String>,
    tokenizer: Tokenizer,
    /// Where the tokenizer is named, and all of it.
    span: Span,
    all: Span,
    key: String,
    separator: String,
    held_out_percent: u32,
}

impl Part for Text {
    const DECLARATION: Declaration = Declaration {
        name: "text",
        about: About {
            summary: "Files of text, from whose tokens windows of `context` are drawn.",
            formula: "row r of step s begins at draw (s, r) of the seed; held-out windows follow one another",
            source: "",
            notes: &[
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
                "Texts that are not read as bytes are tokenised once; the tokens are kept beside the run.",
            ],
        },
        arguments: &[FILES, TOKENIZER, KEY, SEPARATOR, HELD_OUT],
        examples: &[
            Example {
                text: "data text(\"corpus.txt\", tokenizer: bytes)",
                meaning: "a token per byte, `input tokens(vocab: 256, …)`",
            },
            Example {
                text: "data text(\"a.jsonl\", \"b.jsonl\", tokenizer: \"tokenizer.json\", key: \"body\", separator: \"<|endoftext|>\", held_out: 5%)",
                meaning: "lines of JSON, each followed by a token of its own",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let files = r.paths(&FILES);
        let given = r.needed(&TOKENIZER);
        let (key, separator) = (r.text(&KEY), r.text(&SEPARATOR));
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let (tokenizer, span) = tokenizer(given?, r)?;
        Some(Text {
            files: files?,
            tokenizer,
            span,
            all: r.span(),
            key: key?,
            separator: separator?,
            held_out_percent: held_out_percent?,
        })
    }
}

impl DataSource for Text {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let vocab = of.vocab("`text`", self.all, sink)?;
        if let Some(needs) = self.kinds().filter(|kinds| vocab < *kinds) {
            sink.push(too_many(self.span, "bytes are", needs, vocab));
        }
        Some(Data {
            files: self.files.clone(),
            form: Form::Text {
                tokenizer: self.tokenizer.clone(),
                key: self.key.clone(),
                separator: self.separator.clone(),
            },
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
        false
    }

    fn tokenized(&self) -> Option<Tokenized> {
        match &self.tokenizer {
            Tokenizer::Bytes => None,
            Tokenizer::File(path) => Some(Tokenized {
                path: path.clone(),
                span: self.span,
                more: 0,
            }),
        }
    }
}
