//! Attention, backward.
//!
//! Takes an [`Attend`] spec. One half of the blocks computes gradients of queries, walking over keys; the other half those
//! of keys and values, walking over queries. Both compute the weights again from the scores and the forward kernel's
//! statistic, so no block waits for another and nothing is added up by several. Blocks of keys go over the heads that share
//! them in order. Where scores have biases by distance, more blocks compute their gradients, 32 distances each: they walk over the queries, with the keys
//! that are so far from these.

use super::part::{Part, Rows};
use super::scores::{Bias, biased};
use super::{MINE, PITCH, Seen, Side, Work, each_member, keys_of, number, shared_by, window};
use crate::body::apply;
use crate::emit::{Cmp, Emitter, Type, Val};
use crate::gpu::stage::Matrix;
use odec_program::expr::UnaryOp;
use odec_program::gpu::attend::{COLS, ROWS, SCORES, THREADS, staged};
use odec_program::kernel::Attend;

/// q, k, v, o and dO.
const INPUTS: u64 = 6;
const O: u64 = 3;
const LSE: u64 = 4;
const D_O: u64 = 5;
const NUMBERS: u64 = 9;
const D_DISTANCES: u64 = 9;
const BIASES: u64 = 10;

/// Dims `[batch, seq]`, and how many keys where these are others; operands q, k, v, o, lse, d_o, d_q, d_k, d_v, and d_distances and biases
/// if there are.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let (batch, seq) = (e.dim(0), e.dim(1));
    let of_keys = keys_of(e, kernel, seq);
    let rows = [seq, of_keys];
    let block = e.block();
    let tiles = e.div_ceil(seq, ROWS as i64);
    let half = e.mul(batch, tiles);
    let half = e.mul_int(half, kernel.heads as i64);
    let of_queries = e.below(block, half);
    e.either(of_queries, |e, of_queries| match of_queries {
        true => {
            let work = Work::new(e, kernel, INPUTS, Side::Queries, (block, seq));
            of_some(e, &work, (Side::Queries, rows), &[6], queries);
        }
        false => {
            let tile = e.sub(block, half);
            let of_a_key = |e: &mut Emitter| {
                let work = Work::new(e, kernel, INPUTS, Side::Keys, (tile, of_keys));
                of_some(e, &work, (Side::Keys, rows), &[7, 8], keys);
            };
            if kernel.scores.distances.is_none() {
                return of_a_key(e);
            }
            let second = e.mul(batch, tiles);
            let second = e.mul_int(second, kernel.kv_heads as i64);
            let of_keys = e.below(tile, second);
            e.either(of_keys, |e, of_keys| match of_keys {
                true => of_a_key(e),
                false => {
                    let tile = e.sub(tile, second);
                    distances(e, kernel, (tile, seq));
                }
            });
        }
    });
    Ok(())
}

/// The tokens that queries and keys of a sequence are of.
#[derive(Clone, Copy)]
struct Sides {
    queries: Tokens,
    keys: Tokens,
}

/// The tokens of a sequence, or those of them that take part.
#[derive(Clone, Copy)]
struct Tokens {
    all: Val,
    /// Those that take part, and how many.
    part: Option<(Part, Val)>,
}

impl Tokens {
    /// How many rows there are.
    fn count(&self) -> Val {
        self.part.map_or(self.all, |(_, count)| count)
    }

    /// An operand's rows, of which those from `first` on are at hand.
    fn matrix(&self, e: &mut Emitter, work: &Work, operand: u64, at: (Rows, Val)) -> Matrix {
        let all = work.matrix(e, operand, self.all);
        match self.part {
            Some((part, count)) => {
                let listed = part.listed(e, at, false);
                Part::matrix(all, listed, count)
            }
            None => all,
        }
    }

    /// Brings the rows from `first` on to hand.
    fn list(&self, e: &mut Emitter, work: &Work, (rows, first): (Rows, Val)) {
        if let Some((part, _)) = self.part {
            part.list(e, work, rows, first, self.all);
        }
    }

