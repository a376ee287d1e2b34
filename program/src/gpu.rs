//! GPU launch geometry: the contract between the emitters in `odec-mlir` and the launches in `odec-runtime`.
//!
//! Takes a [`KernelSpec`] and the dims of a launch; gives blocks, threads and shared memory. A kernel means what its spec
//! says, on a GPU as on a processor, down to the order of every sum: this page only says who computes what. The one
//! exception is [`tensor`]: what runs on tensor cores is the same up to a bound.
//!
//! # ABI of compiled kernels
//! ```text
//! .visible .entry symbol(.u64 operand…, .u64 dim…, .f64 coefficient…, .align 64 .b8 map[128]…)
//! ```
//! in the orders of [`crate::kernel`] and [`tensor::map`]; operands are addresses in global memory, aligned as [`alignment`] says. Blocks and threads are numbered along x. Shared
//! memory is static, or all of it dynamic ([`Shape::dynamic`]). Where kernels wait for the launch before them ([`awaits`]), it may still run when they begin.

use crate::expr::{Access, ColMap, RowMap};
use crate::kernel::{
    Attend, Contract, Delay, Extent, Gather, KernelSpec, Layout, LinearAttend, Parts, Rows, Scan,
    Signature, Terms,
};
use crate::{DType, Target};

pub mod rows;
pub mod tensor;

/// Threads that run in step.
pub const WARP: u64 = 32;
/// Shared memory that every GPU gives to a block without being asked, in bytes.
pub const SHARED_LIMIT: u64 = 48 << 10;
/// Shared memory that a block can request, on GPUs whose kernels do (compute capability 9.0), in bytes.
pub const DYNAMIC_LIMIT: u64 = 227 << 10;
/// More blocks than any launch may have along x.
pub const MAX_BLOCKS: u64 = (1 << 31) - 1;

/// Whether kernels support programmatic dependent launch (PTX `griddepcontrol`, compute capability 9.0 and newer): before it touches memory, a kernel waits
/// until the launch before it is done; then it permits the launch after it to begin.
pub fn awaits(target: Target) -> bool {
    target == Target::Sm90a
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Blocks of threads; a launch of none is left out.
    pub blocks: u64,
    /// Threads of a block, whole warps.
    pub threads: u64,
    /// Shared memory of a block, in bytes: declared by the kernel, up to [`SHARED_LIMIT`].
    pub shared: u64,
}

impl Shape {
    /// Shared memory that a launch has to ask for, in bytes; the kernel, when it is loaded, for the permission. It is all of the
    /// kernel's shared memory, where that is more than [`SHARED_LIMIT`].
    pub fn dynamic(self) -> u64 {
        match self.shared > SHARED_LIMIT {
            true => self.shared,
            false => 0,
        }
    }
}

