//! Attention forward: a tile is a block of 64 queries of one head.
//!
//! Scratch, in elements (d = head padded to whole vectors): Qᵀ 64·d, K 64·d, V 64·d, O 64·d, Sᵀ 64·64, and per
//! query the running maximum, the running sum and the factor that old sums shrink by; then biases of a pair of blocks, where there are some. In pairs, Qᵀ, K and V take half of their room; a row of pairs of P is
//! where the first of the two rows of scores was. For tile registers, 64·32 words hold these pairs by rows.
//!
//! For each key block: `m' = max(m, max_k S)`, `α = e^(m − m')`, `P = e^(S − m')`, `l ← α·l + Σ_k P`,
//! `O ← α·O + P·V`; in the end `O / l` and `lse = m + ln l` (M. Milakov and N. Gimelshein, "Online
//! normalizer calculation for softmax", 2018).

use super::*;
use crate::body;
use odec_program::expr::UnaryOp;

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(crate) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    check(kernel)?;
    with_tiles(e, kernel, |e| attend(e, kernel))
}

fn attend(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    let [q, k, v, o, lse] = std::array::from_fn(|n| e.operand(n as u64));
    let sinks = kernel.scores.sinks.then(|| e.operand(5));
    let behind = 5 + u64::from(kernel.scores.sinks);
    // Never both.
    let numbers = kernel.partial.then(|| e.operand(behind));
    let inputs = Elem::of(kernel.inputs);
    let [q, k, v] = [q, k, v].map(|t| (t, inputs));
    let seq = e.dim(1);
    let keys = keys_of(e, kernel, seq);
    let block = Block::new(e, kernel, BLOCK);
    let table = table(e, kernel, behind, block.near);
    let blocks = blocks(e, seq);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, t| {
        let (number, query_block) = (e.div(t, blocks), e.rem(t, blocks));
        let [head, of_keys] = Head::pair(e, kernel, [seq, keys], number);
        let heads = [head.with_table(table), of_keys];
        let first = e.mul_int(query_block, BLOCK);
        let attend = |e: &mut Emitter, [head, of_keys]: [Head; 2]| {
            let queries = rows_in_block(e, head.seq, first);
            head.transpose(e, q, first, queries, block.qt);
            let sink = sinks.map(|sinks| head.sink(e, sinks));
            block.start(e, sink);
            let [of_results, of_values] = [head, of_keys].map(|head| head.of_values(e));
            key_blocks(
                e,
                &head,
                (query_block, of_keys.seq),
                |e, key, keys, sight| {
                    of_keys.left(e, k, key, keys, block.k);
                    of_values.right(e, v, key, keys, block.v);
                    block.step(e, queries, keys, sight);
                },
            );
            block.finish(e);
            block.write(e, &of_results, o, first, queries);
            let zero = e.int(0);
            e.for_each(zero, queries, 1, |e, r| {
                let x = scalar_at(e, block.max, r);
                let row = e.add(first, r);
                let p = head.statistic(e, lse, row);
                e.store(x, p);
            });
        };
        let Some(numbers) = numbers else {
            return attend(e, heads);
        };
        let of_batch = e.int(kernel.heads as i64);
        let batch = e.div(number, of_batch);
        let (zero, before) = (e.int(0), e.mul(batch, keys));
        let numbers = Numbers::of(e, kernel, numbers, before, block.rest);
        let count = numbers.list(e, (zero, keys), zero);
        let part = numbers.from(e, zero, None);
        if kernel.others {
            let [head, of_keys] = heads;
            return attend(e, [head, of_keys.of_part(count, part)]);
        }
        let some = e.cmp(Cmp::Lt, first, count);
        e.when(some, |e| {
            attend(e, heads.map(|head| head.of_part(count, part)))
        });
        let (rows, head) = (of_tile(e, query_block, BLOCK, seq), heads[0]);
        let of_results = head.of_values(e);
        numbers.each_other(e, rows, |e, row| {
            of_results.clear(e, o, row);
            let (p, zero) = (head.statistic(e, lse, row), e.float(0.0, e.scalar()));
            e.store(zero, p);
        });
    });
    Ok(())
}

