//! Rows of earlier tokens, from a ring.
//!
//! Takes a [`Delay`] spec; emits, for each tile of 64 columns of a sequence, a loop over its tokens: what each reads is loaded before its own
//! row takes the place of the oldest.

use crate::access::{Columns, load_columns, store_columns};
use crate::emit::{Cmp, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::Delay;

/// Lanes of a vector: a tile is four of them.
const WIDTH: u64 = 16;

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &Delay) -> Result<(), String> {
    let (begin, end) = (e.begin(), e.end());
    let (whole, rest) = (kernel.cols / Delay::TILE, kernel.cols % Delay::TILE);
    e.for_each(begin, end, 1, |e, tile| {
        let blocks = e.int(kernel.blocks() as i64);
        let (sequence, block) = (e.div(tile, blocks), e.rem(tile, blocks));
        let first = e.mul_int(block, Delay::TILE as i64);
        let of_width = |e: &mut Emitter, width| run(e, kernel, sequence, first, width);
        match (whole, rest) {
            (_, 0) => of_width(e, Delay::TILE),
            (0, _) => of_width(e, rest),
            _ => {
                let all = e.int(whole as i64);
                let is_whole = e.cmp(Cmp::Gt, all, block);
                e.either(is_whole, |e, is_whole| {
                    of_width(e, if is_whole { Delay::TILE } else { rest })
                });
            }
        }
    });
    Ok(())
}

/// Takes so many columns of a sequence from `column` on.
fn run(e: &mut Emitter, kernel: &Delay, sequence: Val, column: Val, width: u64) {
    let vector = |v: u64| Columns {
        first: e.add_int(column, (v * WIDTH) as i64),
        lanes: WIDTH,
        count: WIDTH.min(width - v * WIDTH),
    };
    let vectors: Vec<Columns> = (0..width.div_ceil(WIDTH)).map(vector).collect();
    let load = |e: &mut Emitter, row: Val| -> Vec<Val> {
        let each = vectors.iter();
        each.map(|cols| load_columns(e, row, e.elem, ColMap::Col, *cols))
            .collect()
    };
    let store = |e: &mut Emitter, values: &[Val], row: Val| {
        for (cols, value) in vectors.iter().zip(values) {
            store_columns(e, *value, row, e.elem, *cols);
        }
    };
    let [x, y, ring] = [0, 1, 2].map(|n| e.operand(n));
    let (seq, past, zero) = (e.dim(1), e.dim(2), e.int(0));
    let nothing = e.float(0.0, Type::vector(e.elem, WIDTH));
    let nothing = vec![nothing; vectors.len()];
    let reach = e.int(kernel.reach() as i64);
    let kept = |e: &mut Emitter, token: Val| {
        let first = e.mul(sequence, reach);
        let slot = e.rem(token, reach);
        let slot = e.add(first, slot);
        row(e, ring, slot, kernel.cols)
    };
    e.for_each(zero, seq, 1, |e, t| {
        let first = e.mul(sequence, seq);
        let (number, token) = (e.add(first, t), e.add(past, t));
        let from = row(e, x, number, kernel.cols);
        let own = load(e, from);
        let to = row(e, y, number, kernel.columns());
        for (n, by) in kernel.by.iter().enumerate() {
            let found = match *by {
                0 => own.clone(),
                by => {
                    let earlier = e.add_int(token, -i64::from(by));
                    let exists = e.cmp(Cmp::Ge, earlier, zero);
                    e.when_with(exists, &nothing, |e| {
                        let row = kept(e, earlier);
                        load(e, row)
                    })
                }
            };
            let offset = e.int((n as u64 * kernel.cols) as i64);
            let to = e.at(to, offset, e.elem);
            store(e, &found, to);
        }
        let to = kept(e, token);
        store(e, &own, to);
    });
}

/// The address of row `r` of an operand.
fn row(e: &mut Emitter, operand: Val, r: Val, cols: u64) -> Val {
    let offset = e.mul_int(r, cols as i64);
    e.at(operand, offset, e.elem)
}
