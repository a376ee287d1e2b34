//! Products of blocks in scratch, cut into register tiles.
//!
//! Takes operands with static strides; emits loops over the tiles of the result around the micro-kernel. What part of
//! the inner dimension a tile needs is the caller's to say: causal blocks are triangles.

use crate::emit::{Emitter, Val};
use crate::micro::{self, Left, Right, Tile};
use crate::tiles::{self, Factor};
use odec_program::kernel::Order;
use odec_program::{Target, tile};

/// A block product in scratch: `c(i, j) ← start + times · Σ_k a(i, k) · b(k, j)`. In pairs, elements of a and b are words of 32 bits, each of two values of k,
/// an even one and the next; in tile registers, those of a row of `a` lie beside each other.
pub(super) struct Product {
    pub order: Order,
    pub a: Val,
    /// Elements between rows i and between inner k of `a`.
    pub a_strides: (i64, i64),
    pub b: Val,
    /// Elements between rows k of `b`.
    pub b_stride: i64,
    pub c: Val,
    pub c_stride: i64,
    pub tile: Tile,
    /// Columns of c: a multiple of the tile's.
    pub columns: i64,
    pub start: Start,
    pub times: Option<Val>,
}

/// What a product is added to.
#[derive(Clone, Copy)]
pub(super) enum Start {
    Zero,
    /// What c holds.
    Sum,
    /// What c holds, row i multiplied by element i.
    Scaled(Val),
}

impl Product {
    /// Emits it. `rows` gives how many rows are needed of the vector of columns from c on (more are written, up to a whole register
    /// tile), `inner` the first k, that of a pair or chunk, and how many for the rows from i on.
    pub fn emit(
        &self,
        e: &mut Emitter,
        rows: impl Fn(&mut Emitter, Val) -> Val,
        inner: impl Fn(&mut Emitter, Val) -> (Val, Val),
    ) {
        if self.order == Order::Pairs {
            return self.emit_tiles(e, rows, inner);
        }
        let pairs = self.order.in_pairs();
        let (elem, lanes, vector) = (e.elem, e.lanes as i64, e.vector());
        let factors = if pairs { micro::PAIRS } else { elem };
        let Tile {
            rows: high,
            vectors,
        } = self.tile;
        let (zero, end) = (e.int(0), e.int(self.columns));
        let places = |i: u64, v: u64| i as i64 * self.c_stride + v as i64 * lanes;
        e.for_each(zero, end, vectors as i64 * lanes, |e, c| {
            let (b, to) = (e.at(self.b, c, factors), e.at(self.c, c, elem));
            let rows = rows(e, c);
            e.for_each(zero, rows, high as i64, |e, r| {
                let (mut first, mut count) = inner(e, r);
                if pairs {
                    let two = e.int(2);
                    (first, count) = (e.div(first, two), e.div_ceil(count, 2));
                }
                let (row, column) = (
                    e.mul_int(r, self.a_strides.0),
                    e.mul_int(first, self.a_strides.1),
                );
                let a = e.add(row, column);
                let a = e.at(self.a, a, factors);
                let skip = e.mul_int(first, self.b_stride);
                let b = e.at(b, skip, factors);
                let down = e.mul_int(r, self.c_stride);
                let to = e.at(to, down, elem);
                let mut acc = Vec::new();
                for i in 0..high {
                    let factor = match self.start {
                        Start::Scaled(by) => {
                            let by = e.at(by, r, elem);
                            let by = e.at_const(by, i as i64, elem);
                            let x = e.load(by, e.scalar());
                            Some(e.broadcast(x, e.lanes))
                        }
                        _ => None,
                    };
                    for v in 0..vectors {
                        let p = e.at_const(to, places(i, v), elem);
                        acc.push(match (self.start, factor) {
                            (Start::Zero, _) => e.float(0.0, vector),
                            (_, None) => e.load(p, vector),
                            (_, Some(f)) => {
                                let x = e.load(p, vector);
                                e.mul(x, f)
                            }
                        });
                    }
                }
                let left = Left {
                    pointer: a,
                    row: e.int(self.a_strides.0),
                    inner: e.int(self.a_strides.1),
                };
                let right = Right {
                    pointer: b,
                    elem: factors,
                    inner: e.int(self.b_stride),
                    prefetch: 0,
                };
                let acc = micro::multiply(e, self.tile, left, right, count, &acc);
                for i in 0..high {
                    for v in 0..vectors {
                        let x = acc[(i * vectors + v) as usize];
                        let x = self.times.map_or(x, |t| e.mul(x, t));
                        let p = e.at_const(to, places(i, v), elem);
                        e.store(x, p);
                    }
                }
            });
        });
    }