/// The scratch of a tile.
pub(super) struct Block<'a> {
    kernel: &'a Attend,
    /// Queries that are computed: a multiple of 16, at most 64.
    columns: i64,
    pub qt: Val,
    pub k: Val,
    pub v: Val,
    o: Val,
    scores: Val,
    /// Weights where the product with values reads them, and its strides.
    weights: (Val, (i64, i64)),
    max: Val,
    sum: Val,
    shrink: Val,
    /// Biases of a pair of blocks, where there are some.
    pub near: Val,
    /// What is behind all that.
    pub rest: Val,
}

impl<'a> Block<'a> {
    pub fn new(e: &mut Emitter, kernel: &'a Attend, columns: i64) -> Block<'a> {
        let (padded, of_values) = (kernel.padded_head() as i64, kernel.padded_value() as i64);
        let mut scratch = Scratch::new(e);
        let [qt, k, v, o] =
            [padded, padded, of_values, of_values].map(|width| scratch.take(e, BLOCK * width));
        let scores = scratch.take(e, BLOCK * BLOCK);
        let weights = match kernel.order {
            Order::Pairs => (scratch.take(e, BLOCK * PAIR_ROW), (PAIR_ROW, 1)),
            _ => (scores, (1, BLOCK * neighbours(kernel) as i64)),
        };
        Block {
            kernel,
            columns,
            qt,
            k,
            v,
            o,
            scores,
            weights,
            max: scratch.take(e, BLOCK),
            sum: scratch.take(e, BLOCK),
            shrink: scratch.take(e, BLOCK),
            near: scratch.take(e, kernel.near() as i64),
            rest: {
                // Vectors may overrun.
                scratch.take(e, BLOCK);
                scratch.take(e, 0)
            },
        }
    }

    /// No keys yet: a sink at most, whose value is zero.
    pub fn start(&self, e: &mut Emitter, sink: Option<Val>) {
        let padded = self.kernel.padded_value() as i64;
        let (all, whole) = (e.int(self.columns), e.int(self.columns * padded));
        match sink {
            Some(sink) => {
                let one = e.float(1.0, e.vector());
                fill_with(e, self.max, self.columns, sink);
                fill_with(e, self.sum, self.columns, one);
            }
            None => {
                fill(e, self.max, all, f64::NEG_INFINITY);
                fill(e, self.sum, all, 0.0);
            }
        }
        fill(e, self.o, whole, 0.0);
    }

    /// Writes the finished rows of `queries` to `o`, from row `first` on.
    pub fn write(&self, e: &mut Emitter, head: &Head, o: Val, first: Val, queries: Val) {
        head.write(e, self.o, o, first, queries, |e, r| {
            let x = scalar_at(e, self.shrink, r);
            Some(e.broadcast(x, e.lanes))
        });
    }

    /// Takes one block of keys in.
    pub fn step(&self, e: &mut Emitter, queries: Val, keys: Val, sight: Sight) {
        let scale = e.float(self.kernel.scale, e.vector());
        let operands = [self.k, self.qt, self.scores];
        scores(
            e,
            (self.kernel, self.kernel.head),
            operands,
            self.columns,
            (keys, sight),
            Some(scale),
        );
        if !self.kernel.scores.are_scaled_products() {
            self.shape(e, keys, sight);
        }
        self.softmax(e, keys, sight);
        let padded = self.kernel.padded_value();
        let mut register_tile = tile(e, self.kernel.order, padded);
        register_tile.rows = register_tile.rows.min(self.columns as u64);
        let product = Product {
            order: self.kernel.order,
            a: self.weights.0,
            a_strides: self.weights.1,
            b: self.v,
            b_stride: padded as i64,
            c: self.o,
            c_stride: padded as i64,
            tile: register_tile,
            columns: padded as i64,
            start: Start::Scaled(self.shrink),
            times: None,
        };
        let high = product.tile.rows as i64;
        product.emit(
            e,
            |_, _| queries,
            |e, r| {
                // keys after the last query of the tile have no weight
                let last = e.add_int(r, high);
                let end = if sight.is_diagonal() {
                    e.min(keys, last)
                } else {
                    keys
                };
                (e.int(0), end)
            },
        );
    }

    /// Replaces scaled scores by what becomes of them.
    fn shape(&self, e: &mut Emitter, keys: Val, sight: Sight) {
        let (zero, end, lanes) = (e.int(0), e.int(self.columns), e.lanes as i64);
        e.for_each(zero, end, lanes, |e, c| {
            let seen = keys_seen(e, keys, c, sight);
            e.for_each(zero, seen, 1, |e, k| {
                let row = e.mul_int(k, BLOCK);
                let at = e.add(row, c);
                let s = load_at(e, self.scores, at);
                let (s, _) = shaped(e, self.kernel, sight.bias, s, (k, c));
                store_at(e, s, self.scores, at);
            });
        });
    }

    /// Replaces scores by their weights, and updates the statistics.
    fn softmax(&self, e: &mut Emitter, keys: Val, sight: Sight) {
        let (zero, end, lanes) = (e.int(0), e.int(self.columns), e.lanes as i64);
        let vector = e.vector();
        let never = e.float(f64::NEG_INFINITY, vector);
        let score = |e: &mut Emitter, k: Val, c: Val| {
            let row = e.mul_int(k, BLOCK);
            let at = e.add(row, c);
            let s = load_at(e, self.scores, at);
            (at, sight.hide(e, k, c, never, s))
        };
        e.for_each(zero, end, lanes, |e, c| {
            let seen = keys_seen(e, keys, c, sight);
            let before = load_at(e, self.max, c);
            let max = e.for_with(zero, seen, 1, &[before], |e, k, max| {
                let (_, s) = score(e, k, c);
                vec![e.max_float(max[0], s)]
            })[0];
            // A query that has seen nothing yet: any finite number gives weights of 0.
            let finite = match sight.from {
                Some(_) => {
                    let (zero, nothing) = (e.float(0.0, vector), e.cmp(Cmp::Eq, max, never));
                    e.select(nothing, zero, max)
                }
                None => max,
            };
            let shift = e.sub(before, finite);
            let shrink = body::apply(e, UnaryOp::Exp, shift);
            let none = e.float(0.0, vector);
            let weight = |e: &mut Emitter, s: Val| {
                let shifted = e.sub(s, finite);
                body::apply(e, UnaryOp::Exp, shifted)
            };
            let sum = match in_pairs(self.kernel) {
                false => e.for_with(zero, seen, 1, &[none], |e, k, sum| {
                    let (at, s) = score(e, k, c);
                    let p = weight(e, s);
                    store_at(e, p, self.scores, at);
                    vec![e.add(sum[0], p)]
                }),
                true => e.for_with(zero, seen, 2, &[none], |e, k, sum| {
                    let next = e.add_int(k, 1);
                    let ((at, first), (_, second)) = (score(e, k, c), score(e, next, c));
                    let exists = e.cmp(Cmp::Lt, next, seen);
                    let second = e.select(exists, second, never);
                    let both = [first, second].map(|s| weight(e, s));
                    let (words, _) = paired(e, both);
                    store_at(e, words, self.scores, at);
                    let sum = e.add(sum[0], both[0]);
                    vec![e.add(sum, both[1])]
                }),
            }[0];
            each_missing_pair(e, self.kernel, seen, |e, k| {
                let row = e.mul_int(k, BLOCK);
                let at = e.add(row, c);
                store_at(e, none, self.scores, at);
            });
            if self.kernel.order == Order::Pairs {
                let end = pairs::depth(e, self.kernel.order, seen);
                pair_rows(e, (self.scores, 2 * BLOCK), self.weights.0, c, end);
            }
            let old = load_at(e, self.sum, c);
            let sum = e.fma(old, shrink, sum);
            store_at(e, max, self.max, c);
            store_at(e, sum, self.sum, c);
            store_at(e, shrink, self.shrink, c);
        });
    }

    /// Leaves `m + ln l` where the maximum was, and `1 / l` where the factor was.
    pub fn finish(&self, e: &mut Emitter) {
        let (zero, end, lanes) = (e.int(0), e.int(self.columns), e.lanes as i64);
        e.for_each(zero, end, lanes, |e, c| {
            let (max, mut sum) = (load_at(e, self.max, c), load_at(e, self.sum, c));
            if self.kernel.may_see_nothing() {
                let one = e.float(1.0, e.vector());
                sum = e.max_float(sum, one);
            }
            let log = body::apply(e, UnaryOp::Log, sum);
            let lse = e.add(max, log);
            store_at(e, lse, self.max, c);
            let one = e.float(1.0, e.vector());
            let inverse = e.div(one, sum);
            store_at(e, inverse, self.shrink, c);
        });
    }
}
