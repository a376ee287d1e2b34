//! A text for next sentence prediction: rows of two segments, of which the second follows the first or, in half of the rows, another sentence.
//!
//! Takes the tokens of a source's files, which follow one another without a gap: the first part to train on, the end held out. Sentences are found once,
//! 16 bytes each; tokens are read when they are asked for. Leaves how files become tokens to [`mod@crate::data::sources`], what is
//! hidden to [`mod@crate::data::mask`].

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, Numbers, Unit};
use crate::data::draw::{drawn, spread};
use crate::data::identity::Identity;
use crate::data::parts::number;
use crate::data::tokens::Tokens;
use odec_program::manifest::Sentences;
use odec_program::rng::Stream;
use std::ops::Range;

/// Tokens that are looked through at a time.
const LOOKED_THROUGH: usize = 1 << 16;
/// The streams of the order of sentences, and of the segment that each is followed by.
const ORDER: &str = "sentences";
const SEGMENT: &str = "next sentence";
const SEGMENT_HELD_OUT: &str = "held-out next sentence";

/// Sentences of a text in two parts.
pub struct SentenceSet {
    name: String,
    files: Vec<Identity>,
    form: Sentences,
    tokens: Tokens,
    train: Part,
    held_out: Part,
}

/// A part of the text, and its sentences with the separators that end them, in order.
struct Part {
    name: &'static str,
    end: usize,
    sentences: Vec<Range<usize>>,
}

impl Part {
    /// Sentences of two tokens at least.
    fn of(
        name: &'static str,
        (tokens, part): (&Tokens, Range<usize>),
        separator: u64,
    ) -> Result<Part, DataError> {
        let mut sentences = Vec::new();
        let mut first = part.start;
        for start in part.clone().step_by(LOOKED_THROUGH) {
            let some = start..part.end.min(start + LOOKED_THROUGH);
            for (place, token) in some.clone().zip(tokens.window(some)?) {
                if u64::try_from(token) == Ok(separator) {
                    if first < place {
                        sentences.push(first..place + 1);
                    }
                    first = place + 1;
                }
            }
        }
        Ok(Part {
            name,
            end: part.end,
            sentences,
        })
    }

    /// Those that so many tokens of the part follow.
    fn with_room(&self, context: u64) -> &[Range<usize>] {
        let fits = |s: &Range<usize>| s.end + context as usize <= self.end;
        &self.sentences[..self.sentences.partition_point(fits)]
    }
}

/// The sentence, of so many, whose next segment follows a sentence in its row, and the class: draw `n` of a stream.
fn followed(stream: &Stream, n: u64, (sentence, all): (usize, usize)) -> (usize, i32) {
    let others = all as u64 - 1;
    match stream.below(n, 2 * others).checked_sub(others) {
        None => (sentence, 0),
        // Any sentence but this one.
        Some(other) => {
            let other = other as usize;
            (other + usize::from(other >= sentence), 1)
        }
    }
}

impl SentenceSet {
    /// Divides tokens: the last `percent` per cent (rounded down to tokens) are held out.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn new(
        name: String,
        files: Vec<Identity>,
        form: Sentences,
        tokens: Tokens,
        percent: u32,
    ) -> Result<SentenceSet, DataError> {
        let cut = tokens.first_held_out(percent);
        let train = Part::of("training", (&tokens, 0..cut), form.end)?;
        let held_out = Part::of("held-out", (&tokens, cut..tokens.len()), form.end)?;
        Ok(SentenceSet {
            name,
            files,
            form,
            tokens,
            train,
            held_out,
        })
    }

    /// The sentences of a part that rows of so many tokens begin with: two at least, since half of them need another one.
    fn some<'a>(&self, part: &'a Part, context: u64) -> Result<&'a [Range<usize>], DataError> {
        match part.with_room(context) {
            some @ [_, _, ..] => Ok(some),
            few => Err(DataError::Sentences {
                path: self.name.clone(),
                part: part.name,
                has: few.len(),
                context,
                end: self.form.end,
            }),
        }
    }

    /// Rows of two segments: a sentence, and what follows another or the same one in the text, with the class.
    fn batch(
        &self,
        rows: impl Iterator<Item = (Range<usize>, (Range<usize>, i32))>,
        context: u64,
    ) -> Result<Batch, DataError> {
        let columns = context as usize;
        let (mut tokens, mut targets, mut classes) = (vec![], vec![], vec![]);
        for (first, (before, class)) in rows {
            let kept = first.len().min(columns / 2);
            let own = first.end - kept..first.end;
            // One token more: the target of the last one.
            let second = before.end..before.end + columns + 1 - kept;
            let mut row = self.tokens.window(own)?;
            row.extend(self.tokens.window(second)?);
            tokens.extend(&row[..columns]);
            targets.extend(&row[1..]);
            classes.push(class);
        }
        let mut batch = Batch::of_tokens(classes.len() as u64, context, tokens, targets);
        let classes = (self.form.targets().into(), Numbers::I32(classes));
        batch.inputs.push(classes);
        Ok(batch)
    }
}

impl Dataset for SentenceSet {
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

    fn all_held_out(mut self: Box<Self>) -> Box<dyn Dataset> {
        // The part to train on comes first in the text.
        let mut all = std::mem::take(&mut self.train.sentences);
        all.append(&mut self.held_out.sentences);
        self.held_out.sentences = all;
        self.train.end = 0;
        self
    }

    fn held_out_rows(&self, context: u64) -> u64 {
        match self.held_out.with_room(context).len() {
            0 | 1 => 0,
            rows => rows as u64,
        }
    }

    /// Row r of step s is sentence number `s · batch + r` of an order in which each comes once before any comes again.
    fn training_batch(
        &self,
        draw: Draw,
        rows: Range<u64>,
        context: u64,
    ) -> Result<Batch, DataError> {
        let all = self.some(&self.train, context)?;
        let [order, segments] = [ORDER, SEGMENT].map(|name| Stream::new(draw.seed, name));
        let key = draw.key(rows.start);
        let rows = rows.map(|r| {
            let n = drawn(&order, number(draw, r), all.len() as u64) as usize;
            let at = draw.step.wrapping_shl(16).wrapping_add(r);
            let (other, class) = followed(&segments, at, (n, all.len()));
            (all[n].clone(), (all[other].clone(), class))
        });
        let batch = self.batch(rows, context)?;
        Ok(Batch { key, ..batch })
    }

    /// Rows that begin with each sentence in turn; the number of the sentence draws the second segment.
    fn held_out_batches(
        &self,
        rows: u64,
        context: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        let all = self.some(&self.held_out, context)?;
        let taken = most.map_or(all.len(), |n| all.len().min(n as usize));
        let rows = rows.max(1) as usize;
        let row = move |w: usize| {
            let n = spread(w, taken, all.len());
            let stream = Stream::new(0, SEGMENT_HELD_OUT);
            let (other, class) = followed(&stream, n as u64, (n, all.len()));
            (all[n].clone(), (all[other].clone(), class))
        };
        let batches = (0..taken).step_by(rows);
        let batches =
            batches.map(move |n| self.batch((n..(n + rows).min(taken)).map(row), context));
        Ok(Box::new(batches))
    }
}