/// The shape of a launch with these dims; `None` for packing, which GPUs leave out. Threads and shared memory do not depend on
/// the dims.
pub fn shape(spec: &KernelSpec, dims: &[u64], target: Target) -> Option<Shape> {
    let by_rows = |rows: u64, split: Split| Shape {
        blocks: rows.div_ceil(split.rows()),
        threads: split.threads(),
        shared: 0,
    };
    Some(match spec {
        KernelSpec::Rows(k) => Shape {
            shared: rows::shared(k),
            ..by_rows(dims[0], Split::of(k))
        },
        KernelSpec::Gather(g) => by_rows(dims[0], Split::map(g.cols)),
        KernelSpec::Keep(k) => by_rows(dims[0], Split::map(k.cols)),
        KernelSpec::PositionSum(g) => by_rows(dims[2], Split::map(g.cols)),
        KernelSpec::SequenceSum(g) => by_rows(dims[0], Split::map(g.cols)),
        KernelSpec::ScatterAdd(g) => Shape {
            blocks: dims[1].min(scatter::GROUPS) * scatter::pieces(g),
            threads: scatter::THREADS,
            shared: scatter::SHARED,
        },
        KernelSpec::Columns(k) => Shape {
            blocks: k.cols.div_ceil(columns::cols(k)) * k.parts,
            threads: columns::threads(k),
            shared: 2 * columns::threads(k) * 4,
        },
        KernelSpec::Contract(c) if tensor::warpgroup::runs(c, target) => Shape {
            blocks: tensor::few::blocks(c, dims[0])
                .unwrap_or_else(|| tensor::warpgroup::blocks(c, dims[0], dims[1])),
            threads: tensor::warpgroup::THREADS,
            shared: tensor::warpgroup::shared(c),
        },
        KernelSpec::Contract(c) if tensor::contract::runs(c) => Shape {
            blocks: dims[0].div_ceil(tensor::contract::ROWS)
                * dims[1].div_ceil(tensor::contract::COLS),
            threads: tensor::contract::THREADS,
            shared: tensor::contract::shared(c),
        },
        KernelSpec::Contract(c) => Shape {
            blocks: contract::panels(c, dims[0]) * dims[1].div_ceil(c.blocking.nr.into()),
            threads: contract::THREADS,
            shared: contract::shared(c),
        },
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a)
            if tensor::attend::runs(a) =>
        {
            use tensor::attend::{ROWS, THREADS, backward_shared, forward_shared};
            use tensor::warpgroup::{attend_backward_shared, attend_shared, attends};
            let (forward, backward) = match attends(a, target) {
                true => (attend_shared(a), attend_backward_shared(a)),
                false => (forward_shared(a), backward_shared(a)),
            };
            let [queries, keys] = attend::blocks(a, dims, ROWS);
            let (blocks, shared) = match spec {
                KernelSpec::AttendCached(_) => (a.heads * dims[0].div_ceil(ROWS), forward),
                KernelSpec::Attend(_) => (queries, forward),
                // Gradients of queries, then those of keys and values.
                _ => (queries + keys, backward),
            };
            Shape {
                blocks,
                threads: THREADS,
                shared,
            }
        }
        KernelSpec::LinearAttend(a) => Shape {
            blocks: dims[0] * a.chunks * a.heads * a.value.div_ceil(linear_attend::COLS),
            threads: linear_attend::THREADS,
            shared: linear_attend::shared(a),
        },
        KernelSpec::Attend(a) => Shape {
            blocks: attend::blocks(a, dims, attend::ROWS)[0],
            threads: attend::THREADS,
            shared: attend::forward_shared(a),
        },
        KernelSpec::AttendBackward(a) => Shape {
            // Gradients of queries, then those of keys and values, then those of distances.
            blocks: attend::blocks(a, dims, attend::ROWS).iter().sum::<u64>()
                + attend::of_distances(a, dims),
            threads: attend::THREADS,
            shared: attend::backward_shared(a),
        },
        KernelSpec::AttendCached(a) => Shape {
            blocks: a.room.map_or(1, |_| dims[2]) * a.heads * dims[0].div_ceil(attend::ROWS),
            threads: attend::THREADS,
            shared: attend::forward_shared(a),
        },
        KernelSpec::Scan(Scan { cols, chunks, .. }) => Shape {
            blocks: dims[0] * chunks * cols.div_ceil(WARP),
            threads: WARP,
            shared: 0,
        },
        KernelSpec::Delay(Delay { cols, .. }) => Shape {
            blocks: dims[0] * cols.div_ceil(WARP),
            threads: WARP,
            shared: 0,
        },
        KernelSpec::TopTokens(_) => Shape {
            blocks: dims[0] * dims[1].div_ceil(top_tokens::THREADS),
            threads: top_tokens::THREADS,
            shared: 0,
        },
        KernelSpec::Grouped(g) => grouped::shape(g, grouped::by_rows(g, dims[0]), grouped::RANGE),
        KernelSpec::GroupedOuter(g) => grouped::shape(
            g,
            g.of.n.div_ceil(g.blocking.mr.into()) * g.of.k.div_ceil(g.blocking.nr.into()),
            g.blocking.kc.into(),
        ),
        KernelSpec::Pack(_) => return None,
    })
}

