//! Attention backward by a warpgroup, on Hopper.
//!
//! Blocks of both halves run the same loop: the assembler gives registers to all `wgmma` of a kernel together, and for those of
//! two loops there are too few. A block's own 64 rows stay in shared memory as two tiles, q and dO or k and v, and tiles of the other side go round, the
//! next arriving while these are multiplied. Scores are products of the first tiles, rates those of the second; in registers they
//! become weights and slopes, which are left factors of the sums: slopes of what the first tile of the other side has (dQ of keys, dK of
//! queries), weights of what the second one has (dV of dO; a block of queries leaves that out). Sums are in the places that
//! `mma` has them in, and so is the meaning.

use super::super::forward::{Sight, Walk};
use super::super::warpgroup::{begin_scores, begin_sums, factors, tile};
use super::super::{Block, flat, fragments};
use super::intake::{Beside, Intake};
use super::{D_K, D_Q, D_V, Mask, Numbers, Side, warps};
use super::{of_keys, of_queries, pair, slope, walk, weight};
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::tensor::{Source, Tile, put};
use odec_program::DType;
use odec_program::gpu::tensor::attend::ROWS;
use odec_program::gpu::tensor::warpgroup::{attend_other, attend_streamed, attend_tile};
use odec_program::kernel::Attend;

/// A block's own tiles, and those of the other side: of a block of queries keys of two turns and values of two turns; of a block of
/// keys queries of two turns, dO, and rows of it in f32.
struct Places {
    own: [Val; 2],
    first: [Val; 2],
    second: [Val; 2],
    /// In f32, of twice a tile.
    rows: Val,
    numbers: Numbers,
}

impl Places {
    fn new(e: &mut Emitter, kernel: &Attend) -> Places {
        let (own, other) = (attend_tile(kernel), attend_other(kernel));
        let others = [0, 1, 2, 3].map(|n| e.int((2 * own + n * other) as i64));
        Places {
            own: [0, own].map(|n| e.int(n as i64)),
            first: [others[0], others[1]],
            second: [others[2], others[3]],
            rows: others[3],
            numbers: Numbers::behind(e, 2 * (2 * own + 5 * other)),
        }
    }
}

/// The kernel, all of whose blocks meet here. `number` is the block's; from `half` on, they have keys.
pub(super) fn emit(e: &mut Emitter, kernel: &Attend, of_queries: Val, (number, half): (Val, Val)) {
    let (seq, zero) = (e.dim(1), e.int(0));
    let among = e.sub(number, half);
    let number = e.select(of_queries, number, among);
    let block = Block::of_either(e, kernel, of_queries, (number, seq));
    let sides = [Side::Queries, Side::Keys].map(|side| walk(e, &block, side, seq));
    let walk = either_walk(e, kernel, of_queries, sides);
    let places = Places::new(e, kernel);
    let others = tile(&block, attend_streamed(kernel));
    let work = Work {
        intake: Intake::new(e, &block, others),
        of_keys: e.cmp(Cmp::Ge, among, zero),
        block,
        of_queries,
        seq,
        walk,
        places,
        others,
    };
    work.run(e);
}

/// What holds for the block's side.
fn either_walk(e: &mut Emitter, kernel: &Attend, of_queries: Val, sides: [Walk; 2]) -> Walk {
    let [queries, keys] = sides;
    // Below any row.
    let nowhere = e.int(-(1 << 50));
    let mut either = |a: Val, b: Val| e.select(of_queries, a, b);
    let [a, b] = [queries.seen[0], keys.seen[0]];
    let bounded = a.from.is_some() || b.from.is_some();
    let from = |s: Sight| s.from.unwrap_or(nowhere);
    let above = Sight {
        from: bounded.then(|| either(from(a), from(b))),
        until: either(a.until, b.until),
    };
    let (begin, end) = (
        either(queries.begin, keys.begin),
        either(queries.end, keys.end),
    );
    // Bounds are so far from the row, or have nothing to do with it, or are behind the last.
    let mut moved = |bound: Val| match kernel.causal {
        true => e.add_int(bound, 8),
        false => bound,
    };
    let below = Sight {
        from: above.from.map(&mut moved),
        until: moved(above.until),
    };
    Walk {
        begin,
        end,
        seen: [above, below],
        sink: None,
        bias: None,
    }
}

