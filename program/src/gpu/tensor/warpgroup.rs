//! Contractions, and attention, by warpgroups (Hopper's `wgmma`): which ones, and their tiles.
//!
//! Four warps multiply 64 rows of A by all columns of the block's tile of B, read from shared memory by the tensor
//! cores themselves. Tiles lie in *panels*: rows of 128 bytes, the 16-byte piece `c` of row `r` at place `c xor (r mod 8)` (PTX ISA,
//! "128-byte swizzling mode"), so that eight pieces side by side and eight below each other both are in different
//! banks. Shared memory is that of [`crate::gpu::Shape::dynamic`].
//!
//! [`tiled`] says which tile a contraction has, and into how many parts its sum is cut, as a card measured it. Both are frozen in the artifact, in
//! the blocking. How few rows are computed, without tiles, is said by `few.rs`.

use super::map::PIECE;
use super::{attend, contract};
use crate::gpu::DYNAMIC_LIMIT;
use crate::kernel::{Attend, Contract, Extent, Parts};
use crate::{DType, Target};

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
/// Multiprocessors of an H100: fewer blocks leave some without work, and more would wait.
const PROCESSORS: u64 = 132;

/// Whether a contraction runs by warpgroups on a target: all that run on tensor cores do, on Hopper.
pub fn runs(c: &Contract, target: Target) -> bool {
    target == Target::Sm90a && contract::runs(c)
}

/// Whether both factors come by tensor maps alone. Then a launch has no more blocks than run at once, and each takes tile after tile: the
/// first stages of the next one arrive while the results of the one before are written.
pub fn streams(c: &Contract) -> bool {
    (0..2).all(|n| contract::vector(c, n) * DType::Bf16.bytes() == PIECE)
}

/// Blocks of a launch on an m × n C. Kernels of those that stream ask how many there are: any number does all the work.
pub fn blocks(c: &Contract, m: u64, n: u64) -> u64 {
    let tiles = m.div_ceil(ROWS) * n.div_ceil(cols(c)) * u64::from(c.parts.0);
    match streams(c) {
        true => tiles.min(at_once(cols(c))),
        false => tiles,
    }
}

/// Blocks that run at once, whose tiles have so many columns.
fn at_once(cols: u64) -> u64 {
    PROCESSORS * (256 / cols).min(2)
}

/// Columns of a block's tile of C: 64, 128 or 256, as its blocking says. The widest are for factors that come by tensor maps alone: a thread
/// has no registers for others to pass through.
pub fn cols(c: &Contract) -> u64 {
    let most = if streams(c) { 256 } else { 128 };
    u64::from(c.blocking.nr).next_power_of_two().clamp(64, most)
}

/// How many rows, tokens, a contraction has, where that is not known when it is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tokens {
    /// Of texts that are read token by token.
    Few,
    Many,
}

/// A contraction with the tiles that are fastest, as an H200 measured it. A tile of 128 × 256 reads the least of both factors for each
/// product, and leaves room for one block; two of 128 × 128 share a multiprocessor, so that one multiplies while the other begins or ends. Narrow ones are for few tokens. Gradients of weights, whose inner index counts tokens, are
/// summed in parts where they have few tiles.
pub fn tiled(mut c: Contract, tokens: Tokens) -> Contract {
    // Columns beyond the last are multiplied, too.
    let whole = |n: u64| n.next_multiple_of(256) - n <= n / 16;
    let nr = match (c.m, c.n) {
        (_, Extent::Static(n)) if n <= 64 => 64,
        (Extent::Static(_), Extent::Static(n)) if whole(n) => 256,
        (Extent::Static(_), _) => 128,
        (_, Extent::Static(n)) if tokens == Tokens::Many && whole(n) && n >= 1024 => 256,
        _ if tokens == Tokens::Many => 128,
        _ => 64,
    };
    c.blocking.nr = nr;
    c.blocking.nc = c.blocking.nc.next_multiple_of(nr);
    if let (Extent::Static(m), Extent::Static(n), Extent::Dynamic) = (c.m, c.n, c.k) {
        c.parts = parts(m, n, cols(&c));
    }
    c
}

/// Into how many parts the sums of a C of a known size are cut: a tile takes as long as its share of the inner index, and blocks beyond those
/// that run at once wait for others; each part is written and read again.
fn parts(m: u64, n: u64, cols: u64) -> Parts {
    // Of sixteen thousand tokens on an H200, in nanoseconds: a tile of 128 × 256, or two of half as many columns side by side, and
    // eight bytes of an element.
    const TILE: u64 = 170_000;
    const ELEMENTS_PER_NS: u64 = 400;
    let tiles = m.div_ceil(ROWS) * n.div_ceil(cols);
    let time = |parts: u64| {
        let written = if parts > 1 {
            parts * m * n / ELEMENTS_PER_NS
        } else {
            0
        };
        (tiles * parts).div_ceil(at_once(cols)) * TILE / parts + written
    };
    let best = (1..=16).min_by_key(|parts| time(*parts)).unwrap_or(1);
    Parts(best as u32)
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

/// Stages in shared memory: one is read while the others arrive. As many as leave room for another block, but where its sums leave none.
pub fn stages(c: &Contract) -> u64 {
    let room = if cols(c) > 128 { DYNAMIC_LIMIT } else { HALF };
    (room / (2 * stage(c))).min(4)
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

/// Rows of the other side that are read at a time, backward: fewer of wide heads with bounds on both sides or a loop over heads, for which their sums leave
/// no room in registers.
pub fn attend_streamed(a: &Attend) -> u64 {
    match a.head <= PANEL || (a.window.is_none() && a.group() == 1) {
        true => 64,
        false => 32,
    }
}

/// Elements of a tile of these rows.
pub fn attend_other(a: &Attend) -> u64 {
    attend_tile(a) * attend_streamed(a) / attend::ROWS
}

/// Elements of tiles, backward: two of the block's own rows, and two of the other side's of two turns: keys and values, or queries and dO.
pub fn attend_backward_tiles(a: &Attend) -> u64 {
    2 * attend_tile(a) + 4 * attend_other(a)
}

/// Bytes, backward: tiles, two numbers for each of 64 rows of two turns, and an mbarrier.
pub fn attend_backward_shared(a: &Attend) -> u64 {
    2 * attend_backward_tiles(a) + 2 * 2 * 4 * attend::ROWS + 16
}
