//! Attention backward by a warpgroup, on Hopper.
//!
//! Blocks of both halves run the same loop: the assembler gives registers to all `wgmma` of a kernel together, and for those of
//! two loops there are too few. A block's own 64 rows stay in shared memory as two tiles, q and dO or k and v, and tiles of the other side go round, the
//! next arriving while these are multiplied. Scores are products of the first tiles, rates those of the second; in registers they
//! become weights and slopes, which are left factors of the sums: slopes of what the first tile of the other side has (dQ of keys, dK of
//! queries), weights of what the second one has (dV of dO; a block of queries leaves that out). Sums are in the places that
//! `mma` has them in, and so is the meaning.

use super::super::forward::Walk;
use super::super::mask::{Seen, Sight};
use super::super::warpgroup::{begin_scores, begin_sums, factors, tile};
use super::super::{Block, flat, fragments};
use super::intake::{Intake, Rows};
use super::{D_K, D_O, D_Q, D_V, Numbers, O, Side, warps};
use super::{of_keys, of_queries, pair, slope, walk, weight, write};
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::tensor::boxes::{Boxed, Elected};
use crate::gpu::tensor::{Source, Tile, put};
use odec_program::gpu::tensor::attend::ROWS;
use odec_program::gpu::tensor::map::BACKWARD;
use odec_program::gpu::tensor::warpgroup::{
    attend_backward_tiles, attend_other, attend_streamed, attend_tile,
};
use odec_program::kernel::Attend;

/// A block's own tiles, and those of the other side: of a block of queries keys of two turns and values of two turns; of a block of
/// keys queries of two turns, dO, rows of it in f32, twice a tile, and of o.
struct Places {
    own: [Val; 2],
    first: [Val; 2],
    second: [Val; 2],
    rows: Rows,
    numbers: Numbers,
    /// What says that a turn's tiles are there.
    mbarrier: Val,
}

