//! Sums of outer products over the rows of each group.
//!
//! A tile of a launch is a block of rows of a group's matrix. For every block of rows of the operands, those of the group are copied
//! below each other, the columns of A that belong to the tile and a block of those of B at a time, and multiplied in register tiles.

use super::{Factor, Members, copy, inner_count, inner_elem, listed, place, register_tile, write};
use crate::contract::blocks;
use crate::emit::{Cmp, Emitter, Val};
use crate::micro::{self, Left, Right, Tile};
use crate::pairs;
use odec_program::kernel::Grouped;

/// Emits the kernel.
///
/// # Errors
/// A blocking that does not fit the target.
pub(crate) fn emit(e: &mut Emitter, spec: &Grouped) -> Result<(), String> {
    let tile = register_tile(e, spec.blocking)?;
    let rows = e.dim(0);
    let rows = e.mul_int(rows, spec.of.copies as i64);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, at| {
        let (group, top, height) = place(e, at, spec.of.n, spec.height());
        let members = Members::of(e, spec, group);
        let block = Block {
            spec,
            tile,
            group,
            top,
            height,
        };
        blocks(e, rows, spec.blocking.kc.into(), |e, from, length| {
            let to = e.add(from, length);
            let count = members.list(e, from, to);
            let zero = e.int(0);
            let first = e.cmp(Cmp::Eq, from, zero);
            block.left(e, count);
            let k = e.int(spec.of.k as i64);
            blocks(e, k, spec.width() as i64, |e, jc, width| {
                block.right(e, count, (jc, width));
                block.multiply(e, count, (jc, width), first);
            });
        });
    });
    Ok(())
}

/// A block of rows of a group's matrix.
struct Block<'a> {
    spec: &'a Grouped,
    tile: Tile,
    group: Val,
    top: Val,
    height: Val,
}

impl Block<'_> {
    fn scratch(&self, e: &mut Emitter, piece: usize) -> Val {
        let scratch = e.scratch();
        e.at_const(scratch, self.spec.scratch()[piece] as i64, e.elem)
    }

    /// Copies the tile's columns of A, of all rows that are listed.
    fn left(&self, e: &mut Emitter, count: Val) {
        let (a, left) = (e.operand(1), self.scratch(e, 1));
        let factor = Factor::of(self.spec, 0);
        let place = (left, self.spec.height());
        self.copies(e, (factor, count, self.height), place, |e, row| {
            let from = e.mul_int(row, self.spec.of.n as i64);
            let from = e.add(from, self.top);
            e.at(a, from, factor.elem)
        });
    }

    /// Copies a block of the columns of B, of all rows that are listed.
    fn right(&self, e: &mut Emitter, count: Val, (jc, width): (Val, Val)) {
        let (b, right) = (e.operand(2), self.scratch(e, 2));
        let factor = Factor::of(self.spec, 1);
        let place = (right, self.spec.width());
        self.copies(e, (factor, count, width), place, |e, row| {
            let copies = e.int(self.spec.of.copies as i64);
            let row = e.div(row, copies);
            let from = e.mul_int(row, self.spec.of.k as i64);
            let from = e.add(from, jc);
            e.at(b, from, factor.elem)
        });
    }

    /// Copies columns of the rows that are listed below each other, so many elements apart, or pairs of these rows. `at`: where those of a row begin.
    fn copies(
        &self,
        e: &mut Emitter,
        (factor, count, columns): (Factor, Val, Val),
        (to, apart): (Val, u64),
        at: impl Fn(&mut Emitter, Val) -> Val,
    ) {
        let (zero, pairs) = (e.int(0), self.spec.order.in_pairs());
        let step = if pairs { 2 } else { 1 };
        e.for_each(zero, count, step, |e, i| {
            let row = listed(e, i);
            let from = at(e, row);
            let line = e.div_int(i, step);
            let line = e.mul_int(line, apart as i64);
            let to = e.at(to, line, e.elem);
            if !pairs {
                return copy(e, factor, from, to, columns);
            }
            // Of the last pair, the second row may be missing.
            let next = e.add_int(i, 1);
            let exists = e.cmp(Cmp::Lt, next, count);
            let next = e.select(exists, next, i);
            let row = listed(e, next);
            let second = at(e, row);
            pairs::two_rows(e, [from, second], factor.elem, exists, to, columns);
        });
    }

    /// The products of what was copied.
    fn multiply(&self, e: &mut Emitter, count: Val, (jc, width): (Val, Val), first: Val) {
        let (n, k) = (self.spec.of.n as i64, self.spec.of.k as i64);
        let (left, right) = (self.scratch(e, 1), self.scratch(e, 2));
        let (out, zero) = (e.operand(3), e.int(0));
        e.for_each(zero, self.height, self.tile.rows as i64, |e, m| {
            e.for_each(zero, width, self.spec.blocking.nr.into(), |e, column| {
                let a = Left {
                    pointer: e.at(left, m, e.elem),
                    row: e.int(1),
                    inner: e.int(self.spec.height() as i64),
                };
                let b = Right {
                    pointer: e.at(right, column, e.elem),
                    elem: inner_elem(e, self.spec),
                    inner: e.int(self.spec.width() as i64),
                    prefetch: 0,
                };
                let zeros = micro::zeros(e, self.tile);
                let count = inner_count(e, self.spec, count);
                let sums = micro::multiply(e, self.tile, a, b, count, &zeros);
                let there = e.sub(width, column);
                let j = e.add(jc, column);
                let start = e.mul_int(self.group, n);
                let start = e.add(start, self.top);
                let lines = sums.chunks(self.tile.vectors as usize);
                for (r, sums) in lines.enumerate() {
                    let row = e.add_int(m, r as i64);
                    let exists = e.cmp(Cmp::Lt, row, self.height);
                    e.when(exists, |e| {
                        let row = e.add(start, row);
                        let offset = e.mul_int(row, k);
                        let offset = e.add(offset, j);
                        let to = e.at(out, offset, e.elem);
                        write(e, sums, to, there, first);
                    });
                }
            });
        });
    }
}
