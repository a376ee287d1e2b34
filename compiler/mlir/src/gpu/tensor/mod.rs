//! Tiles of bf16 in shared memory, and the fragments that tensor cores take from them.
//!
//! Takes matrices in global memory; copies pieces of them into tiles, eight elements at a time, without passing through
//! registers where that is possible, and reads fragments back. What lies beyond a matrix is zero in a tile. Places in shared
//! memory are numbers of two-byte elements. Leaves waiting, barriers and who computes what to the kernels.

pub(super) mod attend;
mod boxes;
pub(super) mod contract;
pub(super) mod few;
mod results;
mod ring;
mod stream;
pub(super) mod warpgroup;

use super::access::wide;
use super::stage::{Matrix, Team};
use crate::emit::{Elem, Emitter, Type, Val};
use odec_program::gpu::tensor::PAD;
use odec_program::gpu::tensor::warpgroup::PANEL;

/// Elements of 16 bytes.
const CHUNK: u64 = 8;

/// Rows and columns of a fragment of C.
const M: u64 = 16;
const N: u64 = 8;

/// A tile: rows as they lie in global memory.
#[derive(Clone, Copy)]
struct Tile {
    rows: u64,
    cols: u64,
    lies: Lies,
}

/// How a tile lies in shared memory.
#[derive(Clone, Copy)]
enum Lies {
    /// Rows with [`PAD`] elements between them.
    Padded,
    /// In panels ([`odec_program::gpu::tensor::warpgroup`]).
    Paneled,
}

impl Tile {
    fn padded(rows: u64, cols: u64) -> Tile {
        let lies = Lies::Padded;
        Tile { rows, cols, lies }
    }
    fn pitch(self) -> u64 {
        self.cols + PAD
    }
    fn elements(self) -> u64 {
        match self.lies {
            Lies::Padded => self.rows * self.pitch(),
            Lies::Paneled => self.rows * self.cols.next_multiple_of(PANEL),
        }
    }

    /// Where the 16 bytes `chunk` of a row begin.
    fn place(self, e: &mut Emitter, row: Val, chunk: Val) -> Val {
        let (row_pitch, chunk) = match self.lies {
            Lies::Padded => (self.pitch(), e.mul_int(chunk, CHUNK as i64)),
            Lies::Paneled => {
                let eight = e.int((PANEL / CHUNK) as i64);
                let (panel, within) = (e.div(chunk, eight), e.rem(chunk, eight));
                let panel = e.mul_int(panel, (self.rows * PANEL) as i64);
                let turn = e.rem(row, eight);
                let within = e.xor(within, turn);
                let within = e.mul_int(within, CHUNK as i64);
                (PANEL, e.add(panel, within))
            }
        };
        let row = e.mul_int(row, row_pitch as i64);
        e.add(row, chunk)
    }
}

/// A matrix and how many of its elements are one access: eight when they are copied ahead.
#[derive(Clone, Copy)]
struct Source {
    matrix: Matrix,
    vector: u64,
}

/// Which rows of four 8 × 8 matrices the lanes of a warp name: first down the rows and then to the right, or the other
/// way.
#[derive(Clone, Copy)]
enum Order {
    Down,
    Across,
}

/// Where a lane's row of matrices begins in a tile, from the first matrix on.
fn lane_place(e: &mut Emitter, lane: Val, order: Order, tile: Tile) -> Val {
    let [eight, sixteen] = [8, 16].map(|n| e.int(n));
    let (row, chunk) = match order {
        Order::Down => (e.rem(lane, sixteen), e.div(lane, sixteen)),
        Order::Across => {
            let (within, below) = (e.rem(lane, eight), e.div(lane, sixteen));
            let below = e.mul_int(below, 8);
            let right = e.rem(lane, sixteen);
            (e.add(within, below), e.div(right, eight))
        }
    };
    let row = e.mul_int(row, tile.pitch() as i64);
    let chunk = e.mul_int(chunk, CHUNK as i64);
    e.add(row, chunk)
}

