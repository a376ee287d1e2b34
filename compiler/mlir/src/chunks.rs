//! Chunks of a sequence that do not wait for each other, for kernels that walk over tokens, on processors and GPUs alike.
//!
//! What chunks there are, and how what others leave is joined, is said by [`odec_program::kernel::Scan`].

use crate::emit::{Emitter, Val};

/// A chunk, as a walk takes it.
pub(crate) struct Chunk {
    pub sequence: Val,
    /// Its steps, of those of the whole walk: the first, and that behind the last.
    pub begin: Val,
    pub end: Val,
    /// Which chunk of the sequence it is.
    number: Val,
    chunks: u64,
    reversed: bool,
}

impl Chunk {
    /// Chunk `number` of all chunks of all sequences, of `seq` tokens each.
    pub(crate) fn new(
        e: &mut Emitter,
        number: Val,
        seq: Val,
        chunks: u64,
        reversed: bool,
    ) -> Chunk {
        let zero = e.int(0);
        let mut chunk = Chunk {
            sequence: number,
            begin: zero,
            end: seq,
            number: zero,
            chunks,
            reversed,
        };
        if chunks == 1 {
            return chunk;
        }
        let all = e.int(chunks as i64);
        (chunk.sequence, chunk.number) = (e.div(number, all), e.rem(number, all));
        let rounded = e.add_int(seq, chunks as i64 - 1);
        let each = e.div(rounded, all);
        let first = e.mul(chunk.number, each);
        let first = e.min(first, seq);
        let behind = e.add(first, each);
        let behind = e.min(behind, seq);
        (chunk.begin, chunk.end) = match reversed {
            false => (first, behind),
            true => (e.sub(seq, behind), e.sub(seq, first)),
        };
        chunk
    }

    /// The row of this chunk in operands that have one for each.
    pub(crate) fn row(&self, e: &mut Emitter) -> Val {
        let first = e.mul_int(self.sequence, self.chunks as i64);
        e.add(first, self.number)
    }

    /// Joins what the chunks before this one in the walk leave: `body` takes the row of each, and what is joined so far.
    pub(crate) fn joined(
        &self,
        e: &mut Emitter,
        start: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let (zero, last) = (e.int(0), e.int(self.chunks as i64 - 1));
        let count = match self.reversed {
            false => self.number,
            true => e.sub(last, self.number),
        };
        e.for_with(zero, count, 1, start, |e, i, joined| {
            let other = match self.reversed {
                false => i,
                true => e.sub(last, i),
            };
            let first = e.mul_int(self.sequence, self.chunks as i64);
            let row = e.add(first, other);
            body(e, row, joined)
        })
    }
}
