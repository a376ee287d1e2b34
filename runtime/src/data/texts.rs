//! Texts of several lengths as batches of tokens: pairs, or texts with a class each; a part to train on, another held out.
//!
//! Takes the tokens of the texts of each pair, of which several may be sources, or of a text and the number of its class. Which ones are held out is drawn once for all. Training goes
//! through all others before any comes again, in an order of its own each time; texts of similar length stand in a batch, so that little of it
//! is padding. A batch has a number of rows, or as many as have a number of tokens ([`Cuts`]). Leaves files to
//! [`mod@crate::data::sources`]. All tokens are in memory, 4 bytes each, and 8 bytes more for each text, and 4 for each row, 8 where batches are of tokens.

use crate::data::DataError;
use crate::data::dataset::{Batch, Batches, Dataset, Draw, InTokens, Unit};
use crate::data::draw::{divided, drawn, permuted, spread};
use crate::data::identity::Identity;
use odec_program::rng::Stream;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Batches whose pairs are sorted by length together.
const POOL: u64 = 64;
/// The stream that says which pairs are held out.
pub(super) const HELD_OUT: &str = "held-out pairs";

/// The tokens of pairs, whose texts follow one another: the sources, then the target, or the class.
pub(super) struct Tokens {
    all: Vec<i32>,
    /// Where each text begins, and where the last one ends.
    starts: Vec<u64>,
    /// Texts of a pair.
    each: usize,
}

impl Tokens {
    /// None yet, of pairs of so many texts.
    pub fn new(each: usize) -> Tokens {
        Tokens {
            all: Vec::new(),
            starts: vec![0],
            each,
        }
    }

    /// Adds a pair.
    pub fn push<'t>(&mut self, texts: impl IntoIterator<Item = &'t [u32]>) {
        for text in texts {
            self.all.extend(text.iter().map(|t| *t as i32));
            self.starts.push(self.all.len() as u64);
        }
    }

    /// How many pairs there are.
    pub fn len(&self) -> u32 {
        ((self.starts.len() - 1) / self.each) as u32
    }

    /// The sources of a pair, and its target.
    pub fn of(&self, pair: u32) -> (impl Iterator<Item = &[i32]>, &[i32]) {
        let first = pair as usize * self.each;
        let text = move |n: usize| &self.all[self.starts[n] as usize..self.starts[n + 1] as usize];
        let last = first + self.each - 1;
        ((first..last).map(text), text(last))
    }

    /// Tokens of the longest source of a pair, and of its target.
    fn lengths(&self, pair: u32) -> [u64; 2] {
        let (sources, target) = self.of(pair);
        let longest = sources.map(<[i32]>::len).max().unwrap_or(0);
        [longest, target.len()].map(|n| n as u64)
    }
}

/// What rows are made of pairs: each form is in the file of its source.
pub(super) trait Form {
    /// What rows are called.
    fn many(&self) -> &'static str;
    /// What they are counted in.
    fn unit(&self) -> Unit;
    /// Places that are filled in the longest row beside the model's own sequence, and in its own, by texts of such lengths: the longest source, and
    /// the target.
    fn places(&self, lengths: [u64; 2]) -> [u64; 2];
    /// Places that are filled in all rows of a pair.
    fn filled(&self, tokens: &Tokens, pair: u32) -> u64;
    /// Rows of some pairs, of so many columns beside the model's own sequence, and in its own.
    fn batch(&self, tokens: &Tokens, pairs: &[u32], columns: [u64; 2]) -> Batch;
}

/// Texts in two parts.
pub struct TextSet {
    name: String,
    files: Vec<Identity>,
    form: Box<dyn Form>,
    tokens: Tokens,
    /// Numbers of pairs, in order.
    train: Vec<u32>,
    held_out: Vec<u32>,
    /// Tokens of a row with what is put around them, the mean over those to train on.
    mean: f64,
    /// Pairs of the pool that was drawn last, by length.
    last: Mutex<Option<(Pool, Vec<u32>)>>,
    /// Batches of tokens, as they were asked for last.
    cuts: Mutex<Option<Arc<Cuts>>>,
}

/// All pairs to train on, cut into batches of at most so many tokens once for all, as fairseq's `--max-tokens` does (Ott et al. 2019). In each epoch the
/// batches come in an order of their own, and pairs whose texts are equally long take each other's places, so that a pair has other neighbours.
struct Cuts {
    tokens: u64,
    /// Numbers of pairs, shortest first.
    sorted: Vec<u32>,
    /// Where each batch begins, and where the last one ends.
    starts: Vec<u32>,
}

