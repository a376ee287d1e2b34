//! What is trained on: files, and what they hold. A new kind is a variant of [`Form`].

use super::{is_false, is_zero};
use crate::names;
use serde::{Deserialize, Serialize};

/// Most rows before an input that no output reads.
pub const MOST_REGISTERS: u64 = 64;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// As written in the source, relative to the working directory.
    pub files: Vec<String>,
    pub form: Form,
    /// Per cent of the tokens, at their end, held out for evaluation.
    pub held_out_percent: u32,
}

/// What the files of a corpus hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Text; in files named `….jsonl`, a JSON object per line that has its text under `key`, each followed by `separator`.
    Text {
        tokenizer: Tokenizer,
        key: String,
        separator: String,
    },
    Sentences(Sentences),
    /// Token numbers, little-endian: 4 bytes each in files named `….u32.bin`, 2 in all others.
    Tokens,
    /// Images with their classes; `runtime/src/data/sources/images.rs` says in what files.
    Images(Images),
    Vectors(Vectors),
    /// Texts in pairs; `runtime/src/data/sources/pairs.rs` says in what files.
    Pairs(Pairs),
    /// Texts with a class each, in the same files.
    Labelled(Labelled),
}

/// Sequences of vectors of one length, and the numbers that are predicted for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Vectors {
    /// The name of the array.
    pub inputs: String,
    /// The most vectors of a sequence, and numbers of each.
    pub positions: u64,
    pub width: u64,
    /// What is predicted, for each output.
    pub targets: Vec<Target>,
    /// What is subtracted from each number of an input before it is divided by `std`.
    pub mean: f64,
    pub std: f64,
    /// Rows of zeros that a model needs behind each sequence, in whose place it puts rows of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leading: u64,
    /// The model is given points between noise and sequences, and not sequences; `targets` are then the classes that it is told, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
}

impl Vectors {
    /// Numbers of a sequence that is as long as any.
    pub fn numbers(&self) -> u64 {
        self.positions * self.width
    }

    /// The classes that sequences are of, where a model of a flow is told them; else 0.
    pub fn classes(&self) -> u64 {
        let told = self.flow.and_then(|_| self.targets.first());
        told.map_or(0, |target| target.columns)
    }
}

/// What the numbers of an output are compared with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The label of the output; empty: it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
    /// The name of the array.
    pub array: String,
    /// Numbers that are predicted, for each vector or for the whole sequence.
    pub columns: u64,
    #[serde(default, skip_serializing_if = "is_false")]
    pub whole: bool,
    /// The targets say how likely events are: they are from 0 to 1.
    #[serde(default, skip_serializing_if = "is_false")]
    pub events: bool,
    /// The targets are classes, one of `columns` for each sequence.
    #[serde(default, skip_serializing_if = "is_false")]
    pub classes: bool,
}

impl Target {
    /// The input of an entry that is given it.
    pub fn input(&self) -> String {
        names::of_output(&self.output, names::TARGETS)
    }
}

/// Text for next sentence prediction: rows of two segments, of which the second follows the first or another sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentences {
    pub tokenizer: Tokenizer,
    /// As of [`Form::Text`].
    pub key: String,
    pub separator: String,
    /// The token that ends a sentence.
    pub end: u64,
    /// The label of the output that is compared with the class.
    pub output: String,
}

impl Sentences {
    /// The input of an entry that is given the class: 0 where the second segment follows the first, else 1.
    pub fn targets(&self) -> String {
        names::of_output(&self.output, names::TARGETS)
    }
}

/// Texts in pairs, of which the second is predicted from the first, or from several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pairs {
    pub tokenizer: Tokenizer,
    /// What is read, one text at least.
    pub sources: Vec<Read>,
    /// Where a line of JSON has the text that is predicted, or what the column of a table is called.
    pub target: String,
    /// The token before a target, the one after a text, and the one that fills up rows: the last three of the vocabulary.
    pub begin: u64,
    pub end: u64,
    pub padding: u64,
    /// Whether pairs that are longer than the context are left out; else they are refused.
    #[serde(default)]
    pub skip_longer: bool,
}

/// A text that a model reads beside the one that it predicts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The input of the model: its label.
    pub input: String,
    /// Where a line of JSON has it, or what the column of a table is called.
    pub key: String,
}

impl Pairs {
    /// How many kinds of tokens a model needs beside those of the texts.
    pub const SPECIAL: u64 = 3;
    /// Places that the shortest pair takes in a row: a token and its end.
    pub const SHORTEST: u64 = 2;

