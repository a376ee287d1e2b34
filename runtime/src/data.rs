//! Text as token windows.
//!
//! Takes a text file and the manifest's data block; gives random windows of the training part (keyed by
//! seed and step, so that any step can be drawn again) and consecutive windows of the held-out part. The
//! file is mapped, not read. Leaves what is done with a batch to [`mod@crate::train`] and [`mod@crate::evaluate`].

use crate::ffi;
use crate::rng::Stream;
use memmap2::Mmap;
use odec_program::manifest::Tokenizer;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Why a text cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    #[error(
        "there is no text at {path}; fetch the demonstration corpus with `make data`, or name a file with --data"
    )]
    Missing { path: String },
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path} is empty")]
    Empty { path: String },
    #[error(
        "the {part} part of {path} has {has} bytes, and one window takes {needs} (context + 1); \
         give a longer text or a shorter context"
    )]
    Short {
        path: String,
        part: &'static str,
        has: u64,
        needs: u64,
    },
    #[error("a byte tokenizer needs a vocabulary of at least 256; this model has {vocab}")]
    Vocabulary { vocab: u64 },
    #[error("{percent} per cent cannot be held out; give 0 to 99")]
    HeldOut { percent: u32 },
}

/// A text in two parts: training at its beginning, held out at its end.
pub struct Corpus {
    path: String,
    text: Mmap,
    train: Range<usize>,
    held_out: Range<usize>,
}

/// Inputs and targets, each `[rows, columns]` of tokens, row-major.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    pub tokens: Vec<i32>,
    pub targets: Vec<i32>,
    pub rows: u64,
    pub columns: u64,
}

impl Corpus {
    /// Opens a text and divides it: the last `held_out_percent` per cent (rounded down to bytes) are held out.
    ///
    /// # Errors
    /// When the file is missing, empty or unreadable, or the tokens do not fit the vocabulary.
    pub fn open(
        path: &Path,
        tokenizer: &Tokenizer,
        held_out_percent: u32,
        vocab: u64,
    ) -> Result<Corpus, DataError> {
        let shown = path.display().to_string();
        match tokenizer {
            Tokenizer::Bytes if vocab < 256 => return Err(DataError::Vocabulary { vocab }),
            Tokenizer::Bytes => {}
        }
        if held_out_percent >= 100 {
            return Err(DataError::HeldOut {
                percent: held_out_percent,
            });
        }
        let length = match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(DataError::Missing { path: shown });
            }
            Err(source) => {
                return Err(DataError::Read {
                    path: shown,
                    source,
                });
            }
            Ok(m) => m.len(),
        };
        if length == 0 {
            return Err(DataError::Empty { path: shown });
        }
        let text = ffi::map_file(path).map_err(|source| DataError::Read {
            path: shown.clone(),
            source,
        })?;
        let n = text.len();
        let cut = n - (n as u128 * u128::from(held_out_percent) / 100) as usize;
        Ok(Corpus {
            path: shown,
            text,
            train: 0..cut,
            held_out: cut..n,
        })
    }

    /// The file, as it was named.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Bytes of the training part.
    pub fn train_bytes(&self) -> u64 {
        self.train.len() as u64
    }

    /// Bytes of the held-out part.
    pub fn held_out_bytes(&self) -> u64 {
        self.held_out.len() as u64
    }

    /// Makes the whole text the held-out part, to evaluate on a text of one's own.
    pub fn all_held_out(self) -> Corpus {
        Corpus {
            train: 0..0,
            held_out: 0..self.text.len(),
            ..self
        }
    }

    fn enough(
        &self,
        part: &'static str,
        range: &Range<usize>,
        needs: u64,
    ) -> Result<(), DataError> {
        let has = range.len() as u64;
        if has >= needs {
            Ok(())
        } else {
            Err(DataError::Short {
                path: self.path.clone(),
                part,
                has,
                needs,
            })
        }
    }

    /// The windows of one training step, drawn with replacement: row r of step s starts where draw
    /// `s · 2¹⁶ + r` of the seed's stream `batch` says.
    ///
    /// # Errors
    /// When the training part is shorter than a window.
    pub fn training_batch(
        &self,
        seed: u64,
        step: u64,
        rows: u64,
        context: u64,
    ) -> Result<Batch, DataError> {
        self.enough("training", &self.train, context + 1)?;
        let starts = self.train.len() as u64 - context;
        let stream = Stream::new(seed, "batch");
        let mut batch = Batch {
            rows,
            columns: context,
            ..Batch::default()
        };
        for r in 0..rows {
            let start = stream.below(step.wrapping_shl(16).wrapping_add(r), starts) as usize;
            batch.push(&self.text[start..=start + context as usize]);
        }
        Ok(batch)
    }

    /// Consecutive windows of the held-out part, `rows` at a time: together they predict each byte but the
    /// first once. The last batches may be smaller: fewer rows, then a single shorter row. With `most`, at
    /// most so many windows, spread evenly over the part.
    ///
    /// # Errors
    /// When the held-out part has no two bytes.
    pub fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<impl Iterator<Item = Batch> + '_, DataError> {
        self.enough("held-out", &self.held_out, 2)?;
        let text = &self.text[self.held_out.clone()];
        let (rows, context) = (rows as usize, context as usize);
        let whole = (text.len() - 1) / context;
        let rest = (text.len() - 1) % context;
        let most = most.map_or(usize::MAX, |n| n as usize);
        let taken = whole.min(most);
        let full = (0..taken).step_by(rows).map(move |first| {
            let windows = first..(first + rows).min(taken);
            let mut batch = Batch {
                rows: windows.len() as u64,
                columns: context as u64,
                ..Batch::default()
            };
            for w in windows {
                let start = (w as u128 * whole as u128 / taken as u128) as usize * context;
                batch.push(&text[start..=start + context]);
            }
            batch
        });
        let last = (rest > 0 && taken < most && taken == whole).then(|| {
            let mut batch = Batch {
                rows: 1,
                columns: rest as u64,
                ..Batch::default()
            };
            batch.push(&text[whole * context..]);
            batch
        });
        Ok(full.chain(last))
    }
}

