//! Panels of pairs: an operand as tile registers and dot products of bf16 take it.
//!
//! A panel of w columns holds `panel[k/2][j][k mod 2] = B(k, j)` in bf16: a word of 32 bits is a pair of rows in one column, the
//! even one in its lower half. B is stored either with k contiguous ([`transpose`]) or with j contiguous ([`copy`]).
//! Elements that do not exist are not read and become zero: columns up to w, rows up to a whole chunk. Stores are whole vectors: where w is
//! not some of these, they overrun into the next row, which is written later, and the buffer has room for a vector after the last one.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::transpose;
use odec_program::kernel::Order;

/// Where a panel comes from and goes to.
#[derive(Clone, Copy)]
pub struct Pairs {
    /// B(0, 0).
    pub from: Val,
    /// Element type of B: f32, which is rounded, or bf16.
    pub elem: Elem,
    /// Elements between neighbours in the direction that is not contiguous.
    pub stride: Val,
    /// How many of the `width` columns exist.
    pub valid: Val,
    /// How many rows exist.
    pub count: Val,
    pub to: Val,
    pub width: u64,
    /// Which contractions it is for.
    pub order: Order,
}

/// Words of numbers that are bf16, which their upper halves say all about.
pub fn words(e: &mut Emitter, even: Val, odd: Val) -> Val {
    let (even, odd) = (e.bitcast(even, Elem::I32), e.bitcast(odd, Elem::I32));
    let shift = e.integer(16, even.ty);
    let low = e.shift_right(even, shift);
    e.or(low, odd)
}

/// How many rows a panel has: `k` rounded up to whole chunks.
pub fn depth(e: &mut Emitter, order: Order, k: Val) -> Val {
    let chunk = order.chunk() as i64;
    let chunks = e.div_ceil(k, chunk);
    e.mul_int(chunks, chunk)
}

impl Pairs {
    fn load(&self, e: &mut Emitter, at: Val, mask: Option<Val>) -> Val {
        let x = e.load_lanes(at, mask, Type::vector(self.elem, e.lanes));
        let x = e.convert(x, Elem::F32);
        match self.elem {
            Elem::Bf16 => x,
            _ => e.nearest_bf16(x, false),
        }
    }

    /// Words of neighbours: a vector of them, or those of the first `left` elements.
    fn neighbours(&self, e: &mut Emitter, at: Val, left: Option<Val>) -> Val {
        let lanes = e.lanes;
        if self.elem == Elem::Bf16 {
            // As they are.
            let mask = left.and_then(|left| e.partial_mask(left, 2 * lanes));
            let both = e.load_lanes(at, mask, Type::vector(Elem::Bf16, 2 * lanes));
            return e.vector_bitcast(both, Elem::I32);
        }
        let [low, high] = [0, lanes].map(|skip| {
            let at = e.at_const(at, skip as i64, self.elem);
            let mask = left.and_then(|left| {
                let left = e.add_int(left, -(skip as i64));
                e.partial_mask(left, lanes)
            });
            self.load(e, at, mask)
        });
        let [even, odd] = [0, 1].map(|first| {
            let picked: Vec<u32> = (first..2 * lanes as u32).step_by(2).collect();
            e.shuffle(low, high, &picked)
        });
        words(e, even, odd)
    }

    /// Words of a row from a column on, those of a mask where there is one.
    fn store(&self, e: &mut Emitter, words: Val, k: Val, (first, mask): (i64, Option<Val>)) {
        // Rows come in twos: a word per column for two values of k.
        let offset = e.mul_int(k, self.width as i64);
        let to = e.at(self.to, offset, Elem::Bf16);
        let to = e.at_const(to, first, Elem::I32);
        match mask {
            Some(mask) => e.store_masked(words, to, mask),
            None => e.store(words, to),
        }
    }
}