    /// The row in memory of one that takes part; rows beyond the last repeat it.
    fn row(&self, e: &mut Emitter, at: (Rows, Val), row: Val) -> Val {
        let last = e.add_int(self.count(), -1);
        let row = e.min(row, last);
        match self.part {
            Some((part, _)) => part.listed(e, at, false).row(e, row),
            None => row,
        }
    }
}

/// Calls `f` if a block of a side has rows that take part, of so many queries and keys; the others' gradients, these operands, become zero.
fn of_some(
    e: &mut Emitter,
    work: &Work,
    (side, rows): (Side, [Val; 2]),
    operands: &[u64],
    f: impl FnOnce(&mut Emitter, &Work, Sides),
) {
    let [queries, mut keys] = rows.map(|all| Tokens { all, part: None });
    if !work.kernel.partial {
        return f(e, work, Sides { queries, keys });
    }
    let (zero, before) = (e.int(0), e.mul(work.batch, keys.all));
    let part = Part::of(e, work, NUMBERS, before, zero);
    let count = part.count(e, work, keys.all);
    keys.part = Some((part, count));
    let sides = match work.kernel.others {
        true => Sides { queries, keys },
        false => Sides {
            queries: keys,
            keys,
        },
    };
    let own = match side {
        Side::Queries => sides.queries,
        Side::Keys => sides.keys,
    };
    if own.part.is_none() {
        return f(e, work, sides);
    }
    let some = e.below(work.row, count);
    e.when(some, |e| {
        own.list(e, work, (Rows::Own, work.row));
        f(e, work, sides);
    });
    for operand in operands {
        let all = work.matrix(e, *operand, own.all);
        part.clear(e, work, (*operand, all), None);
    }
}

/// dQ = dS·K.
fn queries(e: &mut Emitter, work: &Work, sides: Sides) {
    let own = (Rows::Own, work.row);
    let [q, d_o, d_q] = [0, 5, 6].map(|n| sides.queries.matrix(e, work, n, own));
    deltas(e, work, sides.queries, own, ROWS);
    e.barrier();
    // The thread's rows; those beyond the last repeat it.
    let own_rows = own;
    let own = work.own_row(e);
    let place = delta_place(e, work);
    let rows: Vec<(Val, Val)> = (0..MINE as i64)
        .map(|i| {
            let r = e.add_int(own, i);
            let delta = number(e, place, r);
            let r = e.add(work.row, r);
            (statistic(e, work, sides.queries, own_rows, r), delta)
        })
        .collect();
    let all = sides.keys.count();
    let end = match work.kernel.causal {
        true => {
            let end = e.add_int(work.row, ROWS as i64);
            e.min(end, all)
        }
        false => all,
    };
    let zero = e.int(0);
    let from = window(work.kernel).map(|w| e.int(1 - w));
    let begin = from.map_or(zero, |from| {
        let first = e.add(work.row, from);
        e.max(first, zero)
    });
    let seen = Seen {
        begin,
        end,
        from,
        to: work.kernel.causal.then_some(zero),
    };
    let slopes = work.weights(e, 1);
    let start = work.nothing(e, 6);
    let bias = Bias::of(e, work.kernel, BIASES, work.head);
    let query = e.add(work.row, own);
    let sums = e.for_with(begin, end, COLS as i64, &start, |e, first, sums| {
        let others = (Rows::Other, first);
        sides.keys.list(e, work, others);
        let [k, v] = [1, 2].map(|n| sides.keys.matrix(e, work, n, others));
        let scores = work.products(e, q, k, first);
        let rates = work.products(e, d_o, v, first);
        let numbers: Vec<Val> = (0..scores.len())
            .map(|n| {
                let (lse, delta) = rows[n / 4];
                let (query, key) = (e.add_int(query, n as i64 / 4), other(e, work, first, n));
                let score = (scores[n], bias, (key, query));
                weight(e, work, score, rates[n], lse, delta).1
            })
            .collect();
        work.put(e, slopes, &numbers);
        e.barrier();
        work.accumulate(e, slopes, (1, k), first, &seen, sums)
    });
    work.write(e, (6, d_q), &sums, None);
}

