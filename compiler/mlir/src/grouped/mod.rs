//! Products of rows with the matrix of their group, and sums of outer products over the rows of a group.
//!
//! Takes a [`Grouped`] spec. A tile of a launch is a group with a block of its matrix: it looks through the numbers of all rows, a
//! range at a time, lists those of its group in scratch, and multiplies them by [`crate::micro`]. Whether a row is of the group is decided by two
//! comparisons, so nothing is addressed by a number, whatever it is. Where products are added two after two, what is copied and packed are pairs of
//! bf16 ([`crate::pairs`]).

mod outer;
mod rows;

pub(crate) use outer::emit as emit_outer;
pub(crate) use rows::emit as emit_rows;

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::micro::{self, Tile};
use crate::panel::Rounding;
use odec_program::kernel::{Blocking, Grouped, Layout};

/// The rows of one group.
pub(crate) struct Members {
    numbers: Val,
    /// The group's number, and the one after it.
    low: Val,
    high: Val,
    /// Whether lower numbers are its too, and higher ones.
    pub(crate) first: Val,
    last: Val,
    /// Whether numbers that are not 0 or more are of no group.
    partial: bool,
}

impl Members {
    pub(crate) fn of(e: &mut Emitter, spec: &Grouped, group: Val) -> Members {
        let (zero, last) = (e.int(0), e.int(spec.of.groups as i64 - 1));
        let after = e.add_int(group, 1);
        Members {
            numbers: e.operand(0),
            low: e.convert(group, e.elem),
            high: e.convert(after, e.elem),
            first: e.cmp(Cmp::Eq, group, zero),
            last: e.cmp(Cmp::Eq, group, last),
            partial: spec.of.partial,
        }
    }

    /// The number of a row.
    fn number(&self, e: &mut Emitter, row: Val) -> Val {
        let p = e.at(self.numbers, row, e.elem);
        e.load(p, e.scalar())
    }

    /// Whether a row is of the group (i1). What is no number is of the first, if of any.
    pub(crate) fn has(&self, e: &mut Emitter, row: Val) -> Val {
        let x = self.number(e, row);
        let above = e.cmp(Cmp::Ge, x, self.low);
        let above = match self.partial {
            true => above,
            false => e.or(above, self.first),
        };
        let (below, none) = (e.cmp(Cmp::Lt, x, self.high), e.cmp(Cmp::Ne, x, x));
        let below = e.or(below, none);
        let below = e.or(below, self.last);
        e.and(above, below)
    }

    /// Whether a row is of no group (i1).
    pub(crate) fn lacks(&self, e: &mut Emitter, row: Val) -> Val {
        let x = self.number(e, row);
        let zero = e.float(0.0, x.ty);
        let (below, none) = (e.cmp(Cmp::Lt, x, zero), e.cmp(Cmp::Ne, x, x));
        e.or(below, none)
    }

    /// One more than `count` if a row is of the group.
    fn counted(&self, e: &mut Emitter, row: Val, count: Val) -> Val {
        let (more, has) = (e.add_int(count, 1), self.has(e, row));
        e.select(has, more, count)
    }

    /// How many of the first `rows` are of the group.
    fn count(&self, e: &mut Emitter, rows: Val) -> Val {
        let zero = e.int(0);
        let add = |e: &mut Emitter, row: Val, count: &[Val]| vec![self.counted(e, row, count[0])];
        e.for_with(zero, rows, 1, &[zero], add)[0]
    }

    /// Lists those of the rows `from..to`; how many there are.
    fn list(&self, e: &mut Emitter, from: Val, to: Val) -> Val {
        let zero = e.int(0);
        let add = |e: &mut Emitter, row: Val, count: &[Val]| {
            // A row that is not of the group is overwritten by the next that is.
            let scratch = e.scratch();
            let p = e.at(scratch, count[0], Elem::I64);
            e.store(row, p);
            vec![self.counted(e, row, count[0])]
        };
        e.for_with(from, to, 1, &[zero], add)[0]
    }
}

/// Row number `i` of the list.
fn listed(e: &mut Emitter, i: Val) -> Val {
    let scratch = e.scratch();
    let p = e.at(scratch, i, Elem::I64);
    e.load(p, Type::scalar(Elem::I64))
}

