//! Linear attention, token by token.
//!
//! Takes a [`LinearAttend`] spec. A warp takes 32 columns of values of a head; each thread keeps its own column of the matrix in shared
//! memory, so that none waits for another, and sums over the key's columns in order.

use crate::emit::{Emitter, Val};
use odec_program::gpu::linear_attend::COLS;
use odec_program::kernel::{Decay, LinearAttend};

/// Emits the kernel.
///
/// # Errors
/// None: every kernel that was not refused can be made.
pub(super) fn emit(e: &mut Emitter, kernel: &LinearAttend) -> Result<(), String> {
    let pointers: Vec<Val> = (0..kernel.operands())
        .map(|n| e.operand(n.into()))
        .collect();
    let (seq, block, thread) = (e.dim(1), e.block(), e.thread());
    let blocks = e.int(kernel.value.div_ceil(COLS) as i64);
    let (number, place) = (e.div(block, blocks), e.rem(block, blocks));
    let heads = e.int(kernel.heads as i64);
    let (batch, head) = (e.div(number, heads), e.rem(number, heads));
    let first = e.mul_int(place, COLS as i64);
    let column = e.add(first, thread);
    let (end, last) = (e.int(kernel.value as i64), e.int(kernel.value as i64 - 1));
    let exists = e.below(column, end);
    // Threads without a column compute the last one again, and write nothing.
    let column = e.min(column, last);
    let shared = e.shared(0);
    let own = e.at(shared, thread, e.elem);
    let of = Column {
        kernel,
        pointers,
        seq,
        batch,
        head,
        number,
        column,
        exists,
        own,
    };
    of.emit(e);
    Ok(())
}

/// A thread's column of values.
struct Column<'a> {
    kernel: &'a LinearAttend,
    pointers: Vec<Val>,
    seq: Val,
    batch: Val,
    head: Val,
    /// `batch · heads + head`.
    number: Val,
    column: Val,
    exists: Val,
    /// The first row of its column of the matrix.
    own: Val,
}

impl Column<'_> {
    fn emit(&self, e: &mut Emitter) {
        self.start(e);
        let (zero, rows) = (e.int(0), e.int(self.kernel.key as i64));
        e.for_each(zero, self.seq, 1, |e, t| {
            let row = match self.kernel.reversed {
                true => {
                    let last = e.add_int(self.seq, -1);
                    e.sub(last, t)
                }
                false => t,
            };
            self.token(e, row);
        });
        let Some(after) = self.kernel.matrices() else {
            return;
        };
        e.when(self.exists, |e| {
            e.for_each(zero, rows, 1, |e, i| {
                let p = self.row(e, i);
                let x = e.load(p, e.scalar());
                let p = self.in_matrix(e, after, i);
                e.store(x, p);
            });
        });
    }

    /// The column before the first token.
    fn start(&self, e: &mut Emitter) {
        let (zero, rows) = (e.int(0), e.int(self.kernel.key as i64));
        let nothing = e.float(0.0, e.scalar());
        let goes_on = self.kernel.matrices().map(|before| {
            let past = e.dim(2);
            let kept = e.below(zero, past);
            // Threads without a column read nothing: the last column's own thread replaces it.
            (before, e.and(kept, self.exists))
        });
        e.for_each(zero, rows, 1, |e, i| {
            let x = match goes_on {
                Some((before, goes_on)) => e.when_with(goes_on, &[nothing], |e| {
                    let p = self.in_matrix(e, before, i);
                    vec![e.load(p, e.scalar())]
                })[0],
                None => nothing,
            };
            let p = self.row(e, i);
            e.store(x, p);
        });
    }

    fn token(&self, e: &mut Emitter, row: Val) {
        let kernel = self.kernel;
        let [q, k] = [0, 1].map(|n| self.columns(e, n, row, kernel.key));
        let v = self.columns(e, 2, row, kernel.value);
        let v = element(e, v, self.column);
        let operand = kernel.decay_operand();
        let decays = operand.map(|n| {
            let width = kernel.decays().map_or(1, |all| all / kernel.heads);
            self.columns(e, n, row, width)
        });
        // One number for the whole column, unless each row has its own.
        let (zero, rows) = (e.int(0), e.int(kernel.key as i64));
        let fixed = decays.and_then(|row| match kernel.decay {
            Decay::None | Decay::Key => None,
            Decay::Head => Some(element(e, row, zero)),
            Decay::Value => Some(element(e, row, self.column)),
        });
        let fade = |e: &mut Emitter, i: Val, s: Val| {
            let decay = fixed.or_else(|| decays.map(|row| element(e, row, i)));
            decay.map_or(s, |d| e.mul(d, s))
        };
        let nothing = e.float(0.0, e.scalar());
        // What the matrix misses of the value takes its place.
        let missing = kernel.delta.then(|| {
            let o = e.for_with(zero, rows, 1, &[nothing], |e, i, o| {
                let q = element(e, q, i);
                let p = self.row(e, i);
                let s = e.load(p, e.scalar());
                let s = if kernel.reversed { s } else { fade(e, i, s) };
                vec![e.fma(q, s, o[0])]
            });
            e.sub(v, o[0])
        });
        let v = missing.unwrap_or(v);
        let o = e.for_with(zero, rows, 1, &[nothing], |e, i, o| {
            let k = element(e, k, i);
            let p = self.row(e, i);
            let s = e.load(p, e.scalar());
            let s = if kernel.reversed { s } else { fade(e, i, s) };
            let s = e.fma(k, v, s);
            let o = match missing {
                Some(_) => o[0],
                None => {
                    let q = element(e, q, i);
                    e.fma(q, s, o[0])
                }
            };
            let s = if kernel.reversed { fade(e, i, s) } else { s };
            e.store(s, p);
            vec![o]
        });
        let o = missing.unwrap_or(o[0]);
        e.when(self.exists, |e| {
            let to = self.columns(e, kernel.result(), row, kernel.value);
            let p = e.at(to, self.column, e.elem);
            e.store(o, p);
        });
    }

    /// The head's columns of a token in an operand that has `width` of them for each head.
    fn columns(&self, e: &mut Emitter, operand: u32, row: Val, width: u64) -> Val {
        let first = e.mul(self.batch, self.seq);
        let row = e.add(first, row);
        let row = e.mul_int(row, self.kernel.heads as i64);
        let row = e.add(row, self.head);
        let offset = e.mul_int(row, width as i64);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    /// Row `i` of its column of the head's matrix in an operand.
    fn in_matrix(&self, e: &mut Emitter, operand: u32, i: Val) -> Val {
        let first = e.mul_int(self.number, self.kernel.key as i64);
        let row = e.add(first, i);
        let offset = e.mul_int(row, self.kernel.value as i64);
        let offset = e.add(offset, self.column);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    /// The same in shared memory.
    fn row(&self, e: &mut Emitter, i: Val) -> Val {
        let offset = e.mul_int(i, COLS as i64);
        e.at(self.own, offset, e.elem)
    }
}

/// Element `i` of a row.
fn element(e: &mut Emitter, row: Val, i: Val) -> Val {
    let p = e.at(row, i, e.elem);
    e.load(p, e.scalar())
}