/// dV = Pᵀ·dO, dK = dSᵀ·Q.
fn keys(e: &mut Emitter, work: &Work, sides: Sides) {
    let own = (Rows::Own, work.row);
    let [k, v, d_k, d_v] = [1, 2, 7, 8].map(|n| sides.keys.matrix(e, work, n, own));
    let all = sides.queries.count();
    let zero = e.int(0);
    let begin = match work.kernel.causal {
        true => e.floor_to(work.row, COLS as i64),
        false => zero,
    };
    let to = window(work.kernel).map(|w| e.int(w - 1));
    let end = to.map_or(all, |to| {
        let end = e.add_int(work.row, ROWS as i64);
        let end = e.add(end, to);
        e.min(end, all)
    });
    let seen = Seen {
        begin: match work.kernel.causal {
            true => work.row,
            false => zero,
        },
        end,
        from: work.kernel.causal.then_some(zero),
        to,
    };
    let (weights, slopes) = (work.weights(e, 0), work.weights(e, 1));
    let place = delta_place(e, work);
    let own = e.mul_int(work.x, 4);
    let of_values = work.nothing(e, 8);
    let count = of_values.len();
    let start = [of_values, work.nothing(e, 7)].concat();
    let sums = each_member(e, work.kernel, &start, |e, member, sums| {
        let work = &work.of_member(e, member);
        let bias = Bias::of(e, work.kernel, BIASES, work.head);
        let key = work.own_row(e);
        let key = e.add(work.row, key);
        e.for_with(begin, end, COLS as i64, sums, |e, first, sums| {
            let others = (Rows::Other, first);
            sides.queries.list(e, work, others);
            let [q, d_o] = [0, 5].map(|n| sides.queries.matrix(e, work, n, others));
            deltas(e, work, sides.queries, others, COLS);
            let scores = work.products(e, k, q, first);
            let rates = work.products(e, v, d_o, first);
            let columns: Vec<(Val, Val)> = (0..4)
                .map(|j| {
                    let c = e.add_int(own, j);
                    let delta = number(e, place, c);
                    let c = e.add(first, c);
                    (statistic(e, work, sides.queries, others, c), delta)
                })
                .collect();
            let numbers: Vec<(Val, Val)> = (0..scores.len())
                .map(|n| {
                    let (lse, delta) = columns[n % 4];
                    let (key, query) = (e.add_int(key, n as i64 / 4), other(e, work, first, n));
                    let score = (scores[n], bias, (key, query));
                    weight(e, work, score, rates[n], lse, delta)
                })
                .collect();
            let (p, s): (Vec<Val>, Vec<Val>) = numbers.into_iter().unzip();
            work.put(e, weights, &p);
            work.put(e, slopes, &s);
            e.barrier();
            let of_values = work.accumulate(e, weights, (5, d_o), first, &seen, &sums[..count]);
            let of_keys = work.accumulate(e, slopes, (0, q), first, &seen, &sums[count..]);
            [of_values, of_keys].concat()
        })
    });
    work.write(e, (8, d_v), &sums[..count], None);
    work.write(e, (7, d_k), &sums[count..], None);
}

/// Which row of the other side, of 64 from `first` on, the thread's number `n` of 4 × 4 is of.
fn other(e: &mut Emitter, work: &Work, first: Val, n: usize) -> Val {
    let own = e.mul_int(work.x, 4);
    let at = e.add(first, own);
    e.add_int(at, n as i64 % 4)
}

