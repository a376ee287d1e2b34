//! Contractions in f32, without tensor cores, which have no f32 (those of bf16 are in [`super::tensor::contract`]). Factors
//! that are bf16 are widened as they are read.
//!
//! Takes a [`Contract`] spec. A block of 256 threads computes a tile of C, each thread 8 × 4 elements; tiles of A and B, 16
//! deep, pass through shared memory, inner index first. The order of every sum is that of the specification: by fused
//! multiply-add within blocks of `kc`, the blocks' sums one after the other.

use super::access;
use super::stage::{Matrix, Place, Team, four, outer, stage};
use crate::body::Lowered;
use crate::emit::{Elem, Emitter, Val};
use odec_program::DType;
use odec_program::expr::{Access, Expr, RowMap};
use odec_program::gpu::contract::{K, M, N, PAD, THREADS};
use odec_program::kernel::{Contract, Epilogue, Extent, Layout, Parts, Terms};

/// Elements of a thread.
const MINE: usize = (M * N) as usize;

/// Emits the kernel.
///
/// # Errors
/// Panels, or a blocking that is not that of a GPU.
pub(super) fn emit(e: &mut Emitter, kernel: &Contract) -> Result<(), String> {
    let b = kernel.blocking;
    let (rows, cols) = (u64::from(b.mr), u64::from(b.nr));
    // 16 threads side by side, 16 below each other
    if rows != 16 * M || cols != 16 * N || !u64::from(b.kc).is_multiple_of(K) {
        return Err(format!("a blocking of {rows} × {cols}, {} deep", b.kc));
    }
    if kernel.layout == Layout::Panels {
        return Err("a right-hand operand in panels".into());
    }
    if kernel.rounds || kernel.parts != Parts::ONE || kernel.terms != Terms::ONE {
        return Err(
            "a result in bf16, pieces of k apart, or a sum of products, but not on tensor cores"
                .into(),
        );
    }
    let extent = |e: &mut Emitter, n: u64, x: Extent| match x {
        Extent::Static(x) => e.int(x as i64),
        Extent::Dynamic => e.dim(n),
    };
    let [m, n, k] = [(0, kernel.m), (1, kernel.n), (2, kernel.k)].map(|(i, x)| extent(e, i, x));
    let (thread, block) = (e.thread(), e.block());
    let panels = e.div_ceil(m, rows as i64);
    let (down, across) = (e.rem(block, panels), e.div(block, panels));
    let (row, col) = (e.mul_int(down, rows as i64), e.mul_int(across, cols as i64));
    let sixteen = e.int(16);
    let (y, x) = (e.div(thread, sixteen), e.rem(thread, sixteen));
    let out = e.operand(
        2 + kernel
            .epilogue
            .as_ref()
            .map_or(0, |e| u64::from(e.operands)),
    );
    let tile = Tile {
        kernel,
        extents: [m, n, k],
        row,
        col,
        y,
        x,
        out,
    };

    let start = match kernel.accumulate {
        true => tile.before(e),
        // −0 + x is x, whatever x is: the first block is the sum so far
        false => vec![e.float(-0.0, e.scalar()); MINE],
    };
    let sums = tile.sum(
        e,
        Team {
            thread,
            threads: THREADS,
        },
        start,
    );
    tile.write(e, sums)
}

struct Tile<'a> {
    kernel: &'a Contract,
    extents: [Val; 3],
    /// The tile's first element.
    row: Val,
    col: Val,
    /// The thread's place among 16 × 16.
    y: Val,
    x: Val,
    out: Val,
}

