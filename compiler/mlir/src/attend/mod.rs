//! Fused attention, forward ([`forward`], [`cached`]) and backward ([`backward`]), block by block: no matrix of
//! sequence × sequence elements exists anywhere (T. Dao et al., "FlashAttention", 2022).
//!
//! A block of scores is kept **transposed**, `Sᵀ[key][query]` with 64 queries to a row: a vector holds one
//! key's scores for several queries. Softmax statistics are then vectors over queries, and no reduction
//! across lanes is ever needed. It also makes every product of a block one of two shapes for the
//! micro-kernel: `Sᵀ = K · (Qᵀ)` reads rows of keys, `O += (Pᵀ)ᵀ · V` reads columns of `Pᵀ`; only queries
//! (and the gradient of the output) are ever transposed, once per block of rows.
//!
//! Blocks are copied into scratch first, heads padded to whole vectors, so that the micro-kernel sees
//! static strides and cache lines that do not collide (rows of [batch, seq, heads · head] lie a power of two
//! apart). Rows and lanes past the end of the sequence are computed from whatever is there and never used.
//!
//! For dot products of pairs of bf16 ([`Order::Dots`]) blocks are packed as these read them: left-hand factors as rows of bf16, of which a word of 32 bits,
//! two neighbours in a row, goes to all lanes; right-hand ones as words of two neighbours in the inner dimension, a vector of them beside
//! each other ([`crate::pairs`]). Weights become both where they take the place of scores. A block begins at a multiple of 64, so pairs of keys and
//! queries are those of the whole sequence. What is missing of a pair is zero in both factors. Tile registers ([`Order::Pairs`], [`crate::tiles`]) read the
//! same, but for left-hand factors that are weights or gradients of scores with queries down, which are made into rows first ([`pair_rows`]);
//! chunks are filled up with zeros.
//!
//! Sums over keys and queries run in order, whatever the target's registers: all targets give the bits of
//! [`odec_program::kernel::Attend`].

pub(crate) mod backward;
pub(crate) mod cached;
pub(crate) mod forward;
mod part;
mod product;
mod scores;

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::pairs::{self, Pairs};
use crate::panel::{self, Panel, Rounding};
use crate::transpose;
use odec_program::DType;
use odec_program::kernel::{Attend, Order};
use part::{Numbers, Part, of_tile};
use product::{Product, Start, narrow, tile};
use scores::{Bias, Near, Table, shaped, slope};

/// Query rows and key rows of a block.
const BLOCK: i64 = Attend::BLOCK as i64;

/// Rejects what no kernel can do.
fn check(kernel: &Attend) -> Result<(), String> {
    let halves = kernel.inputs == DType::Bf16 && kernel.dtype == DType::F32;
    if kernel.inputs != kernel.dtype && !halves {
        return Err(format!(
            "attention in {:?} does not read {:?}",
            kernel.dtype, kernel.inputs
        ));
    }
    if kernel.rounds {
        return Err("a result in bf16".into());
    }
    if kernel.head == 0 || kernel.heads == 0 {
        return Err("attention needs at least one head of at least one column".into());
    }
    if kernel.kv_heads == 0 || !kernel.heads.is_multiple_of(kernel.kv_heads) {
        let (heads, keys) = (kernel.heads, kernel.kv_heads);
        return Err(format!("{heads} heads cannot share {keys} of keys"));
    }
    if kernel.window == Some(0) || (kernel.window.is_some() && !kernel.causal) {
        return Err("a window of attention is causal and holds a token".into());
    }
    Ok(())
}

/// Where a tensor is, and the type of its elements.
type Tensor = (Val, Elem);

/// One head of one sequence, in a tensor [batch, seq, heads · head] of queries or of keys: where its rows are.
#[derive(Clone, Copy)]
struct Head<'a> {
    kernel: &'a Attend,
    seq: Val,
    /// Heads in a row, and columns of each.
    heads: u64,
    columns: u64,
    /// Its number among them.
    number: Val,
    /// By how much scores fall with each token between, where they do.
    slope: Option<Val>,
    /// What is added to scores by distance, where something is.
    table: Option<Table>,
    /// Elements before row 0 of the head.
    offset: Val,
    /// Elements before row 0 of the head's statistics.
    statistics: Val,
    /// Whose rows it has, if not those of all tokens: `seq` of them.
    part: Option<Part>,
}

