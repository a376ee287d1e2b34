//! Attention on tensor cores (Dao 2023, "FlashAttention-2", arXiv:2307.08691): what the forward and the backward kernel have in
//! common.
//!
//! A block of four warps takes 64 rows of one head, each warp 16, and walks over the other side in tiles. Fragments of
//! scores become fragments of weights without leaving their registers. Heads that share keys, and windows, are as in
//! [`super::super::attend`].

pub(in crate::gpu) mod backward;
pub(in crate::gpu) mod forward;
mod mask;
mod warpgroup;

use super::{Order, Source, Tile, lane_of_sums, lane_place};
use crate::emit::{Elem, Emitter, Type, Val};
use crate::gpu::attend::{Side, shared_by};
use crate::gpu::stage::{Matrix, Team};
use odec_program::DType;
use odec_program::gpu::tensor::attend::{ROWS, THREADS};
use odec_program::kernel::Attend;

/// Fragments of sums, 16 × 8 each, from left to right.
type Sums = Vec<[Val; 4]>;

/// A block's head and rows, and the lane's place in it.
struct Block<'a> {
    kernel: &'a Attend,
    team: Team,
    batch: Val,
    /// The head of queries, and the head of keys that it reads.
    head: Val,
    shared: Val,
    /// The first of the block's rows, and of the warp's among them.
    row: Val,
    own: Val,
    /// The lane's row in a fragment, and its first column.
    lane_row: Val,
    lane_col: Val,
    /// Where the lane reads in a tile, in either order.
    down: Val,
    across: Val,
}

