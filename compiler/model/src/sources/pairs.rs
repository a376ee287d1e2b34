//! `pairs`: texts in two languages, or a text and what is to be made of it.

use super::{DataSource, Ends, NamedTokenizer, TOKENIZER};
use crate::arguments::Argument;
use crate::codes;
use crate::outputs::OutputSpec;
use crate::part::{About, Declaration, Example, Part, PartReading, incompatible};
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::{self, Data, Form, Predicts, Read};
use odec_program::names;

const FILES: Argument = Argument::paths(
    "files",
    "`….jsonl` or `….tsv`, each with all texts; of all others one for each text, line by line, the targets at last",
);
const SOURCE: Argument = Argument::text(
    "source",
    "source",
    "where a line of JSON has the text that is read, or the column of a table: its name in the first line, or its number, from 1, in tables without one",
);
const TARGET: Argument = Argument::text("target", "target", "the same of the text that is written");
const SKIP: Argument = Argument::flag(
    "skip_longer",
    "pairs with a text longer than the context are left out, and how many is said; without it the first one is refused",
);
const HELD_OUT: Argument = Argument::percent(
    "held_out",
    (1, 50),
    10,
    "how many of them are kept for evaluation",
);

/// What is said after a share that is out of range.
const NOT_HELD_OUT: &str = "of the pairs cannot be held out";
/// What such a model begins with.
const INPUTS: &str = "write `input source: tokens(vocab: 259, …)` beside `input tokens(vocab: 259, …)`, and an evolve that attends to it";

#[derive(Clone, Debug, PartialEq)]
pub struct Pairs {
    files: Vec<String>,
    source: String,
    target: String,
    tokenizer: NamedTokenizer,
    /// All of it.
    span: Span,
    skip_longer: bool,
    held_out_percent: u32,
}

impl Part for Pairs {
    const DECLARATION: Declaration = Declaration {
        name: "pairs",
        about: About {
            summary: "Texts in pairs: a model of two sequences reads the first of each and writes the second; with more inputs it reads a text for each.",
            formula: "the model reads `source end` and, at place i, `begin target₁ … targetᵢ₋₁`; it predicts targetᵢ, and `end` at last. Shorter rows of a batch are filled with `padding`",
            source: "",
            notes: &[
                "The text of `input source: …` is where `source` says, that of another input, `input notes: …`, is under its label.",
                "The last three numbers of the vocabulary are `begin`, `end` and `padding`, so bytes need `vocab: 259`.",
                "A step takes pairs of similar length: those of 64 batches are sorted by it, and the batches shuffled. Every pair is drawn once in an epoch.",
                "With `batch tokens(4096)` a batch has as many pairs as fit into so many tokens of either text, padding among them.",
                "A pair with an empty text, or one longer than the context with its `end`, is named by its file and line before training begins. All tokens are held in memory, 4 bytes each.",
                "Paths are relative to the folder in which the command runs; `--data` names other files.",
            ],
        },
        arguments: &[SKIP, FILES, SOURCE, TARGET, TOKENIZER, HELD_OUT],
        examples: &[
            Example {
                text: "data pairs(\"train.jsonl\", source: \"en\", target: \"de\", tokenizer: bytes)",
                meaning: "a line of JSON for each pair, `{\"en\": \"Open\", \"de\": \"Öffnen\"}`",
            },
            Example {
                text: "data pairs(\"train.en\", \"train.de\", tokenizer: bytes, skip_longer, held_out: 5%)",
                meaning: "two files, whose lines of the same number belong together",
            },
            Example {
                text: "data pairs(\"train.tsv\", source: \"2\", target: \"3\", tokenizer: \"tokenizer.json\")",
                meaning: "the second and the third column of a table",
            },
        ],
    };

    fn read(r: &mut PartReading) -> Option<Self> {
        // A word before the paths, which are all that has no name.
        let skip_longer = r.flag(&SKIP);
        let files = r.paths(&FILES);
        let (source, target) = (r.text(&SOURCE), r.text(&TARGET));
        let given = r.needed(&TOKENIZER);
        let held_out_percent = r.percent(&HELD_OUT, NOT_HELD_OUT);
        let tokenizer = NamedTokenizer::read(given?, manifest::Pairs::SPECIAL, r)?;
        Some(Pairs {
            files: files?,
            source: source?,
            target: target?,
            tokenizer,
            span: r.span(),
            skip_longer,
            held_out_percent: held_out_percent?,
        })
    }
}

impl Pairs {
    /// Where the text of an input is: under its label, but for that of `source`, which an argument says.
    fn read_by(&self, input: String) -> Read {
        let key = match input == names::SOURCE {
            true => self.source.clone(),
            false => input.clone(),
        };
        Read { input, key }
    }
}

impl DataSource for Pairs {
    fn data(&self, of: Ends, sink: &mut Vec<Diagnostic>) -> Option<Data> {
        let all = self.span;
        let vocab = match (of.source, of.input.vocab(), of.output.says()) {
            (Some(_), Some(vocab), Predicts::Tokens) => vocab,
            (None, Some(_), Predicts::Tokens) => {
                let d = incompatible(all, "`pairs` are read by models of several sequences");
                sink.push(d.label("this model reads one").help(INPUTS));
                return None;
            }
            (_, None, _) => {
                let d = incompatible(all, "`pairs` gives tokens");
                sink.push(d.label(format!("this model reads {}", of.input.unit().many())));
                return None;
            }
            _ => {
                let d = incompatible(all, "`pairs` has no classes");
                let d = d.label("this model says the class of each sequence");
                sink.push(d.help("write `output … |> logits`"));
                return None;
            }
        };
        let [begin, end, padding] = self.tokenizer.special(vocab, sink)?;
        let labels = of.labels.iter().cloned();
        let sources: Vec<Read> = labels.map(|input| self.read_by(input)).collect();
        if let Some((alone, lacks)) = manifest::Pairs::alone(&self.files, sources.len() + 1) {
            let texts = sources.get(lacks).map_or("target", |s| &s.input);
            let message = format!("{alone:?} has no file of {texts}s behind it");
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, all, message);
            let help = "write `pairs(\"train.en\", \"train.de\", …)`, a file for each input and the targets at last; files named `….jsonl` or `….tsv` have all texts";
            sink.push(d.help(help));
            return None;
        }
        Some(Data {
            files: self.files.clone(),
            form: Form::Pairs(manifest::Pairs {
                tokenizer: self.tokenizer.tokenizer.clone(),
                sources,
                target: self.target.clone(),
                begin,
                end,
                padding,
                skip_longer: self.skip_longer,
            }),
            held_out_percent: self.held_out_percent,
        })
    }

    fn has_targets(&self, of: &OutputSpec) -> bool {
        of.is_exit()
    }

    fn tokenizer(&self) -> Option<&NamedTokenizer> {
        Some(&self.tokenizer)
    }
}
