//! Recurrences along tokens, and their derivative.
//!
//! Takes a [`Scan`] spec; emits, for each tile of 64 columns of a sequence, a loop over its tokens with the tile's states in registers.
//! Columns do not meet, so neither the split into tiles nor the width of the target's vectors shows in the result.

use crate::chunks::Chunk;
use crate::emit::{Cmp, Emitter, Val};
use crate::vectors::{Vectors, for_each_tile};
use odec_program::kernel::{Scan, ScanForm};

/// Emits the kernel.
pub(crate) fn emit(e: &mut Emitter, kernel: &Scan) -> Result<(), String> {
    for_each_tile(e, kernel.cols, |e, number, columns| {
        let seq = e.dim(1);
        let chunk = Chunk::new(e, number, seq, kernel.chunks, kernel.reversed());
        let tile = Tile {
            kernel,
            first: e.mul(chunk.sequence, seq),
            chunk,
            seq,
            columns,
        };
        tile.emit(e);
    });
    Ok(())
}

/// Some columns of a chunk of a sequence.
struct Tile<'a> {
    kernel: &'a Scan,
    chunk: Chunk,
    /// The number of the sequence's first row, and how many rows it has.
    first: Val,
    seq: Val,
    columns: &'a Vectors,
}

impl Tile<'_> {
    fn emit(&self, e: &mut Emitter) {
        let places = self.kernel.places();
        match self.kernel.form {
            ScanForm::Backward => self.backward(e),
            ScanForm::Whole => {
                let start = self.joined(e);
                self.forward(e, &start, true);
            }
            ScanForm::Carried => {
                let past = e.dim(2);
                let carry = e.operand(places.carry.unwrap_or(0));
                let row = self.row(e, carry, self.chunk.sequence);
                let (none, zeros) = (e.int(0), self.columns.zeros(e));
                let goes_on = e.cmp(Cmp::Gt, past, none);
                let start = e.when_with(goes_on, &zeros, |e| self.columns.load(e, row));
                let end = self.forward(e, &start, true);
                self.columns.store(e, &end, row);
            }
            ScanForm::Ends => {
                let zeros = self.columns.zeros(e);
                let end = self.forward(e, &zeros, false);
                self.leave(e, &end);
            }
            ScanForm::EndsBackward => self.ends_backward(e),
            ScanForm::Products => {
                let (ones, a) = (self.columns.all(e, 1.0), e.operand(0));
                let products = self.walk(e, &ones, |e, t, products| {
                    let row = e.add(self.first, t);
                    let factors = self.load_row(e, a, row);
                    let pairs = products.iter().zip(factors);
                    pairs.map(|(p, a)| e.mul(*p, a)).collect()
                });
                self.leave(e, &products);
            }
        }
    }

    /// The last states, after all are written where they are to be.
    fn forward(&self, e: &mut Emitter, start: &[Val], written: bool) -> Vec<Val> {
        let places = self.kernel.places();
        let factors = places.a.map(|a| e.operand(a));
        let more = e.operand(places.given.unwrap_or(0));
        let out = e.operand(places.out);
        self.walk(e, start, |e, t, states| {
            let row = e.add(self.first, t);
            let factors = factors.map(|a| self.load_row(e, a, row));
            let more = self.load_row(e, more, row);
            let states = steps(e, factors.as_deref(), states, &more);
            if written {
                let to = self.row(e, out, row);
                self.columns.store(e, &states, to);
            }
            states
        })
    }

    fn backward(&self, e: &mut Emitter) {
        let places = self.kernel.places();
        let [a, h, d_a] = [places.a, places.h, places.d_a].map(|n| n.map(|n| e.operand(n)));
        let (d, d_b) = (e.operand(places.given.unwrap_or(0)), e.operand(places.out));
        let zeros = self.columns.zeros(e);
        let zero = e.int(0);
        // What the token behind the last one would multiply is zero, and so is its factor. The own factor of another chunk's first token has
        // multiplied what that chunk leaves.
        let mut start = self.joined(e);
        if a.is_some() {
            start.extend(match self.kernel.chunks {
                1 => zeros.clone(),
                _ => self.columns.all(e, 1.0),
            });
        }
        let count = zeros.len();
        self.walk(e, &start, |e, t, carried| {
            let (states, behind) = carried.split_at(count);
            let row = e.add(self.first, t);
            let more = self.load_row(e, d, row);
            let mut states = steps(e, a.map(|_| behind), states, &more);
            let to = self.row(e, d_b, row);
            self.columns.store(e, &states, to);
            if let (Some(a), Some(h), Some(d_a)) = (a, h, d_a) {
                let has_before = e.cmp(Cmp::Gt, t, zero);
                let slopes = e.when_with(has_before, &zeros, |e| {
                    let before = e.add_int(row, -1);
                    let before = self.load_row(e, h, before);
                    let pairs = states.iter().zip(before);
                    pairs.map(|(g, h)| e.mul(*g, h)).collect()
                });
                let to = self.row(e, d_a, row);
                self.columns.store(e, &slopes, to);
                states.extend(self.load_row(e, a, row));
            }
            states
        });
    }

    fn ends_backward(&self, e: &mut Emitter) {
        let places = self.kernel.places();
        let a = places.a.map(|a| e.operand(a));
        let d = e.operand(places.given.unwrap_or(0));
        let zeros = self.columns.zeros(e);
        let ends = self.walk(e, &zeros, |e, t, states| {
            let row = e.add(self.first, t);
            let more = self.load_row(e, d, row);
            let states = steps(e, None, states, &more);
            let Some(a) = a else {
                return states;
            };
            let factors = self.load_row(e, a, row);
            let pairs = factors.iter().zip(states);
            pairs.map(|(a, x)| e.mul(*a, x)).collect()
        });
        self.leave(e, &ends);
    }

    /// Walks over the tokens of the chunk, which `body` takes by their numbers in the sequence.
    fn walk(
        &self,
        e: &mut Emitter,
        start: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        e.for_with(
            self.chunk.begin,
            self.chunk.end,
            1,
            start,
            |e, i, carried| {
                let t = match self.kernel.reversed() {
                    false => i,
                    true => {
                        let last = e.add_int(self.seq, -1);
                        e.sub(last, i)
                    }
                };
                body(e, t, carried)
            },
        )
    }

    /// What the chunk begins with.
    fn joined(&self, e: &mut Emitter) -> Vec<Val> {
        let places = self.kernel.places();
        let zeros = self.columns.zeros(e);
        let Some(ends) = places.ends else {
            return zeros;
        };
        let ends = e.operand(ends);
        let products = places.products.map(|n| e.operand(n));
        self.chunk.joined(e, &zeros, |e, row, states| {
            let ends = self.load_row(e, ends, row);
            let products = products.map(|products| self.load_row(e, products, row));
            steps(e, products.as_deref(), states, &ends)
        })
    }

    /// Writes what the chunk leaves.
    fn leave(&self, e: &mut Emitter, x: &[Val]) {
        let row = self.chunk.row(e);
        let out = e.operand(self.kernel.places().out);
        let to = self.row(e, out, row);
        self.columns.store(e, x, to);
    }

    /// The address of row `r` of an operand.
    fn row(&self, e: &mut Emitter, operand: Val, r: Val) -> Val {
        let offset = e.mul_int(r, self.kernel.cols as i64);
        e.at(operand, offset, e.elem)
    }

    fn load_row(&self, e: &mut Emitter, operand: Val, r: Val) -> Vec<Val> {
        let row = self.row(e, operand, r);
        self.columns.load(e, row)
    }
}

/// One step of every vector.
fn steps(e: &mut Emitter, factors: Option<&[Val]>, states: &[Val], more: &[Val]) -> Vec<Val> {
    let each = states.iter().zip(more).enumerate();
    each.map(|(i, (state, more))| match factors {
        Some(factors) => e.fma(factors[i], *state, *more),
        None => e.add(*state, *more),
    })
    .collect()
}
