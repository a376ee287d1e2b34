//! Pieces of matrices brought into shared memory, and products of what is there.
//!
//! Takes a matrix in global memory and the place of a piece; all threads of the block copy it together. Rows and columns
//! beyond the matrix repeat the last one, so that every address is valid; whoever reads a piece knows which of it counts.
//! Four elements are one access where rows are whole vectors. Leaves barriers to the callers.

use crate::emit::{Elem, Emitter, Type, Val};

/// A matrix: rows of `cols` elements, `stride` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Matrix {
    pub pointer: Val,
    pub rows: Val,
    pub cols: Val,
    pub stride: Val,
    /// Type of its elements.
    pub elem: Elem,
    /// Whether its elements are rounded to bf16 as they are read.
    pub rounds: bool,
    /// Whether four columns from a multiple of four on are one aligned access.
    pub whole: bool,
    /// Where row numbers are listed, if rows are those of a list: how many are listed is how many rows there are.
    pub listed: Option<Listed>,
}

/// Numbers of rows in shared memory, as far behind `first` (i32); each number divided by `copies` is a row of the matrix.
#[derive(Clone, Copy)]
pub(super) struct Listed {
    pub pointer: Val,
    /// The number in the list's first place, if the list is a part of one; else 0.
    pub from: Option<Val>,
    pub first: Val,
    pub copies: u64,
}

impl Listed {
    /// The i-th number of the list.
    pub fn number(self, e: &mut Emitter, i: Val) -> Val {
        let i = self.from.map_or(i, |from| e.sub(i, from));
        let p = e.at(self.pointer, i, Elem::I32);
        let number = e.load(p, Type::scalar(Elem::I32));
        let number = e.convert(number, Elem::I64);
        e.add(self.first, number)
    }

    pub fn row(self, e: &mut Emitter, i: Val) -> Val {
        if self.copies == 1 {
            return self.number(e, i);
        }
        let (number, copies) = (self.number(e, i), e.int(self.copies as i64));
        e.div(number, copies)
    }
}

/// The block that works together.
#[derive(Clone, Copy)]
pub(super) struct Team {
    pub thread: Val,
    pub threads: u64,
}

/// A place in shared memory for `rows` × `cols` elements: row-major, or columns first, with `pitch` elements from one
/// (or column) to the next.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub pointer: Val,
    pub rows: u64,
    pub cols: u64,
    pub pitch: u64,
    pub turned: bool,
}

/// Copies the piece of `from` that starts at (`row`, `col`) into shared memory. `col` is a multiple of four.
pub(super) fn stage(e: &mut Emitter, team: Team, from: Matrix, row: Val, col: Val, to: Place) {
    let vector = if from.whole && to.cols.is_multiple_of(4) {
        4
    } else {
        1
    };
    let across = to.cols / vector;
    let pieces = to.rows * across;
    let mut loaded = Vec::new();
    for turn in 0..pieces.div_ceil(team.threads) {
        let n = e.add_int(team.thread, (turn * team.threads) as i64);
        let ragged = (turn + 1) * team.threads > pieces;
        // The threads left over in the last turn repeat the last piece: they store what it holds already.
        let last = e.int(pieces as i64 - 1);
        let n = if ragged { e.min(n, last) } else { n };
        let width = e.int(across as i64);
        let (r, c) = (e.div(n, width), e.rem(n, width));
        let c = e.mul_int(c, vector as i64);
        let x = element(e, from, (row, r), (col, c), vector);
        loaded.push((r, c, x));
    }
    for (r, c, x) in loaded {
        let (outer, inner) = if to.turned { (c, r) } else { (r, c) };
        let at = e.mul_int(outer, to.pitch as i64);
        let at = e.add(at, inner);
        let p = e.at(to.pointer, at, e.elem);
        if !to.turned && to.pitch.is_multiple_of(vector) {
            e.store_whole(x, p);
            continue;
        }
        let step = if to.turned { to.pitch } else { 1 };
        for (i, x) in e.parts(x).into_iter().enumerate() {
            let p = e.at_const(p, i as i64 * step as i64, e.elem);
            e.store(x, p);
        }
    }
}

/// `vector` elements from (row, col) on, within the matrix.
fn element(e: &mut Emitter, from: Matrix, row: (Val, Val), col: (Val, Val), vector: u64) -> Val {
    let (r, c) = (e.add(row.0, row.1), e.add(col.0, col.1));
    let bottom = e.add_int(from.rows, -1);
    let edge = e.add_int(from.cols, -(vector as i64));
    let (r, c) = (e.min(r, bottom), e.min(c, edge));
    let r = from.listed.map_or(r, |listed| listed.row(e, r));
    let at = e.mul(r, from.stride);
    let at = e.add(at, c);
    let p = e.at(from.pointer, at, from.elem);
    let x = e.load_whole(p, super::access::wide(from.elem, vector));
    match from.rounds {
        true => e.nearest_bf16(x, false),
        false => e.convert(x, e.elem),
    }
}

/// Four consecutive elements of shared memory, the first a multiple of four from its start.
pub(super) fn four(e: &mut Emitter, pointer: Val, at: Val) -> Vec<Val> {
    let p = e.at(pointer, at, Elem::F32);
    let x = e.load_whole(p, Type::vector(Elem::F32, 4));
    e.parts(x)
}

/// Adds `x[i] · y[j]` to `sums[i][j]` by fused multiply-add, for one inner index.
pub(super) fn outer(e: &mut Emitter, x: &[Val], y: &[Val], sums: &[Val]) -> Vec<Val> {
    let pairs = x.iter().flat_map(|x| y.iter().map(move |y| (*x, *y)));
    pairs
        .zip(sums)
        .map(|((x, y), sum)| e.fma(x, y, *sum))
        .collect()
}
