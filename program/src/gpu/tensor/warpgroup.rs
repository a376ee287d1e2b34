//! Contractions, and attention, by warpgroups (Hopper's `wgmma`): which ones, and their tiles.
//!
//! Four warps multiply 64 rows of A by all columns of the block's tile of B, read from shared memory by the tensor
//! cores themselves. Tiles lie in *panels*: rows of 128 bytes, the 16-byte piece `c` of row `r` at place `c xor (r mod 8)` (PTX ISA,
//! "128-byte swizzling mode"), so that eight pieces side by side and eight below each other both are in different
//! banks. Shared memory is that of [`crate::gpu::Shape::dynamic`].

use super::{attend, contract};
use crate::Target;
use crate::kernel::{Attend, Contract, Extent};

/// Threads of a warpgroup.
pub const GROUP: u64 = 128;
/// Two warpgroups, one below the other.
pub const THREADS: u64 = 2 * GROUP;
/// Rows of C of a warpgroup, and of a block.
pub const DOWN: u64 = 64;
pub const ROWS: u64 = 2 * DOWN;
/// Inner length of a tile, four instructions deep: a row of a panel.
pub const K: u64 = 64;
/// Elements of a panel's row.
pub const PANEL: u64 = 64;
/// Bytes after which the places within a panel come again; tiles begin at multiples of it.
pub const PATTERN: u64 = 1024;
/// Shared memory of a multiprocessor that a block may take at most for two of them to fit.
const HALF: u64 = 113 << 10;
/// Multiprocessors of an H100: fewer blocks leave some without work.
const PROCESSORS: u64 = 132;

/// Whether a contraction runs by warpgroups on a target: all that run on tensor cores do, on Hopper.
pub fn runs(c: &Contract, target: Target) -> bool {
    target == Target::Sm90a && contract::runs(c)
}

/// Columns of a block's tile of C: 128, but 64 where `n` is no larger, and where C's size is known (of weights' gradients)
/// and gives too few blocks. Never a question of the number of tokens.
pub fn cols(c: &Contract) -> u64 {
    let few = |m: u64, n: u64| m.div_ceil(ROWS) * n.div_ceil(128) < PROCESSORS;
    match (c.m, c.n) {
        (_, Extent::Static(n)) if n <= 64 => 64,
        (Extent::Static(m), Extent::Static(n)) if few(m, n) => 64,
        _ => 128,
    }
}

/// Rows and columns of a factor's tile, as they lie in memory.
pub fn tile(c: &Contract, factor: usize) -> (u64, u64) {
    let width = [ROWS, cols(c)][factor];
    match contract::row(c, factor).1 {
        true => (width, K),
        false => (K, width),
    }
}

/// Elements from a place for tiles to the next: behind them stands the mbarrier that says when they are there.
const fn with_mbarrier(tiles: u64) -> u64 {
    tiles + PATTERN / 2
}

/// Elements of a tile of A and one of B.
pub fn tiles(c: &Contract) -> u64 {
    (ROWS + cols(c)) * K
}

/// Elements of a stage: its tiles and their mbarrier.
pub fn stage(c: &Contract) -> u64 {
    with_mbarrier(tiles(c))
}

/// Stages in shared memory: one is read while the others arrive. As many as leave room for another block.
pub fn stages(c: &Contract) -> u64 {
    (HALF / (2 * stage(c))).min(4)
}

/// Bytes of all stages.
pub fn shared(c: &Contract) -> u64 {
    stages(c) * 2 * stage(c)
}

/// Whether attention, forward, to kept keys and backward, runs by warpgroups on a target: all that runs on tensor cores does, on
/// Hopper. One warpgroup has the block's rows.
pub fn attends(a: &Attend, target: Target) -> bool {
    target == Target::Sm90a && attend::runs(a) && a.scores.are_scaled_products()
}

/// Elements of a tile of queries, keys or values: whole panels, of whose last a head may leave columns unused.
pub fn attend_tile(a: &Attend) -> u64 {
    attend::KEYS * a.head.next_multiple_of(PANEL)
}

/// Bytes for queries, for keys and values of two tiles, and behind them four mbarriers: for heads of up to 64 columns, five blocks to a
/// multiprocessor.
pub fn attend_shared(a: &Attend) -> u64 {
    5 * 2 * attend_tile(a) + 4 * 8
}

/// Rows of the other side that are read at a time, backward: fewer of wide heads, whose sums leave less room in registers.
pub fn attend_streamed(a: &Attend) -> u64 {
    match a.head <= PANEL {
        true => 64,
        false => 32,
    }
}

/// Elements of a tile of these rows.
pub fn attend_other(a: &Attend) -> u64 {
    attend_tile(a) * attend_streamed(a) / attend::ROWS
}

/// Elements of tiles, backward: two of the block's own rows, six of the other side's. Gradients of queries need keys and values of two
/// tiles; those of keys and values queries of two, dO, the room of two for its next rows in f32, and those of o.
pub fn attend_backward_tiles(a: &Attend) -> u64 {
    2 * attend_tile(a) + 6 * attend_other(a)
}

/// Bytes, backward: tiles, two numbers for each of 64 rows, and an mbarrier.
pub fn attend_backward_shared(a: &Attend) -> u64 {
    2 * attend_backward_tiles(a) + 2 * 4 * attend::ROWS + 16
}
