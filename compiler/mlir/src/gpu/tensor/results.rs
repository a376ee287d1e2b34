//! Results of contractions on tensor cores, as they leave registers.
//!
//! Takes a lane's sums, in fragments of `mma` and `wgmma`; adds C and applies the epilogue where the specification says so, and writes.
//! What is read for it is asked for first, for as many elements of a row as there are registers for: their time of arrival counts once.

use super::{M, N};
use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gpu::contract::Finish;
use odec_program::DType;
use odec_program::kernel::Contract;

/// Where a lane's sums lie in C.
pub(super) struct Place {
    /// m and n.
    pub extents: [Val; 2],
    /// Of the parts of a row of C, these are this one's.
    pub part: Val,
    /// Row and column of the lane's first.
    pub first: (Val, Val),
    /// The first column that one of the block has, and how many columns it has, those beyond the last included.
    pub columns: (Val, u64),
}

/// Neighbours in a row, and their distance from the first column of the lane.
type Group = (i64, Vec<Val>);

/// Writes the lane's elements, of a row of `columns` fragments side by side, and of more such rows below each other. Of each fragment it has two
/// neighbours in one row, and two eight rows below. Of two fragments side by side, lanes next to each other take one each, four neighbours: what
/// they read and write of a row of C is whole sectors. At most `ahead` numbers are asked for before one is used.
pub(super) fn write(
    e: &mut Emitter,
    kernel: &Contract,
    at: Place,
    (sums, columns): (&[Val], usize),
    ahead: usize,
) -> Result<(), String> {
    let finish = kernel.epilogue.as_ref().map(Finish::new).transpose()?;
    let Place {
        extents,
        part,
        first: (row, col),
        columns: (begin, width),
    } = at;
    let n = extents[1];
    let fours = n.known().is_some_and(|n| n % 4 == 0) && columns.is_multiple_of(2);
    let odd = fours.then(|| odd_lane(e));
    let col = odd.map_or(col, |(_, moved)| e.add(col, moved));
    let fragment = |number: usize, half: usize| &sums[4 * number + 2 * half..][..2];
    let mut rows: Vec<(Val, Vec<Group>)> = vec![];
    for i in 0..sums.len() / 4 / columns {
        for half in 0..2 {
            let row = e.add_int(row, i as i64 * M as i64 + half as i64 * 8);
            let groups = (0..columns).step_by(if fours { 2 } else { 1 });
            let groups = groups.map(|j| {
                let number = i * columns + j;
                let sums = match odd {
                    Some((odd, _)) => {
                        let pairs = [fragment(number, half), fragment(number + 1, half)];
                        exchanged(e, odd, pairs)
                    }
                    None => fragment(number, half).to_vec(),
                };
                (j as i64 * N as i64, sums)
            });
            let groups = groups.collect();
            rows.push((row, groups));
        }
    }
    let to = Written {
        kernel,
        finish,
        out: e.operand(kernel.out() as u64),
        extents,
        part,
        ahead,
    };
    // Whether all columns of the block exist.
    let all = n.known().is_some_and(|n| n % width as i64 == 0);
    if all {
        rows.iter().for_each(|row| to.row(e, col, row));
    } else if fours {
        let end = e.add_int(begin, width as i64 - 1);
        let inside = e.below(end, n);
        e.either(inside, |e, inside| {
            for row in &rows {
                match inside {
                    true => to.row(e, col, row),
                    false => to.some(e, col, row),
                }
            }
        });
    } else {
        rows.iter().for_each(|row| to.some(e, col, row));
    }
    Ok(())
}

/// Whether a lane's number is odd, and how far its four elements of two fragments are from the two that it has of the first: lanes
/// 0 and 2 of four take the first and the second half of that, lanes 1 and 3 those of the second fragment.
fn odd_lane(e: &mut Emitter) -> (Val, Val) {
    let thread = e.thread();
    let [zero, two, back, on] = [0, 2, 0, N as i64 - 2].map(|n| e.int(n));
    let parity = e.rem(thread, two);
    let odd = e.cmp(Cmp::Ne, parity, zero);
    (odd, e.select(odd, on, back))
}

/// Four neighbours of one of two fragments, of which each lane has two of either.
fn exchanged(e: &mut Emitter, odd: Val, [first, second]: [&[Val]; 2]) -> Vec<Val> {
    let theirs: Vec<Val> = (first.iter().zip(second))
        .map(|(a, b)| {
            let given = e.select(odd, *a, *b);
            e.at_distance(given, 1)
        })
        .collect();
    let left = (first.iter().zip(&theirs)).map(|(own, their)| e.select(odd, *their, *own));
    let mut four: Vec<Val> = left.collect();
    let right = (second.iter().zip(&theirs)).map(|(own, their)| e.select(odd, *own, *their));
    four.extend(right);
    four
}

