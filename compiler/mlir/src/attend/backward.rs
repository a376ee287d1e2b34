//! Attention backward: a tile is one head of keys of one sequence, with the query heads that read it, one after the other.
//!
//! Query blocks are the outer loop, key blocks the inner one. Scratch, in elements (d = head padded to whole
//! vectors, s = sequence rounded up to blocks): Qᵀ and dOᵀ, Q and dO, K and V, dQ: 64·d each; Pᵀ and dSᵀ 64·64
//! each; lse and δ 64 each; biases of a pair of blocks and their gradients, where there are some; dK and dV s·d each. In pairs, Qᵀ, dOᵀ, Q, dO and V take half of that, K is there by rows and by pairs of rows; rows of Pᵀ
//! and dSᵀ begin where those of scores and dPᵀ did, and 64·32 words hold pairs of rows of dSᵀ; for tile registers, as many hold these by rows.
//!
//! With P recomputed as `e^(S − lse)` and `δ = Σ_c dO ∘ O`: `dV += Pᵀ·dO`, `dP = dO·Vᵀ`,
//! `dS = scale · P ∘ (dP − δ)`, `dQ += dS·K`, `dK += dSᵀ·Q` (T. Dao et al., "FlashAttention", 2022,
//! appendix B). The gradient of a bias is `P ∘ (dP − δ)`, of all pairs at its distance. Tensors of values are as wide as those, or have columns of their own.

use super::scores::place;
use super::*;
use crate::body;
use crate::rows;
use odec_program::eval::LANES;
use odec_program::expr::{ColMap, ReduceOp, UnaryOp};

/// Emits the kernel.
///
/// # Errors
/// What the spec asks for and no kernel can do.
pub(crate) fn emit(e: &mut Emitter, kernel: &Attend) -> Result<(), String> {
    check(kernel)?;
    with_tiles(e, kernel, |e| attend(e, kernel))
}

