//! The micro-kernel of contractions in pairs: a tile of a matrix product, held in tile registers.
//!
//! Two by two registers of sums, or fewer; a tile of A is multiplied with each of B's. Takes A packed by [`left`] in chunks of
//! 32 values of k, `panel[k/32][i][k mod 32]`, and B by [`crate::pairs`]; both end in whole chunks, with zeros. Leaves what
//! becomes of the sums, which go to memory, to [`crate::contract`].
//!
//! Scratch: the configuration of the registers, a register tile of sums (mr × nr, f32), a panel of A (mr × kc, bf16).

use crate::emit::{Elem, Emitter, Val};
use crate::panel::{self, Panel, Rounding};
use odec_program::kernel::{Blocking, Contract};
use odec_program::{DType, tile};

/// Elements of a chunk's row.
const K: i64 = tile::K as i64;
/// How many chunks of B are prefetched.
const PREFETCH: i64 = 2;

/// Checks that a contraction's tiles are whole and fit the registers.
///
/// # Errors
/// What does not fit.
pub(crate) fn check(spec: &Contract) -> Result<(), String> {
    let Blocking { mr, nr, kc, .. } = spec.blocking;
    if (spec.dtype, spec.b) != (DType::F32, DType::Bf16) {
        return Err(format!(
            "pairs of {:?} are not multiplied in {:?}",
            spec.b, spec.dtype
        ));
    }
    let (high, wide) = (u64::from(mr) / tile::ROWS, u64::from(nr) / tile::COLS);
    let whole = (u64::from(mr), u64::from(nr)) == (high * tile::ROWS, wide * tile::COLS);
    if !whole || high * wide + high + wide > 8 || !u64::from(kc).is_multiple_of(tile::K) {
        return Err(format!(
            "a blocking of {mr} × {nr}, {kc} deep, does not fit tile registers"
        ));
    }
    Ok(())
}

/// Where the sums go: [`multiply`] leaves element (i, j) `i · nr + j` numbers after this.
pub(crate) fn sums(e: &mut Emitter) -> Val {
    let scratch = e.scratch();
    e.at_const(scratch, (tile::CONFIGURATION / 4) as i64, Elem::F32)
}

/// The panel of A.
fn panel(e: &mut Emitter, b: Blocking) -> Val {
    let sums = sums(e);
    e.at_const(sums, i64::from(b.mr) * i64::from(b.nr), Elem::F32)
}

/// Packs rows of A, rounded to bf16: `from` is A(0, 0), `rows` of them exist, with `depth` values of k.
pub(crate) fn left(
    e: &mut Emitter,
    spec: &Contract,
    from: Val,
    stride: Val,
    rows: Val,
    depth: Val,
) {
    let (elem, panel) = (Elem::of(spec.a), panel(e, spec.blocking));
    let chunk = |e: &mut Emitter, k: Val, valid: Val| {
        let offset = e.mul_int(k, i64::from(spec.blocking.mr));
        let to = e.at(panel, offset, Elem::Bf16);
        let offset = match spec.a_transposed {
            true => e.mul(k, stride),
            false => k,
        };
        // A panel of k, here: its rows are those of A.
        let p = Panel {
            from: e.at(from, offset, elem),
            elem,
            rounding: Rounding::Halved,
            stride,
            valid,
            count: rows,
            to,
            width: tile::K,
        };
        match spec.a_transposed {
            true => panel::transpose(e, p),
            false => panel::copy(e, p),
        }
    };
    let (zero, whole) = (e.int(0), e.floor_to(depth, K));
    e.for_each(zero, whole, K, |e, k| {
        let valid = e.int(K);
        chunk(e, k, valid);
    });
    if whole.known().is_none() || whole.known() != depth.known() {
        e.for_each(whole, depth, K, |e, k| {
            let valid = e.sub(depth, k);
            chunk(e, k, valid);
        });
    }
}

/// Multiplies the packed rows of A, as many as `high` registers hold, with the panel of B at `right`, as many columns as `wide`
/// registers hold, over `depth` values of k.
pub(crate) fn multiply(
    e: &mut Emitter,
    blocking: Blocking,
    right: Val,
    (high, wide): (u64, u64),
    depth: Val,
) {
    let (mr, nr) = (i64::from(blocking.mr), i64::from(blocking.nr));
    // Registers: sums row by row, then A, then B.
    let sum = |i: u64, j: u64| i * wide + j;
    let (a, b) = (|i: u64| high * wide + i, |j: u64| high * wide + high + j);
    let all = || (0..high).flat_map(|i| (0..wide).map(move |j| (i, j)));
    let packed = panel(e, blocking);
    for (i, j) in all() {
        e.zero_tile(sum(i, j));
    }
    let (rows, pair) = (tile::ROWS as i64, 2 * Elem::Bf16.bytes());
    let zero = e.int(0);
    e.for_each(zero, depth, K, |e, k| {
        let offset = e.mul_int(k, mr);
        let left = e.at(packed, offset, Elem::Bf16);
        let offset = e.mul_int(k, nr);
        let right = e.at(right, offset, Elem::Bf16);
        for i in 0..high {
            let from = e.at_const(left, i as i64 * rows * K, Elem::Bf16);
            e.load_tile(a(i), from, tile::ROW_BYTES);
        }
        for j in 0..wide {
            let from = e.at_const(right, j as i64 * tile::COLS as i64 * 2, Elem::Bf16);
            e.load_tile(b(j), from, nr as u64 * pair);
        }
        let ahead = e.at_const(right, PREFETCH * K * nr, Elem::Bf16);
        for line in 0..K / 2 * nr * pair as i64 / tile::ROW_BYTES as i64 {
            let p = e.at_const(ahead, line * K, Elem::Bf16);
            e.prefetch(p, false);
        }
        for (i, j) in all() {
            e.multiply_tiles(sum(i, j), a(i), b(j));
        }
    });
    let to = sums(e);
    for (i, j) in all() {
        let to = e.at_const(
            to,
            i as i64 * rows * nr + (j * tile::COLS) as i64,
            Elem::F32,
        );
        e.store_tile(sum(i, j), to, nr as u64 * Elem::F32.bytes());
    }
}