/// Rearranges a matrix with B(k, j) at `j + stride · k`.
pub fn copy(e: &mut Emitter, p: Pairs) {
    let lanes = e.lanes;
    let starts = (0..p.width as i64).step_by(lanes as usize);
    let columns: Vec<(i64, Option<Val>)> = starts
        .map(|first| {
            let left = e.add_int(p.valid, -first);
            (first, e.partial_mask(left, lanes))
        })
        .collect();
    // Two rows, or the last one, or none.
    let line = |e: &mut Emitter, k: Val, exist: i64| {
        for &(first, mask) in &columns {
            let row = |e: &mut Emitter, i: i64| {
                if i >= exist {
                    return e.float(0.0, Type::vector(Elem::F32, lanes));
                }
                let k = e.add_int(k, i);
                let offset = e.mul(k, p.stride);
                let from = e.at(p.from, offset, p.elem);
                let from = e.at_const(from, first, p.elem);
                p.load(e, from, mask)
            };
            let (even, odd) = (row(e, 0), row(e, 1));
            let words = words(e, even, odd);
            p.store(e, words, k, (first, None));
        }
    };
    let (zero, depth) = (e.int(0), depth(e, p.order, p.count));
    let twos = e.floor_to(p.count, 2);
    let half = e.add_int(p.count, 1);
    let half = e.floor_to(half, 2);
    e.for_each(zero, twos, 2, |e, k| line(e, k, 2));
    if twos.known().is_none() || twos.known() != half.known() {
        e.for_each(twos, half, 2, |e, k| line(e, k, 1));
    }
    if half.known().is_none() || half.known() != depth.known() {
        e.for_each(half, depth, 2, |e, k| line(e, k, 0));
    }
}

/// Rearranges a matrix with B(k, j) at `stride · j + k`.
pub fn transpose(e: &mut Emitter, p: Pairs) {
    let step = 2 * e.lanes as i64;
    let (zero, depth, whole) = (
        e.int(0),
        depth(e, p.order, p.count),
        e.floor_to(p.count, step),
    );
    let width = e.int(p.width as i64);
    // Squares of words as far as they go of which nothing is missing, then the others: as in `panel::transpose`.
    let fast = match p.valid.known() {
        Some(n) if n >= p.width as i64 => whole,
        Some(_) => zero,
        None => {
            let full = e.cmp(Cmp::Ge, p.valid, width);
            e.select(full, whole, zero)
        }
    };
    e.for_each(zero, depth, step, |e, k| {
        let whole = match fast.known() {
            Some(0) => Ok(false),
            Some(n) if Some(n) == depth.known() => Ok(true),
            _ => Err(e.cmp(Cmp::Lt, k, fast)),
        };
        squares(e, p, k, depth, whole);
    });
}

/// Columns of a matrix with B(k, j) at `stride · j + k`, one after the other: the pair of rows k and k + 1 of column j comes to word
/// `(length · j + k) / 2`. Columns that do not exist are left as they are. A vector may overrun into the next column.
pub fn rows(e: &mut Emitter, p: Pairs, length: i64) {
    let step = 2 * e.lanes as i64;
    let (zero, whole) = (e.int(0), e.floor_to(p.count, step));
    let depth = depth(e, p.order, p.count);
    e.for_each(zero, p.valid, 1, |e, j| {
        let offset = e.mul(j, p.stride);
        let from = e.at(p.from, offset, p.elem);
        let offset = e.mul_int(j, length);
        let to = e.at(p.to, offset, Elem::Bf16);
        let piece = |e: &mut Emitter, k: Val, left: Option<Val>| {
            let at = e.at(from, k, p.elem);
            let words = p.neighbours(e, at, left);
            let to = e.at(to, k, Elem::Bf16);
            e.store(words, to);
        };
        e.for_each(zero, whole, step, |e, k| piece(e, k, None));
        if whole.known().is_none() || whole.known() != depth.known() {
            e.for_each(whole, depth, step, |e, k| {
                let left = e.sub(p.count, k);
                piece(e, k, Some(left));
            });
        }
    });
}