/// How rows are split among the threads of a block: `group` threads for a row, each taking `vector` consecutive columns
/// at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Columns of one access: four where rows are whole vectors, else one.
    pub vector: u64,
    /// Threads of a row, a power of two: within a warp, or, of wide rows whose columns do not depend on each other, several warps.
    pub group: u64,
}

impl Split {
    pub const THREADS: u64 = 128;
    /// Accesses of a thread in a wide row: all on their way at a time.
    const ACCESSES: u64 = 4;

    /// For a map or reduction over rows. Where rows are reduced, the threads of a row hold the 16 virtual lanes of
    /// [`crate::expr::ReduceOp`] among them, so that the sum is taken in its order: four threads four each, or, of wide rows, 16
    /// one each. In a warp whose row stays in registers ([`rows::held`]), and in a block that takes a row ([`rows::by_block`]), these 16 add up for the
    /// others, too.
    pub fn of(kernel: &Rows) -> Split {
        let lanes = crate::eval::LANES as u64;
        let map = Split::map(kernel.cols);
        let (vector, group) = match rows::reduces(kernel) {
            // What is one for the row may be read by all of its threads and written by one: no warp waits for another.
            false if kernel.stores.iter().any(|s| s.access.col == ColMap::Zero) => {
                (map.vector, map.group.min(WARP))
            }
            false => return map,
            true if rows::held(kernel) => (1, WARP),
            true if rows::by_block(kernel) => (map.vector, rows::BLOCK_THREADS),
            true if kernel.cols >= rows::WIDE => (1, lanes),
            true => (map.vector, lanes / map.vector),
        };
        Split { vector, group }
    }

    /// For rows of `cols` columns, each column on its own: a warp or less, and more of a wide row, so that few rows, of tokens that are
    /// read one by one or of a small matrix, take no longer than memory does.
    pub fn map(cols: u64) -> Split {
        let vector = if cols.is_multiple_of(4) { 4 } else { 1 };
        let accesses = (cols / vector).next_power_of_two();
        let group = match accesses <= WARP {
            true => accesses,
            false => (accesses / Self::ACCESSES).clamp(WARP, Self::THREADS),
        };
        Split { vector, group }
    }

    /// Threads of a block.
    pub fn threads(self) -> u64 {
        self.group.max(Self::THREADS)
    }

    /// Rows of a block.
    pub fn rows(self) -> u64 {
        self.threads() / self.group
    }
}

/// Column sums: a block takes [`cols`](columns::cols) columns; each thread sums one of them over one of as many blocks of rows at a time
/// as there are threads for. The first threads then add these sums in order, a column each.
pub mod columns {
    use crate::expr::{Expr, RowMap};
    use crate::kernel::Columns;

    /// Columns of a block: in f32 the 32 bytes that memory is read in. Fewer columns leave more threads for rows.
    pub fn cols(k: &Columns) -> u64 {
        k.cols.next_power_of_two().min(8)
    }

    /// Threads of a block: as many as there are, with 64 registers each, for what most models sum. Positions and long expressions take
    /// more registers, places of windows still more. A part of the rows has fewer.
    pub fn threads(k: &Columns) -> u64 {
        if k.parts > 1 {
            return 256;
        }
        let short = k.body.nodes.len() <= 8 && !rows_read(k).any(RowMap::by_position);
        match (reads_windows(k), short) {
            (true, _) => 256,
            (false, false) => 512,
            (false, true) => 1024,
        }
    }

    /// Rows that a thread reads before it adds them: some 16 numbers, which fit in 64 registers beside all else.
    pub fn ahead(k: &Columns) -> u64 {
        let loads = rows_read(k).count() as u64;
        match reads_windows(k) {
            true => 1,
            false => match 16 / loads.max(2) {
                0 => 1,
                n => 1 << n.ilog2(),
            },
        }
    }

    /// Where operands are read that have more than one row.
    fn rows_read(k: &Columns) -> impl Iterator<Item = RowMap> {
        k.body.nodes.iter().filter_map(|n| match n {
            Expr::Load { access, .. } if access.row != RowMap::Zero => Some(access.row),
            _ => None,
        })
    }

