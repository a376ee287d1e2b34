//! The tokens that take part, where some do not: a list of their rows in scratch, behind all else there.
//!
//! A tile looks through the numbers of its sequence and lists the rows whose number is 0 or more. From then on rows are those of the list, so that blocks of
//! queries and of keys have no others; a block's rows are copied beside each other before it is read. Rows that take no part become zero where results are
//! written.

use super::{Head, Tensor};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::panel::{self, Panel, Rounding};
use odec_program::kernel::Attend;

/// Rows of a sequence that take part.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Their numbers (i64), in order.
    list: Val,
    /// What is taken off each: rows of an operand may be those of later tokens alone.
    before: Option<Val>,
    /// Room for a block of rows.
    beside: Val,
}

/// The numbers of a sequence's tokens, and where those that take part are listed.
#[derive(Clone, Copy)]
pub(super) struct Numbers {
    numbers: Val,
    beside: Val,
    list: Val,
}

impl Numbers {
    /// Of the sequence whose first number is so far behind that of the operand. `scratch` is free from there on.
    pub fn of(e: &mut Emitter, kernel: &Attend, operand: Val, first: Val, scratch: Val) -> Numbers {
        Numbers {
            numbers: e.at(operand, first, e.elem),
            beside: scratch,
            list: e.at_const(scratch, kernel.beside() as i64, e.elem),
        }
    }

    fn number(&self, e: &mut Emitter, row: Val) -> Val {
        let p = e.at(self.numbers, row, e.elem);
        e.load(p, e.scalar())
    }

    /// Lists those of the rows `from..to`, behind so many; how many there are then.
    pub fn list(&self, e: &mut Emitter, (from, to): (Val, Val), behind: Val) -> Val {
        e.for_with(from, to, 1, &[behind], |e, row, count| {
            // A row that takes no part is overwritten by the next that does.
            let p = e.at(self.list, count[0], Elem::I64);
            e.store(row, p);
            let (number, more) = (self.number(e, row), e.add_int(count[0], 1));
            let zero = e.float(0.0, number.ty);
            let has = e.cmp(Cmp::Ge, number, zero);
            vec![e.select(has, more, count[0])]
        })[0]
    }

    /// The rows that are listed from the n-th on.
    pub fn from(&self, e: &mut Emitter, n: Val, before: Option<Val>) -> Part {
        Part {
            list: e.at(self.list, n, Elem::I64),
            before,
            beside: self.beside,
        }
    }

    /// `clear` for those of the rows `from..to` that take no part.
    pub fn each_other(
        &self,
        e: &mut Emitter,
        (from, to): (Val, Val),
        clear: impl FnOnce(&mut Emitter, Val),
    ) {
        e.for_each(from, to, 1, |e, row| {
            let number = self.number(e, row);
            let zero = e.float(0.0, number.ty);
            let below = e.cmp(Cmp::Lt, number, zero);
            let none = e.cmp(Cmp::Ne, number, number);
            let lacks = e.or(below, none);
            e.when(lacks, |e| clear(e, row));
        });
    }
}

impl Part {
    /// The n-th row of the list.
    pub fn row(self, e: &mut Emitter, n: Val) -> Val {
        let p = e.at(self.list, n, Elem::I64);
        let row = e.load(p, Type::scalar(Elem::I64));
        match self.before {
            Some(before) => e.sub(row, before),
            None => row,
        }
    }

    /// `count` rows from the n-th on, beside each other: the first, and elements between rows.
    pub fn beside(
        self,
        e: &mut Emitter,
        head: &Head,
        (tensor, elem): Tensor,
        n: Val,
        count: Val,
    ) -> (Val, Val) {
        let (zero, one, padded) = (e.int(0), e.int(1), head.padded());
        let stride = e.int(padded as i64);
        let valid = e.int(head.columns as i64);
        e.for_each(zero, count, 1, |e, r| {
            let n = e.add(n, r);
            let from = head.row(e, (tensor, elem), n);
            let to = e.mul_int(r, padded as i64);
            let to = e.at(self.beside, to, e.elem);
            let row = Panel {
                from,
                elem,
                rounding: Rounding::None,
                stride,
                valid,
                count: one,
                to,
                width: padded,
            };
            panel::copy(e, row);
        });
        (self.beside, stride)
    }
}

/// The rows of a tile of so many of all tokens, of which there are `seq`.
pub(super) fn of_tile(e: &mut Emitter, tile: Val, rows: i64, seq: Val) -> (Val, Val) {
    let first = e.mul_int(tile, rows);
    let end = e.add_int(first, rows);
    (first, e.min(end, seq))
}