/// A row with its elements beside each other as pairs: elements k and k + 1 come to word k/2. What is missing of the last pair is zero. A vector may overrun.
pub fn row(e: &mut Emitter, (from, elem): (Val, Elem), to: Val, count: Val) {
    let p = Pairs {
        from,
        elem,
        stride: e.int(0),
        valid: e.int(1),
        count,
        to,
        width: 1,
        order: Order::Dots,
    };
    rows(e, p, 0);
}

/// Two rows as a row of pairs: column j of both comes to word j. Where the second one does not exist, zeros take its place. A vector may overrun.
pub fn two_rows(e: &mut Emitter, from: [Val; 2], elem: Elem, exists: Val, to: Val, columns: Val) {
    let (lanes, none) = (e.lanes, e.int(0));
    let p = Pairs {
        from: from[0],
        elem,
        stride: none,
        valid: columns,
        count: none,
        to,
        width: lanes,
        order: Order::Dots,
    };
    e.each_piece(columns, lanes as i64, |e, j, left| {
        let mask = left.and_then(|left| e.partial_mask(left, lanes));
        let [even, odd] = from.map(|row| {
            let at = e.at(row, j, elem);
            p.load(e, at, mask)
        });
        let zero = e.float(0.0, odd.ty);
        let odd = e.select(exists, odd, zero);
        let words = words(e, even, odd);
        let at = e.at(to, j, Elem::I32);
        e.store(words, at);
    });
}

/// The same of a matrix with B(k, j) at `j + stride · k`.
pub fn columns(e: &mut Emitter, p: Pairs, length: i64) {
    let (lanes, step) = (e.lanes, 2 * e.lanes as i64);
    let (zero, width, depth) = (e.int(0), e.int(p.width as i64), depth(e, p.order, p.count));
    let none = e.float(0.0, Type::vector(Elem::F32, lanes));
    e.for_each(zero, depth, step, |e, k| {
        e.for_each(zero, width, lanes as i64, |e, j| {
            let (left, below) = (e.sub(p.valid, j), e.sub(p.count, k));
            let [all, deep] = [(left, lanes as i64), (below, step)].map(|(have, want)| {
                let want = e.int(want);
                e.cmp(Cmp::Ge, have, want)
            });
            let whole = e.and(all, deep);
            // Columns of which none exists are not read where they would be: as rows in `panel::transpose`.
            let some = e.cmp(Cmp::Gt, left, zero);
            let first = e.select(some, j, zero);
            let column = e.at(p.from, first, p.elem);
            // Pairs of rows, of which some may be missing.
            let pairs = |e: &mut Emitter, whole: bool| -> Vec<Val> {
                let row = |e: &mut Emitter, i: i64| {
                    let (mut at, mut mask) = (e.add_int(k, i), None);
                    if !whole {
                        let exists = e.cmp(Cmp::Lt, at, p.count);
                        at = e.select(exists, at, zero);
                        let count = e.select(exists, left, zero);
                        mask = Some(e.mask(count, lanes));
                    }
                    let down = e.mul(at, p.stride);
                    let at = e.at(column, down, p.elem);
                    if whole {
                        // The panel behind this one is read next: rows are too far apart for the processor to foresee.
                        let next = e.at_const(at, p.width as i64, p.elem);
                        e.prefetch(next, false);
                    }
                    p.load(e, at, mask)
                };
                let pair = |e: &mut Emitter, u: i64| {
                    let (even, odd) = (row(e, 2 * u), row(e, 2 * u + 1));
                    let words = words(e, even, odd);
                    e.bitcast(words, Elem::F32)
                };
                (0..lanes as i64).map(|u| pair(e, u)).collect()
            };
            // Shuffles take long to compile, so those of both are the same.
            let rows = e.either_with(whole, &vec![none; lanes as usize], pairs);
            for (i, words) in transpose::square(e, &rows).into_iter().enumerate() {
                let row = e.add_int(j, i as i64);
                let offset = e.mul_int(row, length);
                let offset = e.add(offset, k);
                let to = e.at(p.to, offset, Elem::Bf16);
                e.store(words, to);
            }
        });
    });
}

