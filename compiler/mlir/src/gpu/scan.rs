//! Recurrences along tokens, and their derivative.
//!
//! Takes a [`Scan`] spec. A block is one warp, a thread a column of a sequence: it walks over the tokens with its state in a register.
//! What several tokens read is loaded at once, so that memory is waited for once for all of them.

use super::column::Column;
use crate::chunks::Chunk;
use crate::emit::{Cmp, Emitter, Val};
use odec_program::gpu::scan;
use odec_program::kernel::{Scan, ScanForm};

/// Emits the kernel.
pub(super) fn emit(e: &mut Emitter, kernel: &Scan) -> Result<(), String> {
    let seq = e.dim(1);
    let own = Column::of_thread(e, kernel.cols);
    let chunk = Chunk::new(e, own.number, seq, kernel.chunks, kernel.reversed());
    let lane = Lane {
        kernel,
        first: e.mul(chunk.sequence, seq),
        chunk,
        seq,
        column: own.column,
    };
    e.when(own.exists, |e| lane.emit(e));
    Ok(())
}

/// A column of a chunk of a sequence.
struct Lane<'a> {
    kernel: &'a Scan,
    chunk: Chunk,
    /// The number of the sequence's first row, and how many rows it has.
    first: Val,
    seq: Val,
    column: Val,
}

