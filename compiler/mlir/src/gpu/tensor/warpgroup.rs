//! Contractions of bf16 by warpgroups, on Hopper.
//!
//! Takes a [`Contract`] spec. A block of two warpgroups computes 128 × 256, 128 × 128 or 128 × 64 elements of C, each warpgroup 64 rows of
//! them. Tiles of A and B, 64 deep, go round through stages, in panels, where tensor cores read them: by tensor maps, from tile to tile of C
//! ([`super::stream`]), or, if threads bring a factor, of one tile of C alone ([`super::ring`]). What comes by tensor maps is there for
//! tensor cores; between what threads write and what they read stand a fence of each writer and a barrier. One chain of instructions per
//! element, over k in order; C itself is added last ([`super::results`]).

use super::contract::extents;
use super::results::{Place, write};
use super::ring::{Factor, Inner, Products, Ring};
use super::stream::{Piece, Stream, Work};
use super::{Lies, Tile, lane_of_sums};
use crate::emit::{Accumulators, Cmp, Elem, Emitter, Left, Paneled, Val};
use crate::gpu::stage::Team;
use odec_program::gpu::tensor::few;
use odec_program::gpu::tensor::warpgroup::{
    self, DOWN, GROUP, K, PANEL, PATTERN, ROWS, THREADS, cols, stage, stages, streams, tile,
};
use odec_program::kernel::{Contract, Parts, Terms};

/// Bytes of a line of the cache.
const LINE: u64 = 128;
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
        e.await_products(sums)
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
    // Numbers of 32 bits are divided by a quarter of the instructions.
    let [number, by] = [within, height].map(|x| e.convert(x, Elem::I32));
    let [right, down] = [e.div(number, by), e.rem(number, by)].map(|x| e.convert(x, Elem::I64));
    (e.add(first, down), right)
}

/// Emits the kernel; the spec is one that [`odec_program::gpu::tensor::warpgroup::runs`] takes.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let tiling = Tiling {
        kernel,
        extents: extents(e, kernel),
        wide: cols(kernel),
        thread: e.thread(),
    };
    let Some(extents) = few::runs(kernel) else {
        return tiling.emit(e);
    };
    let (m, most) = (e.dim(0), e.int(few::ROWS as i64));
    let are_few = e.cmp(Cmp::Le, m, most);
    let mut written = Ok(());
    e.either(are_few, |e, are_few| {
        let part = match are_few {
            true => super::few::emit(e, kernel, extents),
            false => tiling.emit(e),
        };
        written = std::mem::replace(&mut written, Ok(())).and(part);
    });
    written
}

/// How a kernel cuts C into tiles.
struct Tiling<'a> {
    kernel: &'a Contract,
    /// m, n and k.
    extents: [Val; 3],
    /// Columns of a tile.
    wide: u64,
    thread: Val,
}

impl Work for Tiling<'_> {
    fn piece(&self, e: &mut Emitter, number: Val) -> Piece {
        let (firsts, part) = self.place(e, number);
        let (begin, end) = self.inner(e, part);
        if self.kernel.parts == Parts::ONE {
            let inner = [begin, end];
            return Piece { firsts, inner };
        }
        // A part of nothing sums up a tile of the zeros beyond the inner index.
        let (least, zero) = (e.add_int(begin, 1), e.int(0));
        let (most, some) = (e.max(least, end), e.below(zero, self.extents[2]));
        let end = e.select(some, most, begin);
        let inner = [begin, end];
        Piece { firsts, inner }
    }

    fn begins(&self, e: &mut Emitter, number: Val) {
        self.prefetch(e, number);
    }

    fn done(&self, e: &mut Emitter, number: Val, sums: &[Val]) -> Result<(), String> {
        let at = self.place(e, number);
        self.write(e, at, sums)
    }
}