/// Sums of gradients of scores at 32 distances, of keys before their queries, or of keys behind them. Tiles of 32 queries and of the 63 keys that are so far
/// from these; then each thread of a warp walks along its distance's diagonal.
fn distances(e: &mut Emitter, kernel: &Attend, (tile, seq): (Val, Val)) {
    let columns = Work::new(e, kernel, INPUTS, Side::Queries, (tile, seq));
    let tiles = e.div_ceil(seq, ROWS as i64);
    // The block's number counts columns of the table where that of queries counts heads.
    let (of_all, within) = (e.div(tile, tiles), e.rem(tile, tiles));
    let (in_table, heads) = (
        e.int(kernel.bias_columns() as i64),
        e.int(kernel.heads as i64),
    );
    let (batch, column) = (e.div(of_all, in_table), e.rem(of_all, in_table));
    let head = e.rem(column, heads);
    let nearest = e.mul_int(within, ROWS as i64);
    let zero = e.int(0);
    let columns = Work {
        batch,
        head,
        shared: shared_by(e, kernel, head),
        ..columns
    };
    let before = e.below(column, heads);
    let all = Tokens {
        all: seq,
        part: None,
    };
    let place = delta_place(e, &columns);
    let slopes = columns.weights(e, 0);
    let mine = e.add(nearest, columns.lane);
    let nothing = e.float(0.0, e.scalar());
    let bias = Bias::of(e, kernel, BIASES, head);
    // The first query that has a key so far before it, or the first of all; in whole tiles.
    let begin = e.select(before, nearest, zero);
    let sum = e.for_with(begin, seq, ROWS as i64, &[nothing], |e, row, sum| {
        let work = &Work { row, ..columns };
        // The first key of the tile: of those before, the farthest one.
        let farthest = e.sub(row, nearest);
        let farthest = e.add_int(farthest, 1 - ROWS as i64);
        let farthest = e.max(farthest, zero);
        let next = e.add(row, nearest);
        let first = e.select(before, farthest, next);
        let at = (Rows::Own, row);
        let [q, d_o] = [0, D_O].map(|n| all.matrix(e, work, n, at));
        let [k, v] = [1, 2].map(|n| all.matrix(e, work, n, at));
        deltas(e, work, all, at, ROWS);
        e.barrier();
        let scores = work.products(e, q, k, first);
        let rates = work.products(e, d_o, v, first);
        let own = work.own_row(e);
        let numbers: Vec<Val> = (0..scores.len())
            .map(|n| {
                let r = e.add_int(own, n as i64 / 4);
                let delta = number(e, place, r);
                let query = e.add(row, r);
                let lse = statistic(e, work, all, at, query);
                let score = (scores[n], bias, (other(e, work, first, n), query));
                gradients(e, work, score, rates[n], lse, delta).1
            })
            .collect();
        work.put(e, slopes, &numbers);
        e.barrier();
        let (rows, left) = (e.int(ROWS as i64), e.sub(seq, row));
        let rows = e.min(rows, left);
        let sum = e.for_with(zero, rows, 1, sum, |e, r, sum| {
            let query = e.add(row, r);
            let (earlier, later) = (e.sub(query, mine), e.add(query, mine));
            let key = e.select(before, earlier, later);
            let is_there = e.cmp(Cmp::Ge, key, zero);
            let exists = e.below(key, seq);
            let mut counts = e.and(is_there, exists);
            if !kernel.causal {
                // The token itself is before.
                let some = e.cmp(Cmp::Gt, mine, zero);
                let one = e.or(before, some);
                counts = e.and(counts, one);
            }
            if let Some(window) = window(kernel) {
                let window = e.int(window);
                let near = e.below(mine, window);
                counts = e.and(counts, near);
            }
            let at = e.sub(key, first);
            let (low, high) = (e.max(at, zero), e.int(COLS as i64 - 1));
            let at = e.min(low, high);
            let at = e.mul_int(at, PITCH as i64);
            let at = e.add(at, r);
            let slope = number(e, slopes, at);
            let more = e.add(sum[0], slope);
            vec![e.select(counts, more, sum[0])]
        });
        e.barrier();
        sum
    })[0];
    // The first warp speaks for all.
    let (first_warp, exists) = (e.int(ROWS as i64), e.below(mine, seq));
    let speaks = e.below(columns.team.thread, first_warp);
    let writes = e.and(speaks, exists);
    e.when(writes, |e| {
        let at = e.mul(batch, seq);
        let at = e.add(at, mine);
        let at = e.mul(at, in_table);
        let at = e.add(at, column);
        let to = e.operand(D_DISTANCES);
        let p = e.at(to, at, e.elem);
        e.store(sum, p);
    });
}