impl Places {
    fn new(e: &mut Emitter, kernel: &Attend) -> Places {
        let (own, other) = (attend_tile(kernel), attend_other(kernel));
        let others = [0, 1, 2, 3, 5].map(|n| e.int((2 * own + n * other) as i64));
        let tiles = attend_backward_tiles(kernel);
        // Two numbers of four bytes for each row.
        let numbers = 2 * 2 * ROWS;
        Places {
            own: [0, own].map(|n| e.int(n as i64)),
            first: [others[0], others[1]],
            second: [others[2], others[3]],
            rows: Rows {
                wide: others[3],
                o: others[4],
                rounded: others[2],
            },
            numbers: Numbers::behind(e, 2 * tiles),
            mbarrier: e.int((tiles + numbers) as i64),
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
        elected: Elected::new(e, block.team.thread),
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
    let mut sight = |a: Sight, b: Sight| {
        let bounded = a.from.is_some() || b.from.is_some();
        let from = |s: Sight| s.from.unwrap_or(nowhere);
        Sight {
            from: bounded.then(|| either(from(a), from(b))),
            until: either(a.until, b.until),
        }
    };
    let (a, b) = (queries.seen, keys.seen);
    let (above, all) = (sight(a.rows[0], b.rows[0]), sight(a.all, b.all));
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
        seen: Seen {
            rows: [above, below],
            all,
        },
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
    elected: Elected,
    /// Of rows of the other side.
    others: Tile,
}

/// Where a block is: the first row of the other side, and for a block of keys the number among the heads of queries that read them.
#[derive(Clone, Copy)]
struct Stop {
    member: Val,
    first: Val,
}

/// What a turn begins with.
struct Turn {
    /// Of the phase that ends when its tiles are there, and the number of their places.
    parity: Val,
    stop: Stop,
    /// Of the row whose statistic the thread keeps, in a block of keys.
    shift: Val,
    /// Whether another turn follows.
    another: Val,
}

impl Work<'_> {
    fn run(&self, e: &mut Emitter) {
        let (zero, kernel) = (e.int(0), self.block.kernel);
        let stop = Stop {
            member: zero,
            first: self.walk.begin,
        };
        self.elected.prepare(e, &[self.places.mbarrier]);
        self.ask(e, self.elected, stop, zero);
        self.fetch_own(e);
        e.close_copies();
        let shift = self.beside(e, stop);
        e.await_copies(0);
        e.publish();
        e.barrier();
        let sums = flat(&self.block.nothing(e));
        let count = sums.len();
        let start = [sums.clone(), sums, vec![zero, zero, stop.first, shift]].concat();
        let length = e.sub(self.walk.end, self.walk.begin);
        let mut turns = e.div_ceil(length, self.others.rows as i64);
        if kernel.group() > 1 {
            let all = e.mul_int(turns, kernel.group() as i64);
            turns = e.select(self.of_queries, turns, all);
        }
        let done = e.for_with(zero, turns, 1, &start, |e, number, carried| {
            let (sums, rest) = carried.split_at(2 * count);
            let after = e.add_int(number, 1);
            let turn = Turn {
                parity: rest[0],
                stop: Stop {
                    member: rest[1],
                    first: rest[2],
                },
                shift: rest[3],
                another: e.below(after, turns),
            };
            self.turn(e, turn, (&sums[..count], &sums[count..]))
        });
        let [firsts, seconds] = [&done[..count], &done[count..2 * count]].map(fragments);
        e.either(self.of_queries, |e, of_queries| {
            let results = match of_queries {
                true => vec![(D_Q, &firsts)],
                false => vec![(D_V, &seconds), (D_K, &firsts)],
            };
            for (operand, sums) in results {
                write(e, &self.block, operand, sums, self.seq);
            }
        });
    }

    /// Goes through one pair of tiles; gives sums, and what the next turn begins with.
    fn turn(&self, e: &mut Emitter, turn: Turn, (firsts, seconds): (&[Val], &[Val])) -> Vec<Val> {
        let (block, places, one) = (&self.block, &self.places, e.int(1));
        let next_parity = e.xor(turn.parity, one);
        let [here, there] = [turn.parity, next_parity]
            .map(|parity| e.mul_int(parity, attend_other(block.kernel) as i64));
        let first = e.add(places.first[0], here);
        let second = e.add(places.second[0], here);
        let second = e.select(self.of_queries, second, places.second[0]);
        e.await_phase(places.mbarrier, turn.parity);
        let scores = begin_scores(e, self.others, places.own[0], first);
        // Everybody is done with what was read before.
        e.barrier();
        e.when(self.of_keys, |e| {
            let head = block.kernel.head;
            (self.intake).round(e, head, turn.shift, places.rows, &places.numbers);
            e.publish();
            e.barrier();
        });
        let rates = begin_scores(e, self.others, places.own[1], second);
        let next = self.next(e, turn.stop);
        // What nobody will wait for is not asked for.
        let asks = self.elected.provided(e, turn.another);
        self.ask(e, asks, next, there);
        let shift = self.beside(e, next);
        let scores = fragments(&e.await_products_but(1, &scores));
        let scores = flat(&self.walk.seen.only(e, block, scores, turn.stop.first));
        let count = rates.len();
        let like = [&rates, seconds].concat();
        let slopes = e.either_with(self.of_queries, &like, |e, of_queries| {
            let shifts = self.known(e, places.numbers.shift, of_queries);
            let mut weights = fragments(&scores);
            for (n, fragment) in weights.iter_mut().enumerate() {
                for (i, x) in fragment.iter_mut().enumerate() {
                    *x = weight(e, block, *x, shifts[n][i]);
                }
            }
            // What is waited for together cannot be computed later, nor in one place for both sides.
            let awaited = e.await_products(&[flat(&weights), rates.clone()].concat());
            let (weights, rates) = awaited.split_at(count);
            let weights = fragments(weights);
            let seconds = match of_queries {
                true => seconds.to_vec(),
                false => {
                    let weights = factors(e, &weights);
                    begin_sums(e, &weights, (self.others, second), seconds)
                }
            };
            let delta = self.known(e, places.numbers.delta, of_queries);
            let mut slopes = weights;
            for (n, fragment) in slopes.iter_mut().enumerate() {
                for (i, x) in fragment.iter_mut().enumerate() {
                    *x = slope(e, *x, rates[4 * n + i], delta[n][i]);
                }
            }
            let all = [flat(&slopes), seconds].concat();
            // The assembler knows no products that only some blocks have begun.
            match of_queries {
                true => all,
                false => e.await_products(&all),
            }
        });
        let (slopes, seconds) = slopes.split_at(count);
        let slopes = factors(e, &fragments(slopes));
        let firsts = begin_sums(e, &slopes, (self.others, first), firsts);
        let firsts = e.await_products(&firsts);
        let rest = [next_parity, next.member, next.first, shift];
        [&firsts[..], seconds, &rest].concat()
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

    /// Asks for tiles of the other side.
    fn ask(&self, e: &mut Emitter, by: Elected, at: Stop, turn: Val) {
        let (places, tile, zero) = (&self.places, self.others, e.int(0));
        let boxed = |operand: usize, head: Val, tile: Tile, to: Val| Boxed {
            map: BACKWARD.iter().position(|n| *n == operand).expect("a map") as u64,
            tile,
            first: vec![zero, head, at.first, self.block.batch],
            to,
        };
        let first = e.add(places.first[0], turn);
        e.either(self.of_queries, |e, of_queries| {
            let tiles = match of_queries {
                true => {
                    let (head, second) = (self.block.shared, e.add(places.second[0], turn));
                    vec![boxed(1, head, tile, first), boxed(2, head, tile, second)]
                }
                false => {
                    let head = self.block.of_member(e, at.member).head;
                    let wide = Tile {
                        cols: 2 * tile.elements() / tile.rows,
                        ..tile
                    };
                    vec![
                        boxed(0, head, tile, first),
                        boxed(O as usize, head, tile, places.rows.o),
                        boxed(D_O as usize, head, wide, places.rows.wide),
                    ]
                }
            };
            by.ask(e, &tiles, places.mbarrier);
        });
    }

    /// What a block of keys wants beside these rows.
    fn beside(&self, e: &mut Emitter, at: Stop) -> Val {
        let nothing = e.zero(e.scalar());
        let shift = e.when_with(self.of_keys, &[nothing], |e| {
            let block = &self.block.of_member(e, at.member);
            vec![self.intake.beside(e, block, self.seq, at.first)]
        });
        shift[0]
    }
}