impl Cuts {
    /// Each batch has as many pairs as there is room for in rows as long as its longest.
    fn new(set: &TextSet, tokens: u64) -> Cuts {
        let mut sorted = set.train.clone();
        set.sort(&mut sorted);
        let mut starts = vec![0];
        let mut rows = 0;
        for (n, pair) in sorted.iter().enumerate() {
            if rows > 0 && (rows + 1) * set.columns(*pair) > tokens {
                starts.push(n as u32);
                rows = 0;
            }
            rows += 1;
        }
        starts.push(sorted.len() as u32);
        Cuts {
            tokens,
            sorted,
            starts,
        }
    }

    fn batches(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The pairs of batch `number`, counted from the first epoch on.
    fn batch(&self, set: &TextSet, seed: u64, number: u64) -> Vec<u32> {
        let (epoch, place) = (number / self.batches(), number % self.batches());
        let order = Stream::new(seed, "batches of tokens");
        let batch = permuted(&order, epoch, place, self.batches()) as usize;
        let places = self.starts[batch] as usize..self.starts[batch + 1] as usize;
        let length = |n: &u32| set.length(*n);
        let mut pairs = Vec::with_capacity(places.len());
        let mut at = places.start;
        while at < places.end {
            let own = length(&self.sorted[at]);
            let first = self.sorted.partition_point(|n| length(n) < own);
            let behind = self.sorted.partition_point(|n| length(n) <= own);
            let (longer, more) = own;
            let order = Stream::new(seed, &format!("pairs of {longer} tokens, {more} more"));
            let taken = |at: usize| {
                let place = permuted(&order, epoch, (at - first) as u64, (behind - first) as u64);
                self.sorted[first + place as usize]
            };
            let end = behind.min(places.end);
            pairs.extend((at..end).map(taken));
            at = end;
        }
        pairs
    }
}

/// Which batches are sorted together, of which seed and size.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pool {
    seed: u64,
    number: u64,
    batch: u64,
    batches: u64,
}

impl TextSet {
    /// Divides pairs: `percent` per cent (rounded down to pairs) are held out.
    pub(super) fn new(
        name: String,
        files: Vec<Identity>,
        form: Box<dyn Form>,
        tokens: Tokens,
        percent: u32,
    ) -> TextSet {
        let (train, held_out) = divided(HELD_OUT, tokens.len(), percent);
        let all: u64 = train.iter().map(|n| form.filled(&tokens, *n)).sum();
        TextSet {
            mean: all as f64 / train.len().max(1) as f64,
            name,
            files,
            form,
            tokens,
            train,
            held_out,
            last: Mutex::new(None),
            cuts: Mutex::new(None),
        }
    }

    fn batch(&self, pairs: &[u32]) -> Batch {
        let places = pairs.iter().map(|n| self.places(*n));
        let most = |n: usize| places.clone().map(|p| p[n]).max().unwrap_or(1);
        let batch = self.form.batch(&self.tokens, pairs, [most(0), most(1)]);
        let filled = pairs.iter().map(|n| self.form.filled(&self.tokens, *n));
        Batch {
            padding: Some(batch.places() - filled.sum::<u64>()),
            ..batch
        }
    }

    /// As [`Form::places`].
    fn places(&self, pair: u32) -> [u64; 2] {
        self.form.places(self.tokens.lengths(pair))
    }

    /// Places of the longer row.
    fn columns(&self, pair: u32) -> u64 {
        let [beside, own] = self.places(pair);
        beside.max(own)
    }

    /// What pairs are sorted by: places of the longer row, and how many more tokens the source has, so that neighbours are alike in both texts.
    fn length(&self, pair: u32) -> (u64, i64) {
        let [source, target] = self.tokens.lengths(pair).map(|n| n as i64);
        (self.columns(pair), source - target)
    }

    /// Shortest first; those of one length in the order of their numbers.
    fn sort(&self, pairs: &mut [u32]) {
        pairs.sort_by_cached_key(|n| (self.length(*n), *n));
    }

    /// The pairs of a pool by their length. Pool q holds the draws of steps `q · batches` to `(q + 1) · batches − 1`.
    fn pool(&self, pool: Pool) -> Vec<u32> {
        let order = Stream::new(pool.seed, "pairs");
        let draws = u128::from(pool.batches) * u128::from(pool.batch);
        let first = u128::from(pool.number) * draws;
        let numbers = (first..first + draws)
            .map(|number| self.train[drawn(&order, number, self.train.len() as u64) as usize]);
        let mut pairs: Vec<u32> = numbers.collect();
        self.sort(&mut pairs);
        pairs
    }

