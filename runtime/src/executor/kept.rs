//! What runs of generation keep for those after them: of one text, which entry `decode` reads, and of several, which entry `extend` does.
//!
//! Takes a program; gives each its memory when it is first used, moves what is kept from text to text, and drops tokens that no window reaches any more
//! ([`odec_program::recent`]). Leaves what lies where to the compiler ([`odec_program::Kept`]).

use crate::device::Device;
use crate::device::memory::{Buffer, WORD, Words};
use crate::executor::run_error::RunError;
use odec_program::{Bindings, EntryId, Kept, Program, Recent};
use std::cell::Cell;
use std::io;
use std::ops::Range;

/// The memory of entry `decode`, and that of the others.
#[derive(Default)]
pub(crate) struct KeptMemory([Part; 2]);

#[derive(Default)]
struct Part {
    memory: Option<Buffer>,
    /// Of each sequence, the number of tokens that are dropped; none of those behind.
    dropped: Vec<u64>,
}

impl Part {
    fn dropped(&self, sequence: usize) -> u64 {
        self.dropped.get(sequence).copied().unwrap_or(0)
    }

    fn set_dropped(&mut self, sequence: usize, tokens: u64) {
        let sequences = self.dropped.len().max(sequence + 1);
        self.dropped.resize(sequences, 0);
        self.dropped[sequence] = tokens;
    }
}

fn number(entry: EntryId) -> usize {
    usize::from(entry != EntryId::Decode)
}

/// Of which entry, by its program, and on which device.
pub(crate) struct Of<'a> {
    pub device: &'a mut dyn Device,
    pub program: &'a Program,
    pub entry: EntryId,
}

impl KeptMemory {
    /// What an entry uses, zeros at first, and the byte of [`odec_program::Slot::Cache`] that it begins with.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn of(&mut self, of: &mut Of) -> io::Result<(Words<'_>, u64)> {
        let part = of.program.cache(of.entry);
        if part.is_empty() {
            return Ok((&[], part.start));
        }
        let own = &mut self.0[number(of.entry)].memory;
        if own.is_none() {
            *own = Some(of.device.allocate(part.end - part.start)?);
        }
        Ok((own.as_mut().map_or(&[], |b| b.words()), part.start))
    }

    /// Drops what no window reaches any more where a run would find no room otherwise. `pasts`: the tokens before those of the run, of each sequence. Gives
    /// how many of these are kept.
    ///
    /// # Errors
    /// When the device fails, or a sequence goes back to where a window sees what is dropped.
    pub fn make_room(
        &mut self,
        mut of: Of,
        recent: Recent,
        at: Bindings,
        pasts: &[u64],
    ) -> Result<Vec<u64>, RunError> {
        let mut kept = vec![];
        for (sequence, past) in pasts.iter().enumerate() {
            let before = match past {
                0 => 0,
                _ => self.0[number(of.entry)].dropped(sequence),
            };
            let most = recent.dropped(*past);
            if most < before {
                return Err(RunError::Dropped {
                    past: *past,
                    dropped: before,
                });
            }
            let fits = past.saturating_add(at.seq) - before <= recent.rows;
            let dropped = if fits { before } else { most };
            if dropped > before {
                self.move_to_front(&mut of, sequence, dropped - before..*past - before)?;
            }
            self.0[number(of.entry)].set_dropped(sequence, dropped);
            kept.push(past - dropped);
        }
        Ok(kept)
    }

    /// Moves rows of recent tokens of a sequence to the front, as far as there are such rows.
    fn move_to_front(
        &mut self,
        of: &mut Of,
        sequence: usize,
        rows: Range<u64>,
    ) -> Result<(), RunError> {
        let entry = of.program.entries.get(&of.entry);
        for k in entry.iter().flat_map(|e| &e.kept).filter(|k| k.recent) {
            let rows = rows.start.min(k.rows)..rows.end.min(k.rows);
            let (words, begin) = self.of(of)?;
            let moved = fetched(of, &[part(words, k, (sequence, rows), begin)])?;
            self.write(of, k, &[sequence], &moved)?;
        }
        Ok(())
    }

    /// What is kept of the first `tokens` tokens of some sequences.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(
        &mut self,
        of: &mut Of,
        k: &Kept,
        sequences: &[usize],
        tokens: u64,
    ) -> Result<Vec<Vec<u32>>, RunError> {
        let own = &self.0[number(of.entry)];
        let rows = |n: &usize| match (k.grows, k.recent) {
            (false, _) => k.rows,
            (true, false) => tokens.min(k.rows),
            (true, true) => tokens.saturating_sub(own.dropped(*n)).min(k.rows),
        };
        let rows: Vec<u64> = sequences.iter().map(rows).collect();
        let (words, begin) = self.of(of)?;
        let parts = sequences.iter().zip(rows);
        let parts = parts.map(|(n, rows)| part(words, k, (*n, 0..rows), begin));
        let parts: Vec<Words> = parts.collect();
        fetched(of, &parts)
    }

    /// Notes of sequences of an entry that the same tokens are dropped as of others, whose rows they have got.
    pub fn drop_alike(&mut self, entries: [EntryId; 2], [from, to]: [&[usize]; 2]) {
        let [own, others] = entries.map(number);
        let dropped: Vec<u64> = from.iter().map(|n| self.0[own].dropped(*n)).collect();
        for (n, dropped) in to.iter().zip(dropped) {
            self.0[others].set_dropped(*n, dropped);
        }
    }

    /// Puts what was read in the place of what is kept of sequences.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn write(
        &mut self,
        of: &mut Of,
        k: &Kept,
        sequences: &[usize],
        texts: &[Vec<u32>],
    ) -> Result<(), RunError> {
        let (words, begin) = self.of(of)?;
        for (n, text) in sequences.iter().zip(texts) {
            let to = &part(words, k, (*n, 0..k.rows), begin)[..text.len()];
            to.iter().zip(text).for_each(|(to, x)| to.set(*x));
            of.device.copy_in(to, to);
        }
        // What is copied may go when it has arrived.
        let mark = of.device.mark();
        of.device.wait(mark).map_err(RunError::Device)
    }
}

/// Some rows of what is kept of a sequence.
fn part<'w>(words: Words<'w>, k: &Kept, (n, rows): (usize, Range<u64>), begin: u64) -> Words<'w> {
    let words_of = |bytes: u64| (bytes / WORD) as usize;
    let of_sequence = words_of(k.offset - begin) + n * words_of(k.rows * k.row);
    &words[of_sequence..][words_of(rows.start * k.row)..words_of(rows.end * k.row)]
}

/// Parts as they are after all runs so far.
fn fetched(of: &mut Of, parts: &[Words]) -> Result<Vec<Vec<u32>>, RunError> {
    if !of.device.in_step() {
        parts.iter().for_each(|p| of.device.copy_out(p, p));
        let mark = of.device.mark();
        of.device.wait(mark).map_err(RunError::Device)?;
    }
    let read = |p: &Words| p.iter().map(Cell::get).collect();
    Ok(parts.iter().map(read).collect())
}
