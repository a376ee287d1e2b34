//! A sequence of tokens as windows: the first part to train on, the end held out.
//!
//! Takes the tokens of a source's files, which follow one another without a gap, so that a window may span two. Windows are read when they are
//! asked for. Leaves how files become tokens to [`mod@crate::data::sources`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Unit};
use crate::data::draw::spread;
use crate::data::identity::Identity;
use crate::data::tokens::Tokens;
use odec_program::rng::Stream;
use std::ops::Range;

/// Tokens in two parts: training at their beginning, held out at their end.
pub struct Corpus {
    name: String,
    files: Vec<Identity>,
    tokens: Tokens,
    train: Range<usize>,
    held_out: Range<usize>,
}

impl Corpus {
    /// Divides tokens: the last `percent` per cent (rounded down to tokens) are held out.
    pub(super) fn new(name: String, files: Vec<Identity>, tokens: Tokens, percent: u32) -> Corpus {
        let (n, cut) = (tokens.len(), tokens.first_held_out(percent));
        Corpus {
            name,
            files,
            tokens,
            train: 0..cut,
            held_out: cut..n,
        }
    }

    /// Windows of `context` + 1 tokens: all but the last are inputs, all but the first targets.
    fn batch(
        &self,
        windows: impl Iterator<Item = Range<usize>>,
        context: u64,
    ) -> Result<Batch, DataError> {
        let (mut rows, mut tokens, mut targets) = (0, vec![], vec![]);
        for w in windows {
            let window = self.tokens.window(w)?;
            tokens.extend(&window[..window.len() - 1]);
            targets.extend(&window[1..]);
            rows += 1;
        }
        Ok(Batch::of_tokens(rows, context, tokens, targets))
    }

    /// Whether there are tokens for a sequence of training.
    fn enough_to_train(&self, context: u64) -> Result<(), DataError> {
        let (has, needs) = (self.train.len() as u64, context + 1);
        if has >= needs {
            return Ok(());
        }
        Err(DataError::Short {
            what: format!("the training part of {}", self.name),
            has,
            needs,
            why: "for a sequence (context + 1)",
            remedy: "give a longer text or a shorter context",
        })
    }

    /// Whether a token is to be predicted.
    fn enough_to_evaluate(&self) -> Result<(), DataError> {
        let (has, needs) = (self.held_out.len() as u64, 2);
        if has >= needs {
            return Ok(());
        }
        let is_part = self.held_out.len() < self.tokens.len();
        let (what, remedy) = match is_part {
            true => (
                format!("the held-out part of {}", self.name),
                "give a longer text, or hold out more of it",
            ),
            false => (self.name.clone(), "give a longer text"),
        };
        let why = "to predict one by another";
        Err(DataError::Short {
            what,
            has,
            needs,
            why,
            remedy,
        })
    }
}

impl Dataset for Corpus {
    fn name(&self) -> &str {
        &self.name
    }

    fn files(&self) -> &[Identity] {
        &self.files
    }

    fn unit(&self) -> Unit {
        Unit::Tokens
    }

    fn len(&self) -> u64 {
        self.tokens.len() as u64
    }

    fn expected(&self, draw: Draw, context: u64) -> f64 {
        (draw.batch * context) as f64
    }

    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset> {
        Box::new(Corpus {
            train: 0..0,
            held_out: 0..self.tokens.len(),
            ..*self
        })
    }

    fn held_out_rows(&self, context: u64) -> u64 {
        let predicted = (self.held_out.len() as u64).saturating_sub(1);
        predicted.div_ceil(context.max(1))
    }

