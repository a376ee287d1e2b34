//! Attention, forward: of whole sequences, and of a few tokens after those whose keys and values are kept.
//!
//! Takes an [`Attend`] spec. Walks over blocks of 64 keys with a running maximum and sum for each query, as
//! [`odec_program::kernel::Attend`] says. Every warp keeps both for all 32 queries of the block, one per thread, so that they need
//! not pass through shared memory. With a window, a row may see nothing of a tile that others see: it changes nothing.

use super::part::{Part, Rows};
use super::scores::{Bias, biased};
use super::{MINE, PITCH, Seen, Side, Work, keys_of, number, spread, window};
use crate::body::apply;
use crate::emit::{Emitter, Val};
use crate::gpu::rows::index;
use crate::gpu::stage::Matrix;
use odec_program::expr::UnaryOp;
use odec_program::gpu::attend::{COLS, ROWS};
use odec_program::kernel::Attend;

/// q, k and v.
const INPUTS: u64 = 3;
const LSE: u64 = 4;
/// In the place of it, in the cached kernel of several sequences.
const PLACES: u64 = 4;

/// Dims `[batch, seq]`, and how many keys where these are others; operands q, k, v, o, lse, and sinks and biases if there are.
pub(in crate::gpu) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let seq = e.dim(1);
    let keys = keys_of(e, kernel, seq);
    let zero = e.int(0);
    attend(e, kernel, (seq, zero, keys), Some(LSE));
    Ok(())
}

/// Dims `[seq, past]`, and how many sequences where each has room of its own; operands q, k, v, o, the positions of queries where each sequence has
/// its own, and sinks and biases if there are.
pub(in crate::gpu) fn emit_cached(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let (seq, past) = (e.dim(0), e.dim(1));
    let rows = match kernel.room {
        None if !kernel.causal => return Err("attention to kept keys is causal".into()),
        None => e.add(past, seq),
        Some(room) => e.int(room as i64),
    };
    attend(e, kernel, (seq, past, rows), None);
    Ok(())
}

/// `seq` queries, of which number i stands at `past + i`; each sequence has `rows` rows of keys, of which `past + seq` are there, or all where it is
/// not causal. The statistic, where it is kept, is that operand.
fn attend(
    e: &mut Emitter,
    kernel: &Attend,
    (seq, past, rows): (Val, Val, Val),
    statistic: Option<u64>,
) {
    let tile = e.block();
    let work = Work::new(e, kernel, INPUTS, Side::Queries, (tile, seq));
    let own = kernel.own_positions().is_some();
    let past = match own {
        true => {
            let places = e.operand(PLACES);
            index(e, places, work.batch)
        }
        false => past,
    };
    let total = match kernel.causal {
        true => e.add(past, seq),
        false => rows,
    };
    let sinks = statistic.map_or(PLACES + u64::from(own), |n| n + 1);
    let [q, k, v, out] =
        [(0, seq), (1, rows), (2, rows), (3, seq)].map(|(n, rows)| work.matrix(e, n, rows));
    let block = Block {
        work,
        past,
        total,
        queries: seq,
        matrices: [q, k, v, out],
        part: None,
        sinks,
        statistic,
    };
    if !kernel.partial {
        return block.emit(e);
    }
    let operand = work.behind_sinks(sinks);
    let before = e.mul(work.batch, rows);
    let part = Part::of(e, &work, operand, before, past);
    if kernel.may_see_nothing() {
        // All queries take part.
        let some = Block {
            total: part.count(e, &work, total),
            part: Some((part, total)),
            ..block
        };
        return some.emit(e);
    }
    let earlier = part.count(e, &work, past);
    let all = part.count(e, &work, total);
    let queries = e.sub(all, earlier);
    let some = e.below(work.row, queries);
    e.when(some, |e| {
        let first = e.add(work.row, earlier);
        part.list(e, &work, Rows::Own, first, total);
        let rows = part.listed(e, (Rows::Own, work.row), true);
        let [q, out] = [q, out].map(|all| Part::matrix(all, rows, queries));
        let block = Block {
            past: earlier,
            total: all,
            queries,
            matrices: [q, k, v, out],
            part: Some((part, total)),
            ..block
        };
        block.emit(e);
    });
    part.clear(e, &work, (3, out), statistic);
}

/// A block of queries, and all that they may see.
struct Block<'a> {
    work: Work<'a>,
    /// Keys before those of the queries, all keys, and queries.
    past: Val,
    total: Val,
    queries: Val,
    /// Queries, keys, values and results.
    matrices: [Matrix; 4],
    /// Which keys take part, of so many tokens, where some do not; which queries, the lists of their matrices say.
    part: Option<(Part, Val)>,
    /// The operands of sinks and of the statistic.
    sinks: u64,
    statistic: Option<u64>,
}