    pub fn reads_windows(k: &Columns) -> bool {
        rows_read(k).any(|row| matches!(row, RowMap::Window(..)))
    }
}

/// Recurrences along tokens: a block, one warp, takes as many columns of a chunk of a sequence, a column per thread, and walks over its tokens;
/// what [`TOKENS`](scan::TOKENS) of them read is loaded before the first of these steps.
pub mod scan {
    pub const TOKENS: u64 = 8;
}

/// Choosing tokens by their scores: a thread takes a token of a sequence and compares it with all others.
pub mod top_tokens {
    pub const THREADS: u64 = 128;
}

/// A block takes every [`GROUPS`](scatter::GROUPS)th row of the table, so that frequent ones, which often stand together, are shared among
/// blocks, and a piece of the columns. It lists which of [`CHUNK`](scatter::CHUNK) indices are of its rows, then adds what is listed.
pub mod scatter {
    use super::{Gather, Split, WARP};
    pub const THREADS: u64 = 128;
    pub const GROUPS: u64 = 256;
    /// Indices that are looked through at a time; each warp takes a part.
    pub const CHUNK: u64 = 2048;
    /// Listed rows that are read before they are added.
    pub const AHEAD: u64 = 8;
    /// Bytes of two lists, of rows and of rows of the table, and of how many each warp has found.
    pub const SHARED: u64 = (2 * CHUNK + THREADS / WARP) * 4;

    /// Pieces of a row of the table: a thread has as many columns as are one access.
    pub fn pieces(g: &Gather) -> u64 {
        g.cols.div_ceil(Split::map(g.cols).vector * THREADS)
    }
}

/// A block computes `mr` × `nr` elements, each thread [`M`](contract::M) × [`N`](contract::N) of them.
pub mod contract {
    use super::Contract;
    pub const THREADS: u64 = 256;
    /// Rows and columns of a thread, in runs of four.
    pub const M: u64 = 8;
    pub const N: u64 = 4;
    /// Inner length that is in shared memory at a time.
    pub const K: u64 = 16;
    /// Elements between the rows of a tile in shared memory beyond its width.
    pub const PAD: u64 = 4;

    pub fn panels(c: &Contract, m: u64) -> u64 {
        m.div_ceil(c.blocking.mr.into())
    }
    /// Bytes of a tile of A and a tile of B, inner index first.
    pub fn shared(c: &Contract) -> u64 {
        let (m, n) = (u64::from(c.blocking.mr), u64::from(c.blocking.nr));
        K * (m + n + 2 * PAD) * 4
    }
}

/// Products of rows with the matrix of their group. A block takes a group, a range of rows and `nr` columns: it lists the rows of its
/// group in shared memory, `mr` of which pass at a time, as in [`contract`](mod@contract). Sums of outer products: a block takes a group and a tile of
/// its matrix, and lists its rows among `kc` at a time.
pub mod grouped {
    use super::{Shape, contract};
    use crate::kernel::Grouped;
    /// Rows that a block looks through.
    pub const RANGE: u64 = 1024;

    /// Blocks side by side that take all columns of a group.
    pub fn by_columns(g: &Grouped) -> u64 {
        g.of.n.div_ceil(g.blocking.nr.into())
    }

    /// Blocks of a group, where each takes a range of rows.
    pub fn by_rows(g: &Grouped, rows: u64) -> u64 {
        (rows * g.of.copies).div_ceil(RANGE) * by_columns(g)
    }

    /// Elements of shared memory before the list of rows: a tile of each factor.
    pub fn tiles(g: &Grouped) -> u64 {
        let (m, n) = (u64::from(g.blocking.mr), u64::from(g.blocking.nr));
        contract::K * (m + n + 2 * contract::PAD)
    }

