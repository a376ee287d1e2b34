//! What runs of generation keep for those after them: of one text, which entry `decode` reads, and of several, which entry `extend` does.
//!
//! Takes a program; gives each its memory when it is first used, and moves what is kept from text to text. Leaves what lies where to the compiler
//! ([`odec_program::Kept`]).

use crate::device::Device;
use crate::device::memory::{Buffer, WORD, Words};
use crate::executor::run_error::RunError;
use odec_program::{EntryId, Kept, Program};
use std::cell::Cell;
use std::io;

/// The memory of entry `decode`, and that of the others.
#[derive(Default)]
pub(crate) struct KeptMemory([Option<Buffer>; 2]);

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
        let own = &mut self.0[usize::from(of.entry != EntryId::Decode)];
        if own.is_none() {
            *own = Some(of.device.allocate(part.end - part.start)?);
        }
        Ok((own.as_mut().map_or(&[], |b| b.words()), part.start))
    }

    /// What is kept of the first `tokens` tokens of some sequences.
    ///
    /// # Errors
    /// When the device fails.
    pub fn read(
        &mut self,
        mut of: Of,
        k: &Kept,
        sequences: &[usize],
        tokens: u64,
    ) -> Result<Vec<Vec<u32>>, RunError> {
        let (words, begin) = self.of(&mut of)?;
        let rows = match k.grows {
            true => tokens.min(k.rows),
            false => k.rows,
        };
        let parts = sequences.iter().map(|n| part(words, k, (*n, rows), begin));
        let parts: Vec<Words> = parts.collect();
        if !of.device.in_step() {
            parts.iter().for_each(|p| of.device.copy_out(p, p));
            let mark = of.device.mark();
            of.device.wait(mark).map_err(RunError::Device)?;
        }
        let read = |p: &Words| p.iter().map(Cell::get).collect();
        Ok(parts.iter().map(read).collect())
    }

    /// Puts what was read in the place of what is kept of sequences.
    ///
    /// # Errors
    /// When there is no memory left.
    pub fn write(
        &mut self,
        mut of: Of,
        k: &Kept,
        sequences: &[usize],
        texts: &[Vec<u32>],
    ) -> Result<(), RunError> {
        let (words, begin) = self.of(&mut of)?;
        for (n, text) in sequences.iter().zip(texts) {
            let to = &part(words, k, (*n, k.rows), begin)[..text.len()];
            to.iter().zip(text).for_each(|(to, x)| to.set(*x));
            of.device.copy_in(to, to);
        }
        // What is copied may go when it has arrived.
        let mark = of.device.mark();
        of.device.wait(mark).map_err(RunError::Device)
    }
}

/// The first rows of what is kept of a sequence.
fn part<'w>(words: Words<'w>, k: &Kept, (n, rows): (usize, u64), begin: u64) -> Words<'w> {
    let [first, whole, used] =
        [k.offset - begin, k.rows * k.row, rows * k.row].map(|bytes| (bytes / WORD) as usize);
    &words[first + n * whole..][..used]
}
