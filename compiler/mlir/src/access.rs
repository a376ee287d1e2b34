//! Loading and storing operands along a row.
//!
//! Takes row base pointers and column maps; gives vectors of the kernel's element type. Contiguous
//! columns are one load; turned and half-swapped columns are loaded in the largest contiguous pieces
//! that the map has and joined. Nothing outside the operand is ever touched.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::Window;
use odec_program::expr::{Access, ColMap, RowMap};
use odec_program::window::Through;

/// Consecutive columns of the domain: `lanes` of them from `first` (a multiple of `lanes`, or known) on, of
/// which `mask` exist.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    pub first: Val,
    pub lanes: u64,
    /// How many exist; `lanes` but for the last vector of a row.
    pub count: u64,
}

impl Columns {
    pub fn full(first: Val, lanes: u64) -> Columns {
        Columns {
            first,
            lanes,
            count: lanes,
        }
    }
}

/// The row of the domain that a kernel is at.
#[derive(Clone, Copy)]
pub(crate) struct RowAt {
    pub row: Val,
    /// Of kernels that read by position ([`RowMap::by_position`]).
    pub position: Option<Position>,
}

/// A row's place in its sequence, the rows of a sequence, and those of the domain.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub at: Val,
    pub seq: Val,
    pub rows: Val,
}

/// A row of an operand: where it begins and, if it may be missing, whether it is there.
#[derive(Clone, Copy)]
pub(crate) struct OperandRow {
    pub base: Val,
    exists: Option<Val>,
}

impl OperandRow {
    /// The only row of an operand.
    pub fn only(base: Val) -> OperandRow {
        OperandRow { base, exists: None }
    }

    /// What was loaded from it; zero where it is missing.
    pub fn or_zero(self, e: &mut Emitter, x: Val) -> Val {
        match self.exists {
            Some(exists) => {
                let zero = e.zero(x.ty);
                e.select(exists, x, zero)
            }
            None => x,
        }
    }
}

/// The row of an operand that is read for a row of the domain. One that is missing begins where that row does.
pub(crate) fn operand_row(
    e: &mut Emitter,
    pointer: Val,
    elem: Elem,
    access: Access,
    at: RowAt,
) -> OperandRow {
    let position = || at.position.expect("kernels that read by position count it");
    let (row, exists) = match access.row {
        RowMap::Zero => return OperandRow::only(pointer),
        RowMap::Row => (at.row, None),
        RowMap::Position => (position().at, None),
        RowMap::Sequence => (e.div(at.row, position().seq), None),
        RowMap::Shift(by) => {
            let exists = same_sequence(e, at.row, position(), by.into());
            let there = e.add_int(at.row, -i64::from(by));
            (e.select(exists, there, at.row), Some(exists))
        }
        RowMap::Window(window, through) => {
            let (row, exists) = windowed(e, at.row, window, through);
            (row, Some(exists))
        }
    };
    let offset = e.mul_int(row, access.stride as i64);
    let base = e.at(pointer, offset, elem);
    OperandRow { base, exists }
}

/// The row of a window or of a token ([`Window::apply`]), and whether there is one; else the first of the same sequence.
fn windowed(e: &mut Emitter, row: Val, window: Window, through: Through) -> (Val, Val) {
    let [own, other] = window.rows(through);
    let (sequence, at) = divided(e, row, own);
    let first = e.mul_int(sequence, other as i64);
    let (at, place) = match through {
        Through::Places => divided(e, at, window.places()),
        Through::Place(place) | Through::Under(place) => (at, e.int(place.into())),
    };
    let (above, beside) = divided(e, place, window.kernel.into());
    let tokens = matches!(through, Through::Places | Through::Place(_));
    let (from, to) = match tokens {
        true => (window.windows, window.grid),
        false => (window.grid, window.windows),
    };
    let (y, x) = divided(e, at, from[1].into());
    let stride = i64::from(window.stride);
    let [(y, above), (x, beside)] = [(0, y, above), (1, x, beside)].map(|(axis, at, place)| {
        let before = i64::from(window.before[axis]);
        let (zero, sides, by) = (e.int(0), e.int(to[axis].into()), e.int(stride));
        let (at, whole) = match tokens {
            true => {
                let at = e.mul(at, by);
                let at = e.add(at, place);
                (e.add_int(at, -before), None)
            }
            false => {
                let at = e.add_int(at, before);
                (e.sub(at, place), Some(by))
            }
        };
        let begun = e.cmp(Cmp::Ge, at, zero);
        let (at, begun) = match whole {
            None => (at, begun),
            // What is negative is not begun, whatever it is divided into.
            Some(by) => {
                let (number, rest) = (e.div(at, by), e.rem(at, by));
                let whole = e.cmp(Cmp::Eq, rest, zero);
                (number, e.and(begun, whole))
            }
        };
        let inside = e.cmp(Cmp::Lt, at, sides);
        (at, e.and(begun, inside))
    });
    let exists = e.and(above, beside);
    let y = e.mul_int(y, to[1].into());
    let there = e.add(y, x);
    let there = e.add(first, there);
    (e.select(exists, there, first), exists)
}

/// `a / n` and `a mod n`.
fn divided(e: &mut Emitter, a: Val, n: u64) -> (Val, Val) {
    let n = e.int(n as i64);
    (e.div(a, n), e.rem(a, n))
}

