//! Rows that stay in registers: a warp takes a row, and what a sweep has loaded or computed is there for those that follow.
//!
//! Takes the row of a kernel ([`Row`]); gives its columns, their reductions and the writing of results. Each of 16 virtual lanes is two
//! threads: one has the first half of the lane's columns, the other goes on with its sum. Every lane sums its columns in order.

use super::rows::{Column, Row, combination};
use crate::body::{Values, binary};
use crate::emit::{Cmp, Emitter, Val};
use odec_program::eval::LANES;
use odec_program::expr::BinaryOp;
use odec_program::gpu::rows::{again, steps};

/// A column of a thread, and whether it exists, where that depends on the thread. One that does not is read as the last of the row.
pub(super) struct Held {
    column: Column,
    exists: Option<Val>,
}

impl Row<'_> {
    /// The columns of this thread, in order.
    pub fn held(&self, e: &mut Emitter) -> Vec<Held> {
        let (lanes, cols) = (LANES as i64, self.kernel.cols as i64);
        let each = steps(self.kernel.cols) as i64;
        let by = e.int(lanes);
        let (half, lane) = (e.div(self.place.member, by), e.rem(self.place.member, by));
        let start = e.mul_int(half, each * lanes);
        let start = e.add(start, lane);
        let column = |n: i64| {
            let first = e.add_int(start, n * lanes);
            let values = self.low.no_values();
            if (each + n + 1) * lanes <= cols {
                return Held {
                    column: Column { first, values },
                    exists: None,
                };
            }
            let (end, last) = (e.int(cols), e.int(cols - 1));
            let exists = Some(e.below(first, end));
            let first = e.min(first, last);
            Held {
                column: Column { first, values },
                exists,
            }
        };
        (0..each).map(column).collect()
    }

    /// Emits the reductions of a phase, and keeps of the columns what is used later.
    pub fn reduce_held(
        &self,
        e: &mut Emitter,
        phase: u32,
        scalars: &mut Values,
        columns: &mut [Held],
    ) {
        let due = self.due(phase);
        let arguments: Vec<usize> = due.iter().map(|r| r.2).collect();
        let mut values = vec![];
        let together = self.together_held(&arguments, scalars, columns);
        for some in columns.chunks_mut(together) {
            self.fetch_held(e, &arguments, scalars, some);
            for held in some {
                let of_column = self.compute(e, &arguments, &mut held.column);
                values.push((of_column, held.exists));
            }
        }
        let (zero, lanes) = (e.int(0), e.int(LANES as i64));
        let second = e.div(self.place.member, lanes);
        let second = e.cmp(Cmp::Ne, second, zero);
        for (n, (node, op, _)) in due.iter().enumerate() {
            let (op, start) = combination(*op);
            let start = e.float(start, e.scalar());
            let added = values.iter().map(|v| (v.0[n], v.1));
            let near = chain(e, op, start, added.clone());
            let near = e.at_distance(near, LANES as u64);
            let start = e.select(second, near, start);
            let lane = chain(e, op, start, added);
            scalars[*node] = Some(self.tree(e, op, lane));
        }
        self.forget(phase, scalars, columns);
    }

    /// Emits what `roots` load in all of the columns.
    fn fetch_held(&self, e: &mut Emitter, roots: &[usize], scalars: &Values, columns: &mut [Held]) {
        for Held { column, .. } in columns {
            column.values = known(scalars, column);
            self.fetch(e, roots, column);
        }
    }

    /// How many columns are loaded before the first is worked on: twice as many as in a loop, since most of it is kept anyway.
    fn together_held(&self, roots: &[usize], scalars: &Values, columns: &[Held]) -> usize {
        2 * self.together(roots, &known(scalars, &columns[0].column)) as usize
    }

    /// Drops what no later sweep uses, and what it can load again.
    fn forget(&self, phase: u32, scalars: &Values, columns: &mut [Held]) {
        let later = self.reductions().filter(|r| self.low.phases[r.0] > phase);
        let stored = self.kernel.stores.iter().map(|s| self.low.node(s.value));
        let later: Vec<usize> = later.map(|r| r.2).chain(stored).collect();
        for Held { column, .. } in columns {
            let values = &mut column.values;
            let known = |i: usize| scalars[i].is_some() || values[i].is_some();
            let used = self.low.needed_until(&later, known);
            for (i, value) in values.iter_mut().enumerate() {
                if !used[i] || again(&self.low.body.nodes[i]) {
                    *value = None;
                }
            }
        }
    }

    /// Writes the results of all columns that exist.
    pub fn write_held(
        &self,
        e: &mut Emitter,
        roots: &[usize],
        scalars: &Values,
        mut columns: Vec<Held>,
        write: impl Fn(&mut Emitter, &mut Column),
    ) {
        let everywhere = columns.iter().take_while(|c| c.exists.is_none()).count();
        let together = self.together_held(roots, scalars, &columns);
        let (whole, partial) = columns.split_at_mut(everywhere);
        for some in whole.chunks_mut(together) {
            self.fetch_held(e, roots, scalars, some);
            for held in some {
                write(e, &mut held.column);
            }
        }
        for held in partial.chunks_mut(1) {
            let exists = held[0].exists.expect("the others come first");
            e.when(exists, |e| {
                self.fetch_held(e, roots, scalars, held);
                write(e, &mut held[0].column);
            });
        }
    }
}

/// What is the same for the row, or known in a column.
fn known(scalars: &Values, column: &Column) -> Values {
    let pairs = scalars.iter().zip(&column.values);
    pairs.map(|(scalar, value)| scalar.or(*value)).collect()
}

/// Combines values in order, leaving out those of columns that do not exist.
fn chain(
    e: &mut Emitter,
    op: BinaryOp,
    start: Val,
    values: impl Iterator<Item = (Val, Option<Val>)>,
) -> Val {
    values.fold(start, |sum, (x, exists)| {
        let more = binary(e, op, sum, x);
        match exists {
            Some(exists) => e.select(exists, more, sum),
            None => more,
        }
    })
}
