//! Which scores count: what the rows of a block see of a tile of the other side.
//!
//! Most tiles are seen whole by all of a block's rows, and nothing is compared there: only on the diagonal, at a window's edges and at the end
//! of the sequence are scores hidden, in a branch that a block takes as one.

use super::{Block, Sums, flat, fragments, number};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use odec_program::gpu::tensor::attend::ROWS;

/// What a row sees of the other side: from one on, if there is such a bound, and those below another.
#[derive(Clone, Copy)]
pub(super) struct Sight {
    pub from: Option<Val>,
    pub until: Val,
}

impl Sight {
    /// Whether somebody does not see all of `count` others from `first` on, where nobody sees less than this.
    fn misses(self, e: &mut Emitter, first: Val, count: u64) -> Val {
        let end = e.add_int(first, count as i64);
        let behind = e.cmp(Cmp::Gt, end, self.until);
        let before = self.from.map(|from| e.below(first, from));
        before.map_or(behind, |before| e.or(before, behind))
    }
}

/// What the lane's two rows see, and what all rows of the block do.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    pub rows: [Sight; 2],
    pub all: Sight,
}

impl Seen {
    /// Scores of `8 · scores.len()` others from `first` on, −∞ where a row does not see one.
    pub fn only(self, e: &mut Emitter, block: &Block, scores: Sums, first: Val) -> Sums {
        let misses = self.all.misses(e, first, 8 * scores.len() as u64);
        let flat = flat(&scores);
        let seen = e.when_with(misses, &flat, |e| {
            let mask = Mask::new(e, block, self.rows, first);
            let least = number(e, f64::NEG_INFINITY);
            let all = flat.iter().enumerate();
            all.map(|(at, score)| {
                let visible = mask.sees(e, at / 4, at % 4);
                e.select(visible, *score, least)
            })
            .collect()
        });
        fragments(&seen)
    }
}

/// What the lane's rows see of fragments side by side: bounds of columns, counted from the lane's first, as i32.
pub(super) struct Mask([Sight; 2]);

impl Mask {
    /// Of fragments whose first column is number `first` of the other side.
    pub fn new(e: &mut Emitter, block: &Block, seen: [Sight; 2], first: Val) -> Mask {
        let here = e.add(first, block.lane_col);
        // No fragment has more columns.
        let (least, most) = (e.int(-1), e.int(ROWS as i64));
        let mut within = |bound: Val| {
            let bound = e.sub(bound, here);
            let bound = e.max(bound, least);
            let bound = e.min(bound, most);
            e.convert(bound, Elem::I32)
        };
        Mask(seen.map(|s| Sight {
            from: s.from.map(&mut within),
            until: within(s.until),
        }))
    }

    /// Whether element `i` of fragment `n` is seen.
    pub fn sees(&self, e: &mut Emitter, n: usize, i: usize) -> Val {
        let Sight { from, until } = self.0[i / 2];
        let column = e.integer((8 * n + i % 2) as i64, Type::scalar(Elem::I32));
        let visible = e.below(column, until);
        from.map_or(visible, |from| {
            let sees = e.cmp(Cmp::Ge, column, from);
            e.and(visible, sees)
        })
    }
}
