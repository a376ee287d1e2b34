//! Texts that grow: what a model says of the next token, one text at a time or several in one pass over the weights.
//!
//! Takes tokens that are new; runs entry `decode` on those of one text, and entry `extend` on a token of each of several. Keys and values of earlier
//! tokens are kept, so a token costs the same wherever it stands; when the context is full, the later half of it is read anew and becomes the past.
//! Leaves which token comes next to `generate`.

use crate::device::reals::Reals;
use crate::executor::{Executor, RunError, Value};
use crate::infer::evaluate::window;
use odec_program::{Bindings, EntryId, names};

/// A sequence that grows.
pub struct Reader<'x> {
    x: &'x mut Executor,
    context: usize,
    /// Tokens that the model has seen since the context was last full.
    seen: Vec<i32>,
}

impl<'x> Reader<'x> {
    /// Starts a sequence with the parameters as they are now.
    ///
    /// # Errors
    /// When the program cannot decode.
    pub fn new(x: &'x mut Executor) -> Result<Reader<'x>, RunError> {
        let context = window(x) as usize;
        x.run(EntryId::Prepare, Bindings::new(1, 1), &[], &[])?;
        Ok(Reader {
            x,
            context,
            seen: Vec::new(),
        })
    }

    /// Reads the next tokens, one at least; gives the logits after each of them, or after those that still fit. Of more than an entry reads in
    /// one run ([`Executor::piece`]), those of the last run.
    ///
    /// # Errors
    /// When a token is not in the vocabulary.
    pub fn read(&mut self, new: &[i32]) -> Result<Reals<'_>, RunError> {
        self.read_each(new, &mut |_| ())
    }

    /// The same; hands over the logits of all runs before the last.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_each(
        &mut self,
        new: &[i32],
        before: &mut dyn FnMut(Reals),
    ) -> Result<Reals<'_>, RunError> {
        let past = self.seen.len();
        self.seen.extend(new);
        let past = match self.seen.len() <= self.context {
            true => past,
            false => {
                let kept = new.len().clamp(self.context.div_ceil(2), self.context);
                self.seen.drain(..self.seen.len() - kept);
                0
            }
        };
        decode(self.x, &self.seen, past, before)
    }
}

/// Reads the tokens of a text from a place on, in as many runs as they need; gives the logits of the last, and hands over those of the others.
fn decode<'x>(
    x: &'x mut Executor,
    text: &[i32],
    mut past: usize,
    before: &mut dyn FnMut(Reals),
) -> Result<Reals<'x>, RunError> {
    let piece = x.piece(EntryId::Decode).max(1);
    while text.len() - past > piece {
        before(decode_piece(x, &text[past..past + piece], past)?);
        past += piece;
    }
    decode_piece(x, &text[past..], past)
}

fn decode_piece<'x>(
    x: &'x mut Executor,
    tokens: &[i32],
    past: usize,
) -> Result<Reals<'x>, RunError> {
    let at = Bindings::new(1, tokens.len() as u64).after(past as u64);
    let given = [(names::TOKENS, Value::I32(tokens))];
    let out = x.run(EntryId::Decode, at, &given, &[])?;
    out.reals(names::LOGITS)
}

/// Several sequences that grow, each of which says what it says alone, bit for bit.
pub struct Texts<'x> {
    x: &'x mut Executor,
    context: usize,
    /// Of each, the tokens that the model has seen since the context was last full.
    seen: Vec<Vec<i32>>,
}

impl<'x> Texts<'x> {
    /// The most texts that a program reads together; 0, where it reads them one by one.
    pub fn most(x: &Executor) -> usize {
        let entry = x.manifest().program.entries.get(&EntryId::Extend);
        entry.map_or(0, |e| e.maxima.batch) as usize
    }

