//! Contractions of few rows ([`few`]), as matrix–vector products: each thread multiplies pieces of B as they lie in memory, in f32.
//!
//! Takes a [`Contract`] spec; a block computes some columns of one row of C. All pieces of a turn are loaded before the first is multiplied.
//! A thread adds its products in the order of the inner index, the lanes of a warp meet by shuffles, warps in shared memory. C itself is added
//! last. Leaves launches of more rows to [`super::warpgroup`].

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::gpu::access::wide;
use crate::gpu::contract::Finish;
use odec_program::gpu::WARP;
use odec_program::gpu::tensor::few::{self, EACH, Split, WARPS};
use odec_program::kernel::Contract;

/// Pieces of B that a thread loads before it multiplies the first.
const AHEAD: u64 = 16;

/// Where a block is: its row of A and C, and its first column.
struct Place {
    row: Val,
    col: Val,
}

fn place(e: &mut Emitter, m: Val, split: Split) -> Place {
    let block = e.block();
    let col = e.div(block, m);
    Place {
        row: e.rem(block, m),
        col: e.mul_int(col, split.columns() as i64),
    }
}

/// Prefetches the block's pieces of B into the L2 cache, before the launch ahead is waited for. That is only a hint: it is right whatever that launch writes.
pub(in crate::gpu) fn prefetch(e: &mut Emitter, kernel: &Contract) {
    let Some([n, k]) = few::runs(kernel) else {
        return;
    };
    let split = Split::of(kernel, [n, k]);
    let (m, most) = (e.dim(0), e.int(few::ROWS as i64));
    let few = e.cmp(Cmp::Le, m, most);
    e.when(few, |e| {
        let place = place(e, m, split);
        let pieces = Pieces::new(e, split, [n, k], place.col);
        let turns = k.div_ceil(split.deep());
        for turn in 0..turns {
            let inner = e.int((turn * split.deep()) as i64);
            for (at, exists) in pieces.of_turn(e, inner, whole(turn, split, k)) {
                let from = e.operand(1);
                let from = e.at(from, at, Elem::Bf16);
                match exists {
                    None => e.prefetch_line(from),
                    Some(exists) => e.when(exists, |e| e.prefetch_line(from)),
                }
            }
        }
    });
}

/// Whether all of a turn exists.
fn whole(turn: u64, split: Split, k: u64) -> bool {
    (turn + 1) * split.deep() <= k
}

/// A thread's pieces of B.
struct Pieces {
    split: Split,
    /// n and k.
    extents: [u64; 2],
    /// Its first column: of neighbours in a row of B, or of rows of B below each other.
    col: Val,
    /// Where it begins within a turn.
    inner: Val,
}

impl Pieces {
    fn new(e: &mut Emitter, split: Split, extents: [u64; 2], col: Val) -> Pieces {
        let thread = e.thread();
        let (col, inner) = match split {
            Split::Columns { across, run } => {
                let across = e.int(across as i64);
                let (beside, below) = (e.rem(thread, across), e.div(thread, across));
                let beside = e.mul_int(beside, EACH as i64);
                (e.add(col, beside), e.mul_int(below, run as i64))
            }
            Split::Inner { together } => {
                let width = e.int(WARP as i64);
                let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
                let own = e.mul_int(warp, together as i64);
                (e.add(col, own), e.mul_int(lane, EACH as i64))
            }
        };
        Pieces {
            split,
            extents,
            col,
            inner,
        }
    }

    /// How many pieces of a turn a thread has.
    fn count(&self) -> u64 {
        match self.split {
            Split::Columns { run, .. } => run,
            Split::Inner { together } => together,
        }
    }

    /// The elements of B where pieces begin, in the turn that begins at `turn` of the inner index; and whether they exist, where they may not.
    fn of_turn(&self, e: &mut Emitter, turn: Val, whole: bool) -> Vec<(Val, Option<Val>)> {
        let [n, k] = self.extents;
        let inner = e.add(turn, self.inner);
        let end = e.int(k as i64);
        let exists = (!whole).then(|| e.below(inner, end));
        let pieces = (0..self.count() as i64).map(|piece| match self.split {
            Split::Columns { .. } => {
                let row = e.add_int(inner, piece);
                let row = e.mul_int(row, n as i64);
                (e.add(row, self.col), exists)
            }
            Split::Inner { .. } => {
                let col = e.add_int(self.col, piece);
                let last = e.int(n as i64 - 1);
                // Beyond the last column it is the last one again.
                let col = match n.is_multiple_of(self.split.columns()) {
                    true => col,
                    false => e.min(col, last),
                };
                let row = e.mul_int(col, k as i64);
                (e.add(row, inner), exists)
            }
        });
        pieces.collect()
    }

