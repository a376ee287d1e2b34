//! A row of each sequence takes its place among those that are kept.
//!
//! Takes a [`Keep`] spec. A group of threads copies a row.

use super::access;
use super::rows::{Place, index};
use crate::emit::{Elem, Emitter};
use odec_program::expr::Access;
use odec_program::gpu::Split;
use odec_program::kernel::Keep;

/// `kept[s, place[s]] = rows[s]`; operands places, rows, kept.
///
/// # Errors
/// None: every kernel that was not refused can be made.
pub(super) fn emit(e: &mut Emitter, kernel: &Keep) -> Result<(), String> {
    let [places, rows, kept] = [0, 1, 2].map(|n| e.operand(n));
    let (split, elem) = (Split::map(kernel.cols), Elem::of(kernel.elements));
    let own = Place::new(e, split, 0);
    let place = index(e, places, own.row);
    let first = e.mul_int(own.row, kernel.room as i64);
    let row = e.add(first, place);
    let [from, to] = [(rows, own.row), (kept, row)].map(|(operand, row)| {
        let offset = e.mul_int(row, kernel.cols as i64);
        e.at(operand, offset, elem)
    });
    let access = Access::full(kernel.cols);
    e.when(own.exists, |e| {
        let first = e.mul_int(own.member, split.vector as i64);
        let end = e.int(kernel.cols as i64);
        let step = (split.vector * split.group) as i64;
        e.for_each(first, end, step, |e, c| {
            let x = access::load(e, from, elem, access, c, split.vector);
            let x = e.convert(x, elem);
            access::store(e, x, to, access, c);
        });
    });
    Ok(())
}