impl Tile<'_> {
    /// The rows of the thread's elements: two runs of four, 64 apart.
    fn rows(&self, e: &mut Emitter) -> Vec<Val> {
        let first = e.mul_int(self.y, 4);
        let first = e.add(self.row, first);
        (0..M as i64)
            .map(|i| e.add_int(first, i / 4 * 64 + i % 4))
            .collect()
    }

    /// The first of the thread's four columns.
    fn column(&self, e: &mut Emitter) -> Val {
        let own = e.mul_int(self.x, N as i64);
        e.add(self.col, own)
    }

    fn sum(&self, e: &mut Emitter, team: Team, start: Vec<Val>) -> Vec<Val> {
        let [m, n, k] = self.extents;
        let b = self.kernel.blocking;
        let (rows, cols) = (u64::from(b.mr), u64::from(b.nr));
        let (a_pitch, b_pitch) = (rows + PAD, cols + PAD);
        let (left, right) = (e.shared(0), e.shared(K * a_pitch));
        let (of_a, of_b) = (self.kernel.a, self.kernel.b);
        let rounds = of_b == DType::Bf16 && of_a == DType::F32;
        let matrix = |pointer, rows, cols: Val, dtype, rounds| Matrix {
            pointer,
            rows,
            cols,
            stride: cols,
            elem: Elem::of(dtype),
            rounds,
            whole: cols.known().is_some_and(|n| n % 4 == 0),
            listed: None,
        };
        let (pa, pb) = (e.operand(0), e.operand(1));
        let a = match self.kernel.a_transposed {
            false => matrix(pa, m, k, of_a, rounds),
            true => matrix(pa, k, m, of_a, rounds),
        };
        let right_side = match self.kernel.layout {
            Layout::Columns => matrix(pb, n, k, of_b, false),
            _ => matrix(pb, k, n, of_b, false),
        };
        let zero = e.int(0);
        e.for_with(zero, k, b.kc.into(), &start, |e, begin, totals| {
            let nothing = vec![e.float(0.0, e.scalar()); MINE];
            let end = e.add_int(begin, b.kc.into());
            let end = e.min(end, k);
            let sums = e.for_with(begin, end, K as i64, &nothing, |e, k0, sums| {
                let place = |pointer, width, pitch, inner_last: bool| Place {
                    pointer,
                    rows: if inner_last { width } else { K },
                    cols: if inner_last { K } else { width },
                    pitch,
                    turned: inner_last,
                };
                let inner_last = !self.kernel.a_transposed;
                let at = if inner_last {
                    (self.row, k0)
                } else {
                    (k0, self.row)
                };
                stage(
                    e,
                    team,
                    a,
                    at.0,
                    at.1,
                    place(left, rows, a_pitch, inner_last),
                );
                let inner_last = self.kernel.layout == Layout::Columns;
                let at = if inner_last {
                    (self.col, k0)
                } else {
                    (k0, self.col)
                };
                stage(
                    e,
                    team,
                    right_side,
                    at.0,
                    at.1,
                    place(right, cols, b_pitch, inner_last),
                );
                e.barrier();
                let deep = e.int(K as i64);
                let rest = e.sub(end, k0);
                let count = if k.known().is_some_and(|k| k % K as i64 == 0) {
                    deep
                } else {
                    e.min(deep, rest)
                };
                let after = e.for_with(zero, count, 1, sums, |e, i, sums| {
                    let (a_row, b_row) =
                        (e.mul_int(i, a_pitch as i64), e.mul_int(i, b_pitch as i64));
                    let (a_own, b_own) = (e.mul_int(self.y, 4), e.mul_int(self.x, 4));
                    let (a_at, b_at) = (e.add(a_row, a_own), e.add(b_row, b_own));
                    let mut xs = four(e, left, a_at);
                    let a_at = e.add_int(a_at, 64);
                    xs.extend(four(e, left, a_at));
                    let ys = four(e, right, b_at);
                    outer(e, &xs, &ys, sums)
                });
                e.barrier();
                after
            });
            totals.iter().zip(sums).map(|(t, s)| e.add(*t, s)).collect()
        })
    }

    /// What C holds before; elements beyond C repeat its last row or column.
    fn before(&self, e: &mut Emitter) -> Vec<Val> {
        let [m, n, _] = self.extents;
        let column = self.column(e);
        let (bottom, edge) = (e.add_int(m, -1), e.add_int(n, -1));
        let mut out = Vec::with_capacity(MINE);
        for row in self.rows(e) {
            let row = e.min(row, bottom);
            let base = e.mul(row, n);
            for j in 0..N as i64 {
                let c = e.add_int(column, j);
                let c = e.min(c, edge);
                let at = e.add(base, c);
                let p = e.at(self.out, at, e.elem);
                out.push(e.load(p, e.scalar()));
            }
        }
        out
    }

    fn write(&self, e: &mut Emitter, sums: Vec<Val>) -> Result<(), String> {
        let [m, n, _] = self.extents;
        let column = self.column(e);
        let whole = n.known().is_some_and(|n| n % 4 == 0);
        let finish = self.kernel.epilogue.as_ref().map(Finish::new).transpose()?;
        for (row, sums) in self.rows(e).into_iter().zip(sums.chunks(N as usize)) {
            let in_rows = e.below(row, m);
            let base = e.mul(row, n);
            if whole {
                // either all four columns exist or none
                let inside = e.below(column, n);
                let exists = e.and(in_rows, inside);
                e.when(exists, |e| {
                    let values: Vec<Val> = (0..N as i64)
                        .map(|j| {
                            let c = e.add_int(column, j);
                            let sum = sums[j as usize];
                            finish.as_ref().map_or(sum, |f| f.of(e, row, c, sum))
                        })
                        .collect();
                    let x = e.join(&values);
                    let at = e.add(base, column);
                    let p = e.at(self.out, at, e.elem);
                    e.store_whole(x, p);
                });
                continue;
            }
            for (j, sum) in sums.iter().enumerate() {
                let c = e.add_int(column, j as i64);
                let inside = e.below(c, n);
                let exists = e.and(in_rows, inside);
                e.when(exists, |e| {
                    let x = finish.as_ref().map_or(*sum, |f| f.of(e, row, c, *sum));
                    let at = e.add(base, c);
                    let p = e.at(self.out, at, e.elem);
                    e.store(x, p);
                });
            }
        }
        Ok(())
    }
}

