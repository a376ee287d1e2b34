//! How dO becomes a factor, backward by a warpgroup.
//!
//! Copies cannot round, and dO is f32: its rows come as they are, and threads round pieces of eight columns into a tile. Eight of
//! them share a row; they add up δ = Σ o ∘ dO on the way, from the rows of o, which have come as well. Leaves waiting and barriers to the
//! kernel.

use super::super::Block;
use super::{Numbers, shift};
use crate::emit::{Elem, Emitter, Type, Val};
use crate::gpu::tensor::{CHUNK, Tile};
use odec_program::gpu::tensor::attend::THREADS;
use odec_program::gpu::tensor::warpgroup::PANEL;

/// Threads that share a row.
const SHARING: u64 = PANEL / CHUNK;
/// Rows from one of a thread's to the next.
const APART: u64 = THREADS / SHARING;

/// Where rows of the other side are: dO in f32, o, and dO rounded.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub wide: Val,
    pub o: Val,
    pub rounded: Val,
}

/// The thread's pieces of a tile.
pub(super) struct Intake {
    tile: Tile,
    /// The first row, and where its first piece lies in a tile and, by halves, in one of f32.
    row: Val,
    piece: Val,
    halves: [Val; 2],
    /// The row of a tile whose statistic the thread keeps.
    kept: Val,
}

impl Intake {
    pub fn new(e: &mut Emitter, block: &Block, tile: Tile) -> Intake {
        // Eight threads that read together have four pieces of two rows, which differ in the first and the last bit of their number: then all
        // eight places, in tiles of either kind, are in different banks.
        let thread = block.team.thread;
        let mut bits = |from: i64, count: i64| {
            let (from, count) = (e.int(from), e.int(count));
            let x = e.div(thread, from);
            e.rem(x, count)
        };
        let [chunk, turned, right, pair, below] =
            [(1, 4), (4, 2), (8, 2), (16, 4), (64, 2)].map(|(from, count)| bits(from, count));
        let right = e.mul_int(right, 4);
        let chunk = e.add(chunk, right);
        let turned = e.mul_int(turned, 5);
        let row = e.xor(pair, turned);
        let below = e.mul_int(below, 8);
        let row = e.add(row, below);
        let (all, one) = (e.int(tile.rows as i64), e.int(1));
        let first = e.mul_int(chunk, 2);
        let second = e.xor(first, one);
        Intake {
            tile,
            row,
            piece: tile.place(e, row, chunk),
            halves: [first, second].map(|half| tile.place(e, row, half)),
            kept: e.rem(thread, all),
        }
    }

    /// Loads what a row from `first` on is known by beside its numbers; rows beyond the last weigh nothing.
    pub fn beside(&self, e: &mut Emitter, block: &Block, seq: Val, first: Val) -> Val {
        let row = e.add(first, self.kept);
        shift(e, block, seq, row)
    }

    /// Rounds the thread's pieces of dO, and puts the numbers of rows down.
    pub fn round(&self, e: &mut Emitter, head: u64, shift: Val, at: Rows, numbers_of: &Numbers) {
        let start = e.shared(0);
        let panel = (self.tile.rows * PANEL) as i64;
        for below in (0..self.tile.rows).step_by(APART as usize) {
            let down = (below * PANEL) as i64;
            let mut sum = e.float(0.0, e.scalar());
            for n in 0..head.div_ceil(PANEL) as i64 {
                let place = |e: &mut Emitter, tile: Val, piece: Val, panels: i64| {
                    let place = e.add(tile, piece);
                    let place = e.add_int(place, panels * panel + down);
                    e.at(start, place, Elem::Bf16)
                };
                let mut numbers = vec![];
                for half in self.halves {
                    let p = place(e, at.wide, half, 2 * n);
                    let four = e.load_whole(p, Type::vector(Elem::F32, 4));
                    numbers.extend(e.parts(four));
                }
                let p = place(e, at.o, self.piece, n);
                let o = e.load_whole(p, Type::vector(Elem::I32, CHUNK / 2));
                for (pair, d) in e.parts(o).into_iter().zip(numbers.chunks(2)) {
                    let o = halves(e, pair);
                    sum = e.fma(o[0], d[0], sum);
                    sum = e.fma(o[1], d[1], sum);
                }
                let pairs: Vec<Val> = (numbers.chunks(2))
                    .map(|pair| e.pair_bf16(pair[0], pair[1]))
                    .collect();
                let pairs = e.join(&pairs);
                let p = place(e, at.rounded, self.piece, n);
                e.store_whole(pairs, p);
            }
            // Those of the lanes that share the row.
            for distance in [1, 2, 8] {
                let other = e.at_distance(sum, distance);
                sum = e.add(sum, other);
            }
            // They write the same.
            let row = e.add_int(self.row, below as i64);
            let p = e.at(numbers_of.delta, row, e.elem);
            e.store(sum, p);
        }
        let p = e.at(numbers_of.shift, self.kept, e.elem);
        e.store(shift, p);
    }
}

/// The two bf16 of a pair, the lower half first.
fn halves(e: &mut Emitter, pair: Val) -> [Val; 2] {
    let (shift, upper) = (e.integer(16, pair.ty), e.integer(-65536, pair.ty));
    let (low, high) = (e.shift_left(pair, shift), e.and(pair, upper));
    [low, high].map(|x| e.bitcast(x, Elem::F32))
}