impl<'a> Block<'a> {
    /// `number` is the block's among those for `seq` rows of a side.
    fn new(
        e: &mut Emitter,
        kernel: &'a Attend,
        side: Side,
        (number, seq): (Val, Val),
    ) -> Block<'a> {
        let heads = match side {
            Side::Queries => kernel.heads,
            Side::Keys => kernel.kv_heads,
        };
        let heads = e.int(heads as i64);
        let block = Block::of_heads(e, kernel, heads, (number, seq));
        match side {
            Side::Queries => Block {
                shared: shared_by(e, kernel, block.head),
                row: block.row_of_queries(e, seq),
                ..block
            },
            Side::Keys => block,
        }
    }

    /// The first row of a block of queries. The last of them see the most keys, so they begin first: a card is done when the last
    /// block is. Of blocks of keys the first ones are seen by the most queries.
    fn row_of_queries(&self, e: &mut Emitter, seq: Val) -> Val {
        if !self.kernel.causal {
            return self.row;
        }
        let last = e.add_int(seq, -1);
        let last = e.floor_to(last, ROWS as i64);
        e.sub(last, self.row)
    }

    /// The same for a side that is not known before: that of queries if the i1 `of_queries` holds.
    fn of_either(
        e: &mut Emitter,
        kernel: &'a Attend,
        of_queries: Val,
        at: (Val, Val),
    ) -> Block<'a> {
        if kernel.group() == 1 {
            let block = Block::new(e, kernel, Side::Keys, at);
            let row = block.row_of_queries(e, at.1);
            return Block {
                row: e.select(of_queries, row, block.row),
                ..block
            };
        }
        let [heads, shared] = [kernel.heads, kernel.kv_heads].map(|n| e.int(n as i64));
        let heads = e.select(of_queries, heads, shared);
        let block = Block::of_heads(e, kernel, heads, at);
        let shared = shared_by(e, kernel, block.head);
        let row = block.row_of_queries(e, at.1);
        Block {
            shared: e.select(of_queries, shared, block.head),
            row: e.select(of_queries, row, block.row),
            ..block
        }
    }

    /// Of so many heads.
    fn of_heads(
        e: &mut Emitter,
        kernel: &'a Attend,
        heads: Val,
        (number, seq): (Val, Val),
    ) -> Block<'a> {
        let thread = e.thread();
        let tiles = e.div_ceil(seq, ROWS as i64);
        let (outer, within) = (e.div(number, tiles), e.rem(number, tiles));
        let width = e.int(32);
        let head = e.rem(outer, heads);
        let (warp, lane) = (e.div(thread, width), e.rem(thread, width));
        let (lane_row, lane_col) = lane_of_sums(e, lane);
        let [down, across] = [Order::Down, Order::Across].map(|order| {
            let tile = Tile::padded(ROWS, kernel.head);
            lane_place(e, lane, order, tile)
        });
        Block {
            kernel,
            team: Team {
                thread,
                threads: THREADS,
            },
            batch: e.div(outer, heads),
            head,
            shared: head,
            row: e.mul_int(within, ROWS as i64),
            own: e.mul_int(warp, 16),
            lane_row,
            lane_col,
            down,
            across,
        }
    }

    /// The same block of keys, for the query head number `member` of those that read it.
    fn of_member(&self, e: &mut Emitter, member: Val) -> Block<'a> {
        let first = e.mul_int(self.shared, self.kernel.group() as i64);
        let head = e.add(first, member);
        Block { head, ..*self }
    }

    /// A tile of so many rows of the head.
    fn tile(&self, rows: u64) -> Tile {
        Tile::padded(rows, self.kernel.head)
    }

    fn pitch(&self) -> i64 {
        self.tile(ROWS).pitch() as i64
    }

    /// The head's part of an operand of `rows` rows per sequence.
    fn matrix(&self, e: &mut Emitter, operand: u64, dtype: DType, rows: Val) -> Matrix {
        let k = self.kernel;
        let (head, heads) = match Attend::is_of_keys(operand) {
            true => (self.shared, k.kv_heads),
            false => (self.head, k.heads),
        };
        let pointer = e.operand(operand);
        let first = e.mul(self.batch, rows);
        let first = e.mul_int(first, heads as i64);
        let first = e.add(first, head);
        let first = e.mul_int(first, k.head as i64);
        let elem = Elem::of(dtype);
        Matrix {
            pointer: e.at(pointer, first, elem),
            elem,
            rounds: false,
            rows,
            cols: e.int(k.head as i64),
            stride: e.int((heads * k.head) as i64),
            whole: true,
            listed: None,
        }
    }

    fn source(&self, e: &mut Emitter, operand: u64, dtype: DType, rows: Val) -> Source {
        Source {
            matrix: self.matrix(e, operand, dtype, rows),
            vector: if dtype == DType::Bf16 { 8 } else { 4 },
        }
    }

    /// The address of the number that belongs to a row and this head.
    fn statistic(&self, e: &mut Emitter, operand: u64, rows: Val, row: Val) -> Val {
        let pointer = e.operand(operand);
        self.statistic_of(e, pointer, rows, row)
    }

    /// The same of the operand at `pointer`.
    fn statistic_of(&self, e: &mut Emitter, pointer: Val, rows: Val, row: Val) -> Val {
        let at = e.mul(self.batch, rows);
        let at = e.add(at, row);
        let at = e.mul_int(at, self.kernel.heads as i64);
        let at = e.add(at, self.head);
        e.at(pointer, at, e.elem)
    }

    /// The lane's two rows, from the sequence's first.
    fn rows(&self, e: &mut Emitter) -> [Val; 2] {
        let row = e.add(self.row, self.own);
        let row = e.add(row, self.lane_row);
        [row, e.add_int(row, 8)]
    }

    /// 16 rows of the warp, 16 columns from `col` on, of the tile of the block's rows at `tile`: a left factor.
    fn left(&self, e: &mut Emitter, tile: Val, col: u64) -> [Val; 4] {
        let own = e.mul_int(self.own, self.pitch());
        let at = e.add(tile, own);
        let at = e.add(at, self.down);
        let at = e.add_int(at, col as i64);
        e.load_matrices(at, false)
    }

    /// 16 rows from `row` on, 16 columns from `col` on: the right factor of products over columns, two fragments.
    fn over_columns(&self, e: &mut Emitter, tile: Val, row: Val, col: u64) -> [[Val; 2]; 2] {
        self.right(e, tile, self.across, row, col, false)
    }

    /// The same for products over rows.
    fn over_rows(&self, e: &mut Emitter, tile: Val, row: Val, col: u64) -> [[Val; 2]; 2] {
        self.right(e, tile, self.down, row, col, true)
    }

    fn right(
        &self,
        e: &mut Emitter,
        tile: Val,
        lane: Val,
        row: Val,
        col: u64,
        turned: bool,
    ) -> [[Val; 2]; 2] {
        let row = e.mul_int(row, self.pitch());
        let at = e.add(tile, lane);
        let at = e.add(at, row);
        let at = e.add_int(at, col as i64);
        let [x, y, z, w] = e.load_matrices(at, turned);
        [[x, y], [z, w]]
    }

    /// `sums + left · rows`, where `left` is 16 × 16 and the 16 rows from `row` on have the head's columns.
    fn accumulate(&self, e: &mut Emitter, left: [Val; 4], tile: Val, row: Val, sums: &mut Sums) {
        for (n, pair) in sums.chunks_mut(2).enumerate() {
            let right = self.over_rows(e, tile, row, 16 * n as u64);
            for (sum, right) in pair.iter_mut().zip(right) {
                *sum = e.multiply(left, right, *sum);
            }
        }
    }

    /// Zeros for the warp's rows and the head's columns.
    fn nothing(&self, e: &mut Emitter) -> Sums {
        let zero = e.float(0.0, e.scalar());
        vec![[zero; 4]; (self.kernel.head / 8) as usize]
    }

    /// Writes the lane's sums, its two rows times `factors`, where there are rows for them.
    fn write(&self, e: &mut Emitter, to: Matrix, sums: &Sums, factors: Option<[Val; 2]>) {
        for (half, row) in self.rows(e).into_iter().enumerate() {
            let exists = e.below(row, to.rows);
            e.when(exists, |e| {
                let base = e.mul(row, to.stride);
                let base = e.add(base, self.lane_col);
                for (n, sum) in sums.iter().enumerate() {
                    let pair: Vec<Val> = (sum[2 * half..][..2].iter())
                        .map(|x| factors.map_or(*x, |f| e.mul(*x, f[half])))
                        .collect();
                    let pair = match to.elem {
                        Elem::Bf16 => e.pair_bf16(pair[0], pair[1]),
                        _ => e.join(&pair),
                    };
                    let at = e.add_int(base, 8 * n as i64);
                    let p = e.at(to.pointer, at, to.elem);
                    e.store_whole(pair, p);
                }
            });
        }
    }
}

/// Two fragments of numbers side by side, rounded to bf16, as a left factor.
fn rounded(e: &mut Emitter, x: [Val; 4], y: [Val; 4]) -> [Val; 4] {
    [
        e.pair_bf16(x[0], x[1]),
        e.pair_bf16(x[2], x[3]),
        e.pair_bf16(y[0], y[1]),
        e.pair_bf16(y[2], y[3]),
    ]
}

/// Sums in and out of a loop.
fn flat(sums: &Sums) -> Vec<Val> {
    sums.concat()
}

fn fragments(flat: &[Val]) -> Sums {
    let four = |c: &[Val]| [c[0], c[1], c[2], c[3]];
    flat.chunks(4).map(four).collect()
}

/// The largest number, or the sum, of a fragment's rows, whose columns four lanes share.
fn across_lanes(e: &mut Emitter, x: Val, with: fn(&mut Emitter, Val, Val) -> Val) -> Val {
    [1, 2].into_iter().fold(x, |x, distance| {
        let other = e.at_distance(x, distance);
        with(e, x, other)
    })
}

/// A number as an f32 constant.
fn number(e: &mut Emitter, x: f64) -> Val {
    e.float(x, Type::scalar(Elem::F32))
}