impl<'a> Head<'a> {
    /// Query head `head` of a sequence.
    fn of_queries(
        e: &mut Emitter,
        kernel: &'a Attend,
        seq: Val,
        batch: Val,
        head: Val,
    ) -> Head<'a> {
        let own = Head::new(e, kernel, seq, batch, head, kernel.heads);
        Head {
            slope: kernel.scores.alibi.then(|| slope(e, kernel, head)),
            ..own
        }
    }

    /// With biases by distance, and room for those of a pair of blocks.
    fn with_table(self, table: Option<Table>) -> Head<'a> {
        Head { table, ..self }
    }

    /// Head `head` of a sequence's keys and values.
    fn of_keys(e: &mut Emitter, kernel: &'a Attend, seq: Val, batch: Val, head: Val) -> Head<'a> {
        Head::new(e, kernel, seq, batch, head, kernel.kv_heads)
    }

    /// The query head with number `batch · heads + head`, and its head of keys, in sequences of so many queries and keys.
    fn pair(
        e: &mut Emitter,
        kernel: &'a Attend,
        [seq, keys]: [Val; 2],
        number: Val,
    ) -> [Head<'a>; 2] {
        let heads = e.int(kernel.heads as i64);
        let (batch, head) = (e.div(number, heads), e.rem(number, heads));
        let group = e.int(kernel.group() as i64);
        let of_keys = e.div(head, group);
        [
            Head::of_queries(e, kernel, seq, batch, head),
            Head::of_keys(e, kernel, keys, batch, of_keys),
        ]
    }

    fn new(
        e: &mut Emitter,
        kernel: &'a Attend,
        seq: Val,
        batch: Val,
        head: Val,
        heads: u64,
    ) -> Head<'a> {
        let row = e.mul(batch, seq);
        let rows = e.mul_int(row, heads as i64);
        let statistics = e.add(rows, head);
        let offset = e.mul_int(statistics, kernel.head as i64);
        Head {
            kernel,
            seq,
            heads,
            columns: kernel.head,
            number: head,
            slope: None,
            table: None,
            offset,
            statistics,
            part: None,
        }
    }

    /// Of these tokens alone.
    fn of_part(self, seq: Val, part: Part) -> Head<'a> {
        Head {
            seq,
            part: Some(part),
            ..self
        }
    }

    /// The head in a tensor of values or of results.
    fn of_values(self, e: &mut Emitter) -> Head<'a> {
        let Some(columns) = self.kernel.value else {
            return self;
        };
        Head {
            columns,
            offset: e.mul_int(self.statistics, columns as i64),
            ..self
        }
    }

    /// Elements between rows.
    fn stride(&self) -> i64 {
        (self.heads * self.columns) as i64
    }

    /// Columns rounded up to whole vectors and chunks.
    fn padded(&self) -> u64 {
        self.kernel.padded(self.columns)
    }

    /// The head's sink in every lane, out of an operand.
    fn sink(&self, e: &mut Emitter, sinks: Val) -> Val {
        let p = e.at(sinks, self.number, e.elem);
        let x = e.load(p, e.scalar());
        e.broadcast(x, e.lanes)
    }

    /// The head's row `row` of a tensor with elements of type `elem`.
    fn row(&self, e: &mut Emitter, (tensor, elem): Tensor, row: Val) -> Val {
        let row = self.part.map_or(row, |part| part.row(e, row));
        let rows = e.mul_int(row, self.stride());
        let offset = e.add(self.offset, rows);
        e.at(tensor, offset, elem)
    }

    /// The statistic of row `row`.
    fn statistic(&self, e: &mut Emitter, tensor: Val, row: Val) -> Val {
        let row = self.part.map_or(row, |part| part.row(e, row));
        let rows = e.mul_int(row, self.heads as i64);
        let offset = e.add(self.statistics, rows);
        e.at(tensor, offset, e.elem)
    }

    /// Where `count` rows from `row` on are, with elements of which type, and how many elements are between them.
    fn rows(&self, e: &mut Emitter, tensor: Tensor, row: Val, count: Val) -> (Tensor, Val) {
        match self.part {
            Some(part) => {
                let (from, stride) = part.beside(e, self, tensor, row, count);
                ((from, e.elem), stride)
            }
            None => {
                let from = self.row(e, tensor, row);
                ((from, tensor.1), e.int(self.stride()))
            }
        }
    }

    /// Copies `count` rows from `row` on to scratch, `padded` elements apart: as rows of a left-hand factor.
    fn left(&self, e: &mut Emitter, tensor: Tensor, row: Val, count: Val, to: Val) {
        let ((from, elem), stride) = self.rows(e, tensor, row, count);
        let valid = e.int(self.columns as i64);
        panel::copy(
            e,
            Panel {
                from,
                elem,
                rounding: match in_pairs(self.kernel) {
                    true => Rounding::Halved,
                    false => Rounding::None,
                },
                stride,
                valid,
                count,
                to,
                width: self.padded(),
            },
        );
    }

    /// The same as a right-hand factor, whose inner dimension the rows are.
    fn right(&self, e: &mut Emitter, tensor: Tensor, row: Val, count: Val, to: Val) {
        if !in_pairs(self.kernel) {
            return self.left(e, tensor, row, count, to);
        }
        let ((from, elem), stride) = self.rows(e, tensor, row, count);
        let valid = e.int(self.columns as i64);
        let p = Pairs {
            from,
            elem,
            stride,
            valid,
            count,
            to,
            width: self.padded(),
            order: self.kernel.order,
        };
        pairs::copy(e, p);
    }

    /// Copies `count` rows from `row` on as the columns of `to`, which has rows of 64: a right-hand factor.
    fn transpose(&self, e: &mut Emitter, tensor: Tensor, row: Val, count: Val, to: Val) {
        let ((from, elem), stride) = self.rows(e, tensor, row, count);
        let (width, head) = (BLOCK as u64, e.int(self.columns as i64));
        match in_pairs(self.kernel) {
            true => pairs::transpose(
                e,
                Pairs {
                    from,
                    elem,
                    stride,
                    valid: count,
                    count: head,
                    to,
                    width,
                    order: self.kernel.order,
                },
            ),
            false => panel::transpose(
                e,
                Panel {
                    from,
                    elem,
                    rounding: Rounding::None,
                    stride,
                    valid: count,
                    count: head,
                    to,
                    width,
                },
            ),
        }
    }

    /// Writes `count` rows from scratch, `padded` elements apart, to the rows of `tensor` from `row` on; `scaled` gives
    /// what to store for a vector of row number r of the block. In pairs, zeros are written as positive ones.
    fn write(
        &self,
        e: &mut Emitter,
        from: Val,
        tensor: Val,
        row: Val,
        count: Val,
        scale: impl Fn(&mut Emitter, Val) -> Option<Val>,
    ) {
        let (zero, elem, lanes) = (e.int(0), e.elem, e.lanes);
        e.for_each(zero, count, 1, |e, r| {
            let factor = scale(e, r);
            let at = e.mul_int(r, self.padded() as i64);
            let (from, row) = (e.at(from, at, elem), e.add(row, r));
            let to = self.row(e, (tensor, elem), row);
            for c in (0..self.columns).step_by(lanes as usize) {
                let p = e.at_const(from, c as i64, elem);
                let x = e.load(p, e.vector());
                let mut x = factor.map_or(x, |f| e.mul(x, f));
                if in_pairs(self.kernel) {
                    let zero = e.float(0.0, x.ty);
                    x = e.add(x, zero);
                }
                self.store(e, x, to, c);
            }
        });
    }

    /// Stores a vector from column `c` on of a row of results, as far as there are columns.
    fn store(&self, e: &mut Emitter, x: Val, row: Val, c: u64) {
        let (p, lanes) = (e.at_const(row, c as i64, e.elem), e.lanes);
        match self.columns - c {
            left if left >= lanes => e.store(x, p),
            left => {
                let left = e.int(left as i64);
                let mask = e.mask(left, lanes);
                e.store_masked(x, p, mask);
            }
        }
    }

    /// Writes zeros to a row of results, whoever takes part.
    fn clear(self, e: &mut Emitter, tensor: Val, row: Val) {
        let all = Head { part: None, ..self };
        let (row, zero) = (all.row(e, (tensor, e.elem), row), e.float(0.0, e.vector()));
        for c in (0..self.columns).step_by(e.lanes as usize) {
            self.store(e, zero, row, c);
        }
    }
}

