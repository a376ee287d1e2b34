//! Gathers rows by index, with their gradient, and sums rows by position or by sequence.
//!
//! Takes a [`Gather`] spec; emits a copy of `table[index[r]]` for each row, or the sum of rows into the
//! table in row order, one tile of columns (by position and sequence: one row of the result) at a time so that threads never meet.

use crate::access::{Columns, load_columns, store_columns};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::Gather;

/// Lanes of a vector.
const WIDTH: u64 = 16;

/// `out[r] = table[index[r]]`; operands index, table, out.
pub(crate) fn emit_gather(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (index, table, out) = (e.operand(0), e.operand(1), e.operand(2));
    let cols = kernel.cols;
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, r| {
        let from = row_of(e, index, table, r, cols);
        let to = row_at(e, out, r, cols);
        let copy = |e: &mut Emitter, cols: Columns| {
            let x = load_columns(e, from, e.elem, ColMap::Col, cols);
            store_columns(e, x, to, e.elem, cols);
        };
        let whole = cols / WIDTH * WIDTH;
        let (zero, end) = (e.int(0), e.int(whole as i64));
        e.for_each(zero, end, WIDTH as i64, |e, c| {
            copy(e, Columns::full(c, WIDTH))
        });
        if whole < cols {
            copy(
                e,
                Columns {
                    first: end,
                    lanes: WIDTH,
                    count: cols - whole,
                },
            );
        }
    });
    Ok(())
}

/// `table[index[r]] += rows[r]` in row order; operands index, rows, table.
pub(crate) fn emit_scatter_add(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (index, rows, table) = (e.operand(0), e.operand(1), e.operand(2));
    let (cols, count) = (kernel.cols, e.dim(0));
    let tile = |e: &mut Emitter, first: Val, width: u64| {
        let zero = e.int(0);
        e.for_each(zero, count, 1, |e, r| {
            let from = row_at(e, rows, r, cols);
            let to = row_of(e, index, table, r, cols);
            for v in 0..width.div_ceil(WIDTH) {
                let cols = Columns {
                    first: e.add_int(first, (v * WIDTH) as i64),
                    lanes: WIDTH,
                    count: WIDTH.min(width - v * WIDTH),
                };
                let x = load_columns(e, from, e.elem, ColMap::Col, cols);
                let y = load_columns(e, to, e.elem, ColMap::Col, cols);
                let sum = e.add(y, x);
                store_columns(e, sum, to, e.elem, cols);
            }
        });
    };
    let (begin, end) = (e.begin(), e.end());
    let whole = e.int((cols / Gather::TILE) as i64);
    let last = e.min(end, whole);
    e.for_each(begin, last, 1, |e, t| {
        let first = e.mul_int(t, Gather::TILE as i64);
        tile(e, first, Gather::TILE);
    });
    let rest = cols % Gather::TILE;
    if rest > 0 {
        let included = e.cmp(Cmp::Gt, end, whole);
        e.when(included, |e| {
            let first = e.int((cols - rest) as i64);
            tile(e, first, rest);
        });
    }
    Ok(())
}

/// `table[p] = Σ_b rows[b·seq + p]`; operands rows, table.
pub(crate) fn emit_position_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    sums(e, kernel, |e, p| {
        let zero = e.int(0);
        let read = e.cmp(Cmp::Gt, seq, p);
        Terms {
            count: e.select(read, batch, zero),
            first: p,
            apart: seq,
        }
    })
}

/// `out[b] = Σ_t rows[b·seq + t]`; operands rows, out.
pub(crate) fn emit_sequence_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let seq = e.dim(1);
    sums(e, kernel, |e, sequence| Terms {
        count: seq,
        first: e.mul(sequence, seq),
        apart: e.int(1),
    })
}

/// The rows of a sum: `first + i·apart` for i below `count`.
pub(crate) struct Terms {
    pub count: Val,
    pub first: Val,
    pub apart: Val,
}

impl Terms {
    /// The number of a row.
    pub fn row(&self, e: &mut Emitter, i: Val) -> Val {
        let further = e.mul(i, self.apart);
        e.add(further, self.first)
    }
}

/// Each tile is a row of the result, the sum of the rows that `terms` gives for it.
fn sums(
    e: &mut Emitter,
    kernel: &Gather,
    terms: impl Fn(&mut Emitter, Val) -> Terms,
) -> Result<(), String> {
    let (rows, out, n) = (e.operand(0), e.operand(1), kernel.cols);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, r| {
        let zero = e.int(0);
        let terms = terms(e, r);
        let to = row_at(e, out, r, n);
        let sum = |e: &mut Emitter, cols: Columns| {
            let nothing = e.float(0.0, Type::vector(e.elem, WIDTH));
            let sums = e.for_with(zero, terms.count, 1, &[nothing], |e, i, sum| {
                let r = terms.row(e, i);
                let from = row_at(e, rows, r, n);
                let x = load_columns(e, from, e.elem, ColMap::Col, cols);
                vec![e.add(sum[0], x)]
            });
            store_columns(e, sums[0], to, e.elem, cols);
        };
        let whole = n / WIDTH * WIDTH;
        let last = e.int(whole as i64);
        e.for_each(zero, last, WIDTH as i64, |e, c| {
            sum(e, Columns::full(c, WIDTH))
        });
        if whole < n {
            let count = n - whole;
            let (first, lanes) = (last, WIDTH);
            let ragged = Columns {
                first,
                lanes,
                count,
            };
            sum(e, ragged);
        }
    });
    Ok(())
}

/// The address of row `r` of a matrix of `cols` columns.
fn row_at(e: &mut Emitter, base: Val, r: Val, cols: u64) -> Val {
    let offset = e.mul_int(r, cols as i64);
    e.at(base, offset, e.elem)
}

/// The address of row `index[r]`.
fn row_of(e: &mut Emitter, index: Val, table: Val, r: Val, cols: u64) -> Val {
    let p = e.at(index, r, Elem::I32);
    let i = e.load(p, Type::scalar(Elem::I32));
    let i = e.convert(i, Elem::I64);
    row_at(e, table, i, cols)
}