/// Whether row `row − by` belongs to the sequence of this row, and to the domain.
fn same_sequence(e: &mut Emitter, row: Val, position: Position, by: i64) -> Val {
    let Position { at, seq, rows } = position;
    if by >= 0 {
        let near = e.int(by);
        return e.cmp(Cmp::Ge, at, near);
    }
    let there = e.add_int(at, -by);
    let inside = e.cmp(Cmp::Lt, there, seq);
    let there = e.add_int(row, -by);
    let counted = e.cmp(Cmp::Lt, there, rows);
    e.and(inside, counted)
}

/// The scalar at the start of a row, as the kernel's element type.
pub(crate) fn load_scalar(e: &mut Emitter, base: Val, elem: Elem) -> Val {
    let x = e.load(base, Type::scalar(elem));
    e.convert(x, e.elem)
}

/// Loads the operand's columns that `map` gives for `cols`, as the kernel's element type. Lanes that do not exist are
/// zero.
pub(crate) fn load_columns(
    e: &mut Emitter,
    base: Val,
    elem: Elem,
    map: ColMap,
    cols: Columns,
) -> Val {
    let x = match map {
        ColMap::Col => load_piece(e, base, elem, cols),
        ColMap::Zero => {
            let x = e.load(base, Type::scalar(elem));
            e.broadcast(x, cols.lanes)
        }
        // the highest power of two that divides both keeps its columns together
        ColMap::Turn { cols: n, by } => load_pieces(e, base, elem, cols, n | by, |e, c| {
            let n = e.int(n as i64);
            let c = e.add_int(c, by as i64);
            e.rem(c, n)
        }),
        ColMap::HalfSwap(n) => load_pieces(e, base, elem, cols, n / 2, |e, c| {
            // the half that c lies in has an even or odd number
            let half = e.int(n as i64 / 2);
            let number = e.div(c, half);
            let two = e.int(2);
            let odd = e.rem(number, two);
            let back = e.mul_int(odd, n as i64);
            let there = e.add(c, half);
            e.sub(there, back)
        }),
        ColMap::Transposed { rows, cols: n } => {
            load_pieces(e, base, elem, cols, 1, |e, c| transposed(e, c, rows, n))
        }
    };
    e.convert(x, e.elem)
}

/// Column `(c mod rows) · cols + c div rows`.
pub(crate) fn transposed(e: &mut Emitter, c: Val, rows: u64, cols: u64) -> Val {
    let rows = e.int(rows as i64);
    let (down, right) = (e.rem(c, rows), e.div(c, rows));
    let start = e.mul_int(down, cols as i64);
    e.add(start, right)
}

/// Stores the columns that exist.
pub(crate) fn store_columns(e: &mut Emitter, value: Val, base: Val, elem: Elem, cols: Columns) {
    let value = e.convert(value, elem);
    let p = e.at(base, cols.first, elem);
    if cols.count == cols.lanes {
        e.store(value, p);
    } else if cols.count == 1 {
        // LLVM 22 makes the store of one lane a scalar one and forgets, on the way, that the lanes were narrowed: it would
        // write as many bytes as they had before.
        let value = e.extract(value, 0);
        e.store(value, p);
    } else {
        let count = e.int(cols.count as i64);
        let mask = e.mask(count, cols.lanes);
        e.store_masked(value, p, mask);
    }
}

/// `first, first + 1, …` as floats.
pub(crate) fn column_numbers(e: &mut Emitter, cols: Columns) -> Val {
    let first = e.convert(cols.first, Elem::I32);
    let first = e.broadcast(first, cols.lanes);
    let iota = e.iota(cols.lanes);
    let numbers = e.add(first, iota);
    e.convert(numbers, e.elem)
}

/// Contiguous columns.
fn load_piece(e: &mut Emitter, base: Val, elem: Elem, cols: Columns) -> Val {
    let ty = Type::vector(elem, cols.lanes);
    let p = e.at(base, cols.first, elem);
    match cols.count {
        n if n == cols.lanes => e.load(p, ty),
        n => {
            let count = e.int(n as i64);
            let mask = e.mask(count, cols.lanes);
            let zero = e.zero(ty);
            e.load_masked(p, mask, zero)
        }
    }
}

/// Columns under a map that keeps runs of as many columns together, from any multiple of their number on, as the
/// highest power of two that divides `period`.
fn load_pieces(
    e: &mut Emitter,
    base: Val,
    elem: Elem,
    cols: Columns,
    period: u64,
    map: impl Fn(&mut Emitter, Val) -> Val,
) -> Val {
    let lanes = cols.lanes.min(1 << period.trailing_zeros());
    let pieces = (0..cols.lanes / lanes).map(|i| {
        let start = i * lanes;
        if start >= cols.count {
            // a neighbour's value stands in for lanes that do not exist
            return None;
        }
        let c = e.add_int(cols.first, start as i64);
        let first = map(e, c);
        let count = lanes.min(cols.count - start);
        let piece = Columns {
            first,
            lanes,
            count,
        };
        Some(load_piece(e, base, elem, piece))
    });
    let mut pieces: Vec<Option<Val>> = pieces.collect();
    // Join neighbours until one is left.
    while pieces.len() > 1 {
        pieces = pieces
            .chunks(2)
            .map(|pair| {
                let low = pair[0]?;
                let width = low.ty.lanes;
                let pick: Vec<u32> = (0..2 * width).collect();
                Some(e.shuffle(low, pair[1].unwrap_or(low), &pick))
            })
            .collect();
    }
    pieces[0].expect("a vector has at least one column")
}
