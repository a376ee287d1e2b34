//! The tokens of each sequence with the largest scores.
//!
//! Takes a [`TopTokens`] spec; emits, for each tile of 16 tokens of a sequence, a loop over all its tokens in which a vector counts those
//! that stand before each of the tile. The comparison is the one that kernels for GPUs emit for a token of a thread.

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::kernel::TopTokens;

const WIDTH: u64 = TopTokens::TILE;

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &TopTokens) -> Result<(), String> {
    let (begin, end, seq) = (e.begin(), e.end(), e.dim(1));
    let blocks = e.div_ceil(seq, WIDTH as i64);
    e.for_each(begin, end, 1, |e, tile| {
        let (sequence, block) = (e.div(tile, blocks), e.rem(tile, blocks));
        let first = e.mul_int(block, WIDTH as i64);
        let text = Text::new(e, sequence);
        let left = e.sub(seq, first);
        let mask = e.mask(left, WIDTH);
        let ty = Type::vector(e.elem, WIDTH);
        let load = |e: &mut Emitter, operand| {
            let from = text.at(e, operand, first);
            e.load_lanes(from, Some(mask), ty)
        };
        let (scores, open) = (load(e, 0), load(e, 1));
        let numbers = e.convert(first, Elem::I32);
        let (numbers, lanes) = (e.broadcast(numbers, WIDTH), e.iota(WIDTH));
        let numbers = e.add(numbers, lanes);
        let chosen = text.chosen(e, kernel, scores, open, numbers);
        let to = text.at(e, 2, first);
        e.store_masked(chosen, to, mask);
    });
    Ok(())
}

/// The tokens of a sequence.
pub(crate) struct Text {
    /// The number of its first one.
    first: Val,
    length: Val,
}

impl Text {
    pub fn new(e: &mut Emitter, sequence: Val) -> Text {
        let length = e.dim(1);
        let first = e.mul(sequence, length);
        Text { first, length }
    }

    /// The address of an operand's number for token `t`.
    pub fn at(&self, e: &mut Emitter, operand: u64, t: Val) -> Val {
        let base = e.operand(operand);
        let place = e.add(self.first, t);
        e.at(base, place, e.elem)
    }

    /// 1 or 0 for tokens of these scores and (i32) numbers: one, or a vector of them.
    pub fn chosen(
        &self,
        e: &mut Emitter,
        kernel: &TopTokens,
        scores: Val,
        open: Val,
        numbers: Val,
    ) -> Val {
        let spread = |e: &mut Emitter, x: Val| match scores.ty.lanes {
            0 => x,
            n => e.broadcast(x, n.into()),
        };
        let scores = or_lowest(e, scores);
        let [none, one] = [0, 1].map(|n| e.integer(n, numbers.ty));
        let (zero, closed) = (e.int(0), e.zero(e.scalar()));
        let before = e.for_with(zero, self.length, 1, &[none], |e, t, count| {
            let [other, is_open] = [0, 1].map(|n| {
                let from = self.at(e, n, t);
                e.load(from, e.scalar())
            });
            let is_open = e.cmp(Cmp::Gt, is_open, closed);
            let other = or_lowest(e, other);
            let number = e.convert(t, Elem::I32);
            let [other, number, is_open] = [other, number, is_open].map(|x| spread(e, x));
            let larger = e.cmp(Cmp::Gt, other, scores);
            let equal = e.cmp(Cmp::Eq, other, scores);
            let earlier = e.cmp(Cmp::Lt, number, numbers);
            let ties = e.and(equal, earlier);
            let before = e.or(larger, ties);
            let before = e.and(before, is_open);
            let more = e.select(before, one, none);
            vec![e.add(count[0], more)]
        });
        let most = e.mul_int(self.length, kernel.share.of.into());
        let most = e.div_ceil(most, kernel.share.from.into());
        let most = e.convert(most, Elem::I32);
        let most = spread(e, most);
        let few = e.cmp(Cmp::Lt, before[0], most);
        let [no, yes] = [0.0, 1.0].map(|x| e.float(x, scores.ty));
        let is_open = e.cmp(Cmp::Gt, open, no);
        let chosen = e.and(few, is_open);
        e.select(chosen, yes, no)
    }
}

/// What is no number counts as −∞.
fn or_lowest(e: &mut Emitter, x: Val) -> Val {
    let lowest = e.float(f64::NEG_INFINITY, x.ty);
    let is_number = e.cmp(Cmp::Eq, x, x);
    e.select(is_number, x, lowest)
}