/// Whether products are of pairs.
fn in_pairs(kernel: &Attend) -> bool {
    kernel.order.in_pairs()
}

/// Values of the inner dimension that an element of a factor holds.
fn neighbours(kernel: &Attend) -> u64 {
    if in_pairs(kernel) { 2 } else { 1 }
}

/// Blocks that a head's sequence has.
fn blocks(e: &mut Emitter, seq: Val) -> Val {
    e.div_ceil(seq, BLOCK)
}

/// How many rows of the block that starts at `first` exist.
fn rows_in_block(e: &mut Emitter, seq: Val, first: Val) -> Val {
    let left = e.sub(seq, first);
    let block = e.int(BLOCK);
    e.min(left, block)
}

/// Keys of a sequence, of which there are so many queries, in the kernels of whole sequences.
fn keys_of(e: &mut Emitter, kernel: &Attend, seq: Val) -> Val {
    match kernel.others {
        true => e.dim(2),
        false => seq,
    }
}

/// Runs over the key blocks, of so many keys, that a block of queries sees: `step(first key, keys, which of them)`.
fn key_blocks(
    e: &mut Emitter,
    head: &Head,
    (query_block, keys): (Val, Val),
    mut step: impl FnMut(&mut Emitter, Val, Val, Sight),
) {
    let zero = e.int(0);
    if head.kernel.causal {
        let queries = e.mul_int(query_block, BLOCK);
        let begin = first_block(e, head.kernel, queries);
        // below the diagonal all blocks are whole
        e.for_each(begin, query_block, 1, |e, j| {
            let (first, all) = (e.mul_int(j, BLOCK), e.int(BLOCK));
            let sight = Sight::of(e, head, Until::All, queries, first);
            step(e, first, all, sight);
        });
        let keys = rows_in_block(e, keys, queries);
        let sight = Sight::of(e, head, Until::Diagonal, queries, queries);
        step(e, queries, keys, sight);
    } else {
        let blocks = blocks(e, keys);
        let queries = e.mul_int(query_block, BLOCK);
        e.for_each(zero, blocks, 1, |e, j| {
            let first = e.mul_int(j, BLOCK);
            let keys = rows_in_block(e, keys, first);
            let sight = Sight {
                until: Until::All,
                from: None,
                bias: Bias::of(e, head, queries, first),
            };
            step(e, first, keys, sight);
        });
    }
}