/// The map that an element goes through at last.
pub(super) struct Finish {
    low: Lowered,
    root: usize,
    /// Operands that are bf16.
    halves: Vec<u32>,
}

impl Finish {
    pub(super) fn new(epilogue: &Epilogue) -> Result<Finish, String> {
        let low = Lowered::new(&epilogue.body, DType::F32);
        let bad = |n: &Expr| match n {
            Expr::Reduce(..) => true,
            Expr::Load { access, .. } => access.row.by_position(),
            _ => false,
        };
        if low.body.nodes.iter().any(bad) {
            return Err("an epilogue that reduces, or reads by position".into());
        }
        let root = low.node(epilogue.value);
        Ok(Finish {
            low,
            root,
            halves: epilogue.halves.clone(),
        })
    }

    /// How many operands it reads of each element.
    pub(super) fn reads(&self) -> usize {
        self.loads().count()
    }

    fn loads(&self) -> impl Iterator<Item = (u32, Access)> {
        let marks = self.low.needed(&[self.root]);
        let nodes = self.low.body.nodes.iter().zip(marks);
        nodes.filter_map(|(node, needed)| match *node {
            Expr::Load { operand, access } if needed => Some((operand, access)),
            _ => None,
        })
    }

    /// What it reads for `count` columns of a row from a column on, a multiple of `count`.
    pub(super) fn read(&self, e: &mut Emitter, row: Val, column: Val, count: u64) -> Vec<Val> {
        let read = |(operand, access): (u32, Access)| {
            let elem = match self.halves.contains(&operand) {
                true => Elem::Bf16,
                false => Elem::F32,
            };
            let pointer = e.operand(operand.into());
            let base = match access.row {
                RowMap::Row => {
                    let at = e.mul_int(row, access.stride as i64);
                    e.at(pointer, at, elem)
                }
                _ => pointer,
            };
            access::load(e, base, elem, access, column, count)
        };
        self.loads().map(read).collect()
    }

    /// Of an element, for which `read` is what it reads.
    pub(super) fn apply(
        &self,
        e: &mut Emitter,
        (row, column): (Val, Val),
        sum: Val,
        read: impl IntoIterator<Item = Val>,
    ) -> Val {
        let marks = self.low.needed(&[self.root]);
        let mut values = self.low.no_values();
        let mut read = read.into_iter();
        let ty = e.scalar();
        self.low
            .emit(e, &marks, ty, &mut values, |e, node| match *node {
                Expr::Acc => sum,
                Expr::Uniform(u) => e.coeff(u as u64),
                Expr::RowIndex => e.convert(row, e.elem),
                Expr::ColIndex => e.convert(column, e.elem),
                Expr::Load { .. } => read.next().expect("what each load reads"),
                _ => unreachable!("reductions were refused"),
            });
        values[self.root].expect("the root is marked")
    }

    /// The same, read when it is needed.
    pub(super) fn of(&self, e: &mut Emitter, row: Val, column: Val, sum: Val) -> Val {
        let read = self.read(e, row, column, 1);
        self.apply(e, (row, column), sum, read)
    }
}
