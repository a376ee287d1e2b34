//! What a source gives to training and evaluation: batches that can be drawn again, and what the files are known by.

use crate::data::DataError;
use crate::data::identity::Identity;
use crate::executor::Value;
use odec_program::rng::Stream;
use odec_program::{Bindings, names, noise};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

/// Batches of a source in two parts: training, and held out for evaluation.
pub trait Dataset {
    /// The files, as they were named.
    fn name(&self) -> &str;
    /// What the files are known by: a run goes on with the same ones.
    fn files(&self) -> &[Identity];
    /// What it is counted in.
    fn unit(&self) -> Unit;
    /// Tokens, images or sequences of both parts.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// How many tokens, images or sequences a step has, on average, of rows of at most so many positions.
    fn expected(&self, draw: Draw, context: u64) -> f64;
    /// Some rows of one training step. The same draw and row give the same numbers. Where a draw says tokens, these are the rows of one
    /// micro-batch, and there are at most so many.
    ///
    /// # Errors
    /// When the training part is too short, or a file has changed.
    fn training_batch(
        &self,
        draw: Draw,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError>;
    /// Rows of the held-out part, of at most so many positions; none, where there is nothing to predict.
    fn held_out_rows(&self, context: u64) -> u64;
    /// The held-out part, `rows` at a time; the last batches may be smaller. With `most`, at most so many rows, spread evenly
    /// over the part.
    ///
    /// # Errors
    /// When there is nothing to predict; each batch, when a file has changed.
    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError>;
    /// Makes all of it the held-out part, to evaluate on files of one's own.
    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset>;
}

/// Which step of a run a batch is for.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    pub seed: u64,
    pub step: u64,
    /// Rows of a step, those of all its micro-batches.
    pub batch: u64,
    /// Where a step takes as many rows as have so many tokens.
    pub tokens: Option<InTokens>,
}

/// Micro-batches by their tokens: of each, the columns of its longest row times its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InTokens {
    pub most: u64,
    /// Micro-batches of a step.
    pub parts: u64,
}

impl Draw {
    /// What dropout chooses the masks of some rows by, of which this is the first.
    pub fn key(self, first_row: u64) -> i32 {
        let first = self.step.wrapping_shl(16).wrapping_add(first_row);
        Stream::new(self.seed, noise::KEY).below(first, 1 << noise::BITS) as i32
    }
}

/// What a dataset is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Unit {
    #[default]
    Tokens,
    Images,
    /// Of vectors, or texts of a class each.
    Sequences,
}

impl Unit {
    pub fn name(self) -> &'static str {
        match self {
            Unit::Tokens => "tokens",
            Unit::Images => "images",
            Unit::Sequences => "sequences",
        }
    }

    /// The name of one.
    pub fn one(self) -> &'static str {
        match self {
            Unit::Tokens => "token",
            Unit::Images => "image",
            Unit::Sequences => "sequence",
        }
    }

    pub fn count(self, n: u64) -> Count {
        match self {
            Unit::Tokens => Count::Tokens(n),
            Unit::Images => Count::Images(n),
            Unit::Sequences => Count::Sequences(n),
        }
    }
}

/// So many tokens, images or sequences: `"tokens":16384`, where it is part of a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    Tokens(u64),
    Images(u64),
    Sequences(u64),
}

impl Count {
    pub fn number(self) -> u64 {
        match self {
            Count::Tokens(n) | Count::Images(n) | Count::Sequences(n) => n,
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Count::Tokens(_) => Unit::Tokens,
            Count::Images(_) => Unit::Images,
            Count::Sequences(_) => Unit::Sequences,
        }
    }
}

/// Batches, one after the other.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, DataError>> + 'a>;

/// The numbers of an input, row-major.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    I32(Vec<i32>),
    F32(Vec<f32>),
}

impl Numbers {
    /// What an entry is given.
    pub fn value(&self) -> Value<'_> {
        match self {
            Numbers::I32(n) => Value::I32(n),
            Numbers::F32(n) => Value::F32(n),
        }
    }

    /// Some of so many rows.
    pub fn rows(&self, some: Range<usize>, of: u64) -> Value<'_> {
        let part = |len: usize| {
            let each = len / of.max(1) as usize;
            some.start * each..some.end * each
        };
        match self {
            Numbers::I32(n) => Value::I32(&n[part(n.len())]),
            Numbers::F32(n) => Value::F32(&n[part(n.len())]),
        }
    }
}

/// Inputs of an entry, by their names. Each begins with `[rows, columns]`, or with `[rows]` where there is one for a whole row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    pub inputs: Vec<(Cow<'static, str>, Numbers)>,
    pub rows: u64,
    pub columns: u64,
    /// Columns of each source, of pairs; 0 of all others.
    pub source: u64,
    /// Targets that count in the loss.
    pub predicted: u64,
    /// What dropout chooses its masks by, below 2²⁴.
    pub key: i32,
    /// Of texts of several lengths: how many places are filled up.
    pub padding: Option<u64>,
}

impl Batch {
    /// What a run on it is bound to.
    pub fn at(&self) -> Bindings {
        Bindings::new(self.rows, self.columns).beside(self.source)
    }

    /// Places for tokens, of sources and of what is known of targets.
    pub fn places(&self) -> u64 {
        let read = self
            .inputs
            .iter()
            .filter(|(name, _)| name != names::TARGETS);
        let places = read.map(|(_, numbers)| match numbers {
            Numbers::I32(tokens) => tokens.len() as u64,
            Numbers::F32(_) => 0,
        });
        places.sum()
    }