    /// Whether a file of this name has all texts that belong together in each line.
    pub fn has_all(file: &str) -> bool {
        [".jsonl", ".tsv"].iter().any(|end| file.ends_with(end))
    }

    /// Of files of which so many belong together, where none has all texts: one that lacks others behind it, and which text the first of these would have.
    pub fn alone<F: AsRef<str>>(files: &[F], together: usize) -> Option<(&str, usize)> {
        let mut rest = files.iter().map(AsRef::as_ref);
        while let Some(file) = rest.next() {
            if Pairs::has_all(file) {
                continue;
            }
            for lacks in 1..together {
                match rest.next() {
                    Some(other) if !Pairs::has_all(other) => {}
                    _ => return Some((file, lacks)),
                }
            }
        }
        None
    }
}

/// Texts of several lengths, of a class each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labelled {
    pub tokenizer: Tokenizer,
    /// Where a line of JSON has the text and the label, or what the columns of a table are called.
    pub text: String,
    pub label: String,
    pub classes: u64,
    /// The names of the classes, in their order, which labels are; where there are none, labels are the numbers of classes, from 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// As of [`Pairs`]: the token before a text, the one after it, and the one that fills up rows, the last three of the vocabulary.
    pub begin: u64,
    pub end: u64,
    pub padding: u64,
    /// Whether texts that are longer than the context are truncated; else they are refused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncate: bool,
}

impl Labelled {
    /// Special tokens of a text: its begin and its end.
    pub const AROUND: u64 = 2;
}

/// Images of one size, cut into patches; the number of a class for each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Images {
    pub height: u64,
    pub width: u64,
    pub channels: u64,
    /// Side of a patch.
    pub patch: u64,
    pub classes: u64,
    /// What is subtracted from a number (from 0 to 1) before it is divided by `std`.
    pub mean: f64,
    pub std: f64,
    /// An image of a training step is shifted by up to so many pixels to each side.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crop: u64,
    /// Half of the images of a training step have left and right changed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub flip: bool,
    /// Rows of zeros that a model needs behind the patches of an image, in whose place it puts rows of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub leading: u64,
    /// The model is given points between noise and images, and not images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flow: Option<Flow>,
}

/// Points `(1 − t) x₀ + t x₁` between normal noise x₀ and data x₁ (Lipman et al. 2023, ICLR; Liu et al. 2023, ICLR).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    pub times: Times,
    /// Whether the model is told the class beside the time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub labelled: bool,
    /// Of how many rows of a training step it is not told, in per cent.
    #[serde(default, skip_serializing_if = "is_zero_percent")]
    pub dropped_percent: u32,
}

fn is_zero_percent(n: &u32) -> bool {
    *n == 0
}

/// The law of the time t of a point, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    Uniform,
    /// `log(t / (1 − t))` is normal (Esser et al. 2024, ICML, 3.1).
    LogitNormal {
        mean: f64,
        std: f64,
    },
}

impl Form {
    /// Whether it is one sequence of tokens, of which a row is any part. So a run reads texts and token files in each other's place.
    pub fn is_corpus(&self) -> bool {
        match self {
            Form::Text { .. } | Form::Tokens => true,
            Form::Sentences(_)
            | Form::Images(_)
            | Form::Vectors(_)
            | Form::Pairs(_)
            | Form::Labelled(_) => false,
        }
    }

    /// Whether a path may name a folder.
    pub fn reads_folders(&self) -> bool {
        match self {
            Form::Images(_) => true,
            Form::Text { .. }
            | Form::Tokens
            | Form::Sentences(_)
            | Form::Vectors(_)
            | Form::Pairs(_)
            | Form::Labelled(_) => false,
        }
    }

    /// Whether its rows are texts of several lengths, which are filled up.
    pub fn is_padded(&self) -> bool {
        match self {
            Form::Pairs(_) | Form::Labelled(_) => true,
            Form::Text { .. }
            | Form::Tokens
            | Form::Sentences(_)
            | Form::Images(_)
            | Form::Vectors(_) => false,
        }
    }

    /// What makes tokens of it, if it is text.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match self {
            Form::Text { tokenizer, .. }
            | Form::Sentences(Sentences { tokenizer, .. })
            | Form::Pairs(Pairs { tokenizer, .. })
            | Form::Labelled(Labelled { tokenizer, .. }) => Some(tokenizer),
            Form::Tokens | Form::Images(_) | Form::Vectors(_) => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tokenizer {
    /// One token per byte; vocabulary 256.
    Bytes,
    /// A Hugging Face `tokenizer.json`, relative to the working directory.
    File(String),
}
