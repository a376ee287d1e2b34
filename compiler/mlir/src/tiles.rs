//! The micro-kernel of products in pairs: a tile of a matrix product, held in tile registers.
//!
//! Two by two registers of sums, or fewer; a tile of A is multiplied with each of B's. Of contractions, takes A packed by [`left`] in
//! rows, [`Blocking::tile_row`] apart, and B by [`crate::pairs`]; both end in whole chunks, with zeros. Leaves what
//! becomes of the sums to [`crate::contract`]; products of attention, [`Product`], to [`crate::attend`].
//!
//! Scratch of contractions: the configuration of the registers, a register tile of sums (mr × nr, f32), a panel of A (mr rows, bf16).

use crate::emit::{Elem, Emitter, Val};
use crate::pairs::{self, Pairs};
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
    let p = Pairs {
        from,
        elem: Elem::of(spec.a),
        stride,
        valid: rows,
        count: depth,
        to: panel(e, spec.blocking),
        width: spec.blocking.mr.into(),
        order: spec.order,
    };
    let length = spec.blocking.tile_row() as i64;
    match spec.a_transposed {
        true => pairs::columns(e, p, length),
        false => pairs::rows(e, p, length),
    }
}

/// Multiplies the packed rows of A, as many as `high` registers hold, with the panel of B at `right`, as many columns as `wide`
/// registers hold, over `depth` values of k: the product whose sums are left in registers.
pub(crate) fn multiply(
    e: &mut Emitter,
    blocking: Blocking,
    right: Val,
    (high, wide): (u64, u64),
    depth: Val,
) -> Product {
    let product = Product {
        high,
        wide,
        a: Factor::rows(panel(e, blocking), blocking.tile_row() as i64),
        b: Factor::pairs(right, blocking.nr.into()),
        prefetch: PREFETCH,
    };
    let zero = e.int(0);
    product.zero(e);
    product.add(e, (zero, depth));
    product
}

/// Where tiles of a factor are, in bf16.
#[derive(Clone, Copy)]
pub(crate) struct Factor {
    /// The first one's first row, at k = 0.
    pub from: Val,
    /// Bytes between rows of a tile.
    pub row_bytes: u64,
    /// Elements between tiles beside each other: below each other of A, side by side of B.
    pub next: i64,
    /// Elements between chunks of k.
    pub chunk: i64,
}

impl Factor {
    /// A right-hand factor as pairs of rows, of so many columns ([`crate::pairs`]).
    pub fn pairs(from: Val, columns: i64) -> Factor {
        Factor {
            from,
            row_bytes: 2 * columns as u64 * Elem::Bf16.bytes(),
            next: 2 * tile::COLS as i64,
            chunk: K * columns,
        }
    }

    /// A left-hand factor as rows of a matrix, so many elements apart.
    pub fn rows(from: Val, stride: i64) -> Factor {
        Factor {
            from,
            row_bytes: stride as u64 * Elem::Bf16.bytes(),
            next: tile::ROWS as i64 * stride,
            chunk: K,
        }
    }

    /// Loads tile number `n` of a chunk into a register.
    fn load(&self, e: &mut Emitter, register: u64, chunk: Val, n: u64) {
        let from = e.at_const(chunk, n as i64 * self.next, Elem::Bf16);
        let stride = e.int(self.row_bytes as i64);
        e.load_tile(register, from, stride);
    }

    /// The chunk of k that begins at a multiple of its length.
    fn chunk(&self, e: &mut Emitter, k: Val) -> Val {
        let offset = match self.chunk {
            K => k,
            other => e.mul_int(k, other / K),
        };
        e.at(self.from, offset, Elem::Bf16)
    }
}

/// A product of `high` tiles below each other with `wide` ones side by side, whose sums are in registers.
pub(crate) struct Product {
    pub high: u64,
    pub wide: u64,
    pub a: Factor,
    pub b: Factor,
    /// How many chunks of B are prefetched; 0 where it is in the nearest cache anyway.
    pub prefetch: i64,
}

impl Product {
    /// Registers: sums row by row, then A, then B.
    fn sum(&self, (i, j): (u64, u64)) -> u64 {
        i * self.wide + j
    }

    fn sums(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (high, wide) = (self.high, self.wide);
        (0..high).flat_map(move |i| (0..wide).map(move |j| (i, j)))
    }

    /// Sums that are zero.
    pub fn zero(&self, e: &mut Emitter) {
        self.sums().for_each(|at| e.zero_tile(self.sum(at)));
    }

    /// Adds products over the chunks that begin in a range of k, which begins with one.
    pub fn add(&self, e: &mut Emitter, (from, to): (Val, Val)) {
        let first = self.high * self.wide;
        let (a, b) = (|i: u64| first + i, |j: u64| first + self.high + j);
        e.for_each(from, to, K, |e, k| {
            let (left, right) = (self.a.chunk(e, k), self.b.chunk(e, k));
            (0..self.high).for_each(|i| self.a.load(e, a(i), left, i));
            (0..self.wide).for_each(|j| self.b.load(e, b(j), right, j));
            if self.prefetch > 0 {
                let ahead = e.at_const(right, self.prefetch * self.b.chunk, Elem::Bf16);
                let bytes = self.b.chunk * Elem::Bf16.bytes() as i64;
                for line in 0..bytes / tile::ROW_BYTES as i64 {
                    let p = e.at_const(ahead, line * K, Elem::Bf16);
                    e.prefetch(p, false);
                }
            }
            for (i, j) in self.sums() {
                e.multiply_tiles(self.sum((i, j)), a(i), b(j));
            }
        });
    }

    /// Loads sums from rows of numbers so many apart.
    pub fn load(&self, e: &mut Emitter, from: Val, stride: Val) {
        self.each(e, from, stride, |e, sum, p, bytes| {
            e.load_tile(sum, p, bytes)
        });
    }

    /// Stores sums as rows of numbers so many apart.
    pub fn store(&self, e: &mut Emitter, to: Val, stride: Val) {
        self.each(e, to, stride, |e, sum, p, bytes| {
            e.store_tile(sum, p, bytes)
        });
    }

    fn each(
        &self,
        e: &mut Emitter,
        rows: Val,
        stride: Val,
        f: impl Fn(&mut Emitter, u64, Val, Val),
    ) {
        let bytes = e.mul_int(stride, Elem::F32.bytes() as i64);
        for (i, j) in self.sums() {
            let down = e.mul_int(stride, (i * tile::ROWS) as i64);
            let p = e.at(rows, down, Elem::F32);
            let p = e.at_const(p, (j * tile::COLS) as i64, Elem::F32);
            f(e, self.sum((i, j)), p, bytes);
        }
    }
}
