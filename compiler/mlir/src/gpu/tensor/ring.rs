//! The loop of a contraction on tensor cores.
//!
//! Takes two factors and what multiplies their tiles. Tiles go round through stages in shared memory: while one is multiplied
//! the next ones arrive: copied ahead, by tensor maps on Hopper, or through registers where factors are to be rounded or lie unevenly;
//! those are put down when the products are done. Leaves the tiles' layout and the products to the kernels, and factors that both come by maps
//! to [`super::stream`].

use super::boxes::{Boxed, Elected};
use super::contract::source;
use super::{CHUNK, Loaded, Source, Tile, put};
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::stage::Team;
use odec_program::gpu::tensor::contract::row;
use odec_program::gpu::tensor::map;
use odec_program::gpu::tensor::warpgroup::PANEL;
use odec_program::kernel::Contract;

/// How a factor's tiles come.
enum Comes {
    /// Each thread brings a part.
    ByThreads(Box<Source>),
    /// By the kernel's tensor map of this number; whether its panels come at once.
    ByMap(u64, bool),
}

/// A factor: where it is, and how its tiles lie.
pub(super) struct Factor {
    comes: Comes,
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
        let by_map = |n: usize| map::feeds(kernel, n, e.target);
        let comes = match by_map(number) {
            true => {
                let before = (0..number).filter(|n| by_map(*n)).count();
                Comes::ByMap(before as u64, map::at_once(kernel, number))
            }
            false => Comes::ByThreads(Box::new(source(e, kernel, number, extents))),
        };
        Factor {
            comes,
            tile,
            inner_last: row(kernel, number).1,
            first,
            offset,
        }
    }

    /// Row and column of its tile that begins at `first` of its outer index.
    fn corner(&self, first: Val, inner: Val) -> (Val, Val) {
        match self.inner_last {
            true => (first, inner),
            false => (inner, first),
        }
    }

    /// The thread's part of a tile, where threads bring it.
    fn fetch(&self, e: &mut Emitter, team: Team, inner: Val, stage: Val) -> Loaded {
        let Comes::ByThreads(source) = &self.comes else {
            return vec![];
        };
        let (row, col) = self.corner(self.first, inner);
        let to = e.add_int(stage, self.offset as i64);
        source.fetch(e, team, row, col, self.tile, to)
    }

    /// A tile, where it comes by a map: that of the term whose maps lie `after` places behind those of the first.
    fn boxed(
        &self,
        e: &mut Emitter,
        first: Val,
        inner: Val,
        (stage, after): (Val, u64),
    ) -> Option<Boxed> {
        let Comes::ByMap(map, at_once) = self.comes else {
            return None;
        };
        let (row, col) = self.corner(first, inner);
        let first = match at_once {
            true => vec![e.int(0), row, e.div_int(col, PANEL as i64)],
            false => vec![col, row],
        };
        Some(Boxed {
            map: map + after,
            tile: self.tile,
            at_once,
            first,
            to: e.add_int(stage, self.offset as i64),
        })
    }

    fn put(&self, e: &mut Emitter, loaded: Loaded, stage: Val) {
        let to = e.add_int(stage, self.offset as i64);
        put(e, loaded, to);
    }
}

