//! Products of rows with the matrix of their group.
//!
//! A tile of a launch is a block of columns of a group. For every block of the inner length its part of the matrix is packed into
//! panels, if it does not lie so; then rows of the group are copied side by side, as many as a register tile has, and multiplied with each panel.
//! Matrices that are packed before are those of texts that are read token by token, where a group has few rows: register tiles are then as low as these
//! need. A group without rows is passed over: its matrix is not read. Rows of no group are zeroed by the tiles of the first.

use super::{Factor, Members, copy, inner_count, inner_elem, listed, place, register_tile, write};
use crate::contract::blocks;
use crate::emit::{Cmp, Elem, Emitter, Val};
use crate::micro::{self, Left, Right, Tile};
use crate::pairs::{self, Pairs};
use crate::panel::{self, Panel};
use odec_program::kernel::{Grouped, Layout};

/// Rows of a low register tile.
const FEW: u64 = 4;
/// How many rows ahead a panel that was packed before is prefetched.
const AHEAD: u64 = 16;

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
        let (group, first, width) = place(e, at, spec.of.n, spec.width());
        let block = Block {
            spec,
            tile,
            group,
            first,
            width,
        };
        let members = Members::of(e, spec, group);
        if spec.of.partial {
            e.when(members.first, |e| block.clear(e, &members, rows));
        }
        let (zero, count) = (e.int(0), members.count(e, rows));
        let some = e.cmp(Cmp::Gt, count, zero);
        e.when(some, |e| {
            let k = e.int(spec.of.k as i64);
            blocks(e, k, spec.blocking.kc.into(), |e, pc, depth| {
                if !block.is_packed() {
                    block.pack(e, pc, depth);
                }
                e.for_each(zero, rows, Grouped::RANGE as i64, |e, from| {
                    let to = e.add_int(from, Grouped::RANGE as i64);
                    let to = e.min(to, rows);
                    let count = members.list(e, from, to);
                    e.for_each(zero, count, tile.rows as i64, |e, i| {
                        block.multiply(e, (i, count), (pc, depth))
                    });
                });
            });
        });
    });
    Ok(())
}

/// A block of columns of a group.
struct Block<'a> {
    spec: &'a Grouped,
    tile: Tile,
    group: Val,
    first: Val,
    width: Val,
}