    /// `blocks` for each group, which list as many rows as are in a range; behind the list each thread has a place of its own.
    pub fn shape(g: &Grouped, blocks: u64, range: u64) -> Shape {
        Shape {
            blocks: g.of.groups * blocks,
            threads: contract::THREADS,
            shared: (tiles(g) + range + contract::THREADS) * 4,
        }
    }
}

/// Attention: a block takes [`ROWS`](attend::ROWS) queries (or keys, for their gradients) of a head and walks over the
/// other side in tiles of [`COLS`](attend::COLS). Each thread holds 4 × 4 scores, and 4 rows of results, every 16th column.
pub mod attend {
    use super::Attend;
    pub const THREADS: u64 = 128;
    pub const ROWS: u64 = 32;
    pub const COLS: u64 = Attend::BLOCK;
    /// Columns of heads that are in shared memory at a time, for products over them.
    pub const DEPTH: u64 = 32;
    /// Rows of the other side that are in shared memory at a time, for sums over them.
    pub const CHUNK: u64 = 16;
    /// As [`super::contract::PAD`].
    pub const PAD: u64 = 4;
    /// The widest head: a thread keeps its results in registers.
    pub const MAX_HEAD: u64 = 256;

    /// Blocks of so many rows of queries, and of keys, in the kernels of whole sequences.
    pub fn blocks(a: &Attend, dims: &[u64], rows: u64) -> [u64; 2] {
        let [batch, seq, keys] = a.lengths(dims);
        let of = |heads: u64, tokens: u64| heads * batch * tokens.div_ceil(rows);
        [of(a.heads, seq), of(a.kv_heads, keys)]
    }

    /// Blocks of distances whose biases have gradients, of a column of the table each.
    pub fn of_distances(a: &Attend, dims: &[u64]) -> u64 {
        let tiles = || dims[0] * a.bias_columns() * dims[1].div_ceil(ROWS);
        a.scores.distances.map_or(0, |_| tiles())
    }

    /// Elements of the operands' tiles.
    pub fn staged(a: &Attend) -> u64 {
        (DEPTH * (ROWS + COLS + 2 * PAD))
            .max(CHUNK * (a.head.max(a.value_head()).next_multiple_of(4)))
    }
    /// Elements of a tile of scores, columns first.
    pub const SCORES: u64 = COLS * (ROWS + PAD);
    /// Elements before the rows that are listed, where some tokens take no part.
    pub fn listed(a: &Attend) -> u64 {
        staged(a) + 2 * SCORES + COLS
    }
    /// Bytes for the numbers of rows on both sides, and one of each thread.
    const LISTS: u64 = (ROWS + COLS + THREADS) * 4;
    /// Bytes for operands and weights.
    pub fn forward_shared(a: &Attend) -> u64 {
        match a.partial {
            true => backward_shared(a),
            false => (staged(a) + SCORES) * 4,
        }
    }
    /// Bytes for operands, weights and slopes, and a number per row or column.
    pub fn backward_shared(a: &Attend) -> u64 {
        listed(a) * 4 + if a.partial { LISTS } else { 0 }
    }
}

/// Linear attention: a warp takes a block of columns of values of a head and walks over the tokens of a chunk. A thread keeps its column of the
/// matrix in shared memory, which no other touches.
pub mod linear_attend {
    use super::{LinearAttend, SHARED_LIMIT, WARP};
    pub const THREADS: u64 = WARP;
    pub const COLS: u64 = THREADS;
    /// The widest key: its column of the matrix fits in what every block has.
    pub const MAX_KEY: u64 = SHARED_LIMIT / 4 / COLS;

    pub fn shared(a: &LinearAttend) -> u64 {
        a.matrices() * a.key * COLS * 4
    }
}

/// Whether `vector` columns of the domain, from a multiple of `vector` on, are one aligned access.
pub fn whole(access: Access, vector: u64) -> bool {
    let rows = access.row == RowMap::Zero || access.stride.is_multiple_of(vector);
    let columns = match access.col {
        ColMap::Col => true,
        ColMap::Zero => false,
        ColMap::Turn { cols, by } => cols.is_multiple_of(vector) && by.is_multiple_of(vector),
        ColMap::HalfSwap(n) => (n / 2).is_multiple_of(vector),
        ColMap::Transposed { .. } => vector == 1,
    };
    rows && columns
}

