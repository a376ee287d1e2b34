//! Kernels on tensor cores: which ones, their tiles, and how far their results may be from the specification's.
//!
//! Tensor cores multiply bf16 exactly and add in f32, in an order of their own, and cut off where they should round (Fasi,
//! Higham, Mikaitis & Pranesh 2021, "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330). So results
//! are those of the specification up to [`bound`]; two runs on the same card give the same bits, because who adds what
//! in which order is fixed.
//!
//! Attention rounds to bf16 what it multiplies there: weights, the slopes of scores, dO. With D = 2(`bound(head)` + 2⁻²¹)·max Σ|q k|·scale
//! + 2⁻¹⁹(1 + softcap + largest bias + |sink|), how far a weight may be off relatively, u = 2⁻⁸ and n keys, the result of a query is off by at most
//!
//! ```text
//! (1.05 u + 2 D + bound(n)) Σ pⱼ |vⱼ|
//! ```
//!
//! its statistic by D, and gradients by the same of their own sums (`compiler/mlir/tests/gpu/tensor.rs` writes them out). Numbers
//! must be finite: a weight of zero still multiplies a value that a mask hides within the same tile.

pub mod few;
pub mod map;
pub mod warpgroup;

use crate::DType;
use crate::kernel::{Attend, Contract, Extent, KernelSpec, Layout};

/// Elements between the rows of a tile in shared memory beyond its width: rows of an odd number of 16 bytes let eight rows
/// be read at once.
pub const PAD: u64 = 8;

/// A bound of |c − c*| / (|c₀| + Σ |aₗ bₗ|), for a sum of `k` products of bf16 and a term c₀ before them: each of the k + 1
/// additions, in any order, in groups or not, cuts off less than 2⁻²³ of the largest number in it, which is at most
/// the sum of absolute values; twice that leaves room for the sum's own growth and the padding of k to whole
/// instructions. Valid for k < 2²⁰, where nothing overflows and products are no subnormals.
pub fn bound(k: u64) -> f64 {
    (k + 16) as f64 / f64::from(1 << 22)
}

/// Whether a kernel runs on tensor cores.
pub fn runs(spec: &KernelSpec) -> bool {
    match spec {
        KernelSpec::Contract(c) => contract::runs(c),
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            attend::runs(a)
        }
        _ => false,
    }
}

/// Contractions of factors in bf16.
pub mod contract {
    use super::{Contract, DType, Extent, Layout, PAD};

    /// Four warps, two by two, each computing 64 × 32 of the block's 128 × 64.
    pub const THREADS: u64 = 128;
    pub const ROWS: u64 = 128;
    pub const COLS: u64 = 64;
    /// Inner length of a tile, two instructions deep.
    pub const K: u64 = 32;
    /// Tiles in shared memory: one is read while the others arrive.
    pub const STAGES: u64 = 3;

    /// Whether a contraction runs on tensor cores: factors in bf16, no extent of `n` and `k` smaller than an
    /// instruction's, and `m` no small part of a tile where it is a number of features; where it is a number of tokens, the kernel
    /// is the same for any. Rows of C do not depend on one another; [few](super::few) ones are added up in another order.
    pub fn runs(c: &Contract) -> bool {
        let least = |x: Extent, n: u64| match x {
            Extent::Static(x) => x >= n,
            Extent::Dynamic => true,
        };
        c.dtype == DType::F32
            && c.b == DType::Bf16
            && matches!(c.layout, Layout::Rows | Layout::Columns)
            && least(c.n, 8)
            && least(c.k, 16)
            && (!c.a_transposed || least(c.m, 32))
    }

    /// How factor 0 or 1 lies: the extent of its rows in memory, and whether that is the inner one.
    pub fn row(c: &Contract, factor: usize) -> (Extent, bool) {
        match (factor, c.a_transposed, c.layout) {
            (0, false, _) => (c.k, true),
            (0, true, _) => (c.m, false),
            (_, _, Layout::Columns) => (c.k, true),
            _ => (c.n, false),
        }
    }

    /// Elements of one access to a factor: eight, copied without passing through registers, where its rows are whole
    /// ones and bf16; else four, else one.
    pub fn vector(c: &Contract, factor: usize) -> u64 {
        let of = [c.a, c.b][factor];
        let whole = |n: u64| matches!(row(c, factor).0, Extent::Static(x) if x.is_multiple_of(n));
        match of {
            DType::Bf16 if whole(8) => 8,
            _ if whole(4) => 4,
            _ => 1,
        }
    }

    /// Rows and columns of a factor's tile, as they lie.
    pub fn tile(c: &Contract, factor: usize) -> (u64, u64) {
        let width = [ROWS, COLS][factor];
        match row(c, factor).1 {
            true => (width, K),
            false => (K, width),
        }
    }

    /// Elements of a factor's tile.
    pub fn elements(c: &Contract, factor: usize) -> u64 {
        let (rows, cols) = tile(c, factor);
        rows * (cols + PAD)
    }

    /// Bytes of all stages.
    pub fn shared(c: &Contract) -> u64 {
        STAGES * 2 * (elements(c, 0) + elements(c, 1))
    }
}

/// Attention to bf16 queries, keys and values.
pub mod attend {
    use super::{Attend, DType, PAD};
    use crate::gpu::SHARED_LIMIT;

    /// Four warps, 16 of the block's rows each.
    pub const THREADS: u64 = 128;
    /// Rows of a block: queries, or keys for their gradients.
    pub const ROWS: u64 = 64;
    /// Keys of a tile, forward.
    pub const KEYS: u64 = Attend::BLOCK;
    /// The widest head whose sums fit into registers.
    pub const MAX_HEAD: u64 = 128;

    /// Whether attention runs on tensor cores: heads of whole instructions, those of values as wide, read in bf16, without lists and tables.
    pub fn runs(a: &Attend) -> bool {
        let whole = a.head.is_multiple_of(16) && (16..=MAX_HEAD).contains(&a.head);
        let halves = a.dtype == DType::F32 && a.inputs == DType::Bf16;
        let one = a.room.is_none() && !a.partial && a.scores.distances.is_none();
        halves && whole && one && a.value_head() == a.head && a.scale > 0.0
    }

    /// Bytes of a tile of so many rows of a head.
    fn tile(a: &Attend, rows: u64) -> u64 {
        2 * rows * (a.head + PAD)
    }

    /// A tile of keys and one of values.
    pub fn forward_shared(a: &Attend) -> u64 {
        2 * tile(a, KEYS)
    }

    /// Two tiles of the block's own rows and two of `rows` others, two numbers for each of 64 rows.
    fn backward_bytes(a: &Attend, rows: u64) -> u64 {
        2 * tile(a, ROWS) + 2 * tile(a, rows) + 2 * 4 * ROWS
    }

    /// Rows of the other side that are in shared memory at a time, backward: as many as fit.
    pub fn streamed(a: &Attend) -> u64 {
        let fits = |rows: &u64| backward_bytes(a, *rows) <= SHARED_LIMIT;
        [64, 32].into_iter().find(fits).unwrap_or(16)
    }

    pub fn backward_shared(a: &Attend) -> u64 {
        backward_bytes(a, streamed(a))
    }
}