    /// The same in tile registers, which have no multiplication by a factor: sums are scaled in memory, before they are loaded and after they are stored.
    fn emit_tiles(
        &self,
        e: &mut Emitter,
        rows: impl Fn(&mut Emitter, Val) -> Val,
        inner: impl Fn(&mut Emitter, Val) -> (Val, Val),
    ) {
        let (elem, lanes) = (e.elem, e.lanes as i64);
        let (high, across) = (self.tile.rows as i64, self.tile.vectors as i64 * lanes);
        let (zero, end) = (e.int(0), e.int(self.columns));
        e.for_each(zero, end, across, |e, c| {
            let (b, to) = (e.at(self.b, c, micro::PAIRS), e.at(self.c, c, elem));
            let last = e.add_int(c, across - lanes);
            let rows = rows(e, last);
            e.for_each(zero, rows, high, |e, r| {
                let row = e.mul_int(r, self.a_strides.0);
                let down = e.mul_int(r, self.c_stride);
                let to = e.at(to, down, elem);
                let product = tiles::Product {
                    high: self.tile.rows / tile::ROWS,
                    wide: across as u64 / tile::COLS,
                    a: Factor::rows(e.at(self.a, row, micro::PAIRS), 2 * self.a_strides.0),
                    b: Factor::pairs(b, self.b_stride),
                    prefetch: 0,
                };
                let stride = e.int(self.c_stride);
                match self.start {
                    Start::Zero => product.zero(e),
                    Start::Sum => product.load(e, to, stride),
                    Start::Scaled(by) => {
                        let by = e.at(by, r, elem);
                        self.each_row(e, to, |e, i| {
                            let x = super::scalar_at(e, by, i);
                            e.broadcast(x, e.lanes)
                        });
                        product.load(e, to, stride);
                    }
                }
                let (first, count) = inner(e, r);
                let last = e.add(first, count);
                product.add(e, (first, last));
                product.store(e, to, stride);
                if let Some(times) = self.times {
                    self.each_row(e, to, |_, _| times);
                }
            });
        });
    }

    /// Multiplies row i of a register tile in memory by what `factor` gives for it.
    fn each_row(&self, e: &mut Emitter, tile: Val, factor: impl Fn(&mut Emitter, Val) -> Val) {
        let (zero, high) = (e.int(0), e.int(self.tile.rows as i64));
        e.for_each(zero, high, 1, |e, i| {
            let (factor, down) = (factor(e, i), e.mul_int(i, self.c_stride));
            let row = e.at(tile, down, e.elem);
            for v in 0..self.tile.vectors {
                let p = e.at_const(row, (v * e.lanes) as i64, e.elem);
                let x = e.load(p, e.vector());
                let x = e.mul(x, factor);
                e.store(x, p);
            }
        });
    }
}

/// A register tile for products with this many columns: enough accumulators to hide the latency of FMA, few enough for
/// the registers. Its rows divide a block. Of tile registers, two by two or fewer.
pub(super) fn tile(e: &Emitter, order: Order, columns: u64) -> Tile {
    let vectors = columns / e.lanes;
    if order == Order::Pairs {
        let two = 2 * tile::COLS;
        return Tile {
            rows: 2 * tile::ROWS,
            vectors: if columns.is_multiple_of(two) {
                two
            } else {
                tile::COLS
            } / e.lanes,
        };
    }
    let choices: &[(u64, u64)] = match e.target {
        Target::Avx512 | Target::Avx512Bf16 | Target::Amx => &[(4, 4), (4, 5), (8, 3), (8, 2)],
        _ => &[(4, 2)],
    };
    let fits = choices.iter().find(|t| vectors.is_multiple_of(t.1));
    let (rows, vectors) = *fits.unwrap_or(&(if e.lanes >= 16 { 16 } else { 8 }, 1));
    Tile { rows, vectors }
}

/// A register tile for triangles: a single vector wide and as high, or as others are of tile registers.
pub(super) fn narrow(e: &Emitter, order: Order, columns: u64) -> Tile {
    if order == Order::Pairs {
        return tile(e, order, columns);
    }
    Tile {
        rows: e.lanes.clamp(4, 16),
        vectors: 1,
    }
}
