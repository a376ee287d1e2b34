//! Contractions of bf16 on tensor cores.
//!
//! Takes a [`Contract`] spec. A block of four warps computes 128 × 64 elements of C, each warp 64 × 32 of them in 4 × 4
//! fragments. Tiles of A and B, 32 deep, go round through three places in shared memory: while one is multiplied, the
//! next two arrive, copied ahead, or through registers where factors are to be rounded or lie unevenly. One chain of
//! instructions per element, over k in order; C itself is added last.

use super::{Loaded, Order, Source, Tile, lane_of_sums, lane_place, put};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gpu::contract::Finish;
use crate::gpu::stage::{Matrix, Team};
use odec_program::DType;
use odec_program::gpu::tensor::contract::{
    COLS, K, ROWS, STAGES, THREADS, elements, row, tile, vector,
};
use odec_program::kernel::{Contract, Extent};

/// A warp's rows and columns.
const DOWN: u64 = 64;
const ACROSS: u64 = 32;
/// Of a fragment.
const M: u64 = 16;
const N: u64 = 8;

/// A factor: where it is, and how its tiles lie.
struct Factor {
    source: Source,
    tile: Tile,
    /// Whether rows in memory go along the inner index.
    inner_last: bool,
    /// The first row or column of the block's tile.
    first: Val,
    /// From the start of a stage.
    offset: u64,
    /// Where the lane reads, from the start of the tile.
    lane: Val,
    /// Whether fragments are those of the transposed tile.
    turned: bool,
}