struct Work<'a> {
    block: Block<'a>,
    of_queries: Val,
    of_keys: Val,
    seq: Val,
    walk: Walk,
    places: Places,
    intake: Intake,
    /// Of rows of the other side.
    others: Tile,
}

/// Where a block is: the first row of the other side, and for a block of keys the number among the heads of queries that read them.
#[derive(Clone, Copy)]
struct Stop {
    member: Val,
    first: Val,
}

impl Work<'_> {
    fn run(&self, e: &mut Emitter) {
        let (zero, kernel) = (e.int(0), self.block.kernel);
        let stop = Stop {
            member: zero,
            first: self.walk.begin,
        };
        self.fetch_own(e);
        self.fetch(e, stop, zero);
        let nothing = self.intake.nothing(e);
        let beside = self.beside(e, stop, &nothing);
        let sums = flat(&self.block.nothing(e));
        let count = sums.len();
        let start = [sums.clone(), sums, vec![zero, zero, stop.first], beside].concat();
        let length = e.sub(self.walk.end, self.walk.begin);
        let mut turns = e.div_ceil(length, self.others.rows as i64);
        if kernel.group() > 1 {
            let all = e.mul_int(turns, kernel.group() as i64);
            turns = e.select(self.of_queries, turns, all);
        }
        let done = e.for_with(zero, turns, 1, &start, |e, _, carried| {
            let (sums, rest) = carried.split_at(2 * count);
            let stop = Stop {
                member: rest[1],
                first: rest[2],
            };
            let turn = (rest[0], stop, &rest[3..]);
            self.turn(e, turn, (&sums[..count], &sums[count..]))
        });
        e.await_copies(0);
        let [firsts, seconds] = [&done[..count], &done[count..2 * count]].map(fragments);
        e.either(self.of_queries, |e, of_queries| {
            let results = match of_queries {
                true => vec![(D_Q, &firsts)],
                false => vec![(D_V, &seconds), (D_K, &firsts)],
            };
            for (operand, sums) in results {
                let to = self.block.matrix(e, operand, DType::F32, self.seq);
                self.block.write(e, to, sums, None);
            }
        });
    }

    /// Goes through one pair of tiles; gives sums, which turn it is next, where that is, and what is wanted there.
    fn turn(
        &self,
        e: &mut Emitter,
        (turn, stop, beside): (Val, Stop, &[Val]),
        (firsts, seconds): (&[Val], &[Val]),
    ) -> Vec<Val> {
        let (block, places) = (&self.block, &self.places);
        let size = e.int(attend_other(block.kernel) as i64);
        let next_turn = e.sub(size, turn);
        let first = e.add(places.first[0], turn);
        let second = e.add(places.second[0], turn);
        let second = e.select(self.of_queries, second, places.second[0]);
        // All that was asked for is here, and everybody is done with what was read before.
        e.await_copies(0);
        e.publish();
        e.barrier();
        let scores = begin_scores(e, self.others, places.own[0], first);
        e.when(self.of_keys, |e| {
            let at = (places.rows, places.second[0]);
            self.intake.round(e, block, beside, at, &places.numbers);
            e.publish();
            e.barrier();
        });
        let rates = begin_scores(e, self.others, places.own[1], second);
        let next = self.next(e, stop);
        self.fetch(e, next, next_turn);
        let mask = Mask::new(e, block, self.walk.seen, stop.first);
        let scores = e.await_products_but(1, &scores);
        let weights = e.either_with(self.of_queries, &scores, |e, of_queries| {
            let shifts = self.known(e, places.numbers.shift, of_queries);
            let mut weights = fragments(&scores);
            for (n, fragment) in weights.iter_mut().enumerate() {
                for (i, x) in fragment.iter_mut().enumerate() {
                    let visible = mask.sees(e, n, i);
                    *x = weight(e, block, *x, shifts[n][i], visible);
                }
            }
            flat(&weights)
        });
        let rates = e.await_products(&rates);
        let count = rates.len();
        let like = [&rates, seconds].concat();
        let slopes = e.either_with(self.of_queries, &like, |e, of_queries| {
            let seconds = match of_queries {
                true => seconds.to_vec(),
                false => {
                    let weights = factors(e, &fragments(&weights));
                    begin_sums(e, &weights, (self.others, second), seconds)
                }
            };
            let delta = self.known(e, places.numbers.delta, of_queries);
            let mut slopes = fragments(&weights);
            for (n, fragment) in slopes.iter_mut().enumerate() {
                for (i, x) in fragment.iter_mut().enumerate() {
                    *x = slope(e, block, *x, rates[4 * n + i], delta[n][i]);
                }
            }
            // The assembler knows no products that only some blocks have begun.
            let seconds = match of_queries {
                true => seconds,
                false => e.await_products(&seconds),
            };
            [flat(&slopes), seconds].concat()
        });
        let (slopes, seconds) = slopes.split_at(count);
        let slopes = factors(e, &fragments(slopes));
        let firsts = begin_sums(e, &slopes, (self.others, first), firsts);
        let beside = self.beside(e, next, beside);
        let firsts = e.await_products(&firsts);
        let rest = vec![next_turn, next.member, next.first];
        [&firsts, seconds, &rest, &beside].concat()
    }

    /// Numbers of the four elements of fragments side by side: those of the lane's rows, or of columns.
    fn known(&self, e: &mut Emitter, place: Val, of_rows: bool) -> Vec<[Val; 4]> {
        let count = self.others.rows / 8;
        if of_rows {
            let [above, below] = super::of_rows(e, &self.block, place);
            return vec![[above, above, below, below]; count as usize];
        }
        let columns = (0..count).map(|n| {
            let at = e.add_int(self.block.lane_col, 8 * n as i64);
            let columns = pair(e, place, at);
            [0, 1, 2, 3].map(|i| columns[i % 2])
        });
        columns.collect()
    }

    /// The next rows, of the same head or the next one; behind the last, any that there are.
    fn next(&self, e: &mut Emitter, stop: Stop) -> Stop {
        let first = e.add_int(stop.first, self.others.rows as i64);
        if self.block.kernel.group() == 1 {
            return Stop { first, ..stop };
        }
        let last = e.int(self.block.kernel.group() as i64 - 1);
        let passed = e.cmp(Cmp::Ge, first, self.walk.end);
        let member = e.add_int(stop.member, 1);
        let member = e.min(member, last);
        Stop {
            member: e.select(passed, member, stop.member),
            first: e.select(passed, self.walk.begin, first),
        }
    }

    /// Brings the block's own tiles, and the numbers of its queries; the caller waits.
    fn fetch_own(&self, e: &mut Emitter) {
        let (block, zero) = (&self.block, e.int(0));
        let own = tile(block, ROWS);
        e.either(self.of_queries, |e, are_queries| {
            let sources: [Source; 2] = match are_queries {
                true => of_queries(e, block, self.seq),
                false => of_keys(e, block, self.seq),
            };
            for (source, to) in sources.into_iter().zip(self.places.own) {
                let loaded = source.fetch(e, block.team, block.row, zero, own, to);
                put(e, loaded, to);
            }
            if are_queries {
                warps::statistics(e, block, &self.places.numbers, self.seq, block.row, ROWS);
            }
        });
    }

    /// Begins to bring tiles of the other side.
    fn fetch(&self, e: &mut Emitter, at: Stop, turn: Val) {
        let places = &self.places;
        e.either(self.of_queries, |e, are_queries| {
            let first = e.add(places.first[0], turn);
            if are_queries {
                let [keys, values] = of_keys(e, &self.block, self.seq);
                let second = e.add(places.second[0], turn);
                self.intake.copy(e, keys, at.first, first);
                self.intake.copy(e, values, at.first, second);
            } else {
                let block = &self.block.of_member(e, at.member);
                let [queries, _] = of_queries(e, block, self.seq);
                self.intake.copy(e, queries, at.first, first);
                let rows = places.rows;
                self.intake
                    .copy_gradients(e, block, self.seq, at.first, rows);
            }
        });
        e.close_copies();
    }

    /// What a block of keys wants beside these rows; a block of queries goes on with `others`.
    fn beside(&self, e: &mut Emitter, at: Stop, others: &[Val]) -> Beside {
        e.when_with(self.of_keys, others, |e| {
            let block = &self.block.of_member(e, at.member);
            self.intake.beside(e, block, self.seq, at.first)
        })
    }
}
