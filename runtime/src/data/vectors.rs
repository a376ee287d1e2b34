//! Sequences of vectors with the numbers that are predicted for them, as batches: a part to train on, another held out.
//!
//! Takes arrays that were read whole ([`Sequences`]). Leaves files to [`mod@crate::data::sources`], which sequences are held out and the order of the
//! others to [`mod@crate::data::parts`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Numbers, Unit};
use crate::data::flow::{self, Draws};
use crate::data::identity::Identity;
use crate::data::parts::Parts;
use odec_program::manifest::Vectors;
use odec_program::names;
use std::ops::Range;

/// Arrays, row-major: `inputs [n, positions, width]`, with mean and deviation taken out, and for each output numbers `[n, positions, m]` or `[n, m]`, or
/// classes `[n]`.
#[derive(Debug, Default)]
pub struct Sequences {
    pub count: usize,
    pub positions: u64,
    pub inputs: Vec<f32>,
    pub targets: Vec<Numbers>,
}

/// Sequences in two parts.
pub struct VectorSet {
    name: String,
    files: Vec<Identity>,
    shape: Vectors,
    all: Sequences,
    parts: Parts,
}

impl VectorSet {
    /// Divides sequences: `percent` per cent (rounded down) are held out.
    pub(super) fn new(
        name: String,
        files: Vec<Identity>,
        shape: Vectors,
        all: Sequences,
        percent: u32,
    ) -> VectorSet {
        let parts = Parts::new("sequences", all.count as u32, percent);
        VectorSet {
            name,
            files,
            shape,
            all,
            parts,
        }
    }

    /// Sequences and what is predicted for them; or points on the way to them, drawn so.
    fn batch(&self, rows: &[u32], draw: impl Fn(u64) -> Draws) -> Batch {
        let leading = self.shape.leading;
        let empty = vec![0.0; (leading * self.shape.width) as usize];
        let inputs = rows.iter().flat_map(|n| {
            let mut row = self.row(&self.all.inputs, *n).to_vec();
            row.extend(&empty);
            row
        });
        let columns = self.all.positions + leading;
        if let Some(flow) = self.shape.flow {
            let classes = match self.all.targets.first() {
                Some(Numbers::I32(of)) => rows.iter().map(|n| of[*n as usize]).collect(),
                _ => vec![],
            };
            return flow::batch(
                (names::VECTORS, columns),
                (inputs.collect(), self.shape.numbers() as usize),
                rows.len(),
                flow,
                (&classes, self.shape.classes()),
                draw,
            );
        }
        let targets = self.shape.targets.iter().zip(&self.all.targets);
        let targets =
            targets.map(|(target, numbers)| (target.input(), self.some_of(numbers, rows)));
        Batch::of_vectors(rows.len() as u64, columns, inputs.collect(), targets)
    }

    /// The numbers of one sequence.
    fn row<'a, T>(&self, of: &'a [T], n: u32) -> &'a [T] {
        let length = of.len() / self.all.count.max(1);
        &of[n as usize * length..][..length]
    }

    /// Those of some, one after the other.
    fn some_of(&self, numbers: &Numbers, rows: &[u32]) -> Numbers {
        let rows = rows.iter();
        match numbers {
            Numbers::I32(of) => {
                Numbers::I32(rows.flat_map(|n| self.row(of, *n)).copied().collect())
            }
            Numbers::F32(of) => {
                Numbers::F32(rows.flat_map(|n| self.row(of, *n)).copied().collect())
            }
        }
    }

    fn some(&self, part: &'static str, rows: &[u32]) -> Result<(), DataError> {
        match rows {
            [] => Err(DataError::NoSequences {
                path: self.name.clone(),
                part,
            }),
            _ => Ok(()),
        }
    }
}

impl Dataset for VectorSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn files(&self) -> &[Identity] {
        &self.files
    }

    fn unit(&self) -> Unit {
        Unit::Sequences
    }

    fn len(&self) -> u64 {
        self.all.count as u64
    }

    fn expected(&self, draw: Draw, _: u64) -> f64 {
        draw.batch as f64
    }

    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset> {
        let parts = self.parts.all_held_out();
        Box::new(VectorSet { parts, ..*self })
    }

    fn held_out_rows(&self, _: u64) -> u64 {
        self.parts.held_out.len() as u64
    }

    fn training_batch(&self, draw: Draw, rows: Range<u64>, _: u64) -> Result<Batch, DataError> {
        self.some("training", &self.parts.train)?;
        let drawn = self.parts.drawn(draw, rows.clone());
        Ok(Batch {
            key: drawn.key,
            ..self.batch(&drawn.rows, flow::of_training(draw, rows.start))
        })
    }

    fn held_out_batches(
        &self,
        rows: u64,
        _: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        self.some("held-out", &self.parts.held_out)?;
        let all = self.parts.held_out(rows, most);
        Ok(Box::new(all.map(|rows| {
            Ok(self.batch(&rows, flow::of_held_out(&rows)))
        })))
    }
}