/// The register tile, where it fits the target.
fn register_tile(e: &Emitter, b: Blocking) -> Result<Tile, String> {
    let (mr, nr, kc) = (u64::from(b.mr), u64::from(b.nr), u64::from(b.kc));
    if nr % e.lanes != 0 || kc % e.lanes != 0 || mr * (nr / e.lanes) > 64 {
        return Err(format!(
            "a blocking of {mr} × {nr}, {kc} deep does not fit vectors of {}",
            e.lanes
        ));
    }
    Ok(Tile {
        rows: mr,
        vectors: nr / e.lanes,
    })
}

/// Elements of the factors in scratch: numbers, or words of two.
fn inner_elem(e: &Emitter, spec: &Grouped) -> Elem {
    match (spec.order.in_pairs(), spec.layout) {
        (true, _) => micro::PAIRS,
        (false, Layout::Panels) => Elem::of(spec.factors[1]),
        (false, _) => e.elem,
    }
}

/// How many of these a sum of so many products is over.
fn inner_count(e: &mut Emitter, spec: &Grouped, count: Val) -> Val {
    match spec.order.in_pairs() {
        true => e.div_ceil(count, 2),
        false => count,
    }
}

/// The group of a tile and the first row or column of its matrix's block, where a group has one block for each `width` of `n`;
/// then how many of them exist.
fn place(e: &mut Emitter, tile: Val, n: u64, width: u64) -> (Val, Val, Val) {
    let blocks = e.int(n.div_ceil(width) as i64);
    let (group, block) = (e.div(tile, blocks), e.rem(tile, blocks));
    let first = e.mul_int(block, width as i64);
    let all = e.int(width as i64);
    if n.is_multiple_of(width) {
        return (group, first, all);
    }
    let n = e.int(n as i64);
    let left = e.sub(n, first);
    (group, first, e.min(left, all))
}

/// How a factor lies in memory.
#[derive(Clone, Copy)]
struct Factor {
    elem: Elem,
    /// Whether its elements are rounded to bf16 as they are read.
    rounds: bool,
}

impl Factor {
    /// The first or the second.
    fn of(spec: &Grouped, n: usize) -> Factor {
        let elem = Elem::of(spec.factors[n]);
        Factor {
            elem,
            rounds: spec.rounded && elem != Elem::Bf16,
        }
    }

    /// Elements in memory as numbers of the kernel's type.
    fn numbers(self, e: &mut Emitter, x: Val) -> Val {
        let x = e.convert(x, e.elem);
        match self.rounds {
            true => e.nearest_bf16(x, false),
            false => x,
        }
    }

    fn rounding(self) -> Rounding {
        match self.rounds {
            true => Rounding::Rounded,
            false => Rounding::None,
        }
    }
}

/// Copies `count` elements of a factor as numbers of the kernel's type, whole vectors as far as they go.
fn copy(e: &mut Emitter, of: Factor, from: Val, to: Val, count: Val) {
    let (zero, lanes) = (e.int(0), e.lanes);
    let whole = e.floor_to(count, lanes as i64);
    let vector = Type::vector(of.elem, lanes);
    e.for_each(zero, whole, lanes as i64, |e, i| {
        let (p, q) = (e.at(from, i, of.elem), e.at(to, i, e.elem));
        let x = e.load(p, vector);
        let x = of.numbers(e, x);
        e.store(x, q);
    });
    let rest = e.sub(count, whole);
    let ragged = e.cmp(Cmp::Gt, rest, zero);
    e.when(ragged, |e| {
        let mask = e.mask(rest, lanes);
        let (p, q) = (e.at(from, whole, of.elem), e.at(to, whole, e.elem));
        let x = e.load_lanes(p, Some(mask), vector);
        let x = of.numbers(e, x);
        e.store(x, q);
    });
}

/// Writes a row of sums: `width` elements from `to` on, added to what is there unless it is the `first` block.
fn write(e: &mut Emitter, sums: &[Val], to: Val, width: Val, first: Val) {
    let lanes = e.lanes as i64;
    for (v, sum) in sums.iter().enumerate() {
        let at = v as i64 * lanes;
        let left = e.add_int(width, -at);
        let mask = e.partial_mask(left, e.lanes);
        let p = e.at_const(to, at, e.elem);
        let before = e.load_lanes(p, mask, sum.ty);
        // −0 + x is x, whatever x is
        let nothing = e.float(-0.0, sum.ty);
        let before = e.select(first, nothing, before);
        let total = e.add(before, *sum);
        e.store_lanes(total, p, mask);
    }
}
