//! Linear attention.
//!
//! Takes a [`LinearAttend`] spec. A warp takes 32 columns of values of a head; each thread keeps its own column of the matrix in shared
//! memory, so that none waits for another, and walks over the tokens as processors do.

use super::column::Column;
use crate::emit::{Emitter, Val};
use crate::linear_attend::walk::{Columns, Head};
use odec_program::gpu::linear_attend::COLS;
use odec_program::kernel::{Decay, LinearAttend};

/// Tokens of a pass: a load and a store of shared memory serve as many (no measurement behind it).
const TOKENS: u64 = 4;

/// Emits the kernel.
///
/// # Errors
/// None: every kernel that was not refused can be made.
pub(super) fn emit(e: &mut Emitter, kernel: &LinearAttend) -> Result<(), String> {
    let Column {
        number,
        column,
        exists,
    } = Column::of_thread(e, kernel.value);
    let head = Head::new(e, kernel, number);
    // Threads without a column compute the last one again, and write nothing.
    let last = e.int(kernel.value as i64 - 1);
    let column = e.min(column, last);
    let (shared, thread) = (e.shared(0), e.thread());
    let own = e.at(shared, thread, e.elem);
    let kept = Kept {
        column,
        exists,
        own,
    };
    head.walk(e, &kept);
    Ok(())
}

/// A thread's column of values, with that of the matrix.
#[derive(Clone, Copy)]
struct Kept {
    column: Val,
    exists: Val,
    /// The first row of its column of the matrix.
    own: Val,
}

impl Columns for Kept {
    fn zero(&self, e: &mut Emitter) -> Vec<Val> {
        vec![e.float(0.0, e.scalar())]
    }

    fn all(&self, e: &mut Emitter, row: Val, i: Val) -> Val {
        let p = e.at(row, i, e.elem);
        e.load(p, e.scalar())
    }

    fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val> {
        vec![self.all(e, row, self.column)]
    }

    fn store(&self, e: &mut Emitter, x: &[Val], row: Val) {
        e.when(self.exists, |e| {
            let p = e.at(row, self.column, e.elem);
            e.store(x[0], p);
        });
    }

    fn kept(&self, e: &mut Emitter, i: Val) -> Vec<Val> {
        let p = self.row(e, i);
        vec![e.load(p, e.scalar())]
    }

    fn keep(&self, e: &mut Emitter, x: &[Val], i: Val) {
        let p = self.row(e, i);
        e.store(x[0], p);
    }

    fn keep_ones(&self, e: &mut Emitter) {
        let one = e.float(1.0, e.scalar());
        let p = self.row(e, self.column);
        e.store(one, p);
    }

    /// The last column's own thread replaces what threads without a column would read.
    fn exist(&self) -> Option<Val> {
        Some(self.exists)
    }

    fn tokens(&self, _: &Emitter, _: Decay) -> u64 {
        TOKENS
    }

    fn parts(&self) -> Vec<Kept> {
        vec![*self]
    }
}

impl Kept {
    /// Row `i` of its column of the matrix.
    fn row(&self, e: &mut Emitter, i: Val) -> Val {
        let offset = e.mul_int(i, COLS as i64);
        e.at(self.own, offset, e.elem)
    }
}
