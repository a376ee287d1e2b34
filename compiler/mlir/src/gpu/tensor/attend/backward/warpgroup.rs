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
use super::super::{Block, flat, fragments, number};
use super::{D_K, D_O, D_Q, D_V, DELTA, LSE, Numbers, Rows, Side};
use super::{of_keys, of_queries, pair, slope, walk, weight, write};
use crate::emit::{Cmp, Emitter, Val};
use crate::gpu::tensor::boxes::{Boxed, Elected};
use crate::gpu::tensor::{Source, Tile, put};
use odec_program::gpu::tensor::attend::{ROWS, THREADS};
use odec_program::gpu::tensor::map::BACKWARD;
use odec_program::gpu::tensor::warpgroup::{
    attend_backward_tiles, attend_other, attend_streamed, attend_tile,
};
use odec_program::kernel::Attend;
use std::f64::consts::LOG2_E;

/// A block's own tiles, and those of the other side, of two turns: keys and values, or queries and dO. Numbers, of two turns as well, are those of
/// queries.
struct Places {
    own: [Val; 2],
    first: Val,
    second: Val,
    numbers: Numbers,
    /// What says that a turn's tiles are there.
    mbarrier: Val,
}

impl Places {
    fn new(e: &mut Emitter, kernel: &Attend) -> Places {
        let (own, other) = (attend_tile(kernel), attend_other(kernel));
        let tiles = attend_backward_tiles(kernel);
        // Numbers are twice as wide as elements.
        let numbers = 2 * 2 * NUMBERS;
        Places {
            own: [0, own].map(|n| e.int(n as i64)),
            first: e.int((2 * own) as i64),
            second: e.int((2 * own + 2 * other) as i64),
            numbers: Numbers::behind(e, 2 * tiles),
            mbarrier: e.int((tiles + numbers) as i64),
        }
    }
}