fn attend<'a>(e: &mut Emitter, kernel: &'a Attend) -> Result<(), String> {
    let [q, k, v, o, lse, d_o, d_q, d_k, d_v] = std::array::from_fn(|n| e.operand(n as u64));
    let numbers = kernel.partial.then(|| e.operand(9));
    let d_distances = kernel.scores.distances.map(|_| e.operand(9));
    let inputs = Elem::of(kernel.inputs);
    let [q, k, v, o, d_o] = [q, k, v, o, d_o].map(|t| (t, inputs));
    let seq = e.dim(1);
    let (padded, of_values) = (kernel.padded_head() as i64, kernel.padded_value() as i64);
    let all_keys = keys_of(e, kernel, seq);
    let blocks = blocks(e, all_keys);
    let mut scratch = Scratch::new(e);
    // Of what is kept in pairs, half.
    let pairs = in_pairs(kernel);
    let half = if pairs { 2 } else { 1 };
    let widths = [padded, of_values, padded, of_values, of_values];
    let [qt, dot, q_rows, do_rows, v_rows] =
        widths.map(|width| scratch.take(e, BLOCK * width / half));
    let [k_left, dq] = std::array::from_fn(|_| scratch.take(e, BLOCK * padded));
    let k_right = match pairs {
        true => e.at_const(k_left, BLOCK * padded / 2, e.elem),
        false => k_left,
    };
    let mut square = |e: &mut Emitter| scratch.take(e, BLOCK * BLOCK);
    let [weights, slopes] = std::array::from_fn(|_| square(e));
    let slope_pairs = match pairs {
        true => scratch.take(e, BLOCK * BLOCK / 2),
        false => slopes,
    };
    let slope_rows = match kernel.order {
        Order::Pairs => (scratch.take(e, BLOCK * PAIR_ROW), (PAIR_ROW, 1)),
        _ => (slope_pairs, (1, BLOCK)),
    };
    let [lse_row, delta] = std::array::from_fn(|_| scratch.take(e, BLOCK));
    let [near, d_near] = std::array::from_fn(|_| scratch.take(e, kernel.near() as i64));
    let table = table(e, kernel, 10, near);
    let dk = scratch.take(e, 0);
    let length = e.mul_int(blocks, BLOCK * padded);
    let dv = e.at(dk, length, e.elem);
    let values_length = match kernel.value {
        None => length,
        Some(_) => e.mul_int(blocks, BLOCK * of_values),
    };
    let rest = e.at(dv, values_length, e.elem);
    let block = Block {
        kernel,
        qt,
        dot,
        q: q_rows,
        d_o: do_rows,
        k: [k_left, k_right],
        v: v_rows,
        dq,
        weights,
        slopes,
        slope_pairs,
        slope_rows,
        lse: lse_row,
        delta,
        d_near: d_distances.map(|_| Near(d_near)),
    };

    let (begin, end, zero) = (e.begin(), e.end(), e.int(0));
    let group = kernel.group() as i64;
    e.for_each(begin, end, 1, |e, number| {
        let heads = e.int(kernel.kv_heads as i64);
        let (batch, shared) = (e.div(number, heads), e.rem(number, heads));
        let all = Head::of_keys(e, kernel, all_keys, batch, shared);
        let listed = numbers.map(|numbers| {
            let before = e.mul(batch, all_keys);
            let numbers = Numbers::of(e, kernel, numbers, before, rest);
            let count = numbers.list(e, (zero, all_keys), zero);
            (numbers, count, numbers.from(e, zero, None))
        });
        let of_part = |head: Head<'a>| match listed {
            Some((_, count, part)) => head.of_part(count, part),
            None => head,
        };
        let of_keys = of_part(all);
        let queries = if kernel.others { seq } else { of_keys.seq };
        let blocks = e.div_ceil(queries, BLOCK);
        let of_values = of_keys.of_values(e);
        fill(e, dk, length, 0.0);
        fill(e, dv, values_length, 0.0);
        let (first_head, members) = (e.mul_int(shared, group), e.int(group));
        e.for_each(zero, members, 1, |e, member| {
            let number = e.add(first_head, member);
            let whole_head = Head::of_queries(e, kernel, seq, batch, number).with_table(table);
            let of_distances = d_distances.map(|to| Distances::of(e, &whole_head, to, batch));
            let head = match kernel.others {
                true => whole_head,
                false => of_part(whole_head),
            };
            let of_results = head.of_values(e);
            e.for_each(zero, blocks, 1, |e, query_block| {
                let first = e.mul_int(query_block, BLOCK);
                let queries = rows_in_block(e, head.seq, first);
                head.transpose(e, q, first, queries, block.qt);
                of_results.transpose(e, d_o, first, queries, block.dot);
                head.right(e, q, first, queries, block.q);
                of_results.right(e, d_o, first, queries, block.d_o);
                block.statistics(e, &of_results, o, lse, first, queries);
                let whole = e.int(BLOCK * padded);
                fill(e, block.dq, whole, 0.0);
                key_blocks(
                    e,
                    &head,
                    (query_block, of_keys.seq),
                    |e, key, keys, sight| {
                        let [left, right] = block.k;
                        of_keys.left(e, k, key, keys, left);
                        if pairs {
                            of_keys.right(e, k, key, keys, right);
                        }
                        of_values.left(e, v, key, keys, block.v);
                        let before = e.mul_int(key, padded);
                        let values_before = match kernel.value {
                            None => before,
                            Some(_) => e.mul_int(key, of_values.padded() as i64),
                        };
                        let (dk, dv) = (e.at(dk, before, e.elem), e.at(dv, values_before, e.elem));
                        let ahead = e.sub(key, first);
                        of_distances.inspect(|of| of.load(e, Near(d_near), ahead));
                        block.step(e, queries, keys, sight, dk, dv);
                        of_distances.inspect(|of| of.store(e, Near(d_near), ahead));
                    },
                );
                head.write(e, block.dq, d_q, first, queries, |_, _| None);
            });
            if let (Some((numbers, ..)), false) = (listed, kernel.others) {
                numbers.each_other(e, (zero, seq), |e, row| whole_head.clear(e, d_q, row));
            }
        });
        of_keys.write(e, dk, d_k, zero, of_keys.seq, |_, _| None);
        of_values.write(e, dv, d_v, zero, of_keys.seq, |_, _| None);
        if let Some((numbers, ..)) = listed {
            numbers.each_other(e, (zero, all_keys), |e, row| {
                of_keys.clear(e, d_k, row);
                of_values.clear(e, d_v, row);
            });
        }
    });
    Ok(())
}

