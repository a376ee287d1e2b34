//! Rows of earlier tokens, from a ring.
//!
//! Takes a [`Delay`] spec. A block is one warp, a thread a column of a sequence: it walks over the tokens and reads of the ring what it wrote
//! itself, so that no thread waits for another.

use super::column::Column;
use crate::delay::past;
use crate::emit::{Cmp, Emitter, Val};
use odec_program::kernel::Delay;

/// Emits the kernel.
///
/// # Errors
/// None: every kernel that was not refused can be made.
pub(super) fn emit(e: &mut Emitter, kernel: &Delay) -> Result<(), String> {
    let own = Column::of_thread(e, kernel.cols);
    e.when(own.exists, |e| walk(e, kernel, own.number, own.column));
    Ok(())
}

/// Walks over the tokens of a sequence, with one column.
fn walk(e: &mut Emitter, kernel: &Delay, sequence: Val, column: Val) {
    let behind = u64::from(kernel.places);
    let [x, y, ring] = [0, 1 + behind, 2 + behind].map(|n| e.operand(n));
    let (seq, zero) = (e.dim(1), e.int(0));
    let past = past(e, kernel, sequence);
    let reach = e.int(kernel.reach() as i64);
    let nothing = e.float(0.0, e.scalar());
    let at = |e: &mut Emitter, operand: Val, row: Val, cols: u64| {
        let offset = e.mul_int(row, cols as i64);
        let offset = e.add(offset, column);
        e.at(operand, offset, e.elem)
    };
    let kept = |e: &mut Emitter, token: Val| {
        let first = e.mul(sequence, reach);
        let slot = e.rem(token, reach);
        let slot = e.add(first, slot);
        at(e, ring, slot, kernel.cols)
    };
    e.for_each(zero, seq, 1, |e, t| {
        let first = e.mul(sequence, seq);
        let (number, token) = (e.add(first, t), e.add(past, t));
        let from = at(e, x, number, kernel.cols);
        let own = e.load(from, e.scalar());
        let to = at(e, y, number, kernel.columns());
        for (n, by) in kernel.by.iter().enumerate() {
            let found = match *by {
                0 => own,
                by => {
                    let earlier = e.add_int(token, -i64::from(by));
                    let exists = e.cmp(Cmp::Ge, earlier, zero);
                    e.when_with(exists, &[nothing], |e| {
                        let p = kept(e, earlier);
                        vec![e.load(p, e.scalar())]
                    })[0]
                }
            };
            let offset = e.int((n as u64 * kernel.cols) as i64);
            let to = e.at(to, offset, e.elem);
            e.store(found, to);
        }
        let to = kept(e, token);
        e.store(own, to);
    });
}