/// The table of biases, where that operand is one.
fn table(e: &mut Emitter, kernel: &Attend, operand: u64, near: Val) -> Option<Table> {
    let near = Near(near);
    kernel.scores.distances.map(|_| Table {
        biases: e.operand(operand),
        near,
    })
}

/// Lays scratch memory out.
struct Scratch {
    next: Val,
}

impl Scratch {
    fn new(e: &Emitter) -> Scratch {
        Scratch { next: e.scratch() }
    }
    /// The next `elements`; all sizes keep vectors aligned.
    fn take(&mut self, e: &mut Emitter, elements: i64) -> Val {
        let here = self.next;
        self.next = e.at_const(here, elements, e.elem);
        here
    }
}

/// The first block of keys that a query at this position or later sees.
fn first_block(e: &mut Emitter, kernel: &Attend, position: Val) -> Val {
    let Some(window) = kernel.window else {
        return e.int(0);
    };
    let first = e.add_int(position, 1 - window as i64);
    let zero = e.int(0);
    let first = e.max(first, zero);
    let block = e.int(BLOCK);
    e.div(first, block)
}

/// Which keys of a block a block of queries sees.
#[derive(Clone, Copy)]
struct Sight {
    until: Until,
    /// Query c sees the keys from c and this many more on, where there is a window.
    from: Option<Val>,
    /// What their distances add to scores.
    bias: Option<Bias>,
}