impl Tiling<'_> {
    fn emit(&self, e: &mut Emitter) -> Result<(), String> {
        match streams(self.kernel) {
            true => self.stream(e),
            false => self.one(e),
        }
    }

    /// A block takes one tile.
    fn one(&self, e: &mut Emitter) -> Result<(), String> {
        let block = e.block();
        self.prefetch(e, block);
        let (place, part) = self.place(e, block);
        let ring = self.ring(e, place);
        let (begin, end) = self.inner(e, part);
        let over = Inner {
            begin,
            end,
            most: self.extents[2].known(),
        };
        let group = self.group(e);
        let sums = ring.sums(e, over, self.sums(), &group);
        self.write(e, (place, part), &sums)
    }

    /// A block takes every so many-th tile.
    fn stream(&self, e: &mut Emitter) -> Result<(), String> {
        let nowhere = e.int(0);
        let ring = self.ring(e, [nowhere; 2]);
        let [m, n, _] = self.extents;
        let (down, across) = (e.div_ceil(m, ROWS as i64), e.div_ceil(n, self.wide as i64));
        let count = e.mul(down, across);
        let stream = Stream {
            ring: &ring,
            count: e.mul_int(count, self.kernel.parts.0.into()),
            work: self,
        };
        let group = self.group(e);
        stream.run(e, self.sums(), &group)
    }

    /// Row and column where a tile begins, of the number that it has with its part; and the part.
    fn place(&self, e: &mut Emitter, number: Val) -> ([Val; 2], Val) {
        let (tile, part) = match self.kernel.parts {
            Parts::ONE => (number, e.int(0)),
            Parts(parts) => {
                let parts = e.int(parts.into());
                (e.div(number, parts), e.rem(number, parts))
            }
        };
        let [m, n, _] = self.extents;
        let (down, across) = place(e, tile, [(m, ROWS), (n, self.wide)]);
        let row = e.mul_int(down, ROWS as i64);
        ([row, e.mul_int(across, self.wide as i64)], part)
    }

    fn ring(&self, e: &mut Emitter, [row, col]: [Val; 2]) -> Ring {
        let (kernel, [m, n, k]) = (self.kernel, self.extents);
        let factors = [(0, [m, k], row), (1, [n, k], col)];
        Ring {
            factors: factors
                .map(|(number, extents, first)| factor(e, kernel, number, extents, first)),
            terms: (kernel.terms.0, self.term(e)),
            team: Team {
                thread: self.thread,
                threads: THREADS,
            },
            stages: stages(kernel),
            stage: stage(kernel),
            deep: K,
            mbarrier: warpgroup::tiles(kernel),
        }
    }

    /// The inner length of a term, in whole tiles: beyond its end there are zeros.
    fn term(&self, e: &mut Emitter) -> Val {
        let length = e.dim(2);
        let tiles = e.div_ceil(length, K as i64);
        e.mul_int(tiles, K as i64)
    }

    fn group(&self, e: &mut Emitter) -> Group {
        let group = e.div_int(self.thread, GROUP as i64);
        Group(e.mul_int(group, (DOWN * K) as i64))
    }

    /// Of a thread.
    fn sums(&self) -> usize {
        (DOWN * self.wide / GROUP) as usize
    }

    /// The part of the inner index that a tile's part sums over ([`Parts::length`]), from where to where.
    fn inner(&self, e: &mut Emitter, part: Val) -> (Val, Val) {
        // The end is not told, even where it is known: the assembler would unroll the loop, and spill.
        let (zero, end) = (e.int(0), e.dim(2));
        if self.kernel.terms != Terms::ONE {
            let term = self.term(e);
            return (zero, e.mul_int(term, self.kernel.terms.0.into()));
        }
        if self.kernel.parts == Parts::ONE {
            return (zero, end);
        }
        let tiles = e.div_ceil(end, K as i64);
        let each = e.div_ceil(tiles, self.kernel.parts.0.into());
        let length = e.mul_int(each, K as i64);
        let begin = e.mul(part, length);
        let after = e.add(begin, length);
        (begin, e.min(after, end))
    }

    /// Asks for what results will be added to, a row of the tile a thread, while they are made.
    fn prefetch(&self, e: &mut Emitter, number: Val) {
        if !self.kernel.accumulate {
            return;
        }
        let ([row, col], _) = self.place(e, number);
        let [m, n, _] = self.extents;
        let (rows, last) = (e.int(ROWS as i64), e.add_int(n, -1));
        let row = e.add(row, self.thread);
        let (own, exists) = (e.below(self.thread, rows), e.below(row, m));
        let own = e.and(own, exists);
        e.when(own, |e| {
            let base = e.mul(row, n);
            let (out, elem) = (
                e.operand(self.kernel.out() as u64),
                Elem::of(self.kernel.result()),
            );
            for line in (0..self.wide).step_by((LINE / elem.bytes()) as usize) {
                // Beyond the last column it is the last one's again.
                let col = e.add_int(col, line as i64);
                let col = e.min(col, last);
                let at = e.add(base, col);
                let from = e.at(out, at, elem);
                e.prefetch_line(from);
            }
        });
    }

    /// Writes a tile's results.
    fn write(
        &self,
        e: &mut Emitter,
        ([row, col], part): ([Val; 2], Val),
        sums: &[Val],
    ) -> Result<(), String> {
        let [m, n, _] = self.extents;
        // Warps lie below each other.
        let width = e.int(odec_program::gpu::WARP as i64);
        let (warp, lane) = (e.div(self.thread, width), e.rem(self.thread, width));
        let below = e.mul_int(warp, 16);
        let (lane_row, lane_col) = lane_of_sums(e, lane);
        let row = e.add(row, below);
        let place = Place {
            extents: [m, n],
            part,
            first: (e.add(row, lane_row), e.add(col, lane_col)),
            columns: (col, self.wide),
        };
        // Of 255 registers, or of 128, sums take half; what an epilogue computes takes some as well.
        let ahead = if self.wide > 128 { 64 } else { 32 };
        let ahead = match self.kernel.epilogue {
            Some(_) => ahead / 2,
            None => ahead,
        };
        write(e, self.kernel, place, (sums, self.wide as usize / 8), ahead)
    }
}