    /// Starts so many sequences with the parameters as they are now.
    ///
    /// # Errors
    /// When the program cannot read so many.
    pub fn new(x: &'x mut Executor, count: usize) -> Result<Texts<'x>, RunError> {
        let context = window(x) as usize;
        x.run(EntryId::Prepare, Bindings::new(1, 1), &[], &[])?;
        Ok(Texts {
            x,
            context,
            seen: vec![Vec::new(); count],
        })
    }

    /// Reads the next tokens of each sequence, one at least; gives the logits after the last of them. A token of each is read in one pass; what is more
    /// than that, and what becomes the past of a text whose context is full, is read by itself.
    ///
    /// # Errors
    /// When a token is not in the vocabulary, or there is no memory left.
    pub fn read(&mut self, new: &[&[i32]]) -> Result<Logits<'_>, RunError> {
        let vocab = self.x.manifest().model.vocab as usize;
        let alone = self.alone(new);
        let places = self.seen.iter().zip(&alone);
        let places: Vec<i32> = places
            .map(|(seen, alone)| if *alone { 0 } else { seen.len() as i32 })
            .collect();
        for (seen, new) in self.seen.iter_mut().zip(new) {
            seen.extend(*new);
        }
        if !alone.contains(&true) {
            return Ok(Logits::Of(self.together(new, &places)?, vocab));
        }
        let mut logits = vec![Vec::new(); self.seen.len()];
        if alone.contains(&false) {
            // It writes over what the others keep, which is made anew behind it.
            let all = Logits::Of(self.together(new, &places)?, vocab);
            for (n, logits) in logits.iter_mut().enumerate() {
                *logits = all.of(n).iter().collect();
            }
        }
        for n in (0..alone.len()).filter(|n| alone[*n]) {
            logits[n] = self.anew(n, new[n].len())?;
        }
        Ok(Logits::Copied(logits))
    }

    /// Reads the first new token of each text, at its place.
    fn together(&mut self, new: &[&[i32]], places: &[i32]) -> Result<Reals<'_>, RunError> {
        let tokens: Vec<i32> = new.iter().map(|new| new[0]).collect();
        let past = places.iter().copied().max().unwrap_or(0) as u64;
        let at = Bindings::new(tokens.len() as u64, 1).after(past);
        let mut given = vec![(names::TOKENS, Value::I32(&tokens))];
        if self.x.reads_places(EntryId::Extend) {
            given.push((names::PLACES, Value::I32(places)));
        }
        let out = self.x.run(EntryId::Extend, at, &given, &[])?;
        out.reals(names::LOGITS)
    }

    /// Which texts are read by themselves: those that begin, that have several new tokens, or whose context is full.
    fn alone(&self, new: &[&[i32]]) -> Vec<bool> {
        let pairs = self.seen.iter().zip(new);
        let alone = |(seen, new): (&Vec<i32>, &&[i32])| {
            seen.is_empty() || new.len() != 1 || seen.len() == self.context
        };
        pairs.map(alone).collect()
    }

    /// Reads a text from its beginning, or, where the context is full, from the later half of it, and keeps what it leaves.
    fn anew(&mut self, n: usize, new: usize) -> Result<Vec<f64>, RunError> {
        let seen = &mut self.seen[n];
        if seen.len() > self.context {
            let kept = new.clamp(self.context.div_ceil(2), self.context);
            seen.drain(..seen.len() - kept);
        }
        let vocab = self.x.manifest().model.vocab as usize;
        let all = decode(self.x, seen, 0, &mut |_| ())?;
        let logits = all.part(all.len() - vocab..all.len()).iter().collect();
        self.x.go_on_from_text(n, seen.len() as u64)?;
        Ok(logits)
    }
}

/// What is said of the next token of several texts.
pub enum Logits<'a> {
    /// One after the other, of so many tokens each.
    Of(Reals<'a>, usize),
    /// Of texts that were not read in one pass.
    Copied(Vec<Vec<f64>>),
}

impl Logits<'_> {
    /// Those of a text, by its number.
    ///
    /// # Panics
    /// When there is no such text.
    pub fn of(&self, n: usize) -> Reals<'_> {
        match self {
            Logits::Of(all, vocab) => all.part(n * vocab..(n + 1) * vocab),
            Logits::Copied(each) => Reals::F64(&each[n]),
        }
    }
}