impl Lane<'_> {
    fn emit(&self, e: &mut Emitter) {
        match self.kernel.form {
            ScanForm::Backward => self.backward(e),
            ScanForm::Whole => {
                let start = self.joined(e);
                self.forward(e, start, true);
            }
            ScanForm::Carried => self.carried(e),
            ScanForm::Ends => {
                let zero = e.float(0.0, e.scalar());
                let end = self.forward(e, zero, false);
                self.leave(e, end);
            }
            ScanForm::EndsBackward => {
                let places = self.kernel.places();
                let a = places.a.map(|a| e.operand(a));
                let d = e.operand(places.given.unwrap_or(0));
                let zero = e.float(0.0, e.scalar());
                let ends = self.walk(e, &[zero], |e, rows, carried| {
                    let (more, factors) =
                        (self.loads(e, d, rows), a.map(|a| self.loads(e, a, rows)));
                    let mut state = carried[0];
                    for (n, more) in more.into_iter().enumerate() {
                        state = e.add(state, more);
                        if let Some(factors) = &factors {
                            state = e.mul(factors[n], state);
                        }
                    }
                    vec![state]
                });
                self.leave(e, ends[0]);
            }
            ScanForm::Products => {
                let a = e.operand(0);
                let one = e.float(1.0, e.scalar());
                let products = self.walk(e, &[one], |e, rows, carried| {
                    let factors = self.loads(e, a, rows);
                    let product = factors.into_iter().fold(carried[0], |p, a| e.mul(p, a));
                    vec![product]
                });
                self.leave(e, products[0]);
            }
        }
    }

    fn carried(&self, e: &mut Emitter) {
        let (past, none) = (e.dim(2), e.int(0));
        let carry = e.operand(self.kernel.places().carry.unwrap_or(0));
        let place = self.at(e, carry, self.chunk.sequence);
        let zero = e.float(0.0, e.scalar());
        let goes_on = e.cmp(Cmp::Gt, past, none);
        let start = e.when_with(goes_on, &[zero], |e| vec![e.load(place, e.scalar())]);
        let end = self.forward(e, start[0], true);
        e.store(end, place);
    }

    /// The last state, after all are written where they are to be.
    fn forward(&self, e: &mut Emitter, start: Val, written: bool) -> Val {
        let places = self.kernel.places();
        let factors = places.a.map(|a| e.operand(a));
        let more = e.operand(places.given.unwrap_or(0));
        let out = e.operand(places.out);
        let ends = self.walk(e, &[start], |e, rows, carried| {
            let mut state = carried[0];
            let factors = factors.map(|a| self.loads(e, a, rows));
            let more = self.loads(e, more, rows);
            for (n, row) in rows.iter().enumerate() {
                state = step(e, factors.as_ref().map(|a| a[n]), state, more[n]);
                if written {
                    let to = self.at(e, out, *row);
                    e.store(state, to);
                }
            }
            vec![state]
        });
        ends[0]
    }

    fn backward(&self, e: &mut Emitter) {
        let places = self.kernel.places();
        let [a, h, d_a] = [places.a, places.h, places.d_a].map(|n| n.map(|n| e.operand(n)));
        let (d, d_b) = (e.operand(places.given.unwrap_or(0)), e.operand(places.out));
        let zero = e.float(0.0, e.scalar());
        let joined = self.joined(e);
        // What the token behind the last one would multiply is zero, and so is its factor. The own factor of another chunk's first token has
        // multiplied what that chunk leaves.
        let start = match (a, self.kernel.chunks) {
            (None, _) => vec![joined],
            (Some(_), 1) => vec![joined, zero],
            (Some(_), _) => vec![joined, e.float(1.0, e.scalar())],
        };
        self.walk(e, &start, |e, rows, carried| {
            let more = self.loads(e, d, rows);
            // The first token has none before it, and reads its factor in that place: `h` may have no row of its own.
            let before = a.zip(h).map(|(a, h)| -> Vec<Val> {
                let each = rows.iter().map(|row| {
                    let is_first = e.cmp(Cmp::Eq, *row, self.first);
                    let back = e.add_int(*row, -1);
                    let back = e.select(is_first, *row, back);
                    let (own, back) = (self.at(e, a, *row), self.at(e, h, back));
                    let place = e.select(is_first, own, back);
                    e.load(place, e.scalar())
                });
                each.collect()
            });
            let own = a.map(|a| self.loads(e, a, rows));
            let (mut state, mut behind) = (carried[0], carried.get(1).copied());
            for (n, row) in rows.iter().enumerate() {
                state = step(e, behind, state, more[n]);
                let to = self.at(e, d_b, *row);
                e.store(state, to);
                if let (Some(before), Some(own), Some(d_a)) = (&before, &own, d_a) {
                    let slope = e.mul(state, before[n]);
                    let is_first = e.cmp(Cmp::Eq, *row, self.first);
                    let slope = e.select(is_first, zero, slope);
                    let to = self.at(e, d_a, *row);
                    e.store(slope, to);
                    behind = Some(own[n]);
                }
            }
            [state].into_iter().chain(behind).collect()
        });
    }

    /// What the chunk begins with.
    fn joined(&self, e: &mut Emitter) -> Val {
        let places = self.kernel.places();
        let zero = e.float(0.0, e.scalar());
        let Some(ends) = places.ends else {
            return zero;
        };
        let ends = e.operand(ends);
        let products = places.products.map(|n| e.operand(n));
        let joined = self.chunk.joined(e, &[zero], |e, row, states| {
            let end = self.load(e, ends, row);
            let product = products.map(|products| self.load(e, products, row));
            vec![step(e, product, states[0], end)]
        });
        joined[0]
    }

    /// Writes what the chunk leaves.
    fn leave(&self, e: &mut Emitter, x: Val) {
        let row = self.chunk.row(e);
        let out = e.operand(self.kernel.places().out);
        let to = self.at(e, out, row);
        e.store(x, to);
    }

    /// Walks over the tokens of the chunk, several at a time and then one by one, which `body` takes by the numbers of their rows.
    fn walk(
        &self,
        e: &mut Emitter,
        start: &[Val],
        mut body: impl FnMut(&mut Emitter, &[Val], &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let mut some = |e: &mut Emitter, i, count: u64, carried: &[Val]| {
            let rows: Vec<Val> = match self.kernel.reversed() {
                false => (0..count as i64).map(|n| self.row(e, i, n)).collect(),
                true => {
                    let last = e.add_int(self.seq, -1);
                    let last = e.sub(last, i);
                    (0..count as i64).map(|n| self.row(e, last, -n)).collect()
                }
            };
            body(e, &rows, carried)
        };
        let (together, chunk) = (scan::TOKENS, &self.chunk);
        let all = match self.kernel.chunks {
            1 => chunk.end,
            _ => e.sub(chunk.end, chunk.begin),
        };
        let whole = e.floor_to(all, together as i64);
        let whole = match self.kernel.chunks {
            1 => whole,
            _ => e.add(chunk.begin, whole),
        };
        let carried = e.for_with(
            chunk.begin,
            whole,
            together as i64,
            start,
            |e, i, carried| some(e, i, together, carried),
        );
        e.for_with(whole, chunk.end, 1, &carried, |e, i, carried| {
            some(e, i, 1, carried)
        })
    }

    /// The number of the row of token `t + n`.
    fn row(&self, e: &mut Emitter, t: Val, n: i64) -> Val {
        let row = e.add(self.first, t);
        e.add_int(row, n)
    }

    /// The address of this column of row `r` of an operand.
    fn at(&self, e: &mut Emitter, operand: Val, r: Val) -> Val {
        let row = e.mul_int(r, self.kernel.cols as i64);
        let place = e.add(row, self.column);
        e.at(operand, place, e.elem)
    }

    fn loads(&self, e: &mut Emitter, operand: Val, rows: &[Val]) -> Vec<Val> {
        rows.iter().map(|row| self.load(e, operand, *row)).collect()
    }

    fn load(&self, e: &mut Emitter, operand: Val, r: Val) -> Val {
        let place = self.at(e, operand, r);
        e.load(place, e.scalar())
    }
}

fn step(e: &mut Emitter, factor: Option<Val>, state: Val, more: Val) -> Val {
    match factor {
        Some(factor) => e.fma(factor, state, more),
        None => e.add(state, more),
    }
}