    /// Loads `count` numbers of bf16 in words of two; zeros where there are none.
    fn load(e: &mut Emitter, operand: u64, at: Val, exists: Option<Val>, count: u64) -> Vec<Val> {
        let ty = wide(Elem::I32, count / 2);
        let from = e.operand(operand);
        let at = match exists {
            None => at,
            Some(exists) => {
                let first = e.int(0);
                e.select(exists, at, first)
            }
        };
        let from = e.at(from, at, Elem::Bf16);
        let words = e.load_whole(from, ty);
        let words = e.parts(words);
        let Some(exists) = exists else {
            return words;
        };
        let zero = e.integer(0, Type::scalar(Elem::I32));
        let some = words.into_iter().map(|word| e.select(exists, word, zero));
        some.collect()
    }

    /// The numbers of words.
    fn numbers(e: &mut Emitter, words: Vec<Val>) -> Vec<Val> {
        let ty = Type::scalar(Elem::I32);
        let (half, upper) = (e.integer(16, ty), e.integer(-65536, ty));
        let both = words.into_iter().flat_map(|word| {
            let (low, high) = (e.shift_left(word, half), e.and(word, upper));
            [low, high].map(|bits| e.bitcast(bits, Elem::F32))
        });
        both.collect()
    }

    /// Adds products of turns, the first of which begins at `turn`, to the thread's sums.
    fn add(&self, e: &mut Emitter, row: Val, turn: Val, turns: &[bool], sums: &[Val]) -> Vec<Val> {
        let [_, k] = self.extents;
        let run = match self.split {
            Split::Columns { run, .. } => run,
            Split::Inner { .. } => EACH,
        };
        let mut loaded = vec![];
        for (number, whole) in turns.iter().enumerate() {
            let turn = e.add_int(turn, number as i64 * self.split.deep() as i64);
            let pieces = self.of_turn(e, turn, *whole);
            let left = e.mul_int(row, k as i64);
            let left = e.add(left, turn);
            let left = e.add(left, self.inner);
            let x = Pieces::load(e, 0, left, pieces[0].1, run);
            let load = |(at, exists)| Pieces::load(e, 1, at, exists, EACH);
            loaded.push((x, pieces.into_iter().map(load).collect::<Vec<_>>()));
        }
        let mut sums = sums.to_vec();
        for (x, pieces) in loaded {
            let x = Pieces::numbers(e, x);
            for (piece, w) in pieces.into_iter().enumerate() {
                for (i, w) in Pieces::numbers(e, w).into_iter().enumerate() {
                    let (x, sum) = match self.split {
                        Split::Columns { .. } => (x[piece], i),
                        Split::Inner { .. } => (x[i], piece),
                    };
                    sums[sum] = e.fma(x, w, sums[sum]);
                }
            }
        }
        sums
    }
}

/// Emits the part of the kernel that computes few rows.
pub(super) fn emit(e: &mut Emitter, kernel: &Contract, [n, k]: [u64; 2]) -> Result<(), String> {
    let split = Split::of(kernel, [n, k]);
    let m = e.dim(0);
    let place = place(e, m, split);
    let pieces = Pieces::new(e, split, [n, k], place.col);
    let count = match split {
        Split::Columns { .. } => EACH,
        Split::Inner { together } => together,
    };
    let sums = vec![e.float(0.0, e.scalar()); count as usize];
    // Turns together, of those that are whole; then the others.
    let together = AHEAD / pieces.count();
    let (all, many) = (k.div_ceil(split.deep()), together * split.deep());
    let looped = k / many;
    let (zero, end) = (e.int(0), e.int((looped * many) as i64));
    let sums = e.for_with(zero, end, many as i64, &sums, |e, turn, sums| {
        pieces.add(e, place.row, turn, &vec![true; together as usize], sums)
    });
    let rest: Vec<bool> = (looped * together..all)
        .map(|turn| whole(turn, split, k))
        .collect();
    let sums = pieces.add(e, place.row, end, &rest, &sums);
    write(e, kernel, &place, split, n, sums)
}