/// A product of a query and a key, what is added to it, and which key and query they are.
type Score<'a> = (Val, Option<Bias<'a>>, (Val, Val));

/// The weight of a pair, and the gradient of its score before scaling.
fn weight(
    e: &mut Emitter,
    work: &Work,
    score: Score,
    rate: Val,
    lse: Val,
    delta: Val,
) -> (Val, Val) {
    let (p, slope, bend) = gradients(e, work, score, rate, lse, delta);
    let slope = bend.map_or(slope, |bend| e.mul(slope, bend));
    let scale = work.scale(e);
    (p, e.mul(slope, scale))
}

/// The weight of a pair, the gradient of what it is the weight of, and what the bound of scores multiplies that by.
fn gradients(
    e: &mut Emitter,
    work: &Work,
    (score, bias, pair): Score,
    rate: Val,
    lse: Val,
    delta: Val,
) -> (Val, Val, Option<Val>) {
    let scale = work.scale(e);
    let scaled = e.mul(score, scale);
    let (score, bend) = biased(e, work.kernel, scaled, bias, pair);
    let shifted = e.sub(score, lse);
    let p = apply(e, UnaryOp::Exp, shifted);
    let away = e.sub(rate, delta);
    (p, e.mul(p, away), bend)
}

/// The forward kernel's statistic of a row; rows beyond the last repeat it.
fn statistic(e: &mut Emitter, work: &Work, tokens: Tokens, at: (Rows, Val), row: Val) -> Val {
    let row = tokens.row(e, at, row);
    let p = work.statistic(e, LSE, tokens.all, row);
    e.load(p, e.scalar())
}

fn delta_place(e: &mut Emitter, work: &Work) -> Val {
    e.shared(staged(work.kernel) + 2 * SCORES)
}

/// δ = Σ o ∘ dO of `count` rows from `first` on, into shared memory: 16 threads to a row, one virtual lane each. Where it was made before, those threads
/// bring it.
fn deltas(e: &mut Emitter, work: &Work, tokens: Tokens, at: (Rows, Val), count: u64) {
    let all = tokens.all;
    let rows = (!work.kernel.reads_delta()).then(|| [O, D_O].map(|n| work.matrix(e, n, all)));
    let place = delta_place(e, work);
    let zero = e.int(0);
    let at_once = THREADS / 16;
    for turn in 0..count / at_once {
        let slot = e.add_int(work.y, (turn * at_once) as i64);
        let row = e.add(at.1, slot);
        let row = tokens.row(e, at, row);
        let Some([o, d_o]) = rows else {
            let p = work.statistic(e, O, all, row);
            let delta = e.load(p, e.scalar());
            let p = e.at(place, slot, e.elem);
            e.store(delta, p);
            continue;
        };
        let base = e.mul(row, o.stride);
        let nothing = e.float(0.0, e.scalar());
        let mut sum = e.for_with(work.x, o.cols, 16, &[nothing], |e, c, sum| {
            let at = e.add(base, c);
            let (p, r) = (e.at(o.pointer, at, o.elem), e.at(d_o.pointer, at, e.elem));
            let a = e.load(p, Type::scalar(o.elem));
            let b = e.load(r, e.scalar());
            vec![e.fma(a, b, sum[0])]
        })[0];
        for distance in [8, 4, 2, 1] {
            let far = e.at_distance(sum, distance);
            sum = e.add(sum, far);
        }
        let speaks = e.cmp(Cmp::Eq, work.x, zero);
        e.when(speaks, |e| {
            let p = e.at(place, slot, e.elem);
            e.store(sum, p);
        });
    }
}
