//! The micro-kernel: a tile of a matrix product, held in registers.
//!
//! `acc(i, j) ← acc(i, j) + Σ_k A(i, k) · B(k, j)` by FMA in order of k, or by dot products of pairs of bf16, for a few rows i and a few
//! vectors of columns j. Contractions and attention are built of it; they choose the tile so that
//! accumulators, one row of B and a broadcast fit the registers, and arrange A and B in memory.

use crate::emit::{Elem, Emitter, Type, Val};
use odec_program::Target;

/// Bytes of a cache line.
const LINE: u64 = 64;

/// The shape of a register tile.
#[derive(Clone, Copy, Debug)]
pub struct Tile {
    pub rows: u64,
    /// Vectors of columns.
    pub vectors: u64,
}

/// Where A is: element (i, k) is `row · i + inner · k` elements after `pointer`.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    pub pointer: Val,
    pub row: Val,
    pub inner: Val,
}

/// Where B is: the vectors of its row k begin `inner · k` elements after `pointer`.
#[derive(Clone, Copy, Debug)]
pub struct Right {
    pub pointer: Val,
    /// Type of its elements; bf16 are widened, which is exact.
    pub elem: Elem,
    pub inner: Val,
    /// How many rows ahead B is prefetched; 0 where it is in the nearest cache anyway.
    pub prefetch: u64,
}

/// Elements that are words of 32 bits: pairs of bf16, neighbours in k ([`crate::pairs`]). Steps in k are steps in pairs.
pub const PAIRS: Elem = Elem::I32;

/// Accumulators of a tile that are zero.
pub fn zeros(e: &mut Emitter, tile: Tile) -> Vec<Val> {
    let zero = e.float(0.0, e.vector());
    vec![zero; (tile.rows * tile.vectors) as usize]
}

/// Values of k per iteration. A whole tile of 16 vector registers has 12 multiply-adds for a value of k, and the loop itself four instructions. With
/// AVX2 on an EPYC of the third generation, four values an iteration were 1.04 to 1.09 times as fast as one in the median, and no faster at the
/// fastest. Tiles with fewer multiply-adds are rare. Where a multiply-add is computed by some twenty instructions, the loop's own make no difference.
fn unrolled(e: &Emitter, tile: Tile) -> i64 {
    match e.target == Target::Avx2 && tile.rows * tile.vectors >= 8 {
        true => 4,
        false => 1,
    }
}

/// Emits the loop over `count` values of k, or over `count` pairs of them where the elements of B are [`PAIRS`]; those of A are then, too. Accumulators are row-major: row i, vector v is
/// `acc[i · vectors + v]`.
pub fn multiply(
    e: &mut Emitter,
    tile: Tile,
    a: Left,
    b: Right,
    count: Val,
    acc: &[Val],
) -> Vec<Val> {
    let one = |e: &mut Emitter, k: Val, acc: &[Val]| {
        let lanes = e.lanes;
        // Elements of A, and what B's become.
        let elem = if b.elem == PAIRS { PAIRS } else { e.elem };
        let vector = Type::vector(b.elem, lanes);
        let ka = e.mul(k, a.inner);
        let pa = e.at(a.pointer, ka, elem);
        let kb = e.mul(k, b.inner);
        let pb = e.at(b.pointer, kb, b.elem);
        let mut row = Vec::new();
        for v in 0..tile.vectors {
            let p = e.at_const(pb, (v * lanes) as i64, b.elem);
            let x = e.load(p, vector);
            row.push(e.convert(x, elem));
        }
        if b.prefetch > 0 {
            let ahead = e.mul_int(b.inner, b.prefetch as i64);
            let ahead = e.at(pb, ahead, b.elem);
            let line = LINE / b.elem.bytes();
            for first in (0..tile.vectors * lanes).step_by(line as usize) {
                let p = e.at_const(ahead, first as i64, b.elem);
                e.prefetch(p, false);
            }
        }
        accumulate(e, tile, (pa, a.row), &row, acc)
    };
    let (zero, unrolled) = (e.int(0), unrolled(e, tile));
    if unrolled == 1 {
        return e.for_with(zero, count, 1, acc, one);
    }
    let whole = e.floor_to(count, unrolled);
    let acc = e.for_with(zero, whole, unrolled, acc, |e, k, acc| {
        (0..unrolled).fold(acc.to_vec(), |acc, i| {
            let k = e.add_int(k, i);
            one(e, k, &acc)
        })
    });
    match (whole.known(), count.known()) {
        (Some(whole), Some(count)) if whole == count => acc,
        _ => e.for_with(whole, count, 1, &acc, one),
    }
}

/// Adds the products of a row of B, in vectors, with an element of each row of A, which are so many elements apart.
pub fn accumulate(
    e: &mut Emitter,
    tile: Tile,
    (pa, stride): (Val, Val),
    row: &[Val],
    acc: &[Val],
) -> Vec<Val> {
    let (elem, lanes) = (row[0].ty.elem, e.lanes);
    let mut out = Vec::with_capacity(acc.len());
    for i in 0..tile.rows {
        let offset = e.mul_int(stride, i as i64);
        let p = e.at(pa, offset, elem);
        let x = e.load(p, Type::scalar(elem));
        let x = e.broadcast(x, lanes);
        for v in 0..tile.vectors {
            let (y, sum) = (row[v as usize], acc[(i * tile.vectors + v) as usize]);
            out.push(match elem {
                PAIRS => e.dot_pairs(x, y, sum),
                _ => e.fma(x, y, sum),
            });
        }
    }
    out
}
