//! Contractions of few rows, as of tokens that are read one at a time, as matrix–vector products (GEMV): which ones, and who computes what.
//!
//! With one row, a tile has 127 rows that do not exist, and takes longer to arrive than B takes to be read. Here a block computes some columns of
//! one row: each thread multiplies pieces of 16 bytes of B as they lie, in f32, and the threads' sums are added last. The same kernel has tiles for
//! more rows ([`super::warpgroup`]); a launch's number of rows says which.

use super::contract::{row, vector};
use super::map::PIECE;
use super::warpgroup::{THREADS, cols};
use crate::DType;
use crate::gpu::WARP;
use crate::kernel::{Contract, Extent, Parts, Terms};

/// The most rows that are computed so: each reads all of B, from the cache but for the first.
pub const ROWS: u64 = 8;
/// Elements of B in a piece.
pub const EACH: u64 = 8;
/// Warps of a block.
pub const WARPS: u64 = THREADS / WARP;
/// Blocks that give every multiprocessor of an H100 one.
const ENOUGH: u64 = 132;

/// n and k, where a kernel computes few rows so: it has narrow tiles, those of entries that read tokens, and factors of whole pieces.
pub fn runs(c: &Contract) -> Option<[u64; 2]> {
    let pieces = (0..2).all(|n| vector(c, n) * DType::Bf16.bytes() == PIECE);
    match (c.m, c.n, c.k) {
        (Extent::Dynamic, Extent::Static(n), Extent::Static(k))
            if pieces
                && !c.a_transposed
                && c.parts == Parts::ONE
                && c.terms == Terms::ONE
                && cols(c) == 64 =>
        {
            Some([n, k])
        }
        _ => None,
    }
}

/// How the columns of a block, and the inner index, are cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// B's rows go along the columns: `across` threads side by side have a piece each of some rows, `run` rows one after the other; as many
    /// such as a block has threads for make a turn.
    Columns { across: u64, run: u64 },
    /// B's rows go along the inner index: a warp has so many of them, and its lanes have a piece each.
    Inner { together: u64 },
}

impl Split {
    /// Of a contraction with this n and k.
    pub fn of(c: &Contract, [n, k]: [u64; 2]) -> Split {
        // As wide as leaves enough blocks.
        let enough = |columns: u64| n / columns >= ENOUGH;
        if row(c, 1).1 {
            let wide = |together: &u64| enough(WARPS * together);
            let together = [4, 2].into_iter().find(wide).unwrap_or(1);
            return Split::Inner { together };
        }
        let wide = |across: &u64| n.is_multiple_of(across * EACH) && enough(across * EACH);
        let across = [8, 4, 2].into_iter().find(wide).unwrap_or(1);
        let fits = |run: &u64| THREADS / across * run <= k.next_power_of_two();
        let run = [8, 4].into_iter().find(fits).unwrap_or(2);
        Split::Columns { across, run }
    }

    /// Columns of a block.
    pub fn columns(self) -> u64 {
        match self {
            Split::Columns { across, .. } => across * EACH,
            Split::Inner { together } => WARPS * together,
        }
    }

    /// How much of the inner index a turn of the block takes.
    pub fn deep(self) -> u64 {
        match self {
            Split::Columns { across, run } => THREADS / across * run,
            Split::Inner { .. } => WARP * EACH,
        }
    }
}

/// Blocks of a launch of `m` rows, where they are few.
pub fn blocks(c: &Contract, m: u64) -> Option<u64> {
    let [n, k] = runs(c)?;
    (m <= ROWS).then(|| m * n.div_ceil(Split::of(c, [n, k]).columns()))
}
