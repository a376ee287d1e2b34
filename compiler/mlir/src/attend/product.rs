//! Products of blocks in scratch, cut into register tiles.
//!
//! Takes operands with static strides; emits loops over the tiles of the result around the micro-kernel. What part of
//! the inner dimension a tile needs is the caller's to say: causal blocks are triangles.

use crate::emit::{Emitter, Val};
use crate::micro::{self, Left, Right, Tile};
use odec_program::Target;

/// A block product in scratch: `c(i, j) ← start + times · Σ_k a(i, k) · b(k, j)`. In pairs, elements of a and b are words of 32 bits, each of two values of k,
/// an even one and the next.
pub(super) struct Product {
    pub pairs: bool,
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
    /// Emits it. `rows` gives how many rows are needed of the columns from c on (more are written, up to a whole register
    /// tile), `inner` the first k, an even one, and how many for the rows from i on.
    pub fn emit(
        &self,
        e: &mut Emitter,
        rows: impl Fn(&mut Emitter, Val) -> Val,
        inner: impl Fn(&mut Emitter, Val) -> (Val, Val),
    ) {
        let (elem, lanes, vector) = (e.elem, e.lanes as i64, e.vector());
        let factors = if self.pairs { micro::PAIRS } else { elem };
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
                if self.pairs {
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
}

/// A register tile for products with this many columns: enough accumulators to hide the latency of FMA, few enough for
/// the registers. Its rows divide a block.
pub(super) fn tile(e: &Emitter, columns: u64) -> Tile {
    let vectors = columns / e.lanes;
    let choices: &[(u64, u64)] = match e.target {
        Target::Avx512 | Target::Avx512Bf16 | Target::Amx => &[(4, 4), (4, 5), (8, 3), (8, 2)],
        _ => &[(4, 2)],
    };
    let fits = choices.iter().find(|t| vectors.is_multiple_of(t.1));
    let (rows, vectors) = *fits.unwrap_or(&(if e.lanes >= 16 { 16 } else { 8 }, 1));
    Tile { rows, vectors }
}

/// A register tile a single vector wide and as high, for triangles.
pub(super) fn narrow(e: &Emitter) -> Tile {
    Tile {
        rows: e.lanes.clamp(4, 16),
        vectors: 1,
    }
}
