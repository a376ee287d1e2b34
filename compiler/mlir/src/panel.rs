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
    // squares without a mask as far as they go, then the rest with one
    let start = match p.full(e) {
        Ok(true) => {
            e.for_each(zero, whole, lanes, |e, k| squares(e, p, k, false));
            whole
        }
        Ok(false) => zero,
        Err(full) => {
            let fast = e.select(full, whole, zero);
            e.for_each(zero, fast, lanes, |e, k| squares(e, p, k, false));
            fast
        }
    };
    if start.known().is_none() || start.known() != p.count.known() {
        e.for_each(start, p.count, lanes, |e, k| squares(e, p, k, true));
    }
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

/// One vector length of k, for all i.
fn squares(e: &mut Emitter, p: Panel, k: Val, masked: bool) {
    let (lanes, elem, to_elem) = (e.lanes, p.elem, p.element(e));
    let vector = Type::vector(elem, lanes);
    let missing = e.zero(vector);
    let none = e.zero(e.vector());
    let from = e.at(p.from, k, elem);
    let left = e.sub(p.count, k);
    let mut groups = Vec::new();
    for first in (0..p.width).step_by(lanes as usize) {
        let mut rows = Vec::new();
        for i in first..first + lanes {
            if i >= p.width {
                rows.push(none);
                continue;
            }
            let offset = e.mul_int(p.stride, i as i64);
            let x = if masked {
                let (zero, number) = (e.int(0), e.int(i as i64));
                let exists = e.cmp(Cmp::Lt, number, p.valid);
                let count = e.select(exists, left, zero);
                // Of a row that does not exist nothing is read, but a masked load from a page that nobody has touched takes hundreds of cycles.
                let offset = e.select(exists, offset, zero);
                let at = e.at(from, offset, elem);
                let mask = e.mask(count, lanes);
                e.load_masked(at, mask, missing)
            } else {
                let at = e.at(from, offset, elem);
                e.load(at, vector)
            };
            rows.push(p.numbers(e, x));
        }
        groups.push(transpose::square(e, &rows));
    }
    for u in 0..lanes as i64 {
        let store = |e: &mut Emitter| {
            let row = e.add_int(k, u);
            let row = e.mul_int(row, p.width as i64);
            let to = e.at(p.to, row, to_elem);
            for (g, columns) in groups.iter().enumerate() {
                let at = e.at_const(to, g as i64 * lanes as i64, to_elem);
                let x = p.elements(e, columns[u as usize]);
                e.store(x, at);
            }
        };
        if masked && u > 0 {
            let number = e.int(u);
            let exists = e.cmp(Cmp::Lt, number, left);
            e.when(exists, store);
        } else {
            store(e);
        }
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
