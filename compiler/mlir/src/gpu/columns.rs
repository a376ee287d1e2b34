//! Sums over all rows, column by column.
//!
//! Takes a [`Columns`] spec. A block takes a few columns, of a part of the rows if there are several; each of its threads sums one of them over one block of rows, reading several rows
//! before it adds them. The sums meet in shared memory, where the first threads add them in order, a column each, while the
//! others go on with the next blocks of rows.

use super::access;
use crate::access::{OperandRow, Position, RowAt, load_scalar, operand_row};
use crate::body::{Lowered, Values};
use crate::emit::{Cmp, Elem, Emitter, Val};
use odec_program::expr::{Access, Expr, Level};
use odec_program::gpu::columns;
use odec_program::kernel::Columns;

/// Sums that are read before they are added; as many chains are a multiple of it.
const AHEAD: i64 = 8;

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
    let (cols, threads) = (
        columns::cols(kernel) as i64,
        columns::threads(kernel) as i64,
    );
    let (chains, block) = (threads / cols, Columns::BLOCK as i64);
    let (thread, number, rows) = (e.thread(), e.block(), e.dim(0));
    let width = e.int(cols);
    let (chain, own) = (e.div(thread, width), e.rem(thread, width));
    let (start, after, part, number) = match kernel.parts {
        1 => (e.int(0), rows, e.int(0), number),
        parts => {
            let across = e.int(kernel.cols.div_ceil(cols as u64) as i64);
            let (part, number) = (e.div(number, across), e.rem(number, across));
            let next = e.add_int(part, 1);
            let [start, after] = [part, next].map(|part| {
                let start = e.mul(part, rows);
                e.div_int(start, parts as i64)
            });
            (start, after, part, number)
        }
    };
    let first = e.mul_int(number, cols);
    let column = e.add(first, own);
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
    sums.level(e, Level::Uniform, None, &mut uniforms, false);
    sums.level(e, Level::Col, None, &mut uniforms, false);
    let met = e.shared(0);
    let (zero, nothing) = (e.int(0), e.float(0.0, e.scalar()));
    let adds = e.below(thread, width);
    let none = [nothing, zero];
    let result = e.for_with(start, after, chains * block, &none, |e, r, carried| {
        let (total, half) = (carried[0], carried[1]);
        let from = e.mul_int(chain, block);
        let from = e.add(r, from);
        let to = e.add_int(from, block);
        let to = e.min(to, after);
        let sum = sums.block(e, (from, to), &uniforms);
        let at = e.add(half, thread);
        let p = e.at(met, at, e.elem);
        e.store(sum, p);
        e.barrier();
        // Sums of no rows are +0, which adds nothing to what began with +0: a few may be added.
        let left = e.sub(after, r);
        let blocks = e.div_ceil(left, block);
        let all = e.int(chains);
        let count = e.min(blocks, all);
        // The other threads add nothing.
        let count = e.select(adds, count, zero);
        let after = e.for_with(zero, count, AHEAD, &[total], |e, i, total| {
            let at = e.mul_int(i, cols);
            let at = e.add(half, at);
            let at = e.add(at, thread);
            let sums: Vec<Val> = (0..AHEAD)
                .map(|n| {
                    let at = e.add_int(at, n * cols);
                    let p = e.at(met, at, e.elem);
                    e.load(p, e.scalar())
                })
                .collect();
            vec![sums.iter().fold(total[0], |total, sum| e.add(total, *sum))]
        });
        // What is still added is in the other half.
        let all = e.int(threads);
        vec![after[0], e.sub(all, half)]
    });
    let writes = e.and(adds, exists);
    e.when(writes, |e| {
        let out = sums.pointers[kernel.operands.len() - 1];
        let before = e.mul_int(part, kernel.cols as i64);
        let at = e.add(before, column);
        let p = e.at(out, at, e.elem);
        let value = match kernel.accumulate {
            true => {
                let before = e.load(p, e.scalar());
                e.add(before, result[0])
            }
            false => result[0],
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
        at: Option<RowAt>,
    ) -> (OperandRow, Elem) {
        let elem = Elem::of(self.kernel.operands[operand as usize]);
        let pointer = self.pointers[operand as usize];
        let row = match at {
            None => OperandRow::only(pointer),
            Some(at) => operand_row(e, pointer, elem, access, at),
        };
        (row, elem)
    }

    /// Emits the needed nodes of a level, or its loads.
    fn level(
        &self,
        e: &mut Emitter,
        level: Level,
        at: Option<RowAt>,
        values: &mut Values,
        loads: bool,
    ) {
        let nodes = &self.low.body.nodes;
        let marks: Vec<bool> = (0..self.needed.len())
            .map(|i| {
                let loads = !loads || matches!(nodes[i], Expr::Load { .. });
                self.needed[i] && self.low.levels[i] == level && loads
            })
            .collect();
        let ty = e.scalar();
        self.low.emit(e, &marks, ty, values, |e, node| match *node {
            Expr::Uniform(n) => e.coeff(n as u64),
            Expr::Load { operand, access } => {
                let (row, elem) = self.base(e, operand, access, at);
                let x = match level {
                    Level::Uniform | Level::Row => load_scalar(e, row.base, elem),
                    Level::Col | Level::Element => {
                        access::load(e, row.base, elem, access, self.column, 1)
                    }
                };
                row.or_zero(e, x)
            }
            Expr::RowIndex => {
                let at = at.expect("rows have numbers inside of the loop over them");
                e.convert(at.row, e.elem)
            }
            Expr::ColIndex => e.convert(self.column, e.elem),
            _ => unreachable!("accumulators were refused"),
        });
    }

    /// The sum of the rows `from..to` in this thread's column.
    fn block(&self, e: &mut Emitter, (from, to): (Val, Val), uniforms: &Values) -> Val {
        let by_position = self
            .low
            .body
            .nodes
            .iter()
            .any(|n| matches!(n, Expr::Load { access, .. } if access.row.by_position()));
        let mut carried = vec![e.float(0.0, e.scalar())];
        if by_position {
            let seq = e.dim(1);
            carried.push(e.rem(from, seq));
        }
        // Whole batches of rows, then the rest one by one.
        let ahead = columns::ahead(self.kernel) as i64;
        let mut rest = from;
        if ahead > 1 {
            let (count, zero) = (e.sub(to, from), e.int(0));
            let count = e.max(count, zero);
            let whole = e.floor_to(count, ahead);
            rest = e.add(from, whole);
            carried = e.for_with(from, rest, ahead, &carried, |e, row, carried| {
                self.batch(e, row, ahead, carried, uniforms)
            });
        }
        e.for_with(rest, to, 1, &carried, |e, row, carried| {
            self.batch(e, row, 1, carried, uniforms)
        })[0]
    }

    /// Adds `count` rows to the sum that `carried` begins with, all of whose operands are read before; behind it is the first row's
    /// position. Gives the same after the last row.
    fn batch(
        &self,
        e: &mut Emitter,
        first: Val,
        count: i64,
        carried: &[Val],
        uniforms: &Values,
    ) -> Vec<Val> {
        let mut position = carried.get(1).copied();
        let rows: Vec<Option<RowAt>> = (0..count)
            .map(|n| {
                let row = e.add_int(first, n);
                let position = position.as_mut().map(|next| {
                    let (at, seq, rows) = (*next, e.dim(1), e.dim(0));
                    let (after, zero) = (e.add_int(at, 1), e.int(0));
                    let wraps = e.cmp(Cmp::Eq, after, seq);
                    *next = e.select(wraps, zero, after);
                    Position { at, seq, rows }
                });
                Some(RowAt { row, position })
            })
            .collect();
        let mut values = vec![uniforms.clone(); rows.len()];
        for loads in [true, false] {
            for (at, values) in rows.iter().zip(&mut values) {
                self.level(e, Level::Row, *at, values, loads);
                self.level(e, Level::Element, *at, values, loads);
            }
        }
        let sum = values.iter().fold(carried[0], |sum, values| {
            let value = values[self.root].expect("the root is needed");
            e.add(sum, value)
        });
        [Some(sum), position].into_iter().flatten().collect()
    }
}