    /// Tokens, each with the one to predict in its place.
    pub fn of_tokens(rows: u64, columns: u64, tokens: Vec<i32>, targets: Vec<i32>) -> Batch {
        Batch {
            predicted: targets.len() as u64,
            inputs: vec![
                (names::TOKENS.into(), Numbers::I32(tokens)),
                (names::TARGETS.into(), Numbers::I32(targets)),
            ],
            rows,
            columns,
            source: 0,
            key: 0,
            padding: None,
        }
    }

    /// Images in patches, and the class of each.
    pub fn of_images(columns: u64, patches: Vec<f32>, classes: Vec<i32>) -> Batch {
        let rows = classes.len() as u64;
        Batch {
            inputs: vec![
                (names::PATCHES.into(), Numbers::F32(patches)),
                (names::TARGETS.into(), Numbers::I32(classes)),
            ],
            rows,
            columns,
            source: 0,
            predicted: rows,
            key: 0,
            padding: None,
        }
    }

    /// Points between noise and data, given by an input of this name, how far they are, of which class (where the model is told), and how they move.
    pub fn of_flows(
        (input, columns): (&'static str, u64),
        points: Vec<f32>,
        times: Vec<f32>,
        labels: Option<Vec<f32>>,
        velocities: Vec<f32>,
    ) -> Batch {
        let rows = times.len() as u64;
        let labels = labels.map(|l| (names::LABEL.into(), Numbers::F32(l)));
        let first = [
            (input.into(), Numbers::F32(points)),
            (names::TIME.into(), Numbers::F32(times)),
        ];
        let targets = (names::TARGETS.into(), Numbers::F32(velocities));
        Batch {
            inputs: first.into_iter().chain(labels).chain([targets]).collect(),
            rows,
            columns,
            source: 0,
            predicted: rows,
            key: 0,
            padding: None,
        }
    }

    /// Pairs of texts: what is read, `[rows, beside]` for each input, and, `[rows, columns]` each, what is known of the targets at each place and what
    /// is to be predicted there.
    pub fn of_pairs(
        (rows, columns, beside): (u64, u64, u64),
        sources: Vec<(String, Vec<i32>)>,
        tokens: Vec<i32>,
        targets: Vec<i32>,
        padding: u64,
    ) -> Batch {
        let counts = |t: &&i32| u64::try_from(**t) != Ok(padding);
        Batch {
            predicted: targets.iter().filter(counts).count() as u64,
            inputs: sources
                .into_iter()
                .map(|(name, tokens)| (name.into(), Numbers::I32(tokens)))
                .chain([
                    (names::TOKENS.into(), Numbers::I32(tokens)),
                    (names::TARGETS.into(), Numbers::I32(targets)),
                ])
                .collect(),
            rows,
            columns,
            source: beside,
            key: 0,
            padding: None,
        }
    }

    /// Texts in rows of so many columns, and the class of each.
    pub fn of_labelled(columns: u64, tokens: Vec<i32>, classes: Vec<i32>) -> Batch {
        let rows = classes.len() as u64;
        Batch {
            inputs: vec![
                (names::TOKENS.into(), Numbers::I32(tokens)),
                (names::TARGETS.into(), Numbers::I32(classes)),
            ],
            rows,
            columns,
            source: 0,
            predicted: rows,
            key: 0,
            padding: None,
        }
    }

    /// How many tokens or images it has.
    pub fn count(&self, unit: Unit) -> u64 {
        match (unit, self.padding) {
            (Unit::Images | Unit::Sequences, _) => self.rows,
            (Unit::Tokens, None) => self.rows * self.columns,
            (Unit::Tokens, Some(padding)) => self.places() - padding,
        }
    }

    /// Sequences of vectors, and what is predicted for each: the numbers of an output, by the name of its input.
    pub fn of_vectors(
        rows: u64,
        columns: u64,
        vectors: Vec<f32>,
        targets: impl IntoIterator<Item = (String, Numbers)>,
    ) -> Batch {
        let first = (names::VECTORS.into(), Numbers::F32(vectors));
        let targets = targets.into_iter().map(|(name, n)| (name.into(), n));
        Batch {
            inputs: [first].into_iter().chain(targets).collect(),
            rows,
            columns,
            source: 0,
            predicted: rows,
            key: 0,
            padding: None,
        }
    }

    /// What entries are given: values by the names of their inputs.
    pub fn fed(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        self.inputs.iter().map(|(name, n)| (&**name, n.value()))
    }

    /// The whole numbers of an input; none, where it has other ones.
    pub fn whole(&self, name: &str) -> &[i32] {
        let mut inputs = self.inputs.iter();
        let found = inputs.find_map(|(n, numbers)| match numbers {
            Numbers::I32(of) if *n == name => Some(&of[..]),
            _ => None,
        });
        found.unwrap_or(&[])
    }

    /// The real numbers of an input; none, where it has other ones.
    pub fn real(&self, name: &str) -> &[f32] {
        let mut inputs = self.inputs.iter();
        let found = inputs.find_map(|(n, numbers)| match numbers {
            Numbers::F32(of) if *n == name => Some(&of[..]),
            _ => None,
        });
        found.unwrap_or(&[])
    }
}
