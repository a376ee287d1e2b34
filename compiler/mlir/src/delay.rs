//! Rows of earlier tokens, from a ring.
//!
//! Takes a [`Delay`] spec; emits, for each tile of 64 columns of a sequence, a loop over its tokens: what each reads is loaded before its own
//! row takes the place of the oldest.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::vectors::{Vectors, for_each_tile};
use odec_program::kernel::Delay;

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &Delay) -> Result<(), String> {
    for_each_tile(e, kernel.cols, |e, sequence, columns| {
        run(e, kernel, sequence, columns);
    });
    Ok(())
}

/// Takes some columns of a sequence.
fn run(e: &mut Emitter, kernel: &Delay, sequence: Val, columns: &Vectors) {
    let behind = u64::from(kernel.places);
    let [x, y, ring] = [0, 1 + behind, 2 + behind].map(|n| e.operand(n));
    let (seq, zero) = (e.dim(1), e.int(0));
    let past = past(e, kernel, sequence);
    let nothing = columns.zeros(e);
    let reach = e.int(kernel.reach() as i64);
    let kept = |e: &mut Emitter, token: Val| {
        let first = e.mul(sequence, reach);
        let slot = e.rem(token, reach);
        let slot = e.add(first, slot);
        row(e, ring, slot, kernel.cols)
    };
    e.for_each(zero, seq, 1, |e, t| {
        let first = e.mul(sequence, seq);
        let (number, token) = (e.add(first, t), e.add(past, t));
        let from = row(e, x, number, kernel.cols);
        let own = columns.load(e, from);
        let to = row(e, y, number, kernel.columns());
        for (n, by) in kernel.by.iter().enumerate() {
            let found = match *by {
                0 => own.clone(),
                by => {
                    let earlier = e.add_int(token, -i64::from(by));
                    let exists = e.cmp(Cmp::Ge, earlier, zero);
                    e.when_with(exists, &nothing, |e| {
                        let row = kept(e, earlier);
                        columns.load(e, row)
                    })
                }
            };
            let offset = e.int((n as u64 * kernel.cols) as i64);
            let to = e.at(to, offset, e.elem);
            columns.store(e, &found, to);
        }
        let to = kept(e, token);
        columns.store(e, &own, to);
    });
}

/// How many tokens stand before the first of a sequence.
pub(crate) fn past(e: &mut Emitter, kernel: &Delay, sequence: Val) -> Val {
    if !kernel.places {
        return e.dim(2);
    }
    let places = e.operand(1);
    let p = e.at(places, sequence, Elem::I32);
    let place = e.load(p, Type::scalar(Elem::I32));
    e.convert(place, Elem::I64)
}

/// The address of row `r` of an operand.
fn row(e: &mut Emitter, operand: Val, r: Val, cols: u64) -> Val {
    let offset = e.mul_int(r, cols as i64);
    e.at(operand, offset, e.elem)
}