/// What the address of operand `n` of a kernel with its signature must be a multiple of, in bytes.
pub fn alignment(spec: &KernelSpec, signature: &Signature, n: usize) -> u64 {
    let operand = &signature.operands[n];
    let element = operand.dtype.bytes();
    let four = |wide: bool| if wide { 4 * element } else { element };
    let fixed = |x: Extent| matches!(x, Extent::Static(x) if x.is_multiple_of(4));
    match spec {
        KernelSpec::Rows(k) => {
            let vector = Split::of(k).vector;
            four(vector == 4 && operand.walks().any(|a| whole(a, vector)))
        }
        KernelSpec::Contract(c) => {
            let last = signature.operands.len() - 1;
            // A and B of each term in turn.
            let n = if n < c.factors() { n % 2 } else { n };
            let row = match n {
                0 => {
                    if c.a_transposed {
                        c.m
                    } else {
                        c.k
                    }
                }
                1 => {
                    if c.layout == Layout::Columns {
                        c.k
                    } else {
                        c.n
                    }
                }
                n if n == last => c.n,
                _ => {
                    let fours = tensor::contract::runs(c) && fixed(c.n);
                    return four(fours && operand.walks().any(|a| whole(a, 4)));
                }
            };
            if tensor::contract::runs(c) {
                return match n {
                    0 | 1 => element * tensor::contract::vector(c, n),
                    _ if fixed(c.n) => element * 4,
                    _ => element * if is_even(c.n) { 2 } else { 1 },
                };
            }
            four(fixed(row))
        }
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            let backward = matches!(spec, KernelSpec::AttendBackward(_));
            // The others are numbers for each head or token: statistics, sinks, biases, and who takes part.
            let columns = match n {
                3 => !(backward && a.reads_delta()),
                n => n < 3 || (backward && (5..9).contains(&n)),
            };
            match tensor::attend::runs(a) && columns {
                true => 16,
                false => four(a.columns(n as u64).is_multiple_of(4) && columns),
            }
        }
        KernelSpec::Gather(g) | KernelSpec::ScatterAdd(g) => {
            four(n > 0 && Split::map(g.cols).vector == 4)
        }
        KernelSpec::Keep(k) => four(n > 0 && Split::map(k.cols).vector == 4),
        KernelSpec::PositionSum(g) | KernelSpec::SequenceSum(g) => {
            four(Split::map(g.cols).vector == 4)
        }
        KernelSpec::LinearAttend(_) => element,
        KernelSpec::Columns(_) | KernelSpec::Pack(_) => element,
        KernelSpec::Scan(_) | KernelSpec::Delay(_) | KernelSpec::TopTokens(_) => element,
        KernelSpec::Grouped(g) | KernelSpec::GroupedOuter(g) => {
            let [rows, matrices] = match spec {
                KernelSpec::Grouped(_) if g.layout == Layout::Columns => [g.of.k, g.of.k],
                KernelSpec::Grouped(_) => [g.of.k, g.of.n],
                _ => [g.of.n, g.of.k],
            };
            let last = if matches!(spec, KernelSpec::Grouped(_)) {
                g.of.n
            } else {
                g.of.k
            };
            let row = [1, rows, matrices, last].get(n).copied();
            four(row.is_some_and(|row| row.is_multiple_of(4)))
        }
    }
}

fn is_even(x: Extent) -> bool {
    matches!(x, Extent::Static(x) if x.is_multiple_of(2))
}