    /// Windows are drawn with replacement: row r of step s starts where draw
    /// `s · 2¹⁶ + r` of the seed's stream `batch` says.
    fn training_batch(
        &self,
        draw: Draw,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError> {
        self.enough_to_train(context)?;
        let Draw { seed, step, .. } = draw;
        let starts = self.train.len() as u64 - context;
        let stream = Stream::new(seed, "batch");
        let key = draw.key(rows.start);
        let start = |r| stream.below(step.wrapping_shl(16).wrapping_add(r), starts) as usize;
        let windows = rows.map(|r| start(r)..start(r) + context as usize + 1);
        let batch = self.batch(windows, context)?;
        Ok(Batch { key, ..batch })
    }

    /// Consecutive windows of the held-out part, `rows` at a time: together they predict each token but the
    /// first once. The last batches may be smaller: fewer rows, then a single shorter row. With `most`, at
    /// most so many windows, spread evenly over the part.
    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        self.enough_to_evaluate()?;
        let Range { start: first, end } = self.held_out;
        let (rows, context) = (rows as usize, context as usize);
        let whole = (end - first - 1) / context;
        let rest = (end - first - 1) % context;
        let most = most.map_or(usize::MAX, |n| n as usize);
        let taken = whole.min(most);
        let full = (0..taken).step_by(rows).map(move |n| {
            let windows = n..(n + rows).min(taken);
            let window = |w: usize| {
                let start = first + spread(w, taken, whole) * context;
                start..start + context + 1
            };
            self.batch(windows.map(window), context as u64)
        });
        let last = (rest > 0 && taken < most && taken == whole)
            .then(|| self.batch(std::iter::once(first + whole * context..end), rest as u64));
        Ok(Box::new(full.chain(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::identity::DataFile;
    use crate::data::tokenizer::Tokenizer;
    use crate::data::tokens::Width;
    use crate::data::{Source, sources};
    use crate::system::progress::Show;
    use odec_program::manifest::{Data, Form};
    use odec_program::names::{TARGETS, TOKENS};
    use std::io::Write;
    use std::path::{Path, PathBuf};

    fn draw(seed: u64, step: u64) -> Draw {
        Draw {
            seed,
            step,
            batch: 4,
            tokens: None,
        }
    }

    /// Files of a corpus, and whether they hold tokens.
    fn open(
        files: &[&Path],
        form: Form,
        percent: u32,
        vocab: u64,
    ) -> Result<Box<dyn Dataset>, DataError> {
        let cache = tempfile::tempdir().unwrap();
        let data = Data {
            files: files.iter().map(|f| f.display().to_string()).collect(),
            form,
            held_out_percent: percent,
        };
        let source = Source {
            data: &data,
            tokenizer: &Tokenizer::bytes(),
            cache: cache.path(),
            context: 16,
            source_context: 0,
            show: Show::Nothing,
        };
        sources::open(source, vocab)
    }

    fn form() -> Form {
        Form::Text {
            tokenizer: odec_program::manifest::Tokenizer::Bytes,
            key: "text".into(),
            separator: "\n".into(),
        }
    }

    fn corpus(bytes: &[u8], percent: u32) -> Result<Box<dyn Dataset>, DataError> {
        let mut f = tempfile::NamedTempFile::new().unwrap();
        f.write_all(bytes).unwrap();
        open(&[f.path()], form(), percent, 256)
    }

    #[test]
    fn windows_are_shifted_by_one_and_stay_in_their_part() {
        let text: Vec<u8> = (0..100).collect();
        let c = corpus(&text, 10).unwrap();
        assert_eq!((c.len(), c.held_out_rows(1)), (100, 9));
        let mut starts = std::collections::BTreeSet::new();
        for step in 0..200 {
            let b = c.training_batch(draw(3, step), 0..4, 9).unwrap();
            assert_eq!((b.whole(TOKENS).len(), b.whole(TARGETS).len()), (36, 36));
            for (row, target) in b.whole(TOKENS).chunks(9).zip(b.whole(TARGETS).chunks(9)) {
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
            c.training_batch(draw(0, 1), 0..2, 8).unwrap().whole(TOKENS),
            c.training_batch(draw(9, 5), 0..2, 8).unwrap().whole(TOKENS)
        );
        assert_eq!(
            d.training_batch(draw(0, 1), 0..2, 8).unwrap(),
            d.training_batch(draw(0, 1), 0..2, 8).unwrap()
        );
        assert_ne!(
            d.training_batch(draw(0, 1), 0..2, 8).unwrap(),
            d.training_batch(draw(0, 2), 0..2, 8).unwrap()
        );
        assert_ne!(
            d.training_batch(draw(0, 1), 0..2, 8).unwrap(),
            d.training_batch(draw(1, 1), 0..2, 8).unwrap()
        );
    }

    #[test]
    fn held_out_windows_predict_each_byte_once() {
        let text: Vec<u8> = (0..=255).collect();
        for (rows, context) in [(4, 5), (3, 8), (1, 51), (8, 60), (2, 300)] {
            let c = corpus(&text, 20).unwrap();
            let batches: Vec<Batch> = c
                .held_out_batches(rows, context, None)
                .unwrap()
                .map(Result::unwrap)
                .collect();
            let targets: Vec<i32> = batches
                .iter()
                .flat_map(|b| b.whole(TARGETS).to_vec())
                .collect();
            assert_eq!(
                targets,
                (206..=255).collect::<Vec<i32>>(),
                "{rows} × {context}"
            );
            for b in &batches {
                assert_eq!(b.whole(TOKENS).len() as u64, b.rows * b.columns);
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
                .map(|b| b.unwrap().whole(TOKENS)[0])
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
        let root = Path::new("/");
        let errors = [
            open(&[Path::new("/no/such/text")], form(), 10, 256),
            corpus(b"", 10),
            corpus(text, 100),
            open(&[root], form(), 10, 256),
            open(&[root], form(), 10, 100),
        ]
        .map(|e| e.map(drop).unwrap_err());
        let c = corpus(text, 0).unwrap();
        let short = c
            .training_batch(draw(0, 0), 0..1, 16)
            .unwrap_err()
            .to_string();
        assert!(c.training_batch(draw(0, 0), 0..1, 15).is_ok());
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

    #[test]
    fn files_follow_one_another_without_a_gap() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let two = |tokens: Range<u16>| tokens.flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        std::fs::write(at("a.bin"), two(0..7)).unwrap();
        let wide: Vec<u8> = (70_000u32..70_009).flat_map(u32::to_le_bytes).collect();
        std::fs::write(at("b.u32.bin"), wide).unwrap();
        std::fs::write(at("c.bin"), two(100..103)).unwrap();
        let names = ["a.bin", "b.u32.bin", "c.bin"].map(at);
        let files: Vec<&Path> = names.iter().map(PathBuf::as_path).collect();
        let mut tokens = Tokens::default();
        for file in &files {
            let open = DataFile::open(file).unwrap();
            tokens.add(open, 0, Width::of(file)).unwrap();
        }
        assert_eq!(open(&files, Form::Tokens, 0, 80_000).unwrap().len(), 19);
        let all: Vec<i32> = (0..7).chain(70_000..70_009).chain(100..103).collect();
        for start in 0..19 {
            for end in start..=19 {
                assert_eq!(tokens.window(start..end).unwrap(), all[start..end]);
            }
        }
        std::fs::write(at("a.bin"), [1, 2, 3]).unwrap();
        let cut = open(&files, Form::Tokens, 0, 80_000).map(drop).unwrap_err();
        assert!(cut.to_string().contains("3 bytes"), "{cut}");
    }
}