impl Batch {
    /// Adds a window: all but the last byte as inputs, all but the first as targets.
    fn push(&mut self, window: &[u8]) {
        self.tokens
            .extend(window[..window.len() - 1].iter().map(|b| i32::from(*b)));
        self.targets
            .extend(window[1..].iter().map(|b| i32::from(*b)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn corpus(text: &[u8], percent: u32) -> Result<Corpus, DataError> {
        let mut f = tempfile::NamedTempFile::new().unwrap();
        f.write_all(text).unwrap();
        Corpus::open(f.path(), &Tokenizer::Bytes, percent, 256)
    }

    #[test]
    fn windows_are_shifted_by_one_and_stay_in_their_part() {
        let text: Vec<u8> = (0..100).collect();
        let c = corpus(&text, 10).unwrap();
        assert_eq!((c.train_bytes(), c.held_out_bytes()), (90, 10));
        let mut starts = std::collections::BTreeSet::new();
        for step in 0..200 {
            let b = c.training_batch(3, step, 4, 9).unwrap();
            assert_eq!((b.tokens.len(), b.targets.len()), (36, 36));
            for (row, target) in b.tokens.chunks(9).zip(b.targets.chunks(9)) {
                assert_eq!(row[1..], target[..8]);
                assert_eq!(target[8], row[0] + 9);
                assert!(target[8] < 90);
                starts.insert(row[0]);
            }
        }
        // 800 draws of 81 starts: all are reached, the first and the last too.
        assert_eq!(starts.len(), 81);
    }

    #[test]
    fn steps_can_be_drawn_again_and_differ() {
        let c = corpus(&[7; 5000], 0).unwrap();
        let text: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
        let d = corpus(&text, 0).unwrap();
        assert_eq!(
            c.training_batch(0, 1, 2, 8).unwrap(),
            c.training_batch(9, 5, 2, 8).unwrap()
        );
        assert_eq!(
            d.training_batch(0, 1, 2, 8).unwrap(),
            d.training_batch(0, 1, 2, 8).unwrap()
        );
        assert_ne!(
            d.training_batch(0, 1, 2, 8).unwrap(),
            d.training_batch(0, 2, 2, 8).unwrap()
        );
        assert_ne!(
            d.training_batch(0, 1, 2, 8).unwrap(),
            d.training_batch(1, 1, 2, 8).unwrap()
        );
    }

    #[test]
    fn held_out_windows_predict_each_byte_once() {
        let text: Vec<u8> = (0..=255).collect();
        for (rows, context) in [(4, 5), (3, 8), (1, 51), (8, 60), (2, 300)] {
            let c = corpus(&text, 20).unwrap();
            let batches: Vec<Batch> = c.held_out_batches(rows, context, None).unwrap().collect();
            let targets: Vec<i32> = batches.iter().flat_map(|b| b.targets.clone()).collect();
            assert_eq!(
                targets,
                (206..=255).collect::<Vec<i32>>(),
                "{rows} × {context}"
            );
            for b in &batches {
                assert_eq!(b.tokens.len() as u64, b.rows * b.columns);
                assert!(b.rows <= rows && b.columns <= context);
            }
        }
    }

    #[test]
    fn few_held_out_windows_are_spread_over_the_part() {
        let text: Vec<u8> = (0..=255).collect();
        let c = corpus(&text, 99).unwrap();
        let first = |n| -> Vec<i32> {
            c.held_out_batches(1, 10, Some(n))
                .unwrap()
                .map(|b| b.tokens[0])
                .collect()
        };
        assert_eq!(first(1), [3]);
        assert_eq!(first(5), [3, 53, 103, 153, 203]);
        assert_eq!(first(25).len(), 25);
        assert_eq!(first(26).len(), 26);
        assert_eq!(first(1000).len(), 26);
        assert_eq!(first(0).len(), 0);
    }

    #[test]
    fn what_cannot_be_used_is_refused_in_words() {
        let text = b"sixteen letters.";
        let errors = [
            Corpus::open(Path::new("/no/such/text"), &Tokenizer::Bytes, 10, 256)
                .map(drop)
                .unwrap_err(),
            corpus(b"", 10).map(drop).unwrap_err(),
            corpus(text, 100).map(drop).unwrap_err(),
            Corpus::open(Path::new("/"), &Tokenizer::Bytes, 10, 256)
                .map(drop)
                .unwrap_err(),
            Corpus::open(Path::new("/"), &Tokenizer::Bytes, 10, 100)
                .map(drop)
                .unwrap_err(),
        ];
        let c = corpus(text, 0).unwrap();
        let short = c.training_batch(0, 0, 1, 16).unwrap_err().to_string();
        assert!(c.training_batch(0, 0, 1, 15).is_ok());
        let none = c
            .held_out_batches(1, 4, None)
            .map(drop)
            .unwrap_err()
            .to_string();
        // Temporary files have names of their own.
        let temporary = std::env::temp_dir().display().to_string();
        let name = |w: &str| {
            if w.starts_with(&temporary) {
                "FILE".to_string()
            } else {
                w.to_string()
            }
        };
        let hide = |s: String| s.split(' ').map(name).collect::<Vec<_>>().join(" ");
        let list = errors
            .iter()
            .map(ToString::to_string)
            .chain([short, none])
            .map(hide);
        insta::assert_snapshot!(list.collect::<Vec<_>>().join("\n"));
    }
}
