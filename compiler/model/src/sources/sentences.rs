//! `sentences`: texts for next sentence prediction, in rows of two segments.

use super::{DataSource, Ends, Texts, NamedTokenizer};
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{self, Data, Form, Predicts};

/// Segment B follows segment A, or it does not.
const CLASSES: u64 = 2;

#[derive(Clone, Debug, PartialEq)]
pub struct Sentences {
    texts: Texts,
}

impl Part for Sentences {
    const DECLARATION: Declaration = Declaration {
        name: "sentences",
        about: About {
            summary: "Files of text for next sentence prediction: rows of two segments, of which the second follows the first in the text or, in half of the rows, is taken from elsewhere.",
            formula: "a row of `context` tokens is A B. A is a sentence with the separator that ends it, or its last ⌊context/2⌋ tokens; B fills the row. The class is 0 where B follows A in the text, else 1",
            source: "Devlin et al. 2019, NAACL, 3.1 (next sentence prediction)",
            notes: &[
                "A sentence ends with the separator of `segments(2, separator: …)`. A separator behind a separator ends none.",
                "A segment taken from elsewhere follows another sentence of the same part; all others have the same probability.",
                "The output with a label is compared with the class: `output follows: classes(2)` and `cross_entropy(of: follows)`. The output without a label predicts tokens, those that `masked` hides.",
                "An epoch has each sentence once. The end of the text is held out.",
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
            ],
        },
        arguments: Texts::ARGUMENTS,
        examples: &[Example {
            text: "data sentences(\"corpus.txt\", tokenizer: bytes)",
            meaning: "with `embed …, segments(2, separator: 10)` a sentence is a line",
        }],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        Texts::read(r).map(|texts| Sentences { texts })
    }
}

impl DataSource for Sentences {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let texts = &self.texts;
        texts.fit("`sentences`", of, sink)?;
        let Some(end) = of.separator else {
            let d = incompatible(texts.span, "this model has no separator that ends a sentence");
            sink.push(d.help("write `embed learned(width: …), segments(2, separator: 10)`"));
            return None;
        };
        let output = self.compared(of, sink)?;
        if of.sizes.context < 2 {
            let d = incompatible(texts.span, "two segments have two tokens at least");
            sink.push(d.help("write a longer `context`"));
            return None;
        }
        Some(texts.data(Form::Sentences(manifest::Sentences {
            tokenizer: texts.tokenizer.tokenizer.clone(),
            key: texts.key.clone(),
            separator: texts.separator.clone(),
            end,
            output,
        })))
    }

    fn has_targets(&self, _: &OutputSpec) -> bool {
        true
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        Some(&self.texts.tokenizer)
    }
}

impl Sentences {
    /// The label of the output that is compared with the class.
    fn compared(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<String> {
        let is_of_two = |o: &OutputSpec| {
            o.kind.says() == Predicts::Class && o.kind.columns(of.sizes) == CLASSES
        };
        let data = self.texts.span;
        let d = match of.also {
            [one] if is_of_two(one) => return Some(one.label.clone()),
            [] => incompatible(data, "`sentences` says whether a segment follows another")
                .label("no output of this model is compared with that")
                .help("add `output follows: classes(2)` and `+ cross_entropy(of: follows)`, or write `data text(…)`"),
            [first, rest @ ..] => {
                let wrong = match rest.first() {
                    Some(second) if is_of_two(first) => second,
                    _ => first,
                };
                incompatible(wrong.span, "`sentences` has no targets for this output")
                    .also(data, "a class, 0 or 1, for one output with a label")
                    .help("write `output follows: classes(2)`, and no other output with a label")
            }
        };
        sink.push(d);
        None
    }
}