/// A piece that is on its way through registers: places within the tile, and 16 bytes for each.
type Loaded = Vec<(Val, Val)>;

impl Source {
    /// Begins to bring the piece from (`row`, `col`) on, which is a multiple of eight, to the tile at `to`: copied ahead,
    /// or loaded, to be put there by [`put`].
    fn fetch(self, e: &mut Emitter, team: Team, row: Val, col: Val, tile: Tile, to: Val) -> Loaded {
        let across = tile.cols / CHUNK;
        let chunks = tile.rows * across;
        let mut loaded = Vec::new();
        for turn in 0..chunks.div_ceil(team.threads) {
            let n = e.add_int(team.thread, (turn * team.threads) as i64);
            let last = e.int(chunks as i64 - 1);
            // The threads left over in the last turn repeat the last chunk.
            let ragged = (turn + 1) * team.threads > chunks;
            let n = if ragged { e.min(n, last) } else { n };
            let width = e.int(across as i64);
            let (r, c) = (e.div(n, width), e.rem(n, width));
            let place = tile.place(e, r, c);
            let c = e.mul_int(c, CHUNK as i64);
            let (r, c) = (e.add(row, r), e.add(col, c));
            match self.vector {
                CHUNK => self.copy(e, r, c, to, place),
                _ => loaded.push((place, self.load(e, r, c))),
            }
        }
        loaded
    }

    /// The address of an element, or of another one where there is none, and whether there is.
    fn element(self, e: &mut Emitter, row: Val, col: Val) -> (Val, Val) {
        let m = self.matrix;
        let (in_rows, in_cols) = (e.below(row, m.rows), e.below(col, m.cols));
        let exists = e.and(in_rows, in_cols);
        let bottom = e.add_int(m.rows, -1);
        let edge = e.add_int(m.cols, -(self.vector as i64));
        let (r, c) = (e.min(row, bottom), e.min(col, edge));
        let at = e.mul(r, m.stride);
        let at = e.add(at, c);
        (e.at(m.pointer, at, m.elem), exists)
    }

    fn copy(self, e: &mut Emitter, row: Val, col: Val, to: Val, place: Val) {
        let (from, exists) = self.element(e, row, col);
        let [all, none] = [16, 0].map(|n| e.integer(n, Type::scalar(Elem::I32)));
        let bytes = e.select(exists, all, none);
        let to = e.add(to, place);
        e.copy_ahead(to, from, bytes);
    }

    /// Eight elements as four pairs.
    fn load(self, e: &mut Emitter, row: Val, col: Val) -> Val {
        let elem = self.matrix.elem;
        let zero = e.float(0.0, e.scalar());
        let mut numbers = Vec::new();
        for i in (0..CHUNK).step_by(self.vector as usize) {
            let c = e.add_int(col, i as i64);
            let (from, exists) = self.element(e, row, c);
            let x = e.load_whole(from, wide(elem, self.vector));
            let x = e.convert(x, Elem::F32);
            for x in e.parts(x) {
                numbers.push(e.select(exists, x, zero));
            }
        }
        let pairs = numbers.chunks(2).map(|p| e.pair_bf16(p[0], p[1]));
        let pairs: Vec<Val> = pairs.collect();
        e.join(&pairs)
    }
}

/// Puts what was loaded into the tile at `to`.
fn put(e: &mut Emitter, loaded: Loaded, to: Val) {
    let start = e.shared(0);
    for (place, pairs) in loaded {
        let at = e.add(to, place);
        let p = e.at(start, at, Elem::Bf16);
        e.store_whole(pairs, p);
    }
}

/// A warp's lane: its row of a fragment of C, and the first of its two columns.
fn lane_of_sums(e: &mut Emitter, lane: Val) -> (Val, Val) {
    let four = e.int(4);
    let (row, pair) = (e.div(lane, four), e.rem(lane, four));
    (row, e.mul_int(pair, 2))
}