/// The scratch of a block of queries.
struct Block<'a> {
    kernel: &'a Attend,
    qt: Val,
    dot: Val,
    q: Val,
    d_o: Val,
    /// As a left-hand and as a right-hand factor.
    k: [Val; 2],
    v: Val,
    dq: Val,
    /// Sᵀ, then Pᵀ.
    weights: Val,
    /// dPᵀ, then dSᵀ.
    slopes: Val,
    /// dSᵀ in pairs of rows.
    slope_pairs: Val,
    /// dS where dQ reads it, and its strides.
    slope_rows: (Val, (i64, i64)),
    lse: Val,
    delta: Val,
    /// Sums of gradients of biases, where there are some.
    d_near: Option<Near>,
}

/// The gradients of a head's biases, by distance.
#[derive(Clone, Copy)]
struct Distances<'a> {
    head: Head<'a>,
    /// Where row 0 of the sequence is.
    rows: Val,
}

impl<'a> Distances<'a> {
    /// All zeros.
    fn of(e: &mut Emitter, head: &Head<'a>, to: Val, batch: Val) -> Distances<'a> {
        let (columns, heads) = (head.kernel.bias_columns() as i64, head.kernel.heads as i64);
        let before = e.mul(batch, head.seq);
        let before = e.mul_int(before, columns);
        let rows = e.at(to, before, e.elem);
        let zero = e.int(0);
        e.for_each(zero, head.seq, 1, |e, row| {
            let nothing = e.float(0.0, e.scalar());
            for side in 0..columns / heads {
                let at = e.mul_int(row, columns);
                let at = e.add(at, head.number);
                let at = e.add_int(at, side * heads);
                let p = e.at(rows, at, e.elem);
                e.store(nothing, p);
            }
        });
        Distances { head: *head, rows }
    }

    /// For each distance within a pair of blocks that there is: where it is in scratch, and among all.
    fn each(&self, e: &mut Emitter, near: Near, ahead: Val, f: fn(&mut Emitter, [Val; 2])) {
        near.each(e, ahead, |e, p, behind| {
            let (distance, column) = place(e, &self.head, behind);
            let at = e.mul_int(distance, self.head.kernel.bias_columns() as i64);
            let at = e.add(at, column);
            let to = e.at(self.rows, at, e.elem);
            let zero = e.int(0);
            let within = e.below(distance, self.head.seq);
            let within = match self.head.kernel.causal {
                true => {
                    let is_before = e.cmp(Cmp::Ge, behind, zero);
                    e.and(within, is_before)
                }
                false => within,
            };
            e.when(within, |e| f(e, [p, to]));
        });
    }

    /// Brings the sums so far of a pair of blocks to scratch. What is not there stays what it is, and nobody reads it.
    fn load(&self, e: &mut Emitter, near: Near, ahead: Val) {
        self.each(e, near, ahead, |e, [near, all]| {
            let x = e.load(all, e.scalar());
            e.store(x, near);
        });
    }

    fn store(&self, e: &mut Emitter, near: Near, ahead: Val) {
        self.each(e, near, ahead, |e, [near, all]| {
            let x = e.load(near, e.scalar());
            e.store(x, all);
        });
    }
}

impl Block<'_> {
    /// Collects lse of the block's queries, and δ, or computes that in the order of a row reduction.
    fn statistics(
        &self,
        e: &mut Emitter,
        head: &Head,
        o: Tensor,
        lse: Val,
        first: Val,
        queries: Val,
    ) {
        let (zero, elem, pairs) = (e.int(0), e.elem, in_pairs(self.kernel));
        let from = (!self.kernel.reads_delta()).then(|| head.rows(e, o, first, queries));
        if pairs {
            // A query that is missing of a pair has no weight.
            let all = e.int(BLOCK);
            fill(e, self.lse, all, f64::INFINITY);
            fill(e, self.delta, all, 0.0);
        }
        e.for_each(zero, queries, 1, |e, r| {
            let row = e.add(first, r);
            let p = head.statistic(e, lse, row);
            let x = e.load(p, e.scalar());
            let p = e.at(self.lse, r, elem);
            e.store(x, p);
            let Some(((from, of_o), stride)) = from else {
                let p = head.statistic(e, o.0, row);
                let x = e.load(p, e.scalar());
                let p = e.at(self.delta, r, elem);
                return e.store(x, p);
            };

            let (at_o, at_do) = (e.mul(r, stride), e.mul_int(r, head.padded() as i64));
            let (o, d_o) = (e.at(from, at_o, of_o), e.at(self.d_o, at_do, elem));
            let mut sum = e.float(0.0, Type::vector(elem, LANES as u64));
            for c in (0..head.columns).step_by(LANES) {
                let lanes = LANES as u64;
                let first = e.int(c as i64);
                let cols = crate::access::Columns {
                    first,
                    lanes,
                    count: lanes.min(head.columns - c),
                };
                let x = crate::access::load_columns(e, o, elem, ColMap::Col, cols);
                let y = crate::access::load_columns(e, d_o, elem, ColMap::Col, cols);
                sum = e.fma(x, y, sum);
            }
            let delta = rows::tree(e, ReduceOp::Sum, sum);
            let p = e.at(self.delta, r, elem);
            e.store(delta, p);
        });
    }

