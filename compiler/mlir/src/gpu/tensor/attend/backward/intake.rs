//! How rows of the other side come into shared memory, backward by a warpgroup.
//!
//! Eight threads share a row of a tile, each taking every eighth piece of eight columns. Rows of bf16 are copied to their
//! tile. Those of dO are copied as they are, in f32, to places of the thread alone, so that nobody else is asked when it rounds them
//! into their tile; it adds up δ = Σ o ∘ dO on the way, for which it has loaded its pieces of o. Leaves waiting and barriers to the
//! kernel.

use super::super::Block;
use super::{D_O, Numbers, O, shift};
use crate::emit::{Elem, Emitter, Type, Val};
use crate::gpu::tensor::{CHUNK, Source, Tile};
use odec_program::DType;
use odec_program::gpu::tensor::attend::THREADS;
use odec_program::gpu::tensor::warpgroup::PANEL;

/// Threads that share a row.
const SHARING: u64 = PANEL / CHUNK;

/// The thread's pieces of a tile: rows, and of each the numbers of its pieces.
pub(super) struct Intake {
    tile: Tile,
    rows: Vec<Val>,
    chunks: Vec<Val>,
    /// The row of a tile whose statistic the thread keeps.
    row: Val,
}

/// What waits in registers for the rows it belongs to: pieces of o, four pairs each, and behind them the shift of a row.
pub(super) type Beside = Vec<Val>;

impl Intake {
    pub fn new(e: &mut Emitter, block: &Block, tile: Tile) -> Intake {
        let [sharing, all] = [SHARING, tile.rows].map(|n| e.int(n as i64));
        let thread = block.team.thread;
        let (row, chunk) = (e.div(thread, sharing), e.rem(thread, sharing));
        let below = (0..tile.rows).step_by((THREADS / SHARING) as usize);
        let across = (0..block.kernel.head.div_ceil(CHUNK)).step_by(SHARING as usize);
        Intake {
            tile,
            rows: below.map(|n| e.add_int(row, n as i64)).collect(),
            chunks: across.map(|n| e.add_int(chunk, n as i64)).collect(),
            row: e.rem(thread, all),
        }
    }

    /// Rows and columns of its pieces.
    fn pieces(&self, e: &mut Emitter) -> Vec<(Val, Val, Val)> {
        let columns: Vec<(Val, Val)> = (self.chunks.iter())
            .map(|c| (*c, e.mul_int(*c, CHUNK as i64)))
            .collect();
        (self.rows.iter())
            .flat_map(|row| columns.iter().map(|(chunk, col)| (*row, *chunk, *col)))
            .collect()
    }

    /// Begins to copy rows from `first` on to the tile at `to`.
    pub fn copy(&self, e: &mut Emitter, from: Source, first: Val, to: Val) {
        for (row, chunk, col) in self.pieces(e) {
            let place = self.tile.place(e, row, chunk);
            let row = e.add(first, row);
            from.copy(e, row, col, to, place);
        }
    }

    /// Begins to copy rows of dO from `first` on to places of the thread.
    pub fn copy_gradients(&self, e: &mut Emitter, block: &Block, seq: Val, first: Val, to: Val) {
        let from = block.source(e, D_O, DType::F32, seq);
        for (n, (row, _, col)) in self.pieces(e).into_iter().enumerate() {
            let row = e.add(first, row);
            for half in 0..2 {
                let col = e.add_int(col, half * CHUNK as i64 / 2);
                let place = own_place(e, block, 2 * n as u64 + half as u64);
                from.copy(e, row, col, to, place);
            }
        }
    }

    /// Loads what is wanted beside rows of dO from `first` on; rows beyond the last repeat it.
    pub fn beside(&self, e: &mut Emitter, block: &Block, seq: Val, first: Val) -> Beside {
        let from = block.source(e, O, DType::Bf16, seq);
        let mut o = vec![];
        for (row, _, col) in self.pieces(e) {
            let row = e.add(first, row);
            let (p, _) = from.element(e, row, col);
            let pairs = e.load_whole(p, Type::vector(Elem::I32, CHUNK / 2));
            o.extend(e.parts(pairs));
        }
        let row = e.add(first, self.row);
        o.push(shift(e, block, seq, row));
        o
    }

    /// As many zeros.
    pub fn nothing(&self, e: &mut Emitter) -> Beside {
        let words = self.rows.len() * self.chunks.len() * CHUNK as usize / 2;
        let mut zeros = vec![e.zero(Type::scalar(Elem::I32)); words];
        zeros.push(e.zero(e.scalar()));
        zeros
    }

    /// Rounds the thread's pieces of dO, which have arrived at `rows`, into the tile at `tile`, and puts the numbers of rows down.
    pub fn round(
        &self,
        e: &mut Emitter,
        block: &Block,
        beside: &[Val],
        (rows, tile): (Val, Val),
        numbers_of: &Numbers,
    ) {
        let start = e.shared(0);
        let (shift, o) = beside.split_last().expect("a shift");
        let mut o = o.chunks(CHUNK as usize / 2);
        let mut slot = 0;
        for row in &self.rows {
            let mut sum = e.float(0.0, e.scalar());
            for chunk in &self.chunks {
                let mut numbers = vec![];
                for _ in 0..2 {
                    let place = own_place(e, block, slot);
                    slot += 1;
                    let place = e.add(rows, place);
                    let p = e.at(start, place, Elem::Bf16);
                    let four = e.load_whole(p, Type::vector(Elem::F32, 4));
                    numbers.extend(e.parts(four));
                }
                for (pair, d) in o.next().expect("a piece").iter().zip(numbers.chunks(2)) {
                    let o = halves(e, *pair);
                    sum = e.fma(o[0], d[0], sum);
                    sum = e.fma(o[1], d[1], sum);
                }
                let pairs: Vec<Val> = (numbers.chunks(2))
                    .map(|pair| e.pair_bf16(pair[0], pair[1]))
                    .collect();
                let pairs = e.join(&pairs);
                let place = self.tile.place(e, *row, *chunk);
                let place = e.add(tile, place);
                let p = e.at(start, place, Elem::Bf16);
                e.store_whole(pairs, p);
            }
            for distance in [1, 2, 4] {
                let other = e.at_distance(sum, distance);
                sum = e.add(sum, other);
            }
            // The threads of a row write the same.
            let p = e.at(numbers_of.delta, *row, e.elem);
            e.store(sum, p);
        }
        let p = e.at(numbers_of.shift, self.row, e.elem);
        e.store(*shift, p);
    }
}

/// A place of the thread's own for 16 bytes, in elements of two bytes: neighbours' lie side by side.
fn own_place(e: &mut Emitter, block: &Block, slot: u64) -> Val {
    let at = e.add_int(block.team.thread, (slot * THREADS) as i64);
    e.mul_int(at, CHUNK as i64)
}

/// The two bf16 of a pair, the lower half first.
fn halves(e: &mut Emitter, pair: Val) -> [Val; 2] {
    let (shift, upper) = (e.integer(16, pair.ty), e.integer(-65536, pair.ty));
    let (low, high) = (e.shift_left(pair, shift), e.and(pair, upper));
    [low, high].map(|x| e.bitcast(x, Elem::F32))
}