/// What adds products of tiles to a thread's sums.
pub(super) trait Products {
    /// The thread's part of a tile has arrived, if it brought one; a barrier follows.
    fn arrived(&self, e: &mut Emitter);
    /// Begins what may run while more tiles are requested.
    fn begin(&self, e: &mut Emitter, tiles: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val>;
    /// Gives the sums with all products of the tiles added.
    fn finish(&self, e: &mut Emitter, tiles: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val>;
}

/// What is summed over: the inner index from `begin`, a multiple of a tile's depth, to `end`.
pub(super) struct Inner {
    pub begin: Val,
    pub end: Val,
    /// The most that `end` can be, if that is known.
    pub most: Option<i64>,
}

/// The stages.
pub(super) struct Ring {
    pub factors: [Factor; 2],
    /// How many products are added up, and the inner length of each, in whole tiles. Tensor maps of a term follow those of the one before.
    pub terms: (u32, Val),
    pub team: Team,
    pub stages: u64,
    /// Elements of one.
    pub stage: u64,
    /// Inner length of a tile.
    pub deep: u64,
    /// Where a stage's mbarrier is, from its start on, if a factor comes by a map.
    pub mbarrier: u64,
}

impl Ring {
    /// Whether a factor comes so.
    fn any(&self, comes: impl Fn(&Comes) -> bool) -> bool {
        self.factors.iter().any(|f| comes(&f.comes))
    }

    /// The thread that asks for what comes by maps; the mbarriers are ready.
    pub fn elect(&self, e: &mut Emitter) -> Elected {
        let elected = Elected::new(e, self.team.thread);
        let places = (0..self.stages).map(|n| e.int((n * self.stage + self.mbarrier) as i64));
        let places: Vec<Val> = places.collect();
        elected.prepare(e, &places);
        elected
    }

    /// Asks for what comes by maps of a stage, whose tiles begin at `firsts` of their outer indices.
    pub fn ask(&self, e: &mut Emitter, by: Elected, firsts: [Val; 2], inner: Val, stage: Val) {
        let mbarrier = e.add_int(stage, self.mbarrier as i64);
        let tiles = |e: &mut Emitter, inner: Val, term: u64| -> Vec<Boxed> {
            let of = (stage, 2 * term);
            let all = self.factors.iter().zip(firsts);
            let all = all.filter_map(|(f, first)| f.boxed(e, first, inner, of));
            all.collect()
        };
        let (terms, length) = self.terms;
        if terms == 1 {
            let tiles = tiles(e, inner, 0);
            return by.ask(e, &tiles, mbarrier);
        }
        // `inner` counts through all terms. The tiles of the term that it lies in are asked for.
        let (mut inner, zero) = (inner, e.int(0));
        for term in 0..u64::from(terms) {
            let tiles = tiles(e, inner, term);
            if term == 0 {
                by.expect(e, &tiles, mbarrier);
            }
            let (begun, goes_on) = (e.cmp(Cmp::Ge, inner, zero), e.below(inner, length));
            let lies = e.and(begun, goes_on);
            e.when(lies, |e| by.copy(e, &tiles, mbarrier));
            inner = e.sub(inner, length);
        }
    }

    /// A thread's `count` sums over the inner index.
    pub fn sums(&self, e: &mut Emitter, over: Inner, count: usize, by: &impl Products) -> Vec<Val> {
        let Ring {
            team,
            stages,
            stage,
            deep,
            ..
        } = *self;
        let factors = self.factors.each_ref();
        let ahead_of_time = |c: &Comes| matches!(c, Comes::ByThreads(s) if s.vector == CHUNK);
        let copies = self.any(ahead_of_time);
        let elected = self.any(|c| matches!(c, Comes::ByMap(..)));
        let elected = elected.then(|| self.elect(e));
        let firsts = self.factors.each_ref().map(|f| f.first);
        let all = (stages * stage) as i64;
        let zero = e.int(0);
        // Whether there can be a tile that begins so far along the inner index.
        let reaches = |inner: u64| over.most.is_none_or(|k| inner < k as u64);
        let Inner { begin, end, .. } = over;
        for n in 0..stages - 1 {
            let (inner, to) = (
                e.add_int(begin, (n * deep) as i64),
                e.int((n * stage) as i64),
            );
            if let Some(by) = elected.filter(|_| reaches(n * deep)) {
                let exists = e.below(inner, end);
                let by = by.provided(e, exists);
                self.ask(e, by, firsts, inner, to);
            }
            for f in factors.into_iter().filter(|_| reaches(n * deep)) {
                let loaded = f.fetch(e, team, inner, to);
                f.put(e, loaded, to);
            }
            if copies {
                e.close_copies();
            }
        }
        let mut start = vec![e.float(0.0, e.scalar()); count];
        // Where the tile to be read is, and where the next one to arrive will be: where the one before was.
        start.extend([zero, e.int(all - stage as i64)]);
        // The parity of the phase that ends when it is there: of a stage's tiles, every other one has the same.
        start.extend(elected.map(|_| zero));
        let done = e.for_with(begin, end, deep as i64, &start, |e, inner, carried| {
            let (sums, read, write) = (&carried[..count], carried[count], carried[count + 1]);
            if copies {
                e.await_copies(stages - 2);
            }
            let parity = elected.map(|_| carried[count + 2]);
            if let Some(parity) = parity {
                let mbarrier = e.add_int(read, self.mbarrier as i64);
                e.await_phase(mbarrier, parity);
            }
            let ahead = (stages - 1) * deep;
            let next = e.add_int(inner, ahead as i64);
            by.arrived(e);
            // Everybody's part of this tile is here, and everybody is done with the one before, whose place is taken next.
            e.barrier();
            let sums = by.begin(e, factors, read, sums);
            // What nobody will wait for is not asked for.
            if let Some(by) = elected.filter(|_| reaches(ahead)) {
                let exists = e.below(next, end);
                let by = by.provided(e, exists);
                self.ask(e, by, firsts, next, write);
            }
            let loaded = factors.map(|f| match reaches(ahead) {
                true => f.fetch(e, team, next, write),
                false => vec![],
            });
            if copies {
                e.close_copies();
            }
            let mut sums = by.finish(e, factors, read, &sums);
            for (f, loaded) in factors.into_iter().zip(loaded) {
                f.put(e, loaded, write);
            }
            let (after, last) = (e.add_int(read, stage as i64), e.int(all));
            let wraps = e.cmp(Cmp::Eq, after, last);
            sums.extend([e.select(wraps, zero, after), read]);
            sums.extend(parity.map(|parity| {
                let one = e.int(1);
                let other = e.xor(parity, one);
                e.select(wraps, other, parity)
            }));
            sums
        });
        if copies {
            e.await_copies(0);
        }
        done[..count].to_vec()
    }
}