/// Where sums go.
struct Written<'a> {
    kernel: &'a Contract,
    finish: Option<Finish>,
    out: Val,
    /// m and n.
    extents: [Val; 2],
    part: Val,
    ahead: usize,
}

/// What a group waits for: its elements of C, and of each operand of the epilogue.
struct Read {
    to: Val,
    before: Option<Val>,
    /// `None` where they are more than there are registers for: then each element waits for its own.
    others: Option<Vec<Val>>,
}

impl Written<'_> {
    /// Whether a row exists, and its first element.
    fn base(&self, e: &mut Emitter, row: Val) -> (Val, Val) {
        let [m, n] = self.extents;
        let exists = e.below(row, m);
        let rows = e.mul_int(row, self.kernel.parts.0.into());
        let rows = e.add(rows, self.part);
        (exists, e.mul(rows, n))
    }

    /// Writes groups of a row, all of whose columns exist.
    fn row(&self, e: &mut Emitter, col: Val, (row, groups): &(Val, Vec<Group>)) {
        let (exists, base) = self.base(e, *row);
        e.when(exists, |e| {
            let at = e.add(base, col);
            let each = groups[0].1.len() * self.reads();
            let batch = self.ahead.checked_div(each).unwrap_or(groups.len());
            for batch in groups.chunks(batch.max(1)) {
                self.groups(e, (*row, col), at, batch);
            }
        });
    }

    /// Writes those of a row that exist: of groups, all elements or none where rows are whole groups of them.
    fn some(&self, e: &mut Emitter, col: Val, (row, groups): &(Val, Vec<Group>)) {
        let n = self.extents[1];
        let (in_rows, base) = self.base(e, *row);
        for (distance, sums) in groups {
            let count = sums.len();
            let whole = n.known().is_some_and(|n| n % count as i64 == 0);
            for first in (0..count).step_by(if whole { count } else { 1 }) {
                let col = e.add_int(col, distance + first as i64);
                let inside = e.below(col, n);
                let exists = e.and(in_rows, inside);
                let sums = sums[first..][..if whole { count } else { 1 }].to_vec();
                e.when(exists, |e| {
                    let at = e.add(base, col);
                    self.groups(e, (*row, col), at, &[(0, sums)]);
                });
            }
        }
    }

    /// How many numbers are read for an element.
    fn reads(&self) -> usize {
        let others = self.finish.as_ref().map_or(0, Finish::reads);
        usize::from(self.kernel.accumulate) + others
    }

    /// Writes groups that exist; `at` is the element of C in this row and column.
    fn groups(&self, e: &mut Emitter, (row, col): (Val, Val), at: Val, groups: &[Group]) {
        let elem = Elem::of(self.kernel.result());
        let to = e.at(self.out, at, elem);
        let read: Vec<Read> = (groups.iter())
            .map(|(distance, sums)| {
                let ty = match sums.len() {
                    1 => e.scalar(),
                    n => Type::vector(Elem::of(DType::F32), n as u64),
                };
                let to = e.at_const(to, *distance, elem);
                let before = (self.kernel.accumulate).then(|| e.load_whole(to, ty));
                let col = e.add_int(col, *distance);
                let all = sums.len() * self.reads() <= self.ahead;
                let finish = self.finish.as_ref().filter(|_| all);
                let others = finish.map(|f| f.read(e, row, col, sums.len() as u64));
                Read { to, before, others }
            })
            .collect();
        for ((distance, sums), read) in groups.iter().zip(read) {
            let col = e.add_int(col, *distance);
            self.group(e, (row, col), sums, read);
        }
    }

    fn group(&self, e: &mut Emitter, (row, col): (Val, Val), sums: &[Val], read: Read) {
        let before = read.before.map(|before| e.parts(before));
        let others = (read.others)
            .map(|all| -> Vec<Vec<Val>> { all.into_iter().map(|x| e.parts(x)).collect() });
        let values: Vec<Val> = (sums.iter().enumerate())
            .map(|(i, sum)| {
                let col = e.add_int(col, i as i64);
                let sum = match &before {
                    Some(before) => e.add(before[i], *sum),
                    None => *sum,
                };
                match (&self.finish, &others) {
                    (None, _) => sum,
                    (Some(f), None) => f.of(e, row, col, sum),
                    (Some(f), Some(others)) => {
                        f.apply(e, (row, col), sum, others.iter().map(|x| x[i]))
                    }
                }
            })
            .collect();
        let stored = match (&values[..], self.kernel.rounds) {
            ([x], false) => *x,
            ([x], true) => e.convert(*x, Elem::Bf16),
            (all, false) => e.join(all),
            (all, true) => {
                let pairs = all.chunks(2).map(|p| e.pair_bf16(p[0], p[1]));
                let pairs: Vec<Val> = pairs.collect();
                match pairs[..] {
                    [pair] => pair,
                    _ => e.join(&pairs),
                }
            }
        };
        e.store_whole(stored, read.to);
    }
}
