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

/// `table[p] = Σ_b rows[b·seq + p]`, and in the last row those beyond it; operands rows, table.
pub(crate) fn emit_position_sum(e: &mut Emitter, kernel: &Gather) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    sums(e, kernel, |e, p| {
        let zero = e.int(0);
        let read = e.cmp(Cmp::Gt, seq, p);
        Terms {
            count: e.select(read, batch, zero),
            first: p,
            apart: seq,
            turns: turns(e, p, seq),
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
        turns: e.int(1),
    })
}

/// How many positions a row of a sum by position has: the last one all that are left.
pub(crate) fn turns(e: &mut Emitter, p: Val, seq: Val) -> Val {
    let (rows, one) = (e.dim(2), e.int(1));
    let next = e.add_int(p, 1);
    let (is_last, left) = (e.cmp(Cmp::Ge, next, rows), e.sub(seq, p));
    e.select(is_last, left, one)
}

/// The rows of a sum: `first + i·apart` for i below `count`; then, so many turns in all, those right behind each.
pub(crate) struct Terms {
    pub count: Val,
    pub first: Val,
    pub apart: Val,
    pub turns: Val,
}

impl Terms {
    /// The sum: `add` adds a row.
    pub fn sum(
        &self,
        e: &mut Emitter,
        nothing: Val,
        add: impl Fn(&mut Emitter, Val, Val) -> Val,
    ) -> Val {
        let zero = e.int(0);
        e.for_with(zero, self.turns, 1, &[nothing], |e, behind, sum| {
            let first = e.add(self.first, behind);
            e.for_with(zero, self.count, 1, sum, |e, i, sum| {
                let further = e.mul(i, self.apart);
                let row = e.add(first, further);
                vec![add(e, row, sum[0])]
            })
        })[0]
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
            let sum = terms.sum(e, nothing, |e, r, sum| {
                let from = row_at(e, rows, r, n);
                let x = load_columns(e, from, e.elem, ColMap::Col, cols);
                e.add(sum, x)
            });
            store_columns(e, sum, to, e.elem, cols);
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
