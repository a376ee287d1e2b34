//! Weights in integers, widened in registers.
//!
//! Takes the layout and the meaning from [`odec_program::quantized`]: of each panel, groups of rows one after the other, of each group the scales of its
//! columns in bf16 and then its rows of integers. Gives what [`crate::contract`] reads of it; [`crate::pack`] writes it. A row of a panel is multiplied as soon as
//! it is read, so a product with one panel of rows reads the bytes of the integers and nothing else.

use crate::emit::{Elem, Emitter, Type, Val};
use crate::micro::{self, Left, Tile};
use odec_program::Quantized;

/// Bytes that panels are prefetched ahead.
const PREFETCH: i64 = 2048;

/// A panel of integers, at a whole group.
#[derive(Clone, Copy)]
pub(crate) struct Integers {
    pub of: Quantized,
    pub pointer: Val,
    /// Columns of the panel.
    pub nr: u64,
}

/// Checks that panels are made of whole vectors.
///
/// # Errors
/// What does not fit.
pub(crate) fn check(e: &Emitter, of: Quantized, nr: u64) -> Result<(), String> {
    let columns = nr * u64::from(of.bits) / 8;
    match columns > 0 && columns.is_multiple_of(e.lanes) && e.elem == Elem::F32 {
        true => Ok(()),
        false => Err(format!(
            "{of} in panels of {nr} columns on vectors of {} {:?}",
            e.lanes, e.elem
        )),
    }
}

impl Integers {
    /// The panel that begins with a column, at a row that begins a group; `k` rows are in a panel.
    pub fn at(
        e: &mut Emitter,
        of: Quantized,
        nr: u64,
        b: Val,
        (column, row): (Val, Val),
        k: Val,
    ) -> Integers {
        let size = panel_bytes(e, of, nr, k);
        let number = e.div_int(column, nr as i64);
        let panel = e.mul(number, size);
        let group = e.div_int(row, of.group.into());
        let inside = e.mul_int(group, of.stride(nr) as i64);
        let offset = e.add(panel, inside);
        let pointer = e.at(b, offset, Elem::I8);
        Integers { of, pointer, nr }
    }

    /// Runs `body` for each row of so many, in order: with its number, and its first `vectors` as numbers. Values are carried from row to row.
    fn rows(
        self,
        e: &mut Emitter,
        count: Val,
        vectors: u64,
        init: &[Val],
        body: impl FnOnce(&mut Emitter, Val, &[Val], &[Val]) -> Vec<Val>,
    ) -> Vec<Val> {
        let (of, nr) = (self.of, self.nr);
        let group = i64::from(of.group);
        let (zero, groups) = (e.int(0), e.div_ceil(count, group));
        e.for_with(zero, groups, 1, init, |e, g, carried| {
            let offset = e.mul_int(g, of.stride(nr) as i64);
            let scales = e.at(self.pointer, offset, Elem::I8);
            let lines = e.at_const(scales, of.scales(nr) as i64, Elem::I8);
            let scales: Vec<Val> = (0..vectors)
                .map(|v| {
                    let at = e.at_const(scales, (v * e.lanes) as i64, Elem::Bf16);
                    let bits = e.load(at, Type::vector(Elem::Bf16, e.lanes));
                    e.convert(bits, Elem::F32)
                })
                .collect();
            let first = e.mul_int(g, group);
            let whole = count.known().is_some_and(|n| n % group == 0);
            let rows = match whole {
                true => e.int(group),
                false => {
                    let (left, most) = (e.sub(count, first), e.int(group));
                    e.min(left, most)
                }
            };
            e.for_with(zero, rows, 1, carried, |e, i, carried| {
                let offset = e.mul_int(i, of.row(nr) as i64);
                let line = e.at(lines, offset, Elem::I8);
                let ahead = e.at_const(line, PREFETCH, Elem::I8);
                e.prefetch(ahead, false);
                let numbers = self.line(e, line, &scales);
                let row = e.add(first, i);
                body(e, row, &numbers, carried)
            })
        })
    }

    /// The numbers of a row, in as many vectors as there are scales.
    fn line(self, e: &mut Emitter, line: Val, scales: &[Val]) -> Vec<Val> {
        let lanes = e.lanes;
        // Of 4 bits, the second half of the vectors is in the upper halves of the bytes of the first.
        let apart = (self.of.row(self.nr) / lanes) as usize;
        let mut bytes: Vec<Val> = Vec::new();
        let mut numbers = Vec::new();
        for (v, scale) in scales.iter().enumerate() {
            if v < apart {
                let at = e.at_const(line, v as i64 * lanes as i64, Elem::I8);
                let x = e.load(at, Type::vector(Elem::I8, lanes));
                bytes.push(e.convert(x, Elem::I32));
            }
            let word = bytes[v % apart];
            let integer = match (self.of.bits, v < apart) {
                (4, lower) => {
                    let [up, down] =
                        [28, if lower { 28 } else { 4 }].map(|n| e.integer(n, word.ty));
                    let word = if lower { e.shift_left(word, up) } else { word };
                    e.shift_right_signed(word, down)
                }
                _ => word,
            };
            let x = e.convert(integer, Elem::F32);
            numbers.push(e.mul(x, *scale));
        }
        numbers
    }

    /// The products of a tile, over `count` rows of the panel; see [`micro::multiply`].
    pub fn multiply(
        self,
        e: &mut Emitter,
        tile: Tile,
        a: Left,
        count: Val,
        acc: &[Val],
    ) -> Vec<Val> {
        self.rows(e, count, tile.vectors, acc, |e, k, row, acc| {
            let offset = e.mul(k, a.inner);
            let pa = e.at(a.pointer, offset, e.elem);
            micro::accumulate(e, tile, (pa, a.row), row, acc)
        })
    }

    /// Writes `count` rows of the panel as numbers, one after the other.
    pub fn widen(self, e: &mut Emitter, count: Val, to: Val) {
        let (nr, lanes) = (self.nr, e.lanes);
        self.rows(e, count, nr / lanes, &[], |e, k, row, _| {
            let offset = e.mul_int(k, nr as i64);
            let line = e.at(to, offset, e.elem);
            for (v, x) in row.iter().enumerate() {
                let at = e.at_const(line, v as i64 * lanes as i64, e.elem);
                e.store(*x, at);
            }
            vec![]
        });
    }
}

/// Bytes of a panel of inner length `k`.
pub(crate) fn panel_bytes(e: &mut Emitter, of: Quantized, nr: u64, k: Val) -> Val {
    let groups = e.div_ceil(k, of.group.into());
    let scales = e.mul_int(groups, of.scales(nr) as i64);
    let rows = e.mul_int(k, of.row(nr) as i64);
    e.add(scales, rows)
}