    /// The pair of this block of queries and a block of keys, whose gradients are `dk` and `dv`.
    fn step(&self, e: &mut Emitter, queries: Val, keys: Val, sight: Sight, dk: Val, dv: Val) {
        let diagonal = sight.is_diagonal();
        let scale = e.float(self.kernel.scale, e.vector());
        let operands = [self.k[0], self.qt, self.weights];
        let kernel = self.kernel;
        let (head, of_values) = ((kernel, kernel.head), (kernel, kernel.value_head()));
        scores(e, head, operands, BLOCK, (keys, sight), Some(scale));
        let operands = [self.v, self.dot, self.slopes];
        scores(e, of_values, operands, BLOCK, (keys, sight), None);
        self.differentiate(e, queries, keys, sight);
        let (padded, of_values) = (self.kernel.padded_head(), self.kernel.padded_value());
        let product = |e: &Emitter, a, a_strides, (b, c), padded: u64| Product {
            order: kernel.order,
            a,
            a_strides,
            b,
            b_stride: padded as i64,
            c,
            c_stride: padded as i64,
            tile: tile(e, kernel.order, padded),
            columns: padded as i64,
            start: Start::Sum,
            times: None,
        };
        let of_keys = [
            (self.weights, (self.d_o, dv), of_values),
            (self.slopes, (self.q, dk), padded),
        ];
        for (a, places, padded) in of_keys {
            product(e, a, (BLOCK, 1), places, padded).emit(
                e,
                |_, _| keys,
                // queries before the first key of the tile do not see it
                |e, r| {
                    if diagonal {
                        (r, e.sub(queries, r))
                    } else {
                        (e.int(0), queries)
                    }
                },
            );
        }
        let places = (self.k[1], self.dq);
        let product = product(e, self.slope_rows.0, self.slope_rows.1, places, padded);
        let high = product.tile.rows as i64;
        product.emit(
            e,
            |_, _| queries,
            |e, r| {
                let last = e.add_int(r, high);
                (e.int(0), if diagonal { e.min(keys, last) } else { keys })
            },
        );
    }

