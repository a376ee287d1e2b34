//! Panels: a few rows or columns of a matrix, rearranged so that the micro-kernel reads memory in order.
//!
//! A panel of width w holds `panel[k · w + i] = X(i, k)`. X is stored either with k contiguous
//! ([`transpose`]) or with i contiguous ([`copy`]). Elements with i ≥ `valid` are not read and become
//! zero. X may be bf16, and is then widened; or rounded to bf16 on the way, in a panel of numbers or of their halves. Stores are whole vectors: where w is no multiple of the vector length, they overrun into the
//! next row, which is written later, and the buffer must have room for a vector after the last one.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::transpose;

/// Where a panel comes from and goes to.
#[derive(Clone, Copy, Debug)]
pub struct Panel {
    /// X(0, 0).
    pub from: Val,
    /// Element type of X.
    pub elem: Elem,
    pub rounding: Rounding,
    /// Elements between neighbours in the direction that is not contiguous.
    pub stride: Val,
    /// How many of the `width` values of i exist.
    pub valid: Val,
    /// How many values of k.
    pub count: Val,
    pub to: Val,
    pub width: u64,
}

/// What becomes of the elements of X in a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// They become numbers of the kernel's type.
    None,
    /// The same, rounded to bf16.
    Rounded,
    /// Bits of bf16.
    Halved,
}

impl Panel {
    /// Elements of X in memory as numbers of the kernel's type.
    fn numbers(&self, e: &mut Emitter, x: Val) -> Val {
        let x = e.convert(x, e.elem);
        match self.rounding {
            Rounding::Rounded if self.elem != Elem::Bf16 => e.nearest_bf16(x, false),
            _ => x,
        }
    }

    /// Numbers as elements of the panel.
    fn elements(&self, e: &mut Emitter, x: Val) -> Val {
        match self.rounding {
            Rounding::Halved if self.elem == Elem::Bf16 => e.upper_half(x),
            Rounding::Halved => e.convert(x, Elem::Bf16),
            _ => x,
        }
    }

    /// Element type of the panel.
    fn element(&self, e: &Emitter) -> Elem {
        match self.rounding {
            Rounding::Halved => Elem::Bf16,
            _ => e.elem,
        }
    }

    /// An i1 that tells whether all values of i exist, or that without code if it is known.
    fn full(&self, e: &mut Emitter) -> Result<bool, Val> {
        match self.valid.known() {
            Some(n) => Ok(n >= self.width as i64),
            None => {
                let width = e.int(self.width as i64);
                Err(e.cmp(Cmp::Ge, self.valid, width))
            }
        }
    }
}

/// Rearranges a matrix with X(i, k) at `stride · i + k`.
pub fn transpose(e: &mut Emitter, p: Panel) {
    let lanes = e.lanes as i64;
    let whole = e.floor_to(p.count, lanes);
    let zero = e.int(0);
    // Squares as far as they go of which nothing is missing, then the others, which are read with a mask. Shuffles take long to compile, so
    // those of both are the same.
    let fast = match p.full(e) {
        Ok(true) => whole,
        Ok(false) => zero,
        Err(full) => e.select(full, whole, zero),
    };
    e.for_each(zero, p.count, lanes, |e, k| {
        let whole = match fast.known() {
            Some(0) => Ok(false),
            Some(n) if Some(n) == p.count.known() => Ok(true),
            _ => Err(e.cmp(Cmp::Lt, k, fast)),
        };
        squares(e, p, k, whole);
    });
}

/// Rows of a matrix with X(i, k) at `stride · i + k`, one after the other: X(i, k) comes to `length · i + k`. Rows that do not exist are left as they
/// are. A vector may overrun into the next row.
pub fn rows(e: &mut Emitter, p: Panel, length: i64) {
    let (lanes, to_elem) = (e.lanes, p.element(e));
    let vector = Type::vector(p.elem, lanes);
    let zero = e.int(0);
    e.for_each(zero, p.valid, 1, |e, i| {
        let offset = e.mul(i, p.stride);
        let from = e.at(p.from, offset, p.elem);
        let offset = e.mul_int(i, length);
        let to = e.at(p.to, offset, to_elem);
        e.each_piece(p.count, lanes as i64, |e, k, left| {
            let at = e.at(from, k, p.elem);
            let mask = left.and_then(|left| e.partial_mask(left, lanes));
            let x = e.load_lanes(at, mask, vector);
            let x = p.numbers(e, x);
            let x = p.elements(e, x);
            let at = e.at(to, k, to_elem);
            e.store(x, at);
        });
    });
}

