//! `tokens`: files of token numbers.

use super::{DataSource, Ends, HELD_OUT, NOT_HELD_OUT, NamedTokenizer};
use crate::arguments::Argument;
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Data, Form};

const FILES: Argument = Argument::paths("files", "token files, one after the other");

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tokens {
    files: Vec<String>,
    span: Span,
    held_out_percent: u32,
}

impl Part for Tokens {
    const DECLARATION: Declaration = Declaration {
        name: "tokens",
        about: About {
            summary: "Files of token numbers, from which windows of `context` are drawn.",
            formula: "unsigned, little-endian: 4 bytes each in files named ….u32.bin, 2 in all others",
            source: "",
            notes: &[
                "`odec tokenize` makes such files of texts. A token beyond the vocabulary is named, with its file and byte, before a run begins.",
            ],
        },
        arguments: &[FILES, HELD_OUT],
        examples: &[Example {
            text: "data tokens(\"train.bin\", held_out: 1%)",
            meaning: "as nanoGPT's files",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        let files = r.paths(&FILES);
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        Some(Tokens {
            files: files?,
            span: r.span(),
            held_out_percent: held_out_percent?,
        })
    }
}

impl DataSource for Tokens {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        of.vocab("`tokens`", self.span, sink)?;
        of.predicts_tokens("`tokens`", self.span, sink)?;
        Some(Data {
            files: self.files.clone(),
            form: Form::Tokens,
            held_out_percent: self.held_out_percent,
        })
    }

    fn has_targets(&self, of: &OutputSpec) -> bool {
        of.is_exit()
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        None
    }
}
