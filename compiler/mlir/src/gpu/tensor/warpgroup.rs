//! Contractions of bf16 by warpgroups, on Hopper.
//!
//! Takes a [`Contract`] spec. A block of two warpgroups computes 128 × 128 or 128 × 64 elements of C, each warpgroup 64 rows of
//! them. Tiles of A and B, 64 deep, go round through stages ([`super::ring`]), in panels, where tensor cores read them. What comes by
//! tensor maps is there for them; between what threads write and what they read stand a fence of each writer and a barrier. One
//! chain of instructions per element, over k in order; C itself is added last.

use super::contract::{extents, write};
use super::ring::{Factor, Inner, Products, Ring};
use super::{Lies, Tile, lane_of_sums};
use crate::emit::{Accumulators, Cmp, Emitter, Left, Paneled, Val};
use crate::gpu::stage::Team;
use odec_program::gpu::tensor::few;
use odec_program::gpu::tensor::warpgroup::{
    self, DOWN, GROUP, K, PANEL, PATTERN, ROWS, THREADS, cols, stage, stages, tile,
};
use odec_program::kernel::{Contract, Parts};

/// Inner length of an instruction.
const DEEP: u64 = 16;
/// Bytes of eight rows of a panel.
const EIGHT_ROWS: u64 = PATTERN;

fn factor(
    e: &mut Emitter,
    kernel: &Contract,
    number: usize,
    extents: [Val; 2],
    first: Val,
) -> Factor {
    let (rows, cols) = tile(kernel, number);
    let lies = Lies::Paneled;
    let offset = if number == 0 { 0 } else { ROWS * K };
    let tile = Tile { rows, cols, lies };
    Factor::new(e, kernel, number, extents, first, (tile, offset))
}

/// What an instruction multiplies from `inner` on, beginning `outer` elements after the tile.
fn describe(e: &mut Emitter, of: &Factor, stage: Val, outer: Option<Val>, inner: u64) -> Paneled {
    // Along the inner index 16 elements are part of a row of the only panel (whose distance to another is not read; CUTLASS
    // says 16); across it they are 16 rows.
    let (step, panel) = match of.inner_last {
        true => (1, 16),
        false => (PANEL, of.tile.rows * PANEL * 2),
    };
    let at = e.add_int(stage, (of.offset + inner * step) as i64);
    let at = outer.map_or(at, |outer| e.add(at, outer));
    Paneled {
        descriptor: e.describe(at, panel, EIGHT_ROWS),
        turned: !of.inner_last,
    }
}

/// Products of a warpgroup, whose 64 rows of A begin so far within its tile: 64 rows of its panel, or a panel.
struct Group(Val);

impl Products for Group {
    fn arrived(&self, e: &mut Emitter) {
        e.publish();
    }

    fn begin(&self, e: &mut Emitter, [a, b]: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val> {
        let products: Vec<(Left, Paneled)> = (0..K)
            .step_by(DEEP as usize)
            .map(|inner| {
                let left = describe(e, a, stage, Some(self.0), inner);
                (Left::Shared(left), describe(e, b, stage, None, inner))
            })
            .collect();
        e.begin_products(&products, Accumulators::Of(sums))
    }

    fn finish(&self, e: &mut Emitter, _: [&Factor; 2], _: Val, sums: &[Val]) -> Vec<Val> {
        self.wait(e, 0, sums)
    }

    fn wait(&self, e: &mut Emitter, left: u64, sums: &[Val]) -> Vec<Val> {
        e.await_products_but(left, sums)
    }
}

/// Tiles below each other that blocks take before they go to the right: as many as there are side by side when every multiprocessor has two, so
/// that what runs at a time reads the least of both factors, which the others find in the cache.
const BAND: i64 = 16;

/// The row and column of tiles of a block.
fn place(e: &mut Emitter, block: Val, [down, across]: [(Val, u64); 2]) -> (Val, Val) {
    let [rows, columns] = [down, across].map(|(n, tile)| e.div_ceil(n, tile as i64));
    let whole = e.mul_int(columns, BAND);
    let (band, within) = (e.div(block, whole), e.rem(block, whole));
    let first = e.mul_int(band, BAND);
    let (left, most) = (e.sub(rows, first), e.int(BAND));
    let height = e.min(left, most);
    let row = e.rem(within, height);
    (e.add(first, row), e.div(within, height))
}

/// Emits the kernel; the spec is one that [`odec_program::gpu::tensor::warpgroup::runs`] takes.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let Some(extents) = few::runs(kernel) else {
        return tiles(e, kernel);
    };
    let (m, most) = (e.dim(0), e.int(few::ROWS as i64));
    let are_few = e.cmp(Cmp::Le, m, most);
    let mut written = Ok(());
    e.either(are_few, |e, are_few| {
        let part = match are_few {
            true => super::few::emit(e, kernel, extents),
            false => tiles(e, kernel),
        };
        written = std::mem::replace(&mut written, Ok(())).and(part);
    });
    written
}

/// Emits what computes tiles of C.
fn tiles(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let [m, n, k] = extents(e, kernel);
    let (thread, block) = (e.thread(), e.block());
    let wide = cols(kernel);
    let (block, part) = match kernel.parts {
        Parts::ONE => (block, e.int(0)),
        Parts(parts) => {
            let parts = e.int(parts.into());
            (e.div(block, parts), e.rem(block, parts))
        }
    };
    let (down, across) = place(e, block, [(m, ROWS), (n, wide)]);
    let (row, col) = (e.mul_int(down, ROWS as i64), e.mul_int(across, wide as i64));
    let factors = [(0, [m, k], row), (1, [n, k], col)];
    let ring = Ring {
        factors: factors.map(|(number, extents, first)| factor(e, kernel, number, extents, first)),
        team: Team {
            thread,
            threads: THREADS,
        },
        stages: stages(kernel),
        stage: stage(kernel),
        deep: K,
        mbarrier: warpgroup::tiles(kernel),
    };
    let group = e.int(GROUP as i64);
    let group = e.div(thread, group);
    let own = e.mul_int(group, (DOWN * K) as i64);
    let count = (DOWN * wide / GROUP) as usize;
    let inner = inner(e, kernel, (k, part));
    let sums = ring.sums(e, inner, count, &Group(own));
    // Warps lie below each other.
    let width = e.int(odec_program::gpu::WARP as i64);
    let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
    let below = e.mul_int(warp, 16);
    let (lane_row, lane_col) = lane_of_sums(e, lane);
    let row = e.add(row, below);
    let (row, col) = (e.add(row, lane_row), e.add(col, lane_col));
    write(
        e,
        kernel,
        ([m, n], part),
        (row, col),
        (&sums, wide as usize / 8),
    )
}

/// The part of the inner index that a block sums over ([`Parts::length`]).
fn inner(e: &mut Emitter, kernel: &Contract, (k, part): (Val, Val)) -> Inner {
    // The end is not told, even where it is known: the assembler would unroll the loop, and spill.
    let (zero, end, most) = (e.int(0), e.dim(2), k.known());
    if kernel.parts == Parts::ONE {
        return Inner {
            begin: zero,
            end,
            most,
        };
    }
    let tiles = e.div_ceil(end, K as i64);
    let each = e.div_ceil(tiles, kernel.parts.0.into());
    let length = e.mul_int(each, K as i64);
    let begin = e.mul(part, length);
    let after = e.add(begin, length);
    Inner {
        begin,
        end: e.min(after, end),
        most,
    }
}