impl Block<'_> {
    fn scratch(&self, e: &mut Emitter, piece: usize) -> Val {
        let scratch = e.scratch();
        e.at_const(scratch, self.spec.scratch()[piece] as i64, e.elem)
    }

    /// Where the panel that begins with a column of the block lies, from value `pc` of k on.
    fn panel(&self, e: &mut Emitter, column: Val, pc: Val) -> Val {
        if self.is_packed() {
            let before = e.mul_int(self.group, self.spec.of.n as i64);
            let column = e.add(self.first, column);
            let column = e.add(before, column);
            let before = e.mul_int(column, self.spec.depth() as i64);
            let offset = e.mul_int(pc, self.spec.blocking.nr.into());
            let offset = e.add(before, offset);
            let matrices = e.operand(2);
            return e.at(matrices, offset, Elem::of(self.spec.factors[1]));
        }
        let panels = self.scratch(e, 2);
        let offset = e.mul_int(column, self.spec.blocking.kc.into());
        e.at(panels, offset, e.elem)
    }

    /// Zeroes the block's columns of rows that are of no group.
    fn clear(&self, e: &mut Emitter, members: &Members, rows: Val) {
        let (c, zero) = (e.operand(3), e.int(0));
        let always = e.cmp(Cmp::Eq, zero, zero);
        e.for_each(zero, rows, 1, |e, row| {
            let lacks = members.lacks(e, row);
            e.when(lacks, |e| {
                let nr = i64::from(self.spec.blocking.nr);
                e.for_each(zero, self.width, nr, |e, column| {
                    let left = e.sub(self.width, column);
                    let j = e.add(self.first, column);
                    let offset = e.mul_int(row, self.spec.of.n as i64);
                    let offset = e.add(offset, j);
                    let to = e.at(c, offset, e.elem);
                    let zeros = micro::zeros(e, self.tile);
                    write(e, &zeros[..self.tile.vectors as usize], to, left, always);
                });
            });
        });
    }

    fn is_packed(&self) -> bool {
        self.spec.layout == Layout::Panels
    }

    /// Packs the block's columns at `pc`, `depth` values of k.
    fn pack(&self, e: &mut Emitter, pc: Val, depth: Val) {
        let (n, k) = (self.spec.of.n as i64, self.spec.of.k as i64);
        let nr = i64::from(self.spec.blocking.nr);
        let (zero, factor) = (e.int(0), Factor::of(self.spec, 1));
        e.for_each(zero, self.width, nr, |e, column| {
            let j = e.add(self.first, column);
            let start = e.mul_int(self.group, n * k);
            let (across, stride) = match self.spec.layout {
                Layout::Columns => (e.mul_int(j, k), k),
                _ => (e.mul_int(pc, n), n),
            };
            let along = if self.spec.layout == Layout::Columns {
                pc
            } else {
                j
            };
            let offset = e.add(start, across);
            let offset = e.add(offset, along);
            let matrices = e.operand(2);
            let (from, elem) = (e.at(matrices, offset, factor.elem), factor.elem);
            let (stride, to) = (e.int(stride), self.panel(e, column, pc));
            let (valid, count, width) = (e.sub(self.width, column), depth, nr as u64);
            let (order, columns) = (self.spec.order, self.spec.layout == Layout::Columns);
            if order.in_pairs() {
                let p = Pairs {
                    from,
                    elem,
                    stride,
                    valid,
                    count,
                    to,
                    width,
                    order,
                };
                return match columns {
                    true => pairs::transpose(e, p),
                    false => pairs::copy(e, p),
                };
            }
            let p = Panel {
                from,
                elem,
                rounding: factor.rounding(),
                stride,
                valid,
                count,
                to,
                width,
            };
            match columns {
                true => panel::transpose(e, p),
                false => panel::copy(e, p),
            }
        });
    }

    /// The products of the rows from the i-th of the list on with all panels, as many as a register tile has.
    fn multiply(&self, e: &mut Emitter, rows: (Val, Val), k: (Val, Val)) {
        let most = self.tile.rows;
        if !self.is_packed() || most <= FEW {
            return self.products(e, most, rows, k);
        }
        let (i, count) = rows;
        let (left, few) = (e.sub(count, i), e.int(FEW as i64));
        let few = e.cmp(Cmp::Le, left, few);
        e.either(few, |e, few| match few {
            true => self.products(e, FEW, rows, k),
            false => self.products(e, most, rows, k),
        });
    }

    /// The products of so many rows, from the i-th of the list on, with all panels. Beyond the list its last row is repeated.
    fn products(
        &self,
        e: &mut Emitter,
        rows: u64,
        (i, count): (Val, Val),
        (pc, depth): (Val, Val),
    ) {
        let tile = Tile { rows, ..self.tile };
        let (kc, nr) = (
            i64::from(self.spec.blocking.kc),
            i64::from(self.spec.blocking.nr),
        );
        let (zero, mr) = (e.int(0), e.int(rows as i64));
        let left = self.scratch(e, 1);
        let last = e.add_int(count, -1);
        let (a, c) = (e.operand(1), e.operand(3));
        e.for_each(zero, mr, 1, |e, r| {
            let at = e.add(i, r);
            let at = e.min(at, last);
            let row = listed(e, at);
            let copies = e.int(self.spec.of.copies as i64);
            let row = e.div(row, copies);
            let offset = e.mul_int(row, self.spec.of.k as i64);
            let offset = e.add(offset, pc);
            let to = e.mul_int(r, kc);
            let factor = Factor::of(self.spec, 0);
            let (from, to) = (e.at(a, offset, factor.elem), e.at(left, to, e.elem));
            match self.spec.order.in_pairs() {
                true => pairs::row(e, (from, factor.elem), to, depth),
                false => copy(e, factor, from, to, depth),
            }
        });
        let first = e.cmp(Cmp::Eq, pc, zero);
        e.for_each(zero, self.width, nr, |e, column| {
            let a = Left {
                pointer: left,
                row: e.int(kc),
                inner: e.int(1),
            };
            let b = Right {
                pointer: self.panel(e, column, pc),
                elem: inner_elem(e, self.spec),
                inner: e.int(nr),
                prefetch: if self.is_packed() { AHEAD } else { 0 },
            };
            let zeros = micro::zeros(e, tile);
            let inner = inner_count(e, self.spec, depth);
            let sums = micro::multiply(e, tile, a, b, inner, &zeros);
            let left = e.sub(self.width, column);
            let j = e.add(self.first, column);
            let lines = sums.chunks(tile.vectors as usize);
            for (r, sums) in lines.enumerate() {
                let at = e.add_int(i, r as i64);
                let exists = e.cmp(Cmp::Lt, at, count);
                e.when(exists, |e| {
                    let row = listed(e, at);
                    let offset = e.mul_int(row, self.spec.of.n as i64);
                    let offset = e.add(offset, j);
                    let to = e.at(c, offset, e.elem);
                    write(e, sums, to, left, first);
                });
            }
        });
    }
}
