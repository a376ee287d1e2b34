//! Sums over all rows, column by column.
//!
//! Takes a [`Columns`] spec; emits, for each 64 columns, a loop over blocks of rows and one over the rows of each, with
//! their sums in registers. Every column is summed on its own and in the spec's order, so neither the split into
//! tiles nor the width of the target's vectors shows in the result.

use crate::access::{
    self, OperandRow, Position, RowAt, load_columns, load_scalar, operand_row, store_columns,
};
use crate::body::{Lowered, Values};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::expr::{Access, ColMap, Expr, Level};
use odec_program::kernel::Columns;

/// Lanes of a vector: a tile is four of them.
const WIDTH: u64 = 16;

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(crate) fn emit(e: &mut Emitter, kernel: &Columns) -> Result<(), String> {
    let bad = |n: &Expr| matches!(n, Expr::Acc | Expr::Reduce(..));
    if kernel.body.nodes.iter().any(bad) {
        return Err("a column sum reads elements only, no accumulator and no reduction".into());
    }
    let low = Lowered::new(&kernel.body, kernel.dtype);
    let root = low.node(kernel.value);
    let needed = low.needed(&[root]);
    let operands = kernel.operands.len() as u64;
    let pointers: Vec<Val> = (0..operands).map(|n| e.operand(n)).collect();
    let sums = ColumnSums {
        kernel,
        low,
        needed,
        root,
        pointers,
    };

    let mut uniforms = sums.low.no_values();
    sums.scalars(e, Level::Uniform, None, &mut uniforms);
    let rows = e.dim(0);
    let by_position = sums.loads().any(|a| a.row.by_position());
    let seq = by_position.then(|| e.dim(1));

    let (begin, end, zero) = (e.begin(), e.end(), e.int(0));
    let whole = e.int((kernel.cols / Columns::TILE) as i64);
    let rest = kernel.cols % Columns::TILE;
    let ragged = e.int((kernel.cols - rest) as i64);
    let out = sums.pointers[kernel.operands.len() - 1];
    let all = Rows {
        from: zero,
        to: rows,
        rows,
        seq,
    };
    if kernel.parts > 1 {
        e.for_each(begin, end, 1, |e, part| {
            let start = |e: &mut Emitter, part: Val| {
                let start = e.mul(part, rows);
                e.div_int(start, kernel.parts as i64)
            };
            let after = e.add_int(part, 1);
            let (from, to) = (start(e, part), start(e, after));
            let first = e.mul_int(part, kernel.cols as i64);
            let out = e.at(out, first, e.elem);
            let of = Rows { from, to, ..all };
            e.for_each(zero, whole, 1, |e, t| {
                let first = e.mul_int(t, Columns::TILE as i64);
                sums.tile(e, (first, Columns::TILE), of, &uniforms, out);
            });
            if rest > 0 {
                sums.tile(e, (ragged, rest), of, &uniforms, out);
            }
        });
        return Ok(());
    }
    // Whole tiles, then the ragged one if this launch has it.
    let last = e.min(end, whole);
    e.for_each(begin, last, 1, |e, t| {
        let first = e.mul_int(t, Columns::TILE as i64);
        sums.tile(e, (first, Columns::TILE), all, &uniforms, out);
    });
    if rest > 0 {
        let included = e.cmp(Cmp::Gt, end, whole);
        e.when(included, |e| {
            sums.tile(e, (ragged, rest), all, &uniforms, out);
        });
    }
    Ok(())
}

/// The rows `from..to` of all rows, and the length of sequences where elements are read by position.
#[derive(Clone, Copy)]
struct Rows {
    from: Val,
    to: Val,
    rows: Val,
    seq: Option<Val>,
}

struct ColumnSums<'a> {
    kernel: &'a Columns,
    low: Lowered,
    needed: Vec<bool>,
    root: usize,
    pointers: Vec<Val>,
}

