//! A row of each sequence takes its place among those that are kept.
//!
//! Takes a [`Keep`] spec; emits a copy of a row for each tile, as wide vectors as rows have.

use crate::access::{Columns, load_columns, store_columns};
use crate::emit::{Elem, Emitter, Type};
use odec_program::expr::ColMap;
use odec_program::kernel::Keep;

/// Lanes of a vector.
const WIDTH: u64 = 16;

/// `kept[s, place[s]] = rows[s]`; operands places, rows, kept.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &Keep) -> Result<(), String> {
    let [places, rows, kept] = [0, 1, 2].map(|n| e.operand(n));
    let (cols, elem) = (kernel.cols, Elem::of(kernel.elements));
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, sequence| {
        let p = e.at(places, sequence, Elem::I32);
        let place = e.load(p, Type::scalar(Elem::I32));
        let place = e.convert(place, Elem::I64);
        let first = e.mul_int(sequence, kernel.room as i64);
        let row = e.add(first, place);
        let [from, to] = [(rows, sequence), (kept, row)].map(|(operand, row)| {
            let offset = e.mul_int(row, cols as i64);
            e.at(operand, offset, elem)
        });
        let copy = |e: &mut Emitter, cols: Columns| {
            let x = load_columns(e, from, elem, ColMap::Col, cols);
            store_columns(e, x, to, elem, cols);
        };
        let whole = cols / WIDTH * WIDTH;
        let (zero, end) = (e.int(0), e.int(whole as i64));
        e.for_each(zero, end, WIDTH as i64, |e, c| {
            copy(e, Columns::full(c, WIDTH))
        });
        if whole < cols {
            let (first, lanes, count) = (end, WIDTH, cols - whole);
            copy(
                e,
                Columns {
                    first,
                    lanes,
                    count,
                },
            );
        }
    });
    Ok(())
}