impl Block<'_> {
    fn emit(self, e: &mut Emitter) {
        let Block {
            work,
            past,
            total,
            queries: seq,
            matrices: [q, k, v, out],
            part,
            sinks,
            statistic,
        } = self;
        let kernel = work.kernel;
        // How many keys the query of this thread sees, and the last one of the block.
        let row = e.add(work.row, work.lane);
        let (keys, end) = match kernel.causal {
            true => {
                let sees = |e: &mut Emitter, row: Val| {
                    let n = e.add(past, row);
                    let n = e.add_int(n, 1);
                    e.min(n, total)
                };
                let last = e.add_int(work.row, ROWS as i64 - 1);
                (sees(e, row), sees(e, last))
            }
            false => (total, total),
        };
        let zero = e.int(0);
        let from = window(kernel).map(|w| e.add_int(past, 1 - w));
        let begin = match from {
            Some(from) => {
                let first = e.add(work.row, from);
                let first = e.max(first, zero);
                e.floor_to(first, COLS as i64)
            }
            None => zero,
        };
        let seen = Seen {
            begin,
            end,
            from,
            to: kernel.causal.then_some(past),
        };
        let first_key = from.map(|from| e.add(row, from));
        let weights = work.weights(e, 0);
        let scale = work.scale(e);
        let block = e.int(COLS as i64);
        let mut start = match kernel.scores.sinks {
            true => {
                let sinks = e.operand(sinks);
                let p = e.at(sinks, work.head, e.elem);
                vec![e.load(p, e.scalar()), e.float(1.0, e.scalar())]
            }
            false => vec![
                e.float(f64::NEG_INFINITY, e.scalar()),
                e.float(0.0, e.scalar()),
            ],
        };
        start.extend(work.nothing(e, 3));
        let bias = Bias::of(e, kernel, work.behind_sinks(sinks), work.head);
        let done = e.for_with(begin, end, COLS as i64, &start, |e, first, carried| {
            let (before, sum, o) = (carried[0], carried[1], &carried[2..]);
            let [k, v] = match part {
                Some((part, tokens)) => {
                    part.list(e, &work, Rows::Other, first, tokens);
                    let rows = part.listed(e, (Rows::Other, first), false);
                    [k, v].map(|all| Part::matrix(all, rows, total))
                }
                None => [k, v],
            };
            let scores = work.products(e, q, k, first);
            let scores: Vec<Val> = scores.iter().map(|s| e.mul(*s, scale)).collect();
            let scores = shape(e, &work, scores, bias, (first, past));
            work.put(e, weights, &scores);
            e.barrier();
            let within = |e: &mut Emitter, key: Val| {
                let here = e.sub(key, first);
                let here = e.max(here, zero);
                e.min(here, block)
            };
            let here = within(e, keys);
            let low = first_key.map_or(zero, |key| within(e, key));
            let score = |e: &mut Emitter, j: Val| {
                let at = e.mul_int(j, PITCH as i64);
                let at = e.add(at, work.lane);
                number(e, weights, at)
            };
            let max = e.for_with(low, here, 1, &[before], |e, j, max| {
                let s = score(e, j);
                vec![e.max_float(max[0], s)]
            })[0];
            let moved = e.sub(before, max);
            let moved = match first_key {
                Some(_) => {
                    let (sees, still) = (e.below(low, here), e.float(0.0, e.scalar()));
                    e.select(sees, moved, still)
                }
                None => moved,
            };
            let shrink = apply(e, UnaryOp::Exp, moved);
            // Everybody has read the scores before they become weights.
            e.barrier();
            let maxima = spread(e, &work, max);
            let exponentials: Vec<Val> = scores
                .iter()
                .enumerate()
                .map(|(n, s)| {
                    let x = e.sub(*s, maxima[n / 4]);
                    apply(e, UnaryOp::Exp, x)
                })
                .collect();
            work.put(e, weights, &exponentials);
            e.barrier();
            let nothing = e.float(0.0, e.scalar());
            let total = e.for_with(low, here, 1, &[nothing], |e, j, total| {
                let p = score(e, j);
                vec![e.add(total[0], p)]
            })[0];
            let sum = e.fma(sum, shrink, total);
            let factors = spread(e, &work, shrink);
            let per = o.len() / factors.len();
            let o: Vec<Val> = o
                .iter()
                .enumerate()
                .map(|(n, x)| e.mul(*x, factors[n / per]))
                .collect();
            let o = work.accumulate(e, weights, (2, v), first, &seen, &o);
            [vec![max, sum], o].concat()
        });
        let (max, mut sum, o) = (done[0], done[1], &done[2..]);
        let one = e.float(1.0, e.scalar());
        if kernel.may_see_nothing() {
            sum = e.max_float(sum, one);
        }
        let inverse = e.div(one, sum);
        let factors = spread(e, &work, inverse);
        work.write(e, (3, out), o, Some(&factors));
        if let Some(operand) = statistic {
            // The first warp speaks for all.
            let thirty_two = e.int(ROWS as i64);
            let (speaks, exists) = (e.below(work.team.thread, thirty_two), e.below(row, seq));
            let writes = e.and(speaks, exists);
            e.when(writes, |e| {
                let log = apply(e, UnaryOp::Log, sum);
                let lse = e.add(max, log);
                let (rows, row) = match (part, out.listed) {
                    (Some((_, tokens)), Some(listed)) => (tokens, listed.row(e, row)),
                    _ => (seq, row),
                };
                let p = work.statistic(e, operand, rows, row);
                e.store(lse, p);
            });
        }
    }
}

/// What becomes of the thread's scaled scores of 64 keys from `first` on, of queries that stand behind `past` keys.
fn shape(
    e: &mut Emitter,
    work: &Work,
    scores: Vec<Val>,
    bias: Option<Bias>,
    (first, past): (Val, Val),
) -> Vec<Val> {
    if work.kernel.scores.are_scaled_products() {
        return scores;
    }
    let own = work.own_row(e);
    let query = e.add(work.row, own);
    let query = e.add(query, past);
    let own = e.mul_int(work.x, 4);
    let key = e.add(first, own);
    let of = |(n, s): (usize, Val)| {
        let key = e.add_int(key, (n % 4) as i64);
        let query = e.add_int(query, (n / MINE) as i64);
        biased(e, work.kernel, s, bias, (key, query)).0
    };
    scores.into_iter().enumerate().map(of).collect()
}
