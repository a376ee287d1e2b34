//! Attention forward by a warpgroup, on Hopper.
//!
//! Takes what [`super::forward`] has found out about the block; gives what its lanes know in the end. Queries stay in shared memory,
//! where tensor cores read them, and keys and values of two tiles go round: the next keys arrive from when this tile's are
//! multiplied, the next values from when this tile's are, so that a tile has two barriers. Scores are made, and weights
//! read, in registers. The sums are in the places that `mma` has them in, and so is the meaning.

use super::forward::{State, Walk};
use super::{Block, Source, flat, fragments, number, rounded};
use crate::emit::{Emitter, Left, Paneled, Val};
use crate::gpu::tensor::{Lies, Tile};
use odec_program::gpu::tensor::attend::KEYS;
use odec_program::gpu::tensor::warpgroup::{PANEL, PATTERN, attend_tile};

/// Inner length of an instruction.
const DEEP: u64 = 16;

pub(super) fn walk(e: &mut Emitter, block: &Block, [q, k, v]: [Source; 3], walk: Walk) -> State {
    let tile = Tile {
        rows: KEYS,
        cols: block.kernel.head,
        lies: Lies::Paneled,
    };
    let size = attend_tile(block.kernel);
    debug_assert_eq!(size, tile.elements());
    let zero = e.int(0);
    // Where queries, keys and values are; of the latter, two tiles each.
    let queries = zero;
    let [keys, values] = [size, 3 * size].map(|n| n as i64);
    let [first_keys, first_values] = [keys, values].map(|n| e.int(n));
    q.fetch(e, block.team, block.row, zero, tile, queries);
    k.fetch(e, block.team, walk.begin, zero, tile, first_keys);
    e.close_copies();
    v.fetch(e, block.team, walk.begin, zero, tile, first_values);
    e.close_copies();
    let mut start = State::start(e, block).flat();
    let count = start.len();
    // Which of the two tiles it is the turn of.
    start.push(zero);
    let done = e.for_with(
        walk.begin,
        walk.end,
        KEYS as i64,
        &start,
        |e, first, carried| {
            let turn = carried[count];
            let all = e.int(size as i64);
            let other = e.sub(all, turn);
            let [here, there] = [turn, other].map(|t| (e.add_int(t, keys), e.add_int(t, values)));
            let next = e.add_int(first, KEYS as i64);
            // The keys are here, and everybody is done with the tile before, whose places are taken next.
            e.await_copies(1);
            e.publish();
            e.barrier();
            let products: Vec<(Left, Paneled)> = (0..block.kernel.head)
                .step_by(DEEP as usize)
                .map(|d| {
                    let left = along(e, queries, d);
                    (Left::Shared(left), along(e, here.0, d))
                })
                .collect();
            let nothing = vec![number(e, 0.0); (KEYS / 2) as usize];
            let scores = e.begin_products(&products, &nothing);
            k.fetch(e, block.team, next, zero, tile, there.0);
            e.close_copies();
            let scores = e.await_products(&scores);
            let state = State::of(&carried[..count]);
            let (weights, state) = state.with(e, block, fragments(&scores), walk.seen, first);
            let weights: Vec<[Val; 4]> = (weights.chunks(2))
                .map(|pair| rounded(e, pair[0], pair[1]))
                .collect();
            e.await_copies(1);
            e.publish();
            e.barrier();
            let products: Vec<(Left, Paneled)> = (weights.iter().enumerate())
                .map(|(n, left)| (Left::Registers(*left), across(e, here.1, DEEP * n as u64)))
                .collect();
            let o = e.begin_products(&products, &flat(&state.o));
            v.fetch(e, block.team, next, zero, tile, there.1);
            e.close_copies();
            let o = fragments(&e.await_products(&o));
            let mut carried = State { o, ..state }.flat();
            carried.push(other);
            carried
        },
    );
    e.await_copies(0);
    State::of(&done[..count])
}

/// 16 columns of a tile from `col` on, the inner index: of all its rows.
fn along(e: &mut Emitter, tile: Val, col: u64) -> Paneled {
    let at = col / PANEL * KEYS * PANEL + col % PANEL;
    let at = e.add_int(tile, at as i64);
    Paneled {
        // There is one panel; its distance to another is not read.
        descriptor: e.describe(at, 16, PATTERN),
        turned: false,
    }
}

/// 16 rows of a tile from `row` on, the inner index: of all its columns.
fn across(e: &mut Emitter, tile: Val, row: u64) -> Paneled {
    let at = e.add_int(tile, (row * PANEL) as i64);
    Paneled {
        descriptor: e.describe(at, KEYS * PANEL * 2, PATTERN),
        turned: true,
    }
}