impl ColumnSums<'_> {
    fn loads(&self) -> impl Iterator<Item = Access> {
        self.low.body.nodes.iter().filter_map(|n| match n {
            Expr::Load { access, .. } => Some(*access),
            _ => None,
        })
    }

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

    /// Emits the needed nodes of a level as scalars.
    fn scalars(&self, e: &mut Emitter, level: Level, at: Option<RowAt>, values: &mut Values) {
        let marks: Vec<bool> = (0..self.needed.len())
            .map(|i| self.needed[i] && self.low.levels[i] == level)
            .collect();
        let ty = e.scalar();
        self.low.emit(e, &marks, ty, values, |e, node| match *node {
            Expr::Uniform(n) => e.coeff(n as u64),
            Expr::Load { operand, access } => {
                let (row, elem) = self.base(e, operand, access, at);
                let x = load_scalar(e, row.base, elem);
                row.or_zero(e, x)
            }
            Expr::RowIndex => {
                let at = at.expect("rows have numbers inside of the loop over them");
                e.convert(at.row, e.elem)
            }
            _ => unreachable!("column numbers and accumulators are not scalars"),
        });
    }

    /// Vectors of the scalars that vector nodes may use.
    fn splats(&self, e: &mut Emitter, scalars: &Values) -> Values {
        let ty = Type::vector(e.elem, WIDTH);
        let mut out = self.low.no_values();
        for (i, out) in out.iter_mut().enumerate() {
            *out = match (self.low.body.nodes[i], scalars[i]) {
                (Expr::Const(x), Some(_)) => Some(e.float(x, ty)),
                (_, Some(x)) => Some(e.broadcast(x, WIDTH)),
                _ => None,
            };
        }
        out
    }

    /// Sums `width` columns from `first` on, of some rows, to a row of `out`.
    fn tile(
        &self,
        e: &mut Emitter,
        (first, width): (Val, u64),
        of: Rows,
        uniforms: &Values,
        out: Val,
    ) {
        let vectors: Vec<access::Columns> = (0..width.div_ceil(WIDTH))
            .map(|v| access::Columns {
                first: e.add_int(first, (v * WIDTH) as i64),
                lanes: WIDTH,
                count: WIDTH.min(width - v * WIDTH),
            })
            .collect();
        let ty = Type::vector(e.elem, WIDTH);
        let nothing = vec![e.float(0.0, ty); vectors.len()];
        let mut start = nothing.clone();
        start.extend(of.seq.map(|seq| e.rem(of.from, seq)));
        let block = Columns::BLOCK as i64;
        let totals = e.for_with(of.from, of.to, block, &start, |e, from, before| {
            let to = e.add_int(from, block);
            let to = e.min(to, of.to);
            let (totals, position) = before.split_at(vectors.len());
            let start = [&nothing, position].concat();
            let of = Rows { from, to, ..of };
            let mut after = self.rows(e, &vectors, of, &start, uniforms);
            for (sum, total) in after.iter_mut().zip(totals) {
                *sum = e.add(*total, *sum);
            }
            after
        });
        let elem = e.elem;
        for (cols, total) in vectors.iter().zip(totals) {
            let value = if self.kernel.accumulate {
                let before = load_columns(e, out, elem, ColMap::Col, *cols);
                e.add(before, total)
            } else {
                total
            };
            store_columns(e, value, out, elem, *cols);
        }
    }

    /// Adds some rows to the sums that `start` begins with; behind them is the first row's position, where there is a `seq`.
    /// Gives the same after the last row.
    fn rows(
        &self,
        e: &mut Emitter,
        vectors: &[access::Columns],
        of: Rows,
        start: &[Val],
        uniforms: &Values,
    ) -> Vec<Val> {
        let ty = Type::vector(e.elem, WIDTH);
        let none = e.int(0);
        e.for_with(of.from, of.to, 1, start, |e, r, carried| {
            let position = of.seq.map(|seq| Position {
                at: carried[vectors.len()],
                seq,
                rows: of.rows,
            });
            let at = Some(RowAt { row: r, position });
            let mut scalars = uniforms.clone();
            self.scalars(e, Level::Row, at, &mut scalars);
            let splats = self.splats(e, &scalars);
            let mut next = Vec::with_capacity(carried.len());
            for (cols, sum) in vectors.iter().zip(carried) {
                let mut values = splats.clone();
                self.low
                    .emit(e, &self.needed, ty, &mut values, |e, node| match *node {
                        Expr::Load { operand, access } => {
                            let (row, elem) = self.base(e, operand, access, at);
                            let x = load_columns(e, row.base, elem, access.col, *cols);
                            row.or_zero(e, x)
                        }
                        Expr::ColIndex => access::column_numbers(e, *cols),
                        _ => unreachable!("uniform and per-row nodes have values"),
                    });
                let value = values[self.root].expect("the value is needed");
                next.push(e.add(*sum, value));
            }
            if let Some(Position { at, seq, .. }) = position {
                let after = e.add_int(at, 1);
                let wraps = e.cmp(Cmp::Eq, after, seq);
                next.push(e.select(wraps, none, after));
            }
            next
        })
    }
}