/// One vector length of k, for all i. `whole` says that nothing is missing: known, or as an i1.
fn squares(e: &mut Emitter, p: Panel, k: Val, whole: Result<bool, Val>) {
    let lanes = e.lanes;
    let from = e.at(p.from, k, p.elem);
    if p.width.is_multiple_of(lanes) {
        let (zero, width) = (e.int(0), e.int(p.width as i64));
        e.for_each(zero, width, lanes as i64, |e, first| {
            let mut skip = e.mul(first, p.stride);
            if whole != Ok(true) {
                // Rows of which none exists are not read where they would be, see `square`.
                let exists = e.cmp(Cmp::Lt, first, p.valid);
                skip = e.select(exists, skip, zero);
            }
            let group = Panel {
                from: e.at(from, skip, p.elem),
                valid: e.sub(p.valid, first),
                to: e.at(p.to, first, p.element(e)),
                ..p
            };
            let columns = square(e, group, lanes, k, whole);
            store(e, group, k, whole, &[columns]);
        });
        return;
    }
    // The last vectors of rows overrun into the next one: rows are stored as wholes.
    let starts = (0..p.width).step_by(lanes as usize);
    let groups: Vec<Vec<Val>> = starts
        .map(|first| {
            let skip = e.mul_int(p.stride, first as i64);
            let group = Panel {
                from: e.at(from, skip, p.elem),
                valid: e.add_int(p.valid, -(first as i64)),
                ..p
            };
            square(e, group, p.width - first, k, whole)
        })
        .collect();
    store(e, p, k, whole, &groups);
}

/// The first values of i, as many as a vector has lanes, or `wide` if those are fewer, at one vector length of k: a vector for each k.
fn square(e: &mut Emitter, p: Panel, wide: u64, k: Val, whole: Result<bool, Val>) -> Vec<Val> {
    let (vector, count) = (Type::vector(p.elem, e.lanes), e.lanes.min(wide));
    let missing = e.zero(vector);
    let left = e.sub(p.count, k);
    let load = |e: &mut Emitter, i: u64, whole: bool| {
        let offset = e.mul_int(p.stride, i as i64);
        if whole {
            let at = e.at(p.from, offset, p.elem);
            return e.load(at, vector);
        }
        let (zero, number) = (e.int(0), e.int(i as i64));
        let exists = e.cmp(Cmp::Lt, number, p.valid);
        let count = e.select(exists, left, zero);
        // Of a row that does not exist nothing is read, but a masked load from a page that nobody has touched takes hundreds of cycles.
        let offset = e.select(exists, offset, zero);
        let at = e.at(p.from, offset, p.elem);
        let mask = e.mask(count, e.lanes);
        e.load_masked(at, mask, missing)
    };
    let all = |e: &mut Emitter, whole: bool| (0..count).map(|i| load(e, i, whole)).collect();
    let rows: Vec<Val> = match whole {
        Ok(whole) => all(e, whole),
        Err(whole) => e.either_with(whole, &vec![missing; count as usize], all),
    };
    let mut rows: Vec<Val> = rows.into_iter().map(|x| p.numbers(e, x)).collect();
    rows.resize(e.lanes as usize, e.zero(e.vector()));
    transpose::square(e, &rows)
}

/// Stores such vectors, those of neighbouring values of i beside each other.
fn store(e: &mut Emitter, p: Panel, k: Val, whole: Result<bool, Val>, groups: &[Vec<Val>]) {
    let (lanes, elem) = (e.lanes as i64, p.element(e));
    let left = e.sub(p.count, k);
    let line = |e: &mut Emitter, u: i64| {
        let row = e.add_int(k, u);
        let row = e.mul_int(row, p.width as i64);
        let to = e.at(p.to, row, elem);
        for (g, columns) in groups.iter().enumerate() {
            let at = e.at_const(to, g as i64 * lanes, elem);
            let x = p.elements(e, columns[u as usize]);
            e.store(x, at);
        }
    };
    let all = |e: &mut Emitter, whole: bool| {
        for u in 0..lanes {
            if whole || u == 0 {
                line(e, u);
                continue;
            }
            let number = e.int(u);
            let exists = e.cmp(Cmp::Lt, number, left);
            e.when(exists, |e| line(e, u));
        }
    };
    match whole {
        Ok(whole) => all(e, whole),
        Err(whole) => e.either(whole, all),
    }
}

/// Rearranges a matrix with X(i, k) at `i + stride · k`.
pub fn copy(e: &mut Emitter, p: Panel) {
    let masked = !p.width.is_multiple_of(e.lanes);
    match p.full(e) {
        Ok(full) => lines(e, p, masked || !full),
        Err(full) => {
            e.either(full, |e, full| match full {
                true => {
                    let valid = e.int(p.width as i64);
                    lines(e, Panel { valid, ..p }, masked);
                }
                false => lines(e, p, true),
            });
        }
    }
}

fn lines(e: &mut Emitter, p: Panel, masked: bool) {
    let (lanes, elem, to_elem) = (e.lanes, p.elem, p.element(e));
    let vector = Type::vector(elem, lanes);
    let zero = e.int(0);
    let starts: Vec<i64> = (0..p.width as i64).step_by(lanes as usize).collect();
    let masks: Vec<Option<Val>> = starts
        .iter()
        .map(|&first| {
            let left = e.add_int(p.valid, -first);
            if masked {
                e.partial_mask(left, lanes)
            } else {
                None
            }
        })
        .collect();
    e.for_each(zero, p.count, 1, |e, k| {
        let offset = e.mul(k, p.stride);
        let from = e.at(p.from, offset, elem);
        let offset = e.mul_int(k, p.width as i64);
        let to = e.at(p.to, offset, to_elem);
        for (&first, &mask) in starts.iter().zip(&masks) {
            let at = e.at_const(from, first, elem);
            let x = e.load_lanes(at, mask, vector);
            let x = p.numbers(e, x);
            let x = p.elements(e, x);
            let at = e.at_const(to, first, to_elem);
            e.store(x, at);
        }
    });
}
