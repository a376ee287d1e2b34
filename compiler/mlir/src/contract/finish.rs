//! Stores the sums of a finished tile of a contraction.
//!
//! Takes the sums of a tile for one block of the inner length; adds them to those of earlier blocks or to what C holds, and
//! applies the epilogue after the last one.

use super::{Job, Kernel};
use crate::emit::{Cmp, Emitter, Val};
use crate::epilogue::Columns;

/// What happens to a block sum on its way to memory.
#[derive(Clone, Copy)]
pub(super) struct Finish {
    /// It is added to what C holds.
    pub add: bool,
    /// No block follows: the epilogue is applied.
    pub last: bool,
}

impl Kernel<'_> {
    /// Finishes the rows of a tile that exist, so many vectors of sums each, from memory.
    pub(super) fn finish_rows(
        &self,
        e: &mut Emitter,
        job: Job,
        how: Finish,
        (spill, vectors): (Val, i64),
    ) {
        let (lanes, elem, nr) = (e.lanes as i64, e.elem, self.nr());
        let masks: Vec<Option<Val>> = (0..vectors)
            .map(|v| {
                let left = e.add_int(job.width, -v * lanes);
                e.partial_mask(left, lanes as u64)
            })
            .collect();
        let zero = e.int(0);
        e.for_each(zero, job.rows, 1, |e, i| {
            let row = e.add(job.row, i);
            let offset = e.mul(i, self.n);
            let to = e.at(job.c, offset, elem);
            let offset = e.mul_int(i, nr);
            let from = e.at(spill, offset, elem);
            for (v, &mask) in masks.iter().enumerate() {
                let skip = v as i64 * lanes;
                let (from, to) = (e.at_const(from, skip, elem), e.at_const(to, skip, elem));
                let mut x = e.load(from, e.vector());
                if how.add {
                    let old = e.load_lanes(to, mask, x.ty);
                    x = e.add(old, x);
                }
                if let Some(epilogue) = self.epilogue.as_ref().filter(|_| how.last) {
                    let columns = Columns {
                        first: e.add_int(job.column, skip),
                        mask,
                    };
                    let values = epilogue.at_columns(e, columns);
                    x = epilogue.apply(e, &values, x, row, columns);
                }
                e.store_lanes(x, to, mask);
            }
        });
    }

    /// Emits `body` for the block of the inner length that begins at `job.pc`, in as many forms as are needed: the
    /// first block stores, the others add, the last one applies the epilogue.
    pub(super) fn finish(
        &self,
        e: &mut Emitter,
        job: Job,
        mut body: impl FnMut(&mut Emitter, Finish),
    ) {
        let add = self.spec.accumulate;
        let one_block = self.k.known().map(|k| k <= self.spec.blocking.kc as i64);
        if one_block == Some(true) {
            return body(e, Finish { add, last: true });
        }
        let mut ended = |e: &mut Emitter, add| match &self.epilogue {
            None => body(e, Finish { add, last: true }),
            Some(_) => {
                let end = e.add(job.pc, job.depth);
                let last = e.cmp(Cmp::Ge, end, self.k);
                e.either(last, |e, last| body(e, Finish { add, last }));
            }
        };
        if add {
            return ended(e, true);
        }
        let zero = e.int(0);
        let first = e.cmp(Cmp::Eq, job.pc, zero);
        e.either(first, |e, first| ended(e, !first));
    }
}
