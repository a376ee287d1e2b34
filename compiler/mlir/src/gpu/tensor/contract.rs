//! Contractions of bf16 on tensor cores.
//!
//! Takes a [`Contract`] spec. A block of four warps computes 128 × 64 elements of C, each warp 64 × 32 of them in 4 × 4
//! fragments. Tiles of A and B, 32 deep, go round through three stages ([`super::ring`]). One chain of
//! instructions per element, over k in order; C itself is added last.

use super::results::{Place, write};
use super::ring::{Factor, Inner, Products, Ring};
use super::{M, N, Order, Source, Tile, lane_of_sums, lane_place};
use crate::emit::{Elem, Emitter, Val};
use crate::gpu::stage::{Matrix, Team};
use odec_program::gpu::tensor::contract::{
    COLS, K, ROWS, STAGES, THREADS, elements, row, tile, vector,
};
use odec_program::kernel::{Contract, Extent, Parts, Terms};

/// A warp's rows and columns.
const DOWN: u64 = 64;
const ACROSS: u64 = 32;
/// Numbers that a thread reads for results before it uses one.
const AHEAD: usize = 16;

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
    if kernel.parts != Parts::ONE || kernel.terms != Terms::ONE {
        return Err("pieces of k apart, or a sum of products, but not by warpgroups".into());
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
        terms: (1, e.int(0)),
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
    let block_col = col;
    let (row, col) = (e.add(row, below), e.add(col, beside));
    let (row, col) = (e.add(row, lane_row), e.add(col, lane_col));
    let place = Place {
        extents: [m, n],
        part: e.int(0),
        first: (row, col),
        columns: (block_col, COLS),
    };
    write(e, kernel, place, (&sums, (ACROSS / N) as usize), AHEAD)
}