/// Why a kernel cannot run on a GPU, in words.
pub fn refusal(spec: &KernelSpec) -> Option<String> {
    if spec.dtype() != DType::F32 {
        return Some(format!(
            "arithmetic in {:?}; kernels for GPUs compute in f32",
            spec.dtype()
        ));
    }
    match spec {
        KernelSpec::Pack(_) => Some("packing is for processors".into()),
        KernelSpec::Contract(Contract {
            layout: Layout::Quantized(q),
            ..
        }) => Some(format!(
            "weights in {q}, which kernels for GPUs do not read yet"
        )),
        KernelSpec::Contract(c) if c.terms != Terms::ONE => {
            let why = "a sum of products whose factors do not come by tensor maps";
            let comes = tensor::contract::runs(c) && tensor::warpgroup::streams(c);
            (!comes).then(|| why.into())
        }
        KernelSpec::Contract(c) if c.rounds || c.parts != Parts::ONE => {
            let why = "a result in bf16, or of pieces of k apart, but not on tensor cores";
            (!tensor::contract::runs(c)).then(|| why.into())
        }
        KernelSpec::LinearAttend(a) => {
            let most = linear_attend::MAX_KEY / a.matrices();
            (a.key > most).then(|| format!("keys of {} columns; at most {most}", a.key))
        }
        KernelSpec::Attend(a) | KernelSpec::AttendBackward(a) | KernelSpec::AttendCached(a) => {
            if a.rounds && !tensor::attend::runs(a) {
                return Some("a result in bf16, but not on tensor cores".into());
            }
            let most = attend::MAX_HEAD;
            let head = a.head.max(a.value_head());
            if a.order.in_pairs() {
                return Some("dot products of pairs are for processors".into());
            }
            (head > most).then(|| format!("heads of {head} columns; at most {most}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_split_into_whole_warps_of_groups() {
        for cols in [1, 2, 3, 4, 5, 8, 37, 40, 64, 100, 1024, 50257] {
            let s = Split::map(cols);
            assert!(s.group.is_power_of_two() && s.group <= Split::THREADS);
            assert_eq!(cols % s.vector, 0);
            assert!(s.group * s.vector * 2 > cols || s.group >= WARP);
            assert!(s.group <= WARP || s.group * s.vector * Split::ACCESSES < 2 * cols);
            assert_eq!(Split::THREADS % s.group, 0);
        }
    }

    #[test]
    fn shared_memory_fits() {
        for head in [1, 8, 40, 64, 128, attend::MAX_HEAD] {
            let a = Attend {
                dtype: DType::F32,
                inputs: DType::F32,
                heads: 1,
                kv_heads: 1,
                head,
                causal: true,
                room: None,
                window: None,
                scale: 1.0,
                rounds: false,
                value: None,
                scores: Default::default(),
                order: Default::default(),
                partial: false,
                others: false,
            };
            assert!(attend::backward_shared(&a) <= SHARED_LIMIT, "{head}");
            assert!(attend::forward_shared(&a) <= attend::backward_shared(&a));
        }
        for head in (16..=tensor::attend::MAX_HEAD).step_by(16) {
            let a = Attend {
                dtype: DType::F32,
                inputs: DType::Bf16,
                heads: 1,
                kv_heads: 1,
                head,
                causal: true,
                room: None,
                window: None,
                scale: 1.0,
                rounds: false,
                value: None,
                scores: Default::default(),
                order: Default::default(),
                partial: false,
                others: false,
            };
            assert!(tensor::attend::runs(&a));
            // A result in bf16 is for these alone.
            let of = |head| Attend {
                head,
                rounds: true,
                ..a.clone()
            };
            assert_eq!(refusal(&KernelSpec::Attend(of(head))), None);
            assert!(refusal(&KernelSpec::Attend(of(head - 1))).is_some());
            assert!(
                tensor::attend::backward_shared(&a) <= SHARED_LIMIT,
                "{head}"
            );
            assert!(tensor::attend::forward_shared(&a) <= SHARED_LIMIT, "{head}");
            // Two blocks to a multiprocessor, which has 228 KiB and takes one for each.
            use tensor::warpgroup::{attend_backward_shared, attend_shared};
            for bytes in [attend_shared(&a), attend_backward_shared(&a)] {
                assert!(2 * (bytes + 1024) <= 228 << 10, "{head}");
            }
        }
    }
}