impl Factor {
    /// `number` 0 is A, 1 is B; `own` is the warp's first row or column within the tile.
    fn new(
        e: &mut Emitter,
        kernel: &Contract,
        number: usize,
        [outer, inner]: [Val; 2],
        first: Val,
        (lane, own): (Val, Val),
    ) -> Factor {
        let inner_last = row(kernel, number).1;
        let (rows, cols) = tile(kernel, number);
        let tile = Tile::padded(rows, cols);
        // Both orders of the four matrices of a fragment occur: 16 × 16 of A, and 16 × 8 of B twice.
        let order = match (number == 0) == inner_last {
            true => Order::Down,
            false => Order::Across,
        };
        let place = lane_place(e, lane, order, tile);
        let own = match inner_last {
            true => e.mul_int(own, tile.pitch() as i64),
            false => own,
        };
        Factor {
            source: source(e, kernel, number, [outer, inner]),
            tile,
            inner_last,
            first,
            offset: if number == 0 { 0 } else { elements(kernel, 0) },
            lane: e.add(place, own),
            turned: !inner_last,
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

    /// The fragments of 16 rows (columns of B) from `outer` on and 16 of the inner index from `inner` on.
    fn fragments(&self, e: &mut Emitter, stage: Val, outer: u64, inner: u64) -> [Val; 4] {
        let (row, col) = match self.inner_last {
            true => (outer, inner),
            false => (inner, outer),
        };
        let fixed = self.offset + row * self.tile.pitch() + col;
        let at = e.add(stage, self.lane);
        let at = e.add_int(at, fixed as i64);
        e.load_matrices(at, self.turned)
    }
}

/// m, n and k.
pub(super) fn extents(e: &mut Emitter, kernel: &Contract) -> [Val; 3] {
    let extent = |e: &mut Emitter, n: u64, x: Extent| match x {
        Extent::Static(x) => e.int(x as i64),
        Extent::Dynamic => e.dim(n),
    };
    [(0, kernel.m), (1, kernel.n), (2, kernel.k)].map(|(i, x)| extent(e, i, x))
}

/// Factor `number` in memory, 0 is A, 1 is B.
pub(super) fn source(
    e: &mut Emitter,
    kernel: &Contract,
    number: usize,
    [outer, inner]: [Val; 2],
) -> Source {
    let (rows, cols) = match row(kernel, number).1 {
        true => (outer, inner),
        false => (inner, outer),
    };
    let matrix = Matrix {
        pointer: e.operand(number as u64),
        rows,
        cols,
        stride: cols,
        elem: Elem::of([kernel.a, kernel.b][number]),
        rounds: false,
        whole: false,
    };
    Source {
        matrix,
        vector: vector(kernel, number),
    }
}

/// Emits the kernel; the spec is one that [`odec_program::gpu::tensor::contract::runs`] takes.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let [m, n, k] = extents(e, kernel);
    let (thread, block) = (e.thread(), e.block());
    let panels = e.div_ceil(m, ROWS as i64);
    let (down, across) = (e.rem(block, panels), e.div(block, panels));
    let (row, col) = (e.mul_int(down, ROWS as i64), e.mul_int(across, COLS as i64));
    let [two, width] = [2, 32].map(|n| e.int(n));
    let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
    let (below, beside) = (e.div(warp, two), e.rem(warp, two));
    let (below, beside) = (
        e.mul_int(below, DOWN as i64),
        e.mul_int(beside, ACROSS as i64),
    );
    let a = Factor::new(e, kernel, 0, [m, k], row, (lane, below));
    let b = Factor::new(e, kernel, 1, [n, k], col, (lane, beside));
    let team = Team {
        thread,
        threads: THREADS,
    };
    let sums = sum(e, team, &a, &b, k);
    let (lane_row, lane_col) = lane_of_sums(e, lane);
    let (row, col) = (e.add(row, below), e.add(col, beside));
    let (row, col) = (e.add(row, lane_row), e.add(col, lane_col));
    let columns = (ACROSS / N) as usize;
    write(e, kernel, [m, n], (row, col), (&sums, columns))
}

fn sum(e: &mut Emitter, team: Team, a: &Factor, b: &Factor, k: Val) -> Vec<Val> {
    let stage = a.tile.elements() + b.tile.elements();
    let all = (STAGES * stage) as i64;
    let zero = e.int(0);
    // Whether there can be a tile that begins so far along the inner index.
    let reaches = |inner: u64| k.known().is_none_or(|k| inner < k as u64);
    for n in 0..STAGES - 1 {
        let (inner, to) = (e.int((n * K) as i64), e.int((n * stage) as i64));
        for f in [a, b].into_iter().filter(|_| reaches(n * K)) {
            let loaded = f.fetch(e, team, inner, to);
            f.put(e, loaded, to);
        }
        e.close_copies();
    }
    let count = (DOWN / M * (ACROSS / N) * 4) as usize;
    let mut start = vec![e.float(0.0, e.scalar()); count];
    // Where the tile to be read is, and where the next one to arrive will be.
    start.extend([zero, e.int(all - stage as i64)]);
    // The number of turns is not told, even where it is known: the assembler would unroll the loop, and spill.
    let end = e.dim(2);
    let done = e.for_with(zero, end, K as i64, &start, |e, inner, carried| {
        let (mut sums, read, write) = (
            carried[..count].to_vec(),
            carried[count],
            carried[count + 1],
        );
        e.await_copies(STAGES - 2);
        // Everybody's part of this tile is here, and everybody is done with the one before, whose place is taken next.
        e.barrier();
        let next = e.add_int(inner, ((STAGES - 1) * K) as i64);
        let loaded = [a, b].map(|f| match reaches((STAGES - 1) * K) {
            true => f.fetch(e, team, next, write),
            false => vec![],
        });
        e.close_copies();
        for inner in (0..K).step_by(16) {
            let left: Vec<[Val; 4]> = (0..DOWN / M)
                .map(|i| a.fragments(e, read, i * M, inner))
                .collect();
            let right: Vec<[Val; 2]> = (0..ACROSS / 16)
                .flat_map(|j| {
                    let [x, y, z, w] = b.fragments(e, read, j * 16, inner);
                    [[x, y], [z, w]]
                })
                .collect();
            for (i, x) in left.iter().enumerate() {
                for (j, y) in right.iter().enumerate() {
                    let at = (i * right.len() + j) * 4;
                    let c = [sums[at], sums[at + 1], sums[at + 2], sums[at + 3]];
                    sums[at..at + 4].copy_from_slice(&e.multiply(*x, *y, c));
                }
            }
        }
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

/// Writes the lane's elements: of each fragment two neighbours, and the two eight rows below. `columns` fragments lie side by
/// side.
pub(super) fn write(
    e: &mut Emitter,
    kernel: &Contract,
    [m, n]: [Val; 2],
    (row, col): (Val, Val),
    (sums, columns): (&[Val], usize),
) -> Result<(), String> {
    let finish = kernel.epilogue.as_ref().map(Finish::new).transpose()?;
    let extras = kernel.epilogue.as_ref().map_or(0, |e| e.operands);
    let out = e.operand(2 + u64::from(extras));
    let whole = n.known().is_some_and(|n| n % 2 == 0);
    for (number, pair) in sums.chunks(2).enumerate() {
        let (fragment, half) = (number / 2, number % 2);
        let (i, j) = (fragment / columns, fragment % columns);
        let row = e.add_int(row, (i as u64 * M) as i64 + half as i64 * 8);
        let col = e.add_int(col, (j as u64 * N) as i64);
        let in_rows = e.below(row, m);
        let base = e.mul(row, n);
        let element = |e: &mut Emitter, col: Val, before: Val, sum: Val| {
            let sum = match kernel.accumulate {
                true => e.add(before, sum),
                false => sum,
            };
            finish.as_ref().map_or(sum, |f| f.apply(e, row, col, sum))
        };
        // Both columns exist or none, where rows are even.
        let step = if whole { 2 } else { 1 };
        for first in (0..2).step_by(step) {
            let col = e.add_int(col, first as i64);
            let inside = e.below(col, n);
            let exists = e.and(in_rows, inside);
            e.when(exists, |e| {
                let at = e.add(base, col);
                let p = e.at(out, at, e.elem);
                let ty = match whole {
                    true => Type::vector(Elem::of(DType::F32), 2),
                    false => e.scalar(),
                };
                let before = match kernel.accumulate {
                    true => e.load_whole(p, ty),
                    false => e.zero(ty),
                };
                let before = e.parts(before);
                let values: Vec<Val> = (0..step)
                    .map(|i| {
                        let col = e.add_int(col, i as i64);
                        element(e, col, before[i], pair[first + i])
                    })
                    .collect();
                match whole {
                    true => {
                        let x = e.join(&values);
                        e.store_whole(x, p);
                    }
                    false => e.store(values[0], p),
                }
            });
        }
    }
    Ok(())
}
