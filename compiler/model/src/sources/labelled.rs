//! `labelled`: texts of several lengths, with a class each.

use super::{DataSource, Ends, NamedTokenizer, TOKENIZER};
use crate::arguments::Argument;
use crate::codes;
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{self, Data, Form, Predicts};

const FILES: Argument = Argument::paths(
    "files",
    "`….jsonl` or `….tsv`, each with texts and labels; all others two by two: the texts, line by line, and their labels",
);
const TEXT: Argument = Argument::text(
    "text",
    "text",
    "where a line of JSON has the text, or the column of a table: its name in the first line, or its number, from 1, in tables without one",
);
const LABEL: Argument = Argument::text("label", "label", "the same of the label");
const NAMES: Argument = Argument::text(
    "names",
    "",
    "the names of the classes, in their order, separated by commas; without it labels are numbers from 0",
);
const TRUNCATE: Argument = Argument::flag(
    "truncate",
    "texts longer than the context are truncated, and how many is said; without it the first one is refused",
);
const HELD_OUT: Argument = Argument::percent(
    "held_out",
    (1, 50),
    10,
    "how many of them are kept for evaluation",
);

/// What is said after a share that is out of range.
const NOT_HELD_OUT: &str = "of the texts cannot be held out";

#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    files: Vec<String>,
    text: String,
    label: String,
    names: Vec<String>,
    tokenizer: NamedTokenizer,
    /// All of it.
    span: Span,
    truncate: bool,
    held_out_percent: u32,
}

impl Part for Labelled {
    const DECLARATION: Declaration = Declaration {
        name: "labelled",
        about: About {
            summary: "Texts of several lengths with a class each, which the model predicts.",
            formula: "the model reads `begin text end`. Rows of a batch are as long as the longest; shorter ones end with `padding`, which attention and means leave out",
            source: "",
            notes: &[
                "The last three numbers of the vocabulary are `begin`, `end` and `padding`, so bytes need `vocab: 259`.",
                "A step takes texts of similar length: those of 64 batches are sorted by it, and the batches shuffled. Every text is drawn once in an epoch.",
                "With `batch tokens(4096)` a batch has as many texts as fit into so many tokens, padding among them.",
                "A text that is empty, one that is longer than the context with its `begin` and `end`, and a label that is no class are named by file and line before training begins. All tokens are held in memory, 4 bytes each.",
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
            ],
        },
        arguments: &[TRUNCATE, FILES, TEXT, LABEL, NAMES, TOKENIZER, HELD_OUT],
        examples: &[
            Example {
                text: "data labelled(\"train.jsonl\", tokenizer: bytes)",
                meaning: "a line of JSON for each text, `{\"text\": \"Open\", \"label\": 0}`",
            },
            Example {
                text: "data labelled(\"train.tsv\", text: \"2\", label: \"1\", names: \"no, yes\", tokenizer: bytes, truncate)",
                meaning: "a table whose first column says `no` or `yes`, with `output … |> classes(2)`",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        // A flag before the paths, which are the arguments without a name.
        let truncate = r.flag(&TRUNCATE);
        let files = r.paths(&FILES);
        let (text, label, names) = (r.text(&TEXT), r.text(&LABEL), r.text(&NAMES));
        let given = r.needed(&TOKENIZER);
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let tokenizer = NamedTokenizer::read(given?, manifest::Pairs::SPECIAL, r)?;
        let (files, span, names) = (files?, r.span(), names?);
        if let Some((alone, _)) = manifest::Pairs::alone(&files, 2) {
            let message = format!("{alone:?} has no file of labels behind it");
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            let help = "write `labelled(\"texts.txt\", \"labels.txt\", …)`; files named `….jsonl` or `….tsv` have both";
            return r.fail(d.help(help));
        }
        let names = names.split(',').map(|name| name.trim().to_string());
        let names: Vec<String> = match names.collect::<Vec<_>>() {
            none if none == [""] => Vec::new(),
            some => some,
        };
        let again = |n: &usize| names[*n].is_empty() || names[..*n].contains(&names[*n]);
        if let Some(n) = (0..names.len()).find(again) {
            let message = match names[n].is_empty() {
                true => format!("the name of class {n} is empty"),
                false => format!("`{}` is the name of two classes", names[n]),
            };
            let d = Diagnostic::error(codes::INVALID_VALUE, span, message);
            return r.fail(d.help("write a name for each class: `names: \"no, yes\"`"));
        }
        Some(Labelled {
            files,
            text: text?,
            label: label?,
            names,
            tokenizer,
            span,
            truncate,
            held_out_percent: held_out_percent?,
        })
    }
}

impl DataSource for Labelled {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let vocab = of.vocab("`labelled`", self.span, sink)?;
        if of.output.says() != Predicts::Class {
            let d = incompatible(self.span, "`labelled` gives a class of each text");
            let d = d.label("this model predicts tokens");
            sink.push(d.help("write `output rmsnorm |> classes(2)`"));
            return None;
        }
        let [begin, end, padding] = self.tokenizer.special(vocab, sink)?;
        let (classes, names) = (of.output.columns(of.sizes), self.names.len() as u64);
        if names > 0 && names != classes {
            let message = format!("`names` has {names} names, and the model has {classes} classes");
            let d = incompatible(self.span, &message);
            sink.push(d.help(format!("write `output … |> classes({names})`, or a name for each class")));
            return None;
        }
        let around = manifest::Labelled::AROUND;
        if of.sizes.context <= around {
            let message = format!("the context has room for {} tokens", of.sizes.context);
            let d = incompatible(self.span, &message);
            sink.push(d.label("a text has one at least, its begin and its end").help("write a longer `context`"));
            return None;
        }
        Some(Data {
            files: self.files.clone(),
            form: Form::Labelled(manifest::Labelled {
                tokenizer: self.tokenizer.tokenizer.clone(),
                text: self.text.clone(),
                label: self.label.clone(),
                classes,
                names: self.names.clone(),
                begin,
                end,
                padding,
                truncate: self.truncate,
            }),
            held_out_percent: self.held_out_percent,
        })
    }

    fn has_targets(&self, _: &OutputSpec) -> bool {
        false
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        Some(&self.tokenizer)
    }
}