/// Adds sums of lanes whose distances are powers of two from 16 down to `least`. Lanes share the work: gives the sums that a lane has at last,
/// which of those before the first is, and whether it is the one of several lanes with the same.
fn added(e: &mut Emitter, mut sums: Vec<Val>, least: u64) -> (Vec<Val>, Val, Option<Val>) {
    let thread = e.thread();
    let mut first = e.int(0);
    let mut same = 1;
    let mut distance = WARP / 2;
    while distance >= least {
        match sums.len() {
            1 => {
                let other = e.at_distance(sums[0], distance);
                sums = vec![e.add(sums[0], other)];
                same *= 2;
            }
            len => {
                let (bit, zero) = (e.int(distance as i64), e.int(0));
                let bit = e.and(thread, bit);
                let upper = e.cmp(Cmp::Ne, bit, zero);
                let (low, high) = sums.split_at(len / 2);
                let halves = low.iter().zip(high);
                let next = halves.map(|(low, high)| {
                    let (kept, given) =
                        (e.select(upper, *high, *low), e.select(upper, *low, *high));
                    let other = e.at_distance(given, distance);
                    e.add(kept, other)
                });
                sums = next.collect();
                let half = e.int(len as i64 / 2);
                let moved = e.select(upper, half, zero);
                first = e.add(first, moved);
            }
        }
        distance /= 2;
    }
    let alone = (same > 1).then(|| {
        let (bits, zero) = (e.int((least * (same - 1)) as i64), e.int(0));
        let bits = e.and(thread, bits);
        e.cmp(Cmp::Eq, bits, zero)
    });
    (sums, first, alone)
}

/// Adds the threads' sums, and writes the block's elements of C.
fn write(
    e: &mut Emitter,
    kernel: &Contract,
    place: &Place,
    split: Split,
    n: u64,
    sums: Vec<Val>,
) -> Result<(), String> {
    let out = Out::new(e, kernel, place.row, n)?;
    let (thread, width) = (e.thread(), e.int(WARP as i64));
    let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
    let columns = split.columns();
    let across = match split {
        Split::Columns { across, .. } => across,
        Split::Inner { together } => {
            let (sums, first, alone) = added(e, sums, 1);
            let own = e.mul_int(warp, together as i64);
            let col = e.add(place.col, own);
            let col = e.add(col, first);
            let end = e.int(n as i64);
            let exists = e.below(col, end);
            let exists = alone.map_or(exists, |alone| e.and(alone, exists));
            e.when(exists, |e| out.put(e, col, sums[0]));
            return Ok(());
        }
    };
    let (sums, first, alone) = added(e, sums, across);
    let memory = e.shared(0);
    let put = |e: &mut Emitter| {
        let across = e.int(across as i64);
        let beside = e.rem(lane, across);
        let beside = e.mul_int(beside, EACH as i64);
        let row = e.mul_int(warp, columns as i64);
        let at = e.add(row, beside);
        let at = e.add(at, first);
        let to = e.at(memory, at, Elem::F32);
        for (i, sum) in sums.iter().enumerate() {
            let to = e.at_const(to, i as i64, Elem::F32);
            e.store(*sum, to);
        }
    };
    match alone {
        None => put(e),
        Some(alone) => e.when(alone, put),
    }
    e.barrier();
    let all = e.int(columns as i64);
    let own = e.below(thread, all);
    e.when(own, |e| {
        let from = e.at(memory, thread, Elem::F32);
        let warps = (0..WARPS as i64).map(|warp| {
            let from = e.at_const(from, warp * columns as i64, Elem::F32);
            e.load(from, Type::scalar(Elem::F32))
        });
        let warps: Vec<Val> = warps.collect();
        let sum = warps[1..].iter().fold(warps[0], |sum, x| e.add(sum, *x));
        let col = e.add(place.col, thread);
        out.put(e, col, sum);
    });
    Ok(())
}

/// Where elements of a row of C go.
struct Out<'a> {
    kernel: &'a Contract,
    finish: Option<Finish>,
    row: Val,
    /// The row's first element.
    first: Val,
}

impl Out<'_> {
    fn new<'a>(e: &mut Emitter, kernel: &'a Contract, row: Val, n: u64) -> Result<Out<'a>, String> {
        let (out, base) = (e.operand(kernel.out() as u64), e.mul_int(row, n as i64));
        Ok(Out {
            kernel,
            finish: kernel.epilogue.as_ref().map(Finish::new).transpose()?,
            row,
            first: e.at(out, base, Elem::of(kernel.result())),
        })
    }

    fn put(&self, e: &mut Emitter, col: Val, sum: Val) {
        let elem = Elem::of(self.kernel.result());
        let to = e.at(self.first, col, elem);
        let sum = match self.kernel.accumulate {
            true => {
                let before = e.load(to, e.scalar());
                e.add(before, sum)
            }
            false => sum,
        };
        let value = match &self.finish {
            Some(finish) => finish.of(e, self.row, col, sum),
            None => sum,
        };
        let value = e.convert(value, elem);
        e.store(value, to);
    }
}
