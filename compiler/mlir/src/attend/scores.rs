//! What becomes of scaled scores, for a vector of queries at a time: [`odec_program::kernel::Scores`].

use super::{BLOCK, Head, distances, load_at, scalar_at, store_at};
use crate::body::apply;
use crate::emit::{Cmp, Emitter, Val};
use odec_program::expr::UnaryOp;
use odec_program::kernel::Attend;

/// What a block of keys and one of queries add to scores by their distance.
#[derive(Clone, Copy)]
pub(super) struct Bias {
    slope: Option<Val>,
    near: Option<Near>,
    /// How far the first key is behind the first query.
    ahead: Val,
}

impl Bias {
    /// Of blocks that begin with the query at a position and with a key.
    pub fn of(e: &mut Emitter, head: &Head, position: Val, key: Val) -> Option<Bias> {
        if !head.kernel.scores.compare_places() {
            return None;
        }
        let bias = Bias {
            slope: head.slope,
            near: head.table.map(|table| table.near),
            ahead: e.sub(key, position),
        };
        if let Some(table) = head.table {
            table.fill(e, head, bias.ahead);
        }
        Some(bias)
    }
}

/// A number for each distance within a pair of blocks, in scratch: that of key k and query c is number `63 + c − k`.
#[derive(Clone, Copy)]
pub(super) struct Near(pub Val);

impl Near {
    const LAST: i64 = 2 * BLOCK - 2;

    /// Where those of key `k` and the queries from `c` on are.
    fn at(self, e: &mut Emitter, (k, c): (Val, Val)) -> Val {
        let at = e.sub(c, k);
        e.add_int(at, BLOCK - 1)
    }

    /// Those of a vector of queries.
    fn load(self, e: &mut Emitter, pair: (Val, Val)) -> Val {
        let at = self.at(e, pair);
        load_at(e, self.0, at)
    }

    /// Adds to them.
    pub fn add(self, e: &mut Emitter, pair: (Val, Val), x: Val) {
        let at = self.at(e, pair);
        let sum = load_at(e, self.0, at);
        let sum = e.add(sum, x);
        store_at(e, sum, self.0, at);
    }

    /// For each number, its place and how far queries are behind keys, which are so far ahead at the blocks' beginnings.
    pub fn each(self, e: &mut Emitter, ahead: Val, mut f: impl FnMut(&mut Emitter, Val, Val)) {
        let (zero, end) = (e.int(0), e.int(Self::LAST + 1));
        e.for_each(zero, end, 1, |e, at| {
            let p = e.at(self.0, at, e.elem);
            let behind = e.add_int(at, 1 - BLOCK);
            let behind = e.sub(behind, ahead);
            f(e, p, behind);
        });
    }
}

/// The table of biases by distance, and room for those of a pair of blocks.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub biases: Val,
    pub near: Near,
}

impl Table {
    /// Brings the biases of a pair of blocks to scratch.
    fn fill(self, e: &mut Emitter, head: &Head, ahead: Val) {
        let rows = head.kernel.scores.distances.unwrap_or(1);
        self.near.each(e, ahead, |e, p, behind| {
            let (distance, column) = place(e, head, behind);
            let last = e.int(rows as i64 - 1);
            let row = e.min(distance, last);
            let at = e.mul_int(row, head.kernel.bias_columns() as i64);
            let at = e.add(at, column);
            let x = scalar_at(e, self.biases, at);
            e.store(x, p);
        });
    }
}

/// The distance of keys that queries are so far behind, and the column of the head in tables of such.
pub(super) fn place(e: &mut Emitter, head: &Head, behind: Val) -> (Val, Val) {
    let zero = e.int(0);
    let ahead = e.sub(zero, behind);
    let distance = e.max(behind, ahead);
    if head.kernel.causal {
        return (distance, head.number);
    }
    let later = e.add_int(head.number, head.kernel.heads as i64);
    let is_before = e.cmp(Cmp::Ge, behind, zero);
    (distance, e.select(is_before, head.number, later))
}

/// The slope of a head in every lane.
pub(super) fn slope(e: &mut Emitter, kernel: &Attend, head: Val) -> Val {
    let number = e.add_int(head, 1);
    let number = e.convert(number, e.elem);
    let number = e.broadcast(number, e.lanes);
    let factor = e.float(kernel.slope_exponent(), e.vector());
    let exponent = e.mul(factor, number);
    apply(e, UnaryOp::Exp, exponent)
}

/// What becomes of the scaled scores of key `k` and the queries from `c` on, of their blocks, and what derivatives are multiplied by.
pub(super) fn shaped(
    e: &mut Emitter,
    kernel: &Attend,
    bias: Option<Bias>,
    scaled: Val,
    (k, c): (Val, Val),
) -> (Val, Option<Val>) {
    let (mut score, mut bend, vector) = (scaled, None, e.vector());
    if let Some(cap) = kernel.scores.softcap {
        let [zero, one, two] = [0.0, 1.0, 2.0].map(|x| e.float(x, vector));
        let [cap, twice] = [cap, 2.0 / cap].map(|x| e.float(x, vector));
        let x = e.mul(scaled, twice);
        let x = apply(e, UnaryOp::Exp, x);
        let below = e.add(one, x);
        let rest = e.div(two, below);
        let tanh = e.sub(one, rest);
        score = e.mul(cap, tanh);
        let minus = e.sub(zero, tanh);
        bend = Some(e.fma(minus, tanh, one));
    }
    if let Some((slope, ahead)) = bias.and_then(|bias| Some((bias.slope?, bias.ahead))) {
        let k = e.add(k, ahead);
        let (number, distance) = distances(e, k, c);
        let ahead = e.sub(distance, number);
        let mut ahead = e.convert(ahead, e.elem);
        if !kernel.causal {
            let zero = e.float(0.0, vector);
            let back = e.sub(zero, ahead);
            ahead = e.min_float(ahead, back);
        }
        score = e.fma(slope, ahead, score);
    }
    if let Some(near) = bias.and_then(|bias| bias.near) {
        let near = near.load(e, (k, c));
        score = e.add(score, near);
    }
    (score, bend)
}
