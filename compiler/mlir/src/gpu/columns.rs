//! Sums over all rows, column by column.
//!
//! Takes a [`Columns`] spec. A block takes 32 columns: its warps compute the values of 64 rows into shared memory, one row
//! each at a time, and the first warp adds them to its sums, a column per thread, in row order.

use super::access;
use crate::access::{OperandRow, Position, RowAt, load_scalar, operand_row};
use crate::body::{Lowered, Values};
use crate::emit::{Cmp, Elem, Emitter, Val};
use odec_program::expr::{Access, Expr, Level};
use odec_program::gpu::{WARP, columns};
use odec_program::kernel::Columns;

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(super) fn emit(e: &mut Emitter, kernel: &Columns) -> Result<(), String> {
    let bad = |n: &Expr| matches!(n, Expr::Acc | Expr::Reduce(..));
    if kernel.body.nodes.iter().any(bad) {
        return Err("a column sum reads elements only, no accumulator and no reduction".into());
    }
    let low = Lowered::new(&kernel.body, kernel.dtype);
    let root = low.node(kernel.value);
    let needed = low.needed(&[root]);
    let pointers = (0..kernel.operands.len() as u64)
        .map(|n| e.operand(n))
        .collect();
    let (thread, block, rows) = (e.thread(), e.block(), e.dim(0));
    let warp_size = e.int(WARP as i64);
    let (warp, lane) = (e.div(thread, warp_size), e.rem(thread, warp_size));
    let first = e.mul_int(block, columns::COLS as i64);
    let column = e.add(first, lane);
    let (end, last) = (e.int(kernel.cols as i64), e.int(kernel.cols as i64 - 1));
    let exists = e.below(column, end);
    let column = e.min(column, last);
    let sums = ColumnSums {
        kernel,
        low,
        needed,
        root,
        pointers,
        column,
    };

    let mut uniforms = sums.low.no_values();
    sums.level(e, Level::Uniform, None, &mut uniforms);
    sums.level(e, Level::Col, None, &mut uniforms);
    let tile = e.shared(0);
    let (zero, nothing) = (e.int(0), e.float(0.0, e.scalar()));
    let adds = e.cmp(Cmp::Eq, warp, zero);
    let warps = columns::THREADS / WARP;
    let total = e.for_with(zero, rows, columns::ROWS as i64, &[nothing], |e, r, sum| {
        // Rows beyond the last are computed again and not added.
        let last = e.add_int(rows, -1);
        for i in 0..columns::ROWS / warps {
            let slot = e.add_int(warp, (i * warps) as i64);
            let row = e.add(r, slot);
            let row = e.min(row, last);
            let value = sums.value(e, row, &uniforms);
            let at = e.mul_int(slot, columns::COLS as i64);
            let at = e.add(at, lane);
            let p = e.at(tile, at, e.elem);
            e.store(value, p);
        }
        e.barrier();
        let (all, left) = (e.int(columns::ROWS as i64), e.sub(rows, r));
        let here = e.min(all, left);
        // The other warps add nothing.
        let count = e.select(adds, here, zero);
        let after = e.for_with(zero, count, 1, &[sum[0]], |e, i, sum| {
            let at = e.mul_int(i, columns::COLS as i64);
            let at = e.add(at, lane);
            let p = e.at(tile, at, e.elem);
            let x = e.load(p, e.scalar());
            vec![e.add(sum[0], x)]
        });
        e.barrier();
        after
    });
    let writes = e.and(adds, exists);
    e.when(writes, |e| {
        let out = sums.pointers[kernel.operands.len() - 1];
        let p = e.at(out, column, e.elem);
        let value = match kernel.accumulate {
            true => {
                let before = e.load(p, e.scalar());
                e.add(before, total[0])
            }
            false => total[0],
        };
        e.store(value, p);
    });
    Ok(())
}

struct ColumnSums<'a> {
    kernel: &'a Columns,
    low: Lowered,
    needed: Vec<bool>,
    root: usize,
    pointers: Vec<Val>,
    column: Val,
}

impl ColumnSums<'_> {
    /// The start of an operand's row.
    fn base(
        &self,
        e: &mut Emitter,
        operand: u32,
        access: Access,
        row: Option<Val>,
    ) -> (OperandRow, Elem) {
        let elem = Elem::of(self.kernel.operands[operand as usize]);
        let pointer = self.pointers[operand as usize];
        let Some(row) = row else {
            return (OperandRow::only(pointer), elem);
        };
        let position = access.row.by_position().then(|| {
            let (seq, rows) = (e.dim(1), e.dim(0));
            let at = e.rem(row, seq);
            Position { at, seq, rows }
        });
        let at = RowAt { row, position };
        (operand_row(e, pointer, elem, access, at), elem)
    }

    /// Emits the needed nodes of a level.
    fn level(&self, e: &mut Emitter, level: Level, row: Option<Val>, values: &mut Values) {
        let marks: Vec<bool> = (0..self.needed.len())
            .map(|i| self.needed[i] && self.low.levels[i] == level)
            .collect();
        let ty = e.scalar();
        self.low.emit(e, &marks, ty, values, |e, node| match *node {
            Expr::Uniform(n) => e.coeff(n as u64),
            Expr::Load { operand, access } => {
                let (row, elem) = self.base(e, operand, access, row);
                let x = match level {
                    Level::Uniform | Level::Row => load_scalar(e, row.base, elem),
                    Level::Col | Level::Element => {
                        access::load(e, row.base, elem, access, self.column, 1)
                    }
                };
                row.or_zero(e, x)
            }
            Expr::RowIndex => {
                let row = row.expect("rows have numbers inside of the loop over them");
                e.convert(row, e.elem)
            }
            Expr::ColIndex => e.convert(self.column, e.elem),
            _ => unreachable!("accumulators were refused"),
        });
    }

    /// The value in this thread's column of a row.
    fn value(&self, e: &mut Emitter, row: Val, uniforms: &Values) -> Val {
        let mut values = uniforms.clone();
        self.level(e, Level::Row, Some(row), &mut values);
        self.level(e, Level::Element, Some(row), &mut values);
        values[self.root].expect("the root is needed")
    }
}