    /// Replaces S by P, and dP by dS.
    fn differentiate(&self, e: &mut Emitter, queries: Val, keys: Val, sight: Sight) {
        let (zero, end, lanes) = (e.int(0), e.int(BLOCK), e.lanes as i64);
        let vector = e.vector();
        let (none, scale) = (e.float(0.0, vector), e.float(self.kernel.scale, vector));
        e.for_each(zero, end, lanes, |e, c| {
            let seen = keys_seen(e, keys, c, sight);
            let (lse, delta) = (load_at(e, self.lse, c), load_at(e, self.delta, c));
            // Where the key's row is, and P and dS of its queries.
            let of_key = |e: &mut Emitter, k: Val| {
                let row = e.mul_int(k, BLOCK);
                let at = e.add(row, c);
                let s = load_at(e, self.weights, at);
                let (s, bend) = shaped(e, self.kernel, sight.bias, s, (k, c));
                let shifted = e.sub(s, lse);
                let p = body::apply(e, UnaryOp::Exp, shifted);
                let dp = load_at(e, self.slopes, at);
                let away = e.sub(dp, delta);
                let slope = e.mul(p, away);
                let of_bias = self
                    .d_near
                    .map(|near| (near, sight.hide(e, k, c, none, slope)));
                let slope = bend.map_or(slope, |bend| e.mul(slope, bend));
                let slope = e.mul(slope, scale);
                let p = sight.hide(e, k, c, none, p);
                let slope = sight.hide(e, k, c, none, slope);
                (row, [p, slope], of_bias)
            };
            let left = e.sub(queries, c);
            let exist = e.mask(left, lanes as u64);
            let sum_up = |e: &mut Emitter, k: Val, of_bias: Option<(Near, Val)>| {
                if let Some((near, slope)) = of_bias {
                    let slope = e.select(exist, slope, none);
                    near.add(e, (k, c), slope);
                }
            };
            if !in_pairs(self.kernel) {
                e.for_each(zero, seen, 1, |e, k| {
                    let (row, [p, slope], of_bias) = of_key(e, k);
                    sum_up(e, k, of_bias);
                    let at = e.add(row, c);
                    store_at(e, p, self.weights, at);
                    store_at(e, slope, self.slopes, at);
                });
                return;
            }
            e.for_each(zero, seen, 2, |e, k| {
                let next = e.add_int(k, 1);
                let (even, first, of_first) = of_key(e, k);
                let (odd, second, of_second) = of_key(e, next);
                let exists = e.cmp(Cmp::Lt, next, seen);
                let second = second.map(|x| e.select(exists, x, none));
                sum_up(e, k, of_first);
                let of_second = of_second.map(|(near, x)| (near, e.select(exists, x, none)));
                sum_up(e, next, of_second);
                let (_, weights) = paired(e, [first[0], second[0]]);
                let (words, slopes) = paired(e, [first[1], second[1]]);
                for (to, halves) in [(self.weights, weights), (self.slopes, slopes)] {
                    // Queries before these have been read: halves take no more than their room.
                    for (row, half) in [even, odd].into_iter().zip(halves) {
                        let to = e.at(to, row, e.elem);
                        let to = e.at(to, c, Elem::Bf16);
                        e.store(half, to);
                    }
                }
                self.store_pair(e, words, k, c);
            });
            each_missing_pair(e, self.kernel, seen, |e, k| {
                self.store_pair(e, none, k, c);
                for row in [0, 1] {
                    let row = e.add_int(k, row);
                    let row = e.mul_int(row, BLOCK);
                    let zeros = e.convert(none, Elem::Bf16);
                    for to in [self.weights, self.slopes] {
                        let to = e.at(to, row, e.elem);
                        let to = e.at(to, c, Elem::Bf16);
                        e.store(zeros, to);
                    }
                }
            });
            if self.kernel.order == Order::Pairs {
                let end = pairs::depth(e, self.kernel.order, seen);
                pair_rows(e, (self.slope_pairs, BLOCK), self.slope_rows.0, c, end);
            }
        });
    }

    /// Stores words of dSᵀ of the queries from `c` on, of key `k` and the next.
    fn store_pair(&self, e: &mut Emitter, words: Val, k: Val, c: Val) {
        let two = e.int(2);
        let row = e.div(k, two);
        let row = e.mul_int(row, BLOCK);
        let at = e.add(row, c);
        store_at(e, words, self.slope_pairs, at);
    }
}
