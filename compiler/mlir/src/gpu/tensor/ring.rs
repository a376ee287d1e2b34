//! The loop of a contraction on tensor cores.
//!
//! Takes two factors and what multiplies their tiles. Tiles go round through stages in shared memory: while one is multiplied
//! the next ones arrive, copied ahead, or through registers where factors are to be rounded or lie unevenly; those are put
//! down when the products are done. Leaves the tiles' layout and the products to the kernels.

use super::contract::source;
use super::{Loaded, Source, Tile, put};
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::stage::Team;
use odec_program::gpu::tensor::contract::row;
use odec_program::kernel::Contract;

/// A factor: where it is, and how its tiles lie.
pub(super) struct Factor {
    source: Source,
    pub tile: Tile,
    /// Whether rows in memory go along the inner index.
    pub inner_last: bool,
    /// The first row or column of the block's tile.
    first: Val,
    /// From the start of a stage, in elements.
    pub offset: u64,
}

impl Factor {
    /// Factor `number`, 0 is A, 1 is B, whose tile begins at `first` of its outer index.
    pub fn new(
        e: &mut Emitter,
        kernel: &Contract,
        number: usize,
        extents: [Val; 2],
        first: Val,
        (tile, offset): (Tile, u64),
    ) -> Factor {
        Factor {
            source: source(e, kernel, number, extents),
            tile,
            inner_last: row(kernel, number).1,
            first,
            offset,
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
}

/// What adds products of tiles to a thread's sums.
pub(super) trait Products {
    /// The thread's part of a tile has arrived; a barrier follows.
    fn arrived(&self, e: &mut Emitter);
    /// Begins what may run while more tiles are asked for.
    fn begin(&self, e: &mut Emitter, tiles: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val>;
    /// Gives the sums with all products of the tiles added.
    fn finish(&self, e: &mut Emitter, tiles: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val>;
}

/// The stages.
pub(super) struct Ring {
    pub factors: [Factor; 2],
    pub team: Team,
    pub stages: u64,
    /// Elements of one.
    pub stage: u64,
    /// Inner length of a tile.
    pub deep: u64,
}

impl Ring {
    /// A thread's `count` sums over the inner index, `k` long.
    pub fn sums(&self, e: &mut Emitter, k: Val, count: usize, by: &impl Products) -> Vec<Val> {
        let Ring {
            team,
            stages,
            stage,
            deep,
            ..
        } = *self;
        let factors = self.factors.each_ref();
        let all = (stages * stage) as i64;
        let zero = e.int(0);
        // Whether there can be a tile that begins so far along the inner index.
        let reaches = |inner: u64| k.known().is_none_or(|k| inner < k as u64);
        for n in 0..stages - 1 {
            let (inner, to) = (e.int((n * deep) as i64), e.int((n * stage) as i64));
            for f in factors.into_iter().filter(|_| reaches(n * deep)) {
                let loaded = f.fetch(e, team, inner, to);
                f.put(e, loaded, to);
            }
            e.close_copies();
        }
        let mut start = vec![e.float(0.0, e.scalar()); count];
        // Where the tile to be read is, and where the next one to arrive will be.
        start.extend([zero, e.int(all - stage as i64)]);
        // The number of turns is not told, even where it is known: the assembler would unroll the loop, and spill.
        let end = e.dim(2);
        let done = e.for_with(zero, end, deep as i64, &start, |e, inner, carried| {
            let (sums, read, write) = (&carried[..count], carried[count], carried[count + 1]);
            e.await_copies(stages - 2);
            by.arrived(e);
            // Everybody's part of this tile is here, and everybody is done with the one before, whose place is taken next.
            e.barrier();
            let sums = by.begin(e, factors, read, sums);
            let ahead = (stages - 1) * deep;
            let next = e.add_int(inner, ahead as i64);
            let loaded = factors.map(|f| match reaches(ahead) {
                true => f.fetch(e, team, next, write),
                false => vec![],
            });
            e.close_copies();
            let mut sums = by.finish(e, factors, read, &sums);
            for (f, loaded) in factors.into_iter().zip(loaded) {
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
}
