//! Recurrences along tokens, and their derivative.
//!
//! Takes a [`Scan`] spec. A block is one warp, a thread a column of a sequence: it walks over the tokens with its state in a register.
//! What several tokens read is loaded at once, so that memory is waited for once for all of them.

use super::column::Column;
use crate::emit::{Cmp, Emitter, Val};
use odec_program::gpu::scan;
use odec_program::kernel::{Scan, ScanForm};

/// Emits the kernel.
pub(super) fn emit(e: &mut Emitter, kernel: &Scan) -> Result<(), String> {
    let seq = e.dim(1);
    let own = Column::of_thread(e, kernel.cols);
    let lane = Lane {
        kernel,
        sequence: own.number,
        first: e.mul(own.number, seq),
        seq,
        column: own.column,
    };
    e.when(own.exists, |e| match kernel.form {
        ScanForm::Backward => lane.backward(e),
        ScanForm::Whole => {
            let zero = e.float(0.0, e.scalar());
            lane.forward(e, zero);
        }
        ScanForm::Carried => lane.carried(e),
    });
    Ok(())
}

/// A column of a sequence.
struct Lane<'a> {
    kernel: &'a Scan,
    sequence: Val,
    /// The number of the sequence's first row, and how many rows it has.
    first: Val,
    seq: Val,
    column: Val,
}

impl Lane<'_> {
    fn carried(&self, e: &mut Emitter) {
        let (past, none) = (e.dim(2), e.int(0));
        let carry = e.operand(2 + u64::from(self.kernel.factors));
        let place = self.at(e, carry, self.sequence);
        let zero = e.float(0.0, e.scalar());
        let goes_on = e.cmp(Cmp::Gt, past, none);
        let start = e.when_with(goes_on, &[zero], |e| vec![e.load(place, e.scalar())]);
        let end = self.forward(e, start[0]);
        e.store(end, place);
    }

    /// The last state, after all are written.
    fn forward(&self, e: &mut Emitter, start: Val) -> Val {
        let factors = self.kernel.factors.then(|| e.operand(0));
        let more = u64::from(self.kernel.factors);
        let (more, out) = (e.operand(more), e.operand(more + 1));
        let ends = self.walk(e, &[start], |e, i, count, carried| {
            let rows: Vec<Val> = (0..count as i64).map(|n| self.row(e, i, n)).collect();
            let mut state = carried[0];
            let load = |e: &mut Emitter, operand| -> Vec<Val> {
                rows.iter().map(|row| self.load(e, operand, *row)).collect()
            };
            let factors = factors.map(|a| load(e, a));
            let more = load(e, more);
            for (n, row) in rows.iter().enumerate() {
                state = step(e, factors.as_ref().map(|a| a[n]), state, more[n]);
                let to = self.at(e, out, *row);
                e.store(state, to);
            }
            vec![state]
        });
        ends[0]
    }

    fn backward(&self, e: &mut Emitter) {
        let factors = self.kernel.factors;
        let operands = match factors {
            true => [0, 1, 2, 3, 4],
            false => [0, 0, 0, 1, 1],
        };
        let [a, h, d, d_a, d_b] = operands.map(|n| e.operand(n));
        let zero = e.float(0.0, e.scalar());
        // What the token behind the last one would multiply is zero, and so is its factor.
        let start = match factors {
            true => vec![zero, zero],
            false => vec![zero],
        };
        self.walk(e, &start, |e, i, count, carried| {
            let last = e.add_int(self.seq, -1);
            let last = e.sub(last, i);
            let rows: Vec<Val> = (0..count as i64).map(|n| self.row(e, last, -n)).collect();
            let load = |e: &mut Emitter, operand| -> Vec<Val> {
                rows.iter().map(|row| self.load(e, operand, *row)).collect()
            };
            let more = load(e, d);
            // The first token has none before it, and reads its factor in that place: `h` may have no row of its own.
            let before = factors.then(|| -> Vec<Val> {
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
            let own = factors.then(|| load(e, a));
            let (mut state, mut behind) = (carried[0], carried.get(1).copied());
            for (n, row) in rows.iter().enumerate() {
                state = step(e, behind, state, more[n]);
                let to = self.at(e, d_b, *row);
                e.store(state, to);
                if let (Some(before), Some(own)) = (&before, &own) {
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

    /// Walks over all tokens, several at a time and then one by one: `body` takes how many are behind it, and how many there are.
    fn walk(
        &self,
        e: &mut Emitter,
        start: &[Val],
        mut body: impl FnMut(&mut Emitter, Val, u64, &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let (zero, together) = (e.int(0), scan::TOKENS);
        let whole = e.floor_to(self.seq, together as i64);
        let carried = e.for_with(zero, whole, together as i64, start, |e, i, carried| {
            body(e, i, together, carried)
        });
        e.for_with(whole, self.seq, 1, &carried, |e, i, carried| {
            body(e, i, 1, carried)
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