    fn cuts(&self, tokens: u64) -> Arc<Cuts> {
        let mut last = self.cuts.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(cuts) if cuts.tokens == tokens => cuts.clone(),
            _ => last.insert(Arc::new(Cuts::new(self, tokens))).clone(),
        }
    }

    /// The pairs of one step: one of the batches that a sorted pool is cut into. In which order these come, is drawn.
    fn step(&self, draw: Draw) -> Vec<u32> {
        let Draw {
            seed, step, batch, ..
        } = draw;
        let batches = (self.train.len() as u64 / batch.max(1)).clamp(1, POOL);
        let pool = Pool {
            seed,
            number: step / batches,
            batch,
            batches,
        };
        let order = Stream::new(seed, "batches of pairs");
        let place = permuted(&order, pool.number, step % batches, batches);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, pairs) = match last.take().filter(|(of, _)| *of == pool) {
            Some(same) => last.insert(same),
            None => last.insert((pool, self.pool(pool))),
        };
        pairs[(place * batch) as usize..][..batch as usize].to_vec()
    }

    fn some(&self, part: &'static str, pairs: &[u32]) -> Result<(), DataError> {
        match pairs {
            [] => Err(DataError::NoTexts {
                path: self.name.clone(),
                part,
                what: self.form.many(),
            }),
            _ => Ok(()),
        }
    }
}

impl Dataset for TextSet {
    fn name(&self) -> &str {
        &self.name
    }

    fn files(&self) -> &[Identity] {
        &self.files
    }

    fn unit(&self) -> Unit {
        self.form.unit()
    }

    /// Tokens of all pairs, without those that are put around them; texts with a class.
    fn len(&self) -> u64 {
        match self.form.unit() {
            Unit::Tokens => self.tokens.all.len() as u64,
            Unit::Images | Unit::Sequences => u64::from(self.tokens.len()),
        }
    }

    fn expected(&self, draw: Draw, _: u64) -> f64 {
        let rows = match draw.tokens {
            None => draw.batch as f64,
            Some(InTokens { most, parts }) => {
                let batches = self.cuts(most).batches().max(1);
                (self.train.len() as u64 * parts) as f64 / batches as f64
            }
        };
        match self.form.unit() {
            Unit::Tokens => rows * self.mean,
            Unit::Images | Unit::Sequences => rows,
        }
    }

    fn all_held_out(self: Box<Self>) -> Box<dyn Dataset> {
        Box::new(TextSet {
            train: vec![],
            held_out: (0..self.tokens.len()).collect(),
            ..*self
        })
    }

    fn held_out_rows(&self, _: u64) -> u64 {
        self.held_out.len() as u64
    }

    /// Draw n is pair n of an order in which each comes once before any comes again. The draws of up to 64 steps are sorted by length and cut
    /// into their batches, of which row r of step s is the r-th pair of one. In batches of tokens, all pairs come once in an epoch of batches.
    fn training_batch(&self, draw: Draw, rows: Range<u64>, _: u64) -> Result<Batch, DataError> {
        self.some("training", &self.train)?;
        let key = draw.key(rows.start);
        let pairs = match draw.tokens {
            None => self.step(draw)[rows.start as usize..rows.end as usize].to_vec(),
            Some(InTokens { most, parts }) => {
                let part = rows.start * parts / draw.batch.max(1);
                let number = draw.step.wrapping_mul(parts).wrapping_add(part);
                self.cuts(most).batch(self, draw.seed, number)
            }
        };
        Ok(Batch {
            key,
            ..self.batch(&pairs)
        })
    }

    /// The held-out pairs by their length, each once.
    fn held_out_batches(
        &self,
        rows: u64,
        _: u64,
        most: Option<u64>,
    ) -> Result<Batches<'_>, DataError> {
        self.some("held-out", &self.held_out)?;
        let all = self.held_out.len();
        let taken = most.map_or(all, |n| all.min(n as usize));
        let spread = |w| self.held_out[spread(w, taken, all)];
        let mut pairs: Vec<u32> = (0..taken).map(spread).collect();
        self.sort(&mut pairs);
        let rows = rows.max(1) as usize;
        let batches = (0..taken).step_by(rows);
        let batches = batches.map(move |n| Ok(self.batch(&pairs[n..(n + rows).min(taken)])));
        Ok(Box::new(batches))
    }
}