/// The last key that is seen.
#[derive(Clone, Copy)]
enum Until {
    All,
    /// Query c sees the keys up to c: the block on the diagonal.
    Diagonal,
    /// Query c sees the keys up to c and this many more.
    Ahead(Val),
}

impl Sight {
    /// Of queries from a position on, in the block of keys that begins at `key`.
    fn of(e: &mut Emitter, head: &Head, until: Until, position: Val, key: Val) -> Sight {
        let from = head.kernel.window.map(|window| {
            let first = e.add_int(position, 1 - window as i64);
            e.sub(first, key)
        });
        let bias = Bias::of(e, head, position, key);
        Sight { until, from, bias }
    }

    fn is_diagonal(self) -> bool {
        matches!(self.until, Until::Diagonal)
    }

    /// `none` in place of `x` where the queries from `c` on do not see key `k` of the block.
    fn hide(self, e: &mut Emitter, k: Val, c: Val, none: Val, x: Val) -> Val {
        let last = match self.until {
            Until::All => None,
            Until::Diagonal => Some(k),
            Until::Ahead(more) => Some(e.sub(k, more)),
        };
        let x = match last {
            Some(k) => {
                let unseen = later_key(e, k, c);
                e.select(unseen, none, x)
            }
            None => x,
        };
        match self.from {
            Some(more) => {
                let k = e.sub(k, more);
                let unseen = earlier_key(e, k, c);
                e.select(unseen, none, x)
            }
            None => x,
        }
    }
}

/// Keys that the queries of the vector from `c` on see in a diagonal block of `keys`, rounded up to what readers touch.
fn keys_seen(e: &mut Emitter, keys: Val, c: Val, sight: Sight) -> Val {
    match sight.until {
        Until::All | Until::Ahead(_) => keys,
        Until::Diagonal => {
            let down = e.floor_to(c, 16);
            let up = e.add_int(down, 16);
            e.min(keys, up)
        }
    }
}

/// `to = times · K · Qᵀ` for `[k, qt, to]` in scratch, of heads of so many columns: a block of 64 × `columns` with keys down and queries
/// across.
fn scores(
    e: &mut Emitter,
    (kernel, head): (&Attend, u64),
    [k, qt, to]: [Val; 3],
    columns: i64,
    (keys, sight): (Val, Sight),
    times: Option<Val>,
) {
    let product = Product {
        order: kernel.order,
        a: k,
        a_strides: ((kernel.padded(head) / neighbours(kernel)) as i64, 1),
        b: qt,
        b_stride: BLOCK,
        c: to,
        c_stride: BLOCK,
        tile: match sight.until {
            Until::All => tile(e, kernel.order, columns as u64),
            Until::Diagonal | Until::Ahead(_) => narrow(e, kernel.order, columns as u64),
        },
        columns,
        start: Start::Zero,
        times,
    };
    let head = head as i64;
    product.emit(
        e,
        |e, c| keys_seen(e, keys, c, sight),
        |e, _| (e.int(0), e.int(head)),
    );
}

/// Which of the queries from `c` on come before key `k`, on the diagonal, as a mask.
fn later_key(e: &mut Emitter, k: Val, c: Val) -> Val {
    let (number, distance) = distances(e, k, c);
    e.cmp(Cmp::Lt, number, distance)
}

/// Which of the queries from `c` on come after key `k`.
fn earlier_key(e: &mut Emitter, k: Val, c: Val) -> Val {
    let (number, distance) = distances(e, k, c);
    e.cmp(Cmp::Lt, distance, number)
}

/// The numbers 0, 1, … of the queries from `c` on, and that of key `k`.
fn distances(e: &mut Emitter, k: Val, c: Val) -> (Val, Val) {
    let lanes = e.lanes;
    let distance = e.sub(k, c);
    let distance = e.convert(distance, Elem::I32);
    (e.iota(lanes), e.broadcast(distance, lanes))
}

