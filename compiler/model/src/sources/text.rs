//! `text`: files of text, and what makes tokens of them.

use super::{DataSource, Ends, Texts, NamedTokenizer};
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{Data, Form};

#[derive(Clone, Debug, PartialEq)]
pub struct Text {
    texts: Texts,
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
        arguments: Texts::ARGUMENTS,
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
        Texts::read(r).map(|texts| Text { texts })
    }
}

impl DataSource for Text {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let texts = &self.texts;
        texts.fit("`text`", of, sink)?;
        Some(texts.data(Form::Text {
            tokenizer: texts.tokenizer.tokenizer.clone(),
            key: texts.key.clone(),
            separator: texts.separator.clone(),
        }))
    }

    fn has_targets(&self, of: &OutputSpec) -> bool {
        of.is_exit()
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        Some(&self.texts.tokenizer)
    }
}
