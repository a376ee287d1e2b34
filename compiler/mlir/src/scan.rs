//! Recurrences along tokens, and their derivative.
//!
//! Takes a [`Scan`] spec; emits, for each tile of 64 columns of a sequence, a loop over its tokens with the tile's states in registers.
//! Columns do not meet, so neither the split into tiles nor the width of the target's vectors shows in the result.

use crate::emit::{Cmp, Emitter, Val};
use crate::vectors::{Vectors, for_each_tile};
use odec_program::kernel::{Scan, ScanForm};

/// Emits the kernel.
pub(crate) fn emit(e: &mut Emitter, kernel: &Scan) -> Result<(), String> {
    for_each_tile(e, kernel.cols, |e, sequence, columns| {
        let seq = e.dim(1);
        let tile = Tile {
            kernel,
            sequence,
            first: e.mul(sequence, seq),
            seq,
            columns,
        };
        tile.emit(e);
    });
    Ok(())
}

/// Some columns of a sequence.
struct Tile<'a> {
    kernel: &'a Scan,
    sequence: Val,
    /// The number of the sequence's first row, and how many rows it has.
    first: Val,
    seq: Val,
    columns: &'a Vectors,
}

impl Tile<'_> {
    fn emit(&self, e: &mut Emitter) {
        match self.kernel.form {
            ScanForm::Backward => self.backward(e),
            ScanForm::Whole => drop(self.forward(e, |e| self.columns.zeros(e))),
            ScanForm::Carried => {
                let past = e.dim(2);
                let carry = e.operand(2 + u64::from(self.kernel.factors));
                let row = self.row(e, carry, self.sequence);
                let end = self.forward(e, |e| {
                    let (none, zeros) = (e.int(0), self.columns.zeros(e));
                    let goes_on = e.cmp(Cmp::Gt, past, none);
                    e.when_with(goes_on, &zeros, |e| self.columns.load(e, row))
                });
                self.columns.store(e, &end, row);
            }
        }
    }

    /// The last states, after all are written.
    fn forward(&self, e: &mut Emitter, start: impl FnOnce(&mut Emitter) -> Vec<Val>) -> Vec<Val> {
        let factors = self.kernel.factors.then(|| e.operand(0));
        let more = u64::from(self.kernel.factors);
        let (more, out) = (e.operand(more), e.operand(more + 1));
        let start = start(e);
        let zero = e.int(0);
        e.for_with(zero, self.seq, 1, &start, |e, t, states| {
            let row = e.add(self.first, t);
            let factors = factors.map(|a| self.load_row(e, a, row));
            let more = self.load_row(e, more, row);
            let states = steps(e, factors.as_deref(), states, &more);
            let to = self.row(e, out, row);
            self.columns.store(e, &states, to);
            states
        })
    }

    fn backward(&self, e: &mut Emitter) {
        let operands = match self.kernel.factors {
            true => [0, 1, 2, 3, 4],
            false => [0, 0, 0, 1, 1],
        };
        let [a, h, d, d_a, d_b] = operands.map(|n| e.operand(n));
        let zeros = self.columns.zeros(e);
        let (zero, factors) = (e.int(0), self.kernel.factors);
        // What the token behind the last one would multiply is zero, and so is its factor.
        let mut start = zeros.clone();
        if factors {
            start.extend(zeros.clone());
        }
        let count = zeros.len();
        e.for_with(zero, self.seq, 1, &start, |e, i, carried| {
            let (states, behind) = carried.split_at(count);
            let (last, back) = (e.add_int(self.seq, -1), self.first);
            let t = e.sub(last, i);
            let row = e.add(back, t);
            let more = self.load_row(e, d, row);
            let mut states = steps(e, factors.then_some(behind), states, &more);
            let to = self.row(e, d_b, row);
            self.columns.store(e, &states, to);
            if factors {
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