/// Fills `elements` of scratch, a multiple of a vector, with a number.
fn fill(e: &mut Emitter, to: Val, elements: Val, x: f64) {
    let (zero, vector) = (e.int(0), e.vector());
    let x = e.float(x, vector);
    e.for_each(zero, elements, vector.lanes as i64, |e, i| {
        let p = e.at(to, i, e.elem);
        e.store(x, p);
    });
}

/// The same with a vector of numbers.
fn fill_with(e: &mut Emitter, to: Val, elements: i64, x: Val) {
    let (zero, elements) = (e.int(0), e.int(elements));
    e.for_each(zero, elements, x.ty.lanes as i64, |e, i| {
        let p = e.at(to, i, e.elem);
        e.store(x, p);
    });
}

/// A register of pairs of numbers, rounded to bf16, of which one comes from each vector, and those of each.
fn paired(e: &mut Emitter, both: [Val; 2]) -> (Val, [Val; 2]) {
    let [even, odd] = both.map(|x| e.nearest_bf16(x, false));
    let halves = [even, odd].map(|x| e.upper_half(x));
    (pairs::words(e, even, odd), halves)
}

/// Elements between the rows that [`pair_rows`] makes.
const PAIR_ROW: i64 = BLOCK / 2;

/// Transposes words of pairs of keys for the vector of queries from `c` on: a row for each query, [`PAIR_ROW`] apart, as tile registers read a left-hand
/// factor. `from` has a row for each pair, `stride` apart, with a word for each query; `keys` is a whole number of chunks.
fn pair_rows(e: &mut Emitter, (from, stride): (Val, i64), to: Val, c: Val, keys: Val) {
    let (zero, lanes) = (e.int(0), e.lanes as i64);
    let down = e.mul_int(c, PAIR_ROW);
    let (from, to) = (e.at(from, c, e.elem), e.at(to, down, e.elem));
    e.for_each(zero, keys, 2 * lanes, |e, k| {
        let two = e.int(2);
        let first = e.div(k, two);
        let down = e.mul_int(first, stride);
        let (from, to) = (e.at(from, down, e.elem), e.at(to, first, e.elem));
        let line = |e: &mut Emitter, i: i64| {
            let p = e.at_const(from, i * stride, e.elem);
            e.load(p, e.vector())
        };
        let rows: Vec<Val> = (0..lanes).map(|i| line(e, i)).collect();
        for (q, row) in transpose::square(e, &rows).into_iter().enumerate() {
            let p = e.at_const(to, q as i64 * PAIR_ROW, e.elem);
            e.store(row, p);
        }
    });
}

/// Runs `step` for the pairs of keys that the last chunk of so many keys lacks.
fn each_missing_pair(
    e: &mut Emitter,
    kernel: &Attend,
    keys: Val,
    step: impl FnOnce(&mut Emitter, Val),
) {
    if kernel.order.chunk() > 2 {
        let even = e.add_int(keys, 1);
        let (even, end) = (e.floor_to(even, 2), pairs::depth(e, kernel.order, keys));
        e.for_each(even, end, 2, step);
    }
}

/// Emits a kernel between the configuration of tile registers and their release, if it uses any. Scratch holds the configuration before anything else is there.
fn with_tiles(
    e: &mut Emitter,
    kernel: &Attend,
    body: impl FnOnce(&mut Emitter) -> Result<(), String>,
) -> Result<(), String> {
    let tiles = kernel.order == Order::Pairs;
    if tiles {
        let scratch = e.scratch();
        e.configure_tiles(scratch);
    }
    body(e)?;
    if tiles {
        e.release_tiles();
    }
    Ok(())
}

/// A vector at element `c` of a row of scratch.
fn load_at(e: &mut Emitter, row: Val, c: Val) -> Val {
    let p = e.at(row, c, e.elem);
    e.load(p, e.vector())
}

/// Stores a vector at element `c` of a row of scratch.
fn store_at(e: &mut Emitter, x: Val, row: Val, c: Val) {
    let p = e.at(row, c, e.elem);
    e.store(x, p);
}

/// A scalar of the kernel's type at element `i`.
fn scalar_at(e: &mut Emitter, row: Val, i: Val) -> Val {
    let p = e.at(row, i, e.elem);
    e.load(p, Type::scalar(e.elem))
}
