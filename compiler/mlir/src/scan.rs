//! Recurrences along tokens, and their derivative.
//!
//! Takes a [`Scan`] spec; emits, for each tile of 64 columns of a sequence, a loop over its tokens with the tile's states in registers.
//! Columns do not meet, so neither the split into tiles nor the width of the target's vectors shows in the result.

use crate::access::{self, load_columns, store_columns};
use crate::emit::{Cmp, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::{Scan, ScanForm};

/// Lanes of a vector: a tile is four of them.
const WIDTH: u64 = 16;

/// Emits the kernel.
pub(crate) fn emit(e: &mut Emitter, kernel: &Scan) -> Result<(), String> {
    let (begin, end) = (e.begin(), e.end());
    let (whole, rest) = (kernel.cols / Scan::TILE, kernel.cols % Scan::TILE);
    e.for_each(begin, end, 1, |e, tile| {
        let blocks = e.int(kernel.blocks() as i64);
        let (sequence, block) = (e.div(tile, blocks), e.rem(tile, blocks));
        let first = e.mul_int(block, Scan::TILE as i64);
        let of_width =
            |e: &mut Emitter, width| Tile::new(e, kernel, sequence, first, width).emit(e);
        match (whole, rest) {
            (_, 0) => of_width(e, Scan::TILE),
            (0, _) => of_width(e, rest),
            _ => {
                let all = e.int(whole as i64);
                let is_whole = e.cmp(Cmp::Gt, all, block);
                e.either(is_whole, |e, is_whole| {
                    of_width(e, if is_whole { Scan::TILE } else { rest })
                });
            }
        }
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
    vectors: Vec<access::Columns>,
}

impl Tile<'_> {
    fn new<'a>(
        e: &mut Emitter,
        kernel: &'a Scan,
        sequence: Val,
        column: Val,
        width: u64,
    ) -> Tile<'a> {
        let seq = e.dim(1);
        let vector = |v| access::Columns {
            first: e.add_int(column, (v * WIDTH) as i64),
            lanes: WIDTH,
            count: WIDTH.min(width - v * WIDTH),
        };
        let vectors = (0..width.div_ceil(WIDTH)).map(vector).collect();
        Tile {
            kernel,
            sequence,
            first: e.mul(sequence, seq),
            seq,
            vectors,
        }
    }

    fn emit(&self, e: &mut Emitter) {
        match self.kernel.form {
            ScanForm::Backward => self.backward(e),
            ScanForm::Whole => drop(self.forward(e, |e| self.zeros(e))),
            ScanForm::Carried => {
                let past = e.dim(2);
                let carry = e.operand(2 + u64::from(self.kernel.factors));
                let row = self.row(e, carry, self.sequence);
                let end = self.forward(e, |e| {
                    let (none, zeros) = (e.int(0), self.zeros(e));
                    let goes_on = e.cmp(Cmp::Gt, past, none);
                    e.when_with(goes_on, &zeros, |e| self.load(e, row))
                });
                self.store(e, &end, row);
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
            self.store(e, &states, to);
            states
        })
    }

    fn backward(&self, e: &mut Emitter) {
        let operands = match self.kernel.factors {
            true => [0, 1, 2, 3, 4],
            false => [0, 0, 0, 1, 1],
        };
        let [a, h, d, d_a, d_b] = operands.map(|n| e.operand(n));
        let zeros = self.zeros(e);
        let (zero, factors) = (e.int(0), self.kernel.factors);
        // What the token behind the last one would multiply is zero, and so is its factor.
        let mut start = zeros.clone();
        if factors {
            start.extend(zeros.clone());
        }
        let count = self.vectors.len();
        e.for_with(zero, self.seq, 1, &start, |e, i, carried| {
            let (states, behind) = carried.split_at(count);
            let (last, back) = (e.add_int(self.seq, -1), self.first);
            let t = e.sub(last, i);
            let row = e.add(back, t);
            let more = self.load_row(e, d, row);
            let mut states = steps(e, factors.then_some(behind), states, &more);
            let to = self.row(e, d_b, row);
            self.store(e, &states, to);
            if factors {
                let has_before = e.cmp(Cmp::Gt, t, zero);
                let slopes = e.when_with(has_before, &zeros, |e| {
                    let before = e.add_int(row, -1);
                    let before = self.load_row(e, h, before);
                    let pairs = states.iter().zip(before);
                    pairs.map(|(g, h)| e.mul(*g, h)).collect()
                });
                let to = self.row(e, d_a, row);
                self.store(e, &slopes, to);
                states.extend(self.load_row(e, a, row));
            }
            states
        });
    }

    fn zeros(&self, e: &mut Emitter) -> Vec<Val> {
        let zero = e.float(0.0, Type::vector(e.elem, WIDTH));
        vec![zero; self.vectors.len()]
    }

    /// The address of row `r` of an operand.
    fn row(&self, e: &mut Emitter, operand: Val, r: Val) -> Val {
        let offset = e.mul_int(r, self.kernel.cols as i64);
        e.at(operand, offset, e.elem)
    }

    fn load_row(&self, e: &mut Emitter, operand: Val, r: Val) -> Vec<Val> {
        let row = self.row(e, operand, r);
        self.load(e, row)
    }

    fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val> {
        let each = self.vectors.iter();
        each.map(|cols| load_columns(e, row, e.elem, ColMap::Col, *cols))
            .collect()
    }

    fn store(&self, e: &mut Emitter, values: &[Val], row: Val) {
        for (cols, value) in self.vectors.iter().zip(values) {
            store_columns(e, *value, row, e.elem, *cols);
        }
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
