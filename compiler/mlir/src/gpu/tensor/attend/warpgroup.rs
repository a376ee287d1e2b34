//! Attention forward by a warpgroup, on Hopper.
//!
//! Takes what [`super::forward`] has found out about the block; gives what its lanes know in the end. Queries stay in shared memory,
//! where tensor cores read them, and keys and values of two tiles go round. All come by tensor maps; the next keys and values
//! are asked for when this tile's keys are there, which all threads wait for before a barrier: then everybody is done with
//! the tile before. Scores are made, and weights read, in registers. The sums are in the places that `mma` has them in, and so is
//! the meaning.

use super::forward::{State, Walk};
use super::{Block, Sums, flat, fragments, rounded};
use crate::emit::{Accumulators, Emitter, Left, Paneled, Val};
use crate::gpu::tensor::boxes::{Boxed, Elected};
use crate::gpu::tensor::{Lies, Tile};
use odec_program::gpu::tensor::attend::KEYS;
use odec_program::gpu::tensor::warpgroup::{PANEL, PATTERN, attend_tile};
use odec_program::kernel::Attend;

/// Inner length of an instruction.
const DEEP: u64 = 16;

/// So many rows of the head.
pub(super) fn tile(block: &Block, rows: u64) -> Tile {
    Tile {
        rows,
        cols: block.kernel.head,
        lies: Lies::Paneled,
    }
}

pub(super) fn walk(e: &mut Emitter, block: &Block, walk: Walk) -> State {
    let tile = tile(block, KEYS);
    let size = attend_tile(block.kernel);
    debug_assert_eq!(size, tile.elements());
    let zero = e.int(0);
    // Where queries, keys and values are; of the latter, two tiles each.
    let queries = zero;
    let [keys, values] = [1, 3].map(|n| (n * size) as i64);
    let [first_keys, first_values] = [keys, values].map(|n| e.int(n));
    // The operand's rows from `row` on, to a place.
    let boxed = |operand: u64, row: Val, to: Val| {
        let head = match Attend::is_of_keys(operand) {
            true => block.shared,
            false => block.head,
        };
        Boxed {
            map: operand,
            tile,
            at_once: false,
            first: vec![zero, head, row, block.batch],
            to,
        }
    };
    // Behind all tiles, four elements each, in the same order.
    let mbarriers = [0, 1, 2, 3].map(|n| e.int((5 * size + 4 * n) as i64));
    let elected = Elected::new(e, block.team.thread);
    elected.prepare(e, &mbarriers);
    let first = [
        boxed(0, block.row, queries),
        boxed(1, walk.begin, first_keys),
    ];
    elected.ask(e, &first, mbarriers[0]);
    elected.ask(e, &[boxed(2, walk.begin, first_values)], mbarriers[2]);
    let mut start = State::start(e, block, walk.sink).flat();
    let count = start.len();
    // The number of the tile whose turn it is, of two, and the parity of its phases.
    start.extend([zero; 2]);
    let done = e.for_with(
        walk.begin,
        walk.end,
        KEYS as i64,
        &start,
        |e, first, carried| {
            let (turn, parity) = (carried[count], carried[count + 1]);
            let one = e.int(1);
            let other = e.xor(turn, one);
            let [here, there] = [turn, other].map(|t| {
                let (tiles, mbarrier) = (e.mul_int(t, size as i64), e.mul_int(t, 4));
                let tiles = [keys, values].map(|n| e.add_int(tiles, n));
                (
                    tiles,
                    [mbarriers[0], mbarriers[2]].map(|n| e.add(n, mbarrier)),
                )
            });
            let next = e.add_int(first, KEYS as i64);
            e.await_phase(here.1[0], parity);
            // Everybody is done with the tile before, whose places are taken next.
            e.barrier();
            let scores = begin_scores(e, tile, queries, here.0[0]);
            // What nobody will wait for is not asked for.
            let exists = e.below(next, walk.end);
            let asks = elected.provided(e, exists);
            for (n, operand) in [1, 2].into_iter().enumerate() {
                asks.ask(e, &[boxed(operand, next, there.0[n])], there.1[n]);
            }
            let scores = e.await_products(&scores);
            let state = State::of(&carried[..count]);
            let (weights, state) = state.with(e, block, fragments(&scores), &walk, first);
            let weights = factors(e, &weights);
            e.await_phase(here.1[1], parity);
            let o = begin_sums(e, &weights, (tile, here.0[1]), &flat(&state.o));
            let o = fragments(&e.await_products(&o));
            let mut carried = State { o, ..state }.flat();
            // It changes after the second of two tiles.
            carried.extend([other, e.xor(parity, turn)]);
            carried
        },
    );
    State::of(&done[..count])
}

/// Begins products of 64 rows at `left` with the rows of the tile at `right`, over the head's columns.
pub(super) fn begin_scores(e: &mut Emitter, tile: Tile, left: Val, right: Val) -> Vec<Val> {
    let products: Vec<(Left, Paneled)> = (0..tile.cols)
        .step_by(DEEP as usize)
        .map(|d| {
            let left = along(e, KEYS, left, d);
            (Left::Shared(left), along(e, tile.rows, right, d))
        })
        .collect();
    e.begin_products(&products, Accumulators::New((tile.rows / 2) as usize))
}

/// Begins to add products of 64 rows of numbers, rounded, with the tile, over its rows.
pub(super) fn begin_sums(
    e: &mut Emitter,
    left: &[[Val; 4]],
    (tile, at): (Tile, Val),
    sums: &[Val],
) -> Vec<Val> {
    let products: Vec<(Left, Paneled)> = (left.iter().enumerate())
        .map(|(n, left)| {
            let right = across(e, tile.rows, at, DEEP * n as u64);
            (Left::Registers(*left), right)
        })
        .collect();
    e.begin_products(&products, Accumulators::Of(sums))
}

/// Fragments side by side, as left factors.
pub(super) fn factors(e: &mut Emitter, numbers: &Sums) -> Vec<[Val; 4]> {
    let pairs = numbers.chunks(2);
    pairs.map(|pair| rounded(e, pair[0], pair[1])).collect()
}

/// 16 columns from `col` on, the inner index, of a tile of so many rows: of all of them.
fn along(e: &mut Emitter, rows: u64, tile: Val, col: u64) -> Paneled {
    let at = col / PANEL * rows * PANEL + col % PANEL;
    Paneled {
        // There is one panel; its distance to another is not read.
        descriptor: e.describe_behind(tile, at, 16, PATTERN),
        turned: false,
    }
}

/// 16 rows from `row` on, the inner index, of a tile of so many: of all its columns.
fn across(e: &mut Emitter, rows: u64, tile: Val, row: u64) -> Paneled {
    Paneled {
        descriptor: e.describe_behind(tile, row * PANEL, rows * PANEL * 2, PATTERN),
        turned: true,
    }
}