/// The kernel, all of whose blocks meet here. `number` is the block's; from `half` on, they have keys.
pub(super) fn emit(
    e: &mut Emitter,
    kernel: &Attend,
    rows: Rows,
    of_queries: Val,
    (number, half): (Val, Val),
) {
    let among = e.sub(number, half);
    let number = e.select(of_queries, number, among);
    let own = match kernel.others {
        true => e.select(of_queries, rows.queries, rows.keys),
        false => rows.queries,
    };
    let block = Block::of_either(e, kernel, of_queries, (number, own));
    let sides = [Side::Queries, Side::Keys].map(|side| walk(e, &block, side, rows));
    let walk = either_walk(e, kernel, of_queries, sides);
    let places = Places::new(e, kernel);
    let others = tile(&block, attend_streamed(kernel));
    let work = Work {
        brought: Brought::new(e, &block),
        elected: Elected::new(e, block.team.thread),
        block,
        of_queries,
        rows,
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
    rows: Rows,
    walk: Walk,
    places: Places,
    brought: Brought,
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
    /// What the thread has brought.
    brought: Val,
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
        let brought = self.bring(e, stop);
        e.await_copies(0);
        e.publish();
        e.barrier();
        let sums = flat(&self.block.nothing(e));
        let count = sums.len();
        let start = [sums.clone(), sums, vec![zero, zero, stop.first, brought]].concat();
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
                brought: rest[3],
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
                write(e, &self.block, operand, sums, self.rows);
            }
        });
    }

    /// Goes through one pair of tiles; gives sums, and what the next turn begins with.
    fn turn(&self, e: &mut Emitter, turn: Turn, (firsts, seconds): (&[Val], &[Val])) -> Vec<Val> {
        let (block, places, one) = (&self.block, &self.places, e.int(1));
        let next_parity = e.xor(turn.parity, one);
        let [here, there] = [turn.parity, next_parity]
            .map(|parity| e.mul_int(parity, attend_other(block.kernel) as i64));
        let first = e.add(places.first, here);
        let second = e.add(places.second, here);
        e.await_phase(places.mbarrier, turn.parity);
        let scores = begin_scores(e, self.others, places.own[0], first);
        let rates = begin_scores(e, self.others, places.own[1], second);
        let numbers = self.put_down(e, &turn);
        // Everybody is done with what was read before, and numbers are there.
        e.barrier();
        let next = self.next(e, turn.stop);
        // What nobody will wait for is not asked for.
        let asks = self.elected.provided(e, turn.another);
        self.ask(e, asks, next, there);
        let brought = self.bring(e, next);
        let scores = fragments(&e.await_products_but(1, &scores));
        let scores = flat(&self.walk.seen.only(e, block, scores, turn.stop.first));
        let count = rates.len();
        let like = [&rates, seconds].concat();
        let slopes = e.either_with(self.of_queries, &like, |e, of_queries| {
            let shifts = self.known(e, numbers.shift, of_queries);
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
            let delta = self.known(e, numbers.delta, of_queries);
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
        let rest = [next_parity, next.member, next.first, brought];
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

    /// Brings the block's own tiles; the caller waits.
    fn fetch_own(&self, e: &mut Emitter) {
        let (block, zero) = (&self.block, e.int(0));
        let own = tile(block, ROWS);
        e.either(self.of_queries, |e, are_queries| {
            let sources: [Source; 2] = match are_queries {
                true => of_queries(e, block, self.rows),
                false => of_keys(e, block, self.rows),
            };
            for (source, to) in sources.into_iter().zip(self.places.own) {
                let loaded = source.fetch(e, block.team, block.row, zero, own, to);
                put(e, loaded, to);
            }
        });
    }

    /// Asks for tiles of the other side.
    fn ask(&self, e: &mut Emitter, by: Elected, at: Stop, turn: Val) {
        let (places, tile, zero) = (&self.places, self.others, e.int(0));
        let boxed = |operand: u64, head: Val, to: Val| Boxed {
            map: BACKWARD
                .iter()
                .position(|n| *n as u64 == operand)
                .expect("a map") as u64,
            tile,
            at_once: false,
            first: vec![zero, head, at.first, self.block.batch],
            to,
        };
        let first = e.add(places.first, turn);
        let second = e.add(places.second, turn);
        e.either(self.of_queries, |e, of_queries| {
            let tiles = match of_queries {
                true => {
                    let head = self.block.shared;
                    vec![boxed(1, head, first), boxed(2, head, second)]
                }
                false => {
                    let head = self.block.of_member(e, at.member).head;
                    vec![boxed(0, head, first), boxed(D_O, head, second)]
                }
            };
            by.ask(e, &tiles, places.mbarrier);
        });
    }

    /// The first row of the queries of a turn: the block's own, or those at a stop.
    fn queries(&self, e: &mut Emitter, at: Stop) -> Val {
        e.select(self.of_queries, self.block.row, at.first)
    }

    /// Loads the thread's number of a turn, which nobody waits for before that turn.
    fn bring(&self, e: &mut Emitter, at: Stop) -> Val {
        let mut block = self.block.of_member(e, at.member);
        block.head = match block.kernel.group() {
            1 => self.block.head,
            _ => e.select(self.of_queries, self.block.head, block.head),
        };
        let first = self.queries(e, at);
        self.brought.load(e, &block, self.rows.queries, first)
    }

    /// Puts it where those of its turn are; gives their places.
    fn put_down(&self, e: &mut Emitter, turn: &Turn) -> Numbers {
        let places = &self.places.numbers;
        let here = e.mul_int(turn.parity, NUMBERS as i64);
        let numbers = Numbers {
            shift: e.at(places.shift, here, e.elem),
            delta: e.at(places.delta, here, e.elem),
        };
        let first = self.queries(e, turn.stop);
        let queries = self.rows.queries;
        let number = self.brought.made_of(e, turn.brought, queries, first);
        let p = e.at(numbers.shift, self.block.team.thread, e.elem);
        e.store(number, p);
        numbers
    }
}

/// Numbers of a turn: two for each of 64 rows, one for each thread.
const NUMBERS: u64 = 2 * ROWS;
const _: () = assert!(NUMBERS == THREADS);

/// The number that a thread brings for a turn: −lse · log₂ e of one of 64 rows, or δ.
struct Brought {
    row: Val,
    pointer: Val,
    factor: Val,
    /// That of a row that there is not, which gives it no weight.
    nowhere: Val,
}

impl Brought {
    fn new(e: &mut Emitter, block: &Block) -> Brought {
        let (thread, rows) = (block.team.thread, e.int(ROWS as i64));
        let shifts = e.below(thread, rows);
        let [lse, delta] = [LSE, DELTA].map(|n| e.operand(n));
        let mut either = |a: f64, b: f64| {
            let [a, b] = [a, b].map(|x| number(e, x));
            e.select(shifts, a, b)
        };
        let (factor, nowhere) = (either(-LOG2_E, 1.0), either(f64::NEG_INFINITY, 0.0));
        Brought {
            row: e.rem(thread, rows),
            pointer: e.select(shifts, lse, delta),
            factor,
            nowhere,
        }
    }

    /// What it is made of, of the rows from `first` on.
    fn load(&self, e: &mut Emitter, block: &Block, seq: Val, first: Val) -> Val {
        let (query, last) = (e.add(first, self.row), e.add_int(seq, -1));
        let row = e.min(query, last);
        let p = block.statistic_of(e, self.pointer, seq, row);
        e.load(p, e.scalar())
    }

    fn made_of(&self, e: &mut Emitter, loaded: Val, seq: Val, first: Val) -> Val {
        let (query, x) = (e.add(first, self.row), e.mul(loaded, self.factor));
        let exists = e.below(query, seq);
        e.select(exists, x, self.nowhere)
    }
}
