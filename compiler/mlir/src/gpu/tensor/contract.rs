//! Contractions of bf16 on tensor cores.
//!
//! Takes a [`Contract`] spec. A block of four warps computes 128 × 64 elements of C, each warp 64 × 32 of them in 4 × 4
//! fragments. Tiles of A and B, 32 deep, go round through three stages ([`super::ring`]). One chain of
//! instructions per element, over k in order; C itself is added last.

use super::ring::{Factor, Inner, Products, Ring};
use super::{Order, Source, Tile, lane_of_sums, lane_place};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gpu::contract::Finish;
use crate::gpu::stage::{Matrix, Team};
use odec_program::DType;
use odec_program::gpu::tensor::contract::{
    COLS, K, ROWS, STAGES, THREADS, elements, row, tile, vector,
};
use odec_program::kernel::{Contract, Extent, Parts};

/// A warp's rows and columns.
const DOWN: u64 = 64;
const ACROSS: u64 = 32;
/// Of a fragment.
const M: u64 = 16;
const N: u64 = 8;

/// Where a lane reads the fragments of both factors, from the start of a tile.
struct Lanes([Val; 2]);

/// Factor `number`, 0 is A, 1 is B, and where the lane reads it; `own` is the warp's first row or column within the tile.
fn factor(
    e: &mut Emitter,
    kernel: &Contract,
    number: usize,
    extents: [Val; 2],
    first: Val,
    (lane, own): (Val, Val),
) -> (Factor, Val) {
    let (rows, cols) = tile(kernel, number);
    let tile = Tile::padded(rows, cols);
    let inner_last = row(kernel, number).1;
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
    let offset = if number == 0 { 0 } else { elements(kernel, 0) };
    let factor = Factor::new(e, kernel, number, extents, first, (tile, offset));
    (factor, e.add(place, own))
}

/// The fragments of 16 rows (columns of B) from `outer` on and 16 of the inner index from `inner` on.
fn fragments(
    e: &mut Emitter,
    (of, lane): (&Factor, Val),
    stage: Val,
    outer: u64,
    inner: u64,
) -> [Val; 4] {
    let (row, col) = match of.inner_last {
        true => (outer, inner),
        false => (inner, outer),
    };
    let fixed = of.offset + row * of.tile.pitch() + col;
    let at = e.add(stage, lane);
    let at = e.add_int(at, fixed as i64);
    e.load_matrices(at, !of.inner_last)
}

impl Products for Lanes {
    fn arrived(&self, _: &mut Emitter) {}

    fn begin(&self, _: &mut Emitter, _: [&Factor; 2], _: Val, sums: &[Val]) -> Vec<Val> {
        sums.to_vec()
    }

