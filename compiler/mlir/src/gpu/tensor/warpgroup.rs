//! Contractions of bf16 by warpgroups, on Hopper.
//!
//! Takes a [`Contract`] spec. A block of two warpgroups computes 128 × 128 or 128 × 64 elements of C, each warpgroup 64 rows of
//! them. Tiles of A and B, 64 deep, go round through places in shared memory, in panels, where tensor cores read them: while
//! one is multiplied the next ones arrive, copied ahead, or through registers where factors are to be rounded or lie unevenly.
//! Between what threads and copies write and what tensor cores read stand a fence of each writer and a barrier. One chain of
//! instructions per element, over k in order; C itself is added last.

use super::contract::{extents, source, write};
use super::{Lies, Loaded, Source, Tile, lane_of_sums, put};
use crate::emit::{Cmp, Emitter, Left, Paneled, Val};
use crate::gpu::stage::Team;
use odec_program::gpu::tensor::contract::row;
use odec_program::gpu::tensor::warpgroup::{
    DOWN, GROUP, K, PANEL, PATTERN, ROWS, THREADS, cols, stage, stages, tile,
};
use odec_program::kernel::Contract;

/// Inner length of an instruction.
const DEEP: u64 = 16;
/// Bytes of eight rows of a panel.
const EIGHT_ROWS: u64 = PATTERN;

/// A factor: where it is, and how its tiles lie.
struct Factor {
    source: Source,
    tile: Tile,
    /// Whether rows in memory go along the inner index.
    inner_last: bool,
    /// The first row or column of the block's tile.
    first: Val,
    /// From the start of a stage, in elements.
    offset: u64,
}

impl Factor {
    fn new(
        e: &mut Emitter,
        kernel: &Contract,
        number: usize,
        extents: [Val; 2],
        first: Val,
    ) -> Factor {
        let (rows, cols) = tile(kernel, number);
        Factor {
            source: source(e, kernel, number, extents),
            tile: Tile {
                rows,
                cols,
                lies: Lies::Paneled,
            },
            inner_last: row(kernel, number).1,
            first,
            offset: if number == 0 { 0 } else { ROWS * K },
        }
    }

    fn fetch(&self, e: &mut Emitter, team: Team, inner: Val, stage: Val) -> Loaded {
        let (row, col) = match self.inner_last {
            true => (self.first, inner),
            false => (inner, self.first),
        };
        let to = e.add_int(stage, self.offset as i64);
        self.source.fetch(e, team, row, col, self.tile, to)
    }

    fn put(&self, e: &mut Emitter, loaded: Loaded, stage: Val) {
        let to = e.add_int(stage, self.offset as i64);
        put(e, loaded, to);
    }

    /// What an instruction multiplies from `inner` on, beginning `outer` elements after the tile.
    fn describe(&self, e: &mut Emitter, stage: Val, outer: Option<Val>, inner: u64) -> Paneled {
        // Along the inner index 16 elements are part of a row of the only panel (whose distance to another is not read; CUTLASS
        // says 16); across it they are 16 rows.
        let (step, panel) = match self.inner_last {
            true => (1, 16),
            false => (PANEL, self.tile.rows * PANEL * 2),
        };
        let at = e.add_int(stage, (self.offset + inner * step) as i64);
        let at = outer.map_or(at, |outer| e.add(at, outer));
        Paneled {
            descriptor: e.describe(at, panel, EIGHT_ROWS),
            turned: !self.inner_last,
        }
    }
}

/// Emits the kernel; the spec is one that [`odec_program::gpu::tensor::warpgroup::runs`] takes.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let [m, n, k] = extents(e, kernel);
    let (thread, block) = (e.thread(), e.block());
    let panels = e.div_ceil(m, ROWS as i64);
    let (down, across) = (e.rem(block, panels), e.div(block, panels));
    let wide = cols(kernel);
    let (row, col) = (e.mul_int(down, ROWS as i64), e.mul_int(across, wide as i64));
    let a = Factor::new(e, kernel, 0, [m, k], row);
    let b = Factor::new(e, kernel, 1, [n, k], col);
    let team = Team {
        thread,
        threads: THREADS,
    };
    let sums = sum(e, kernel, team, [&a, &b], k);
    // Warps lie below each other.
    let width = e.int(odec_program::gpu::WARP as i64);
    let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
    let below = e.mul_int(warp, 16);
    let (lane_row, lane_col) = lane_of_sums(e, lane);
    let row = e.add(row, below);
    let (row, col) = (e.add(row, lane_row), e.add(col, lane_col));
    write(e, kernel, [m, n], (row, col), (&sums, wide as usize / 8))
}

fn sum(e: &mut Emitter, kernel: &Contract, team: Team, [a, b]: [&Factor; 2], k: Val) -> Vec<Val> {
    let (stage, stages) = (stage(kernel), stages(kernel));
    let all = (stages * stage) as i64;
    let zero = e.int(0);
    // The warpgroup's 64 rows of A: 64 rows of its panel, or a panel.
    let group = e.int(GROUP as i64);
    let group = e.div(team.thread, group);
    let own = e.mul_int(group, (DOWN * K) as i64);
    // Whether there can be a tile that begins so far along the inner index.
    let reaches = |inner: u64| k.known().is_none_or(|k| inner < k as u64);
    for n in 0..stages - 1 {
        let (inner, to) = (e.int((n * K) as i64), e.int((n * stage) as i64));
        for f in [a, b].into_iter().filter(|_| reaches(n * K)) {
            let loaded = f.fetch(e, team, inner, to);
            f.put(e, loaded, to);
        }
        e.close_copies();
    }
    let count = (DOWN * cols(kernel) / GROUP) as usize;
    let mut start = vec![e.float(0.0, e.scalar()); count];
    // Where the tile to be read is, and where the next one to arrive will be.
    start.extend([zero, e.int(all - stage as i64)]);
    // The number of turns is not told, even where it is known: the assembler would unroll the loop, and spill.
    let end = e.dim(2);
    let done = e.for_with(zero, end, K as i64, &start, |e, inner, carried| {
        let (sums, read, write) = (&carried[..count], carried[count], carried[count + 1]);
        e.await_copies(stages - 2);
        e.publish();
        // Everybody's part of this tile is here, and everybody is done with the one before, whose place is taken next.
        e.barrier();
        let products: Vec<(Left, Paneled)> = (0..K)
            .step_by(DEEP as usize)
            .map(|inner| {
                let left = a.describe(e, read, Some(own), inner);
                (Left::Shared(left), b.describe(e, read, None, inner))
            })
            .collect();
        let sums = e.begin_products(&products, sums);
        let next = e.add_int(inner, ((stages - 1) * K) as i64);
        let loaded = [a, b].map(|f| match reaches((stages - 1) * K) {
            true => f.fetch(e, team, next, write),
            false => vec![],
        });
        e.close_copies();
        let mut sums = e.await_products(&sums);
        for (f, loaded) in [a, b].into_iter().zip(loaded) {
            f.put(e, loaded, write);
        }
        for place in [read, write] {
            let after = e.add_int(place, stage as i64);
            let end = e.int(all);
            let wraps = e.cmp(Cmp::Eq, after, end);
            sums.push(e.select(wraps, zero, after));
        }
        sums
    });
    e.await_copies(0);
    done[..count].to_vec()
}
