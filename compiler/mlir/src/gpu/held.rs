//! Rows that stay in registers: a warp takes a row, and what a sweep has loaded or computed is there for those that follow.
//!
//! Takes the row of a kernel ([`Row`]); gives its columns, their reductions and the writing of results. A warp loads 32 columns side by
//! side, so every other one of a virtual lane's is with the thread 16 further, which hands it over: the first 16 threads add up, in order.

use super::rows::{Column, Row, combination};
use crate::body::{Values, binary};
use crate::emit::{Elem, Emitter, Val};
use odec_program::eval::LANES;
use odec_program::gpu::WARP;
use odec_program::gpu::rows::{again, steps};

/// A column of a thread, and whether it and the one 16 further exist, where that depends on the thread. One that does not is read
/// as the last of the row.
pub(super) struct Held {
    column: Column,
    exists: Option<[Val; 2]>,
}

impl Row<'_> {
    /// The columns of this thread, in order.
    pub fn held(&self, e: &mut Emitter) -> Vec<Held> {
        let (warp, cols) = (WARP as i64, self.kernel.cols as i64);
        // Through a shuffle, so that LLVM forgets it is some bits of the thread's number: it would merge these bits with those of columns,
        // and make an address for each column in place of offsets from one.
        let member = e.convert(self.place.member, Elem::I32);
        let member = e.at_distance(member, 0);
        let member = e.convert(member, Elem::I64);
        let column = |n: i64| {
            let first = e.add_int(member, n * warp);
            let values = self.low.no_values();
            if (n + 1) * warp <= cols {
                return Held {
                    column: Column { first, values },
                    exists: None,
                };
            }
            let (end, last) = (e.int(cols), e.int(cols - 1));
            let further = e.add_int(first, LANES as i64);
            let exists = Some([e.below(first, end), e.below(further, end)]);
            let first = e.min(first, last);
            Held {
                column: Column { first, values },
                exists,
            }
        };
        (0..steps(self.kernel.cols) as i64).map(column).collect()
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
        let start = due.iter().map(|r| e.float(combination(r.1).1, e.scalar()));
        let mut sums: Vec<Val> = start.collect();
        let together = self.together_held(&arguments, scalars, columns);
        for some in columns.chunks_mut(together) {
            self.fetch_held(e, &arguments, scalars, some);
            for Held { column, exists } in some {
                let values = self.compute(e, &arguments, column);
                for ((sum, x), (_, op, _)) in sums.iter_mut().zip(values).zip(&due) {
                    let further = e.at_distance(x, LANES as u64);
                    for (n, x) in [x, further].into_iter().enumerate() {
                        let more = binary(e, combination(*op).0, *sum, x);
                        *sum = match exists {
                            Some(exists) => e.select(exists[n], more, *sum),
                            None => more,
                        };
                    }
                }
            }
        }
        for ((node, op, _), sum) in due.iter().zip(sums) {
            scalars[*node] = Some(self.tree(e, combination(*op).0, sum));
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
            e.when(exists[0], |e| {
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