    fn finish(&self, e: &mut Emitter, [a, b]: [&Factor; 2], stage: Val, sums: &[Val]) -> Vec<Val> {
        let (a, b) = ((a, self.0[0]), (b, self.0[1]));
        let mut sums = sums.to_vec();
        for inner in (0..K).step_by(16) {
            let left: Vec<[Val; 4]> = (0..DOWN / M)
                .map(|i| fragments(e, a, stage, i * M, inner))
                .collect();
            let right: Vec<[Val; 2]> = (0..ACROSS / 16)
                .flat_map(|j| {
                    let [x, y, z, w] = fragments(e, b, stage, j * 16, inner);
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
        sums
    }

    fn wait(&self, _: &mut Emitter, _: u64, sums: &[Val]) -> Vec<Val> {
        sums.to_vec()
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
        listed: None,
    };
    Source {
        matrix,
        vector: vector(kernel, number),
    }
}

/// Emits the kernel; the spec is one that [`odec_program::gpu::tensor::contract::runs`] takes.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    if kernel.parts != Parts::ONE {
        return Err("pieces of k apart, but not by warpgroups".into());
    }
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
    let (a, lane_a) = factor(e, kernel, 0, [m, k], row, (lane, below));
    let (b, lane_b) = factor(e, kernel, 1, [n, k], col, (lane, beside));
    let ring = Ring {
        team: Team {
            thread,
            threads: THREADS,
        },
        stages: STAGES,
        stage: a.tile.elements() + b.tile.elements(),
        deep: K,
        mbarrier: 0,
        factors: [a, b],
    };
    let count = (DOWN / M * (ACROSS / N) * 4) as usize;
    // The end is not told, even where it is known: the assembler would unroll the loop, and spill.
    let inner = Inner {
        begin: e.int(0),
        end: e.dim(2),
        most: k.known(),
    };
    let sums = ring.sums(e, inner, count, &Lanes([lane_a, lane_b]));
    let (lane_row, lane_col) = lane_of_sums(e, lane);
    let (row, col) = (e.add(row, below), e.add(col, beside));
    let (row, col) = (e.add(row, lane_row), e.add(col, lane_col));
    let columns = (ACROSS / N) as usize;
    let part = e.int(0);
    write(e, kernel, ([m, n], part), (row, col), (&sums, columns))
}

/// Writes the lane's elements, of a row of `columns` fragments side by side, and of more such rows below each other. Of each fragment it has two
/// neighbours in one row, and two eight rows below. Of two fragments side by side, lanes next to each other take one each, four neighbours: what
/// they read and write of a row of C is whole sectors. Of the parts of a row of C, these are one's.
pub(super) fn write(
    e: &mut Emitter,
    kernel: &Contract,
    (extents, part): ([Val; 2], Val),
    (row, col): (Val, Val),
    (sums, columns): (&[Val], usize),
) -> Result<(), String> {
    let extras = kernel.epilogue.as_ref().map_or(0, |e| e.operands);
    let to = Written {
        kernel,
        finish: kernel.epilogue.as_ref().map(Finish::new).transpose()?,
        out: e.operand(2 + u64::from(extras)),
        extents,
        part,
    };
    let fours = extents[1].known().is_some_and(|n| n % 4 == 0) && columns.is_multiple_of(2);
    let odd = fours.then(|| odd_lane(e));
    let fragment = |number: usize, half: usize| &sums[4 * number + 2 * half..][..2];
    for number in (0..sums.len() / 4).step_by(if fours { 2 } else { 1 }) {
        let (i, j) = (number / columns, number % columns);
        for half in 0..2 {
            let row = e.add_int(row, (i as u64 * M) as i64 + half as i64 * 8);
            let col = e.add_int(col, (j as u64 * N) as i64);
            match odd {
                Some((odd, moved)) => {
                    let pairs = [fragment(number, half), fragment(number + 1, half)];
                    let four = exchanged(e, odd, pairs);
                    let col = e.add(col, moved);
                    to.write(e, (row, col), &four);
                }
                None => to.write(e, (row, col), fragment(number, half)),
            }
        }
    }
    Ok(())
}

/// Whether a lane's number is odd, and how far its four elements of two fragments are from the two that it has of the first: lanes
/// 0 and 2 of four take the first and the second half of that, lanes 1 and 3 those of the second fragment.
fn odd_lane(e: &mut Emitter) -> (Val, Val) {
    let thread = e.thread();
    let [zero, two, back, on] = [0, 2, 0, N as i64 - 2].map(|n| e.int(n));
    let parity = e.rem(thread, two);
    let odd = e.cmp(Cmp::Ne, parity, zero);
    (odd, e.select(odd, on, back))
}

/// Four neighbours of one of two fragments, of which each lane has two of either.
fn exchanged(e: &mut Emitter, odd: Val, [first, second]: [&[Val]; 2]) -> Vec<Val> {
    let theirs: Vec<Val> = (first.iter().zip(second))
        .map(|(a, b)| {
            let given = e.select(odd, *a, *b);
            e.at_distance(given, 1)
        })
        .collect();
    let left = (first.iter().zip(&theirs)).map(|(own, their)| e.select(odd, *their, *own));
    let mut four: Vec<Val> = left.collect();
    let right = (second.iter().zip(&theirs)).map(|(own, their)| e.select(odd, *own, *their));
    four.extend(right);
    four
}

/// Where sums go.
struct Written<'a> {
    kernel: &'a Contract,
    finish: Option<Finish>,
    out: Val,
    /// m and n.
    extents: [Val; 2],
    part: Val,
}

impl Written<'_> {
    /// Writes neighbours in a row, of which all exist or none where rows are whole groups of them.
    fn write(&self, e: &mut Emitter, (row, col): (Val, Val), sums: &[Val]) {
        let [m, n] = self.extents;
        let count = sums.len() as u64;
        let whole = n.known().is_some_and(|n| n % count as i64 == 0);
        let in_rows = e.below(row, m);
        let rows = e.mul_int(row, self.kernel.parts.0.into());
        let rows = e.add(rows, self.part);
        let base = e.mul(rows, n);
        let step = if whole { count } else { 1 };
        for first in (0..count).step_by(step as usize) {
            let col = e.add_int(col, first as i64);
            let inside = e.below(col, n);
            let exists = e.and(in_rows, inside);
            e.when(exists, |e| {
                let at = e.add(base, col);
                let sums = &sums[first as usize..][..step as usize];
                self.group(e, (row, col), at, sums);
            });
        }
    }

    /// Writes elements that exist, from element `at` of C on.
    fn group(&self, e: &mut Emitter, (row, col): (Val, Val), at: Val, sums: &[Val]) {
        let elem = Elem::of(self.kernel.result());
        let to = e.at(self.out, at, elem);
        let ty = match sums.len() {
            1 => e.scalar(),
            n => Type::vector(Elem::of(DType::F32), n as u64),
        };
        let before = self.kernel.accumulate.then(|| {
            let before = e.load_whole(to, ty);
            e.parts(before)
        });
        let values: Vec<Val> = (sums.iter().enumerate())
            .map(|(i, sum)| {
                let col = e.add_int(col, i as i64);
                let sum = match &before {
                    Some(before) => e.add(before[i], *sum),
                    None => *sum,
                };
                let finish = self.finish.as_ref();
                finish.map_or(sum, |f| f.apply(e, row, col, sum))
            })
            .collect();
        let stored = match (&values[..], self.kernel.rounds) {
            ([x], false) => *x,
            ([x], true) => e.convert(*x, Elem::Bf16),
            (all, false) => e.join(all),
            (all, true) => {
                let pairs = all.chunks(2).map(|p| e.pair_bf16(p[0], p[1]));
                let pairs: Vec<Val> = pairs.collect();
                match pairs[..] {
                    [pair] => pair,
                    _ => e.join(&pairs),
                }
            }
        };
        e.store_whole(stored, to);
    }
}