/// Two vector lengths of k, for all columns of a panel that ends at row `end`. `whole` says that nothing is missing: known, or as an i1.
fn squares(e: &mut Emitter, p: Pairs, k: Val, end: Val, whole: Result<bool, Val>) {
    let from = e.at(p.from, k, p.elem);
    let zero = e.int(0);
    let group = |e: &mut Emitter, first: Val, whole| {
        let mut skip = e.mul(first, p.stride);
        if whole != Ok(true) {
            // Columns of which none exists are not read where they would be: as rows in `panel::transpose`.
            let exists = e.cmp(Cmp::Lt, first, p.valid);
            skip = e.select(exists, skip, zero);
        }
        Pairs {
            from: e.at(from, skip, p.elem),
            valid: e.sub(p.valid, first),
            to: e.at(p.to, first, Elem::I32),
            ..p
        }
    };
    let lanes = e.lanes;
    let rest = if p.width < lanes { 0 } else { p.width % lanes };
    let end_of_whole = e.int((p.width - rest) as i64);
    e.for_each(zero, end_of_whole, lanes as i64, |e, first| {
        let group = group(e, first, whole);
        square(e, group, lanes.min(p.width), (k, end), whole);
    });
    if rest > 0 {
        let group = group(e, end_of_whole, Ok(false));
        square(e, group, rest, (k, end), Ok(false));
    }
}

/// The first `count` columns, as many as a vector has lanes, or as there are, at two vector lengths of k. Those behind whole vectors spare what is there of the
/// next rows.
fn square(e: &mut Emitter, p: Pairs, count: u64, (k, end): (Val, Val), whole: Result<bool, Val>) {
    let lanes = e.lanes;
    let spared = (count < lanes && p.width > lanes).then(|| {
        let count = e.int(count as i64);
        e.mask(count, lanes)
    });
    let left = e.sub(p.count, k);
    // The words of a column.
    let column = |e: &mut Emitter, j: i64, whole: bool| {
        let mut offset = e.mul_int(p.stride, j);
        let (zero, number) = (e.int(0), e.int(j));
        let exists = (!whole).then(|| e.cmp(Cmp::Lt, number, p.valid));
        if let Some(exists) = exists {
            // Columns that do not exist: as rows in `panel::transpose`.
            offset = e.select(exists, offset, zero);
        }
        let at = e.at(p.from, offset, p.elem);
        let left = exists.map(|exists| e.select(exists, left, zero));
        let words = p.neighbours(e, at, left);
        e.bitcast(words, Elem::F32)
    };
    let none = e.float(0.0, Type::vector(Elem::F32, lanes));
    let all = |e: &mut Emitter, whole: bool| -> Vec<Val> {
        (0..count as i64).map(|j| column(e, j, whole)).collect()
    };
    let mut rows = match whole {
        Ok(whole) => all(e, whole),
        Err(whole) => e.either_with(whole, &vec![none; count as usize], all),
    };
    rows.resize(lanes as usize, none);
    let words = transpose::square(e, &rows);
    let all = |e: &mut Emitter, whole: bool| {
        for (u, words) in words.iter().enumerate() {
            let row = e.add_int(k, 2 * u as i64);
            let words = e.bitcast(*words, Elem::I32);
            let store = |e: &mut Emitter| p.store(e, words, row, (0, spared));
            // A square of whole chunks is in the panel; of others, its first row is.
            if whole || u == 0 || p.order.chunk().is_multiple_of(2 * lanes) {
                store(e);
            } else {
                let exists = e.cmp(Cmp::Lt, row, end);
                e.when(exists, store);
            }
        }
    };
    match whole {
        Ok(whole) => all(e, whole),
        Err(whole) => e.either(whole, all),
    }
}
