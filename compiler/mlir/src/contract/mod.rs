//! Contraction kernels: matrix products with a fused epilogue.
//!
//! A tile of a launch is a panel of `mr` rows of C, or some of its columns where there are few such panels. For every block of columns and of
//! the inner length, each panel of A is rearranged into scratch ([`crate::panel`]) and multiplied with the packed panels
//! of B ([`crate::micro`]). Whole register tiles are finished straight from registers; ragged ones are
//! spilled to scratch and finished row by row, under a mask. Operands in bf16 are widened: A into its panel; B, where a
//! launch has several panels of rows, a block at a time into scratch, else into registers. Sums are f32 all the same. Or they
//! are multiplied in pairs: by dot products, with panels of pairs of A too, or in tile registers ([`crate::tiles`]), from
//! which whole tiles of bare products go to C, all others to scratch. Integers are widened the same way as bf16 ([`crate::quantized`]).
//!
//! Scratch without tile registers: a panel of A (mr × kc), room that its last store may overrun into, and a register tile
//! (mr × nr).

mod finish;

use crate::emit::{Cmp, Elem, Emitter, Type, Val};
use crate::epilogue::{Columns, Epilogue};
use crate::micro::{self, Left, Right, Tile};
use crate::pack::extent;
use crate::pairs::{self, Pairs};
use crate::panel::{self, Panel, Rounding};
use crate::quantized::{self, Integers};
use crate::tiles;
use odec_program::kernel::{Contract, Layout, Order, Parts, Terms};
use odec_program::{DType, Quantized, tile};

/// Elements of scratch between the panel of A and the register tile.
const OVERRUN: u64 = 256;
/// How many rows ahead a packed panel is prefetched.
const PREFETCH: u64 = 16;
/// As many panels of rows as make widening a block of B worth its stores.
const SEVERAL: i64 = 4;

/// Emits the kernel.
///
/// # Errors
/// A blocking that does not fit the target, or an epilogue that reads operands in a way that makes no sense there.
pub(crate) fn emit(e: &mut Emitter, spec: &Contract) -> Result<(), String> {
    let reads = |d| d == spec.dtype || (d == DType::Bf16 && spec.dtype == DType::F32);
    if !reads(spec.a) || !reads(spec.b) {
        return Err(format!(
            "a contraction in {:?} does not read {:?} and {:?}",
            spec.dtype, spec.a, spec.b
        ));
    }
    match spec.layout {
        Layout::Panels => {}
        Layout::Quantized(q) => quantized::check(e, q, spec.blocking.nr.into())?,
        Layout::Rows | Layout::Columns => {
            return Err("a right-hand operand that is not packed".into());
        }
    }
    if spec.rounds || spec.parts != Parts::ONE || spec.terms != Terms::ONE {
        return Err("a result in bf16, pieces of k apart, or a sum of products".into());
    }
    let pairs = spec.order == Order::Pairs;
    if pairs {
        tiles::check(spec)?;
        let scratch = e.scratch();
        e.configure_tiles(scratch);
    }
    let kernel = Kernel::new(e, spec)?;
    kernel.groups(e, |e, (first, columns), (from, to)| {
        blocks(e, columns, spec.blocking.nc.into(), |e, jc, columns| {
            let jc = e.add(first, jc);
            blocks(e, kernel.k, spec.blocking.kc.into(), |e, pc, depth| {
                let widened = spec.widens().then(|| {
                    let (count, several) = (e.sub(to, from), e.int(SEVERAL));
                    let widened = e.cmp(Cmp::Ge, count, several);
                    e.when(widened, |e| kernel.widen(e, (jc, columns), (pc, depth)));
                    widened
                });
                e.for_each(from, to, 1, |e, tile| {
                    kernel.rows(e, tile, (jc, columns), (pc, depth), widened)
                });
            });
        });
    });
    if pairs {
        e.release_tiles();
    }
    Ok(())
}

/// Cuts `0..length` into blocks of `step`: the body takes start and length of each. One block, maybe empty,
/// is always there.
pub(crate) fn blocks(
    e: &mut Emitter,
    length: Val,
    step: i64,
    body: impl FnOnce(&mut Emitter, Val, Val),
) {
    let zero = e.int(0);
    match length.known() {
        Some(n) if n <= step => body(e, zero, length),
        Some(n) if n % step == 0 => e.for_each(zero, length, step, |e, i| {
            let step = e.int(step);
            body(e, i, step);
        }),
        _ => {
            let one = e.int(1);
            let upto = e.max(length, one);
            e.for_each(zero, upto, step, |e, i| {
                let (left, step) = (e.sub(length, i), e.int(step));
                let size = e.min(left, step);
                body(e, i, size);
            });
        }
    }
}

/// Whether the rows of a panel of A, `k` elements apart, crowd no set of the nearest cache in a block: a power of two apart they would. Half of the ways of
/// the smallest cache that is met (32 KiB, 8 ways) are left to B.
fn lie_well(spec: &Contract, k: i64) -> bool {
    const LINE: i64 = 64;
    const SETS: usize = 64;
    const WAYS: u32 = 4;
    let (bytes, mut lines) = (spec.a.bytes() as i64, [0; SETS]);
    for row in 0..i64::from(spec.blocking.mr) {
        let first = row * k * bytes;
        let last = first + k.min(spec.blocking.kc.into()) * bytes - 1;
        for line in first / LINE..=last / LINE {
            lines[line as usize % SETS] += 1;
        }
    }
    lines.iter().all(|n| *n <= WAYS)
}

/// What is known once, at the start of the kernel.
struct Kernel<'a> {
    spec: &'a Contract,
    tile: Tile,
    m: Val,
    n: Val,
    k: Val,
    /// How many rows the panels of B have.
    depth: Val,
    a: Val,
    b: Val,
    c: Val,
    epilogue: Option<Epilogue>,
}

/// A panel of B at a block of the inner length.
#[derive(Clone, Copy)]
enum Block {
    /// Its elements, of a type.
    Panel(Val, Elem),
    Integers(Integers),
}

/// One register tile's work on one block of the inner length.
#[derive(Clone, Copy)]
struct Job {
    /// The first row and column in C.
    row: Val,
    column: Val,
    /// How many rows and columns exist.
    rows: Val,
    width: Val,
    /// The panel of B, at the block.
    b: Block,
    /// C(row, column).
    c: Val,
    /// Where the block begins, and its length.
    pc: Val,
    depth: Val,
}

impl<'a> Kernel<'a> {
    fn new(e: &mut Emitter, spec: &'a Contract) -> Result<Kernel<'a>, String> {
        let b = spec.blocking;
        let (mr, nr, kc, nc) = (b.mr as u64, b.nr as u64, b.kc as u64, b.nc as u64);
        // A register tile is unrolled, but for one of tile registers; the largest of any target are 14 × 2 vectors.
        let large = spec.order != Order::Pairs && mr * (nr / e.lanes) > 64;
        if nr % e.lanes != 0 || kc % e.lanes != 0 || large {
            return Err(format!(
                "a blocking of {mr} × {nr}, {kc} × {nc} does not fit vectors of {}",
                e.lanes
            ));
        }
        let (m, n, k) = (
            extent(e, spec.m, 0),
            extent(e, spec.n, 1),
            extent(e, spec.k, 2),
        );
        let depth = match spec.order {
            Order::Chain => k,
            Order::Pairs | Order::Dots => pairs::depth(e, spec.order, k),
        };
        let extra = spec.epilogue.as_ref().map_or(0, |p| p.operands as u64);
        let (a, b, c) = (e.operand(0), e.operand(1), e.operand(2 + extra));
        let epilogue = Epilogue::new(e, spec)?;
        let tile = Tile {
            rows: mr,
            vectors: nr / e.lanes,
        };
        Ok(Kernel {
            spec,
            tile,
            m,
            n,
            k,
            depth,
            a,
            b,
            c,
            epilogue,
        })
    }

    /// Runs `body` for each group of columns of which this thread has tiles: the first column and how many there are, the first panel of rows
    /// and the one behind the last. See [`Contract::columns`].
    fn groups(&self, e: &mut Emitter, body: impl FnOnce(&mut Emitter, (Val, Val), (Val, Val))) {
        let (zero, one) = (e.int(0), e.int(1));
        let (rows, panels) = (e.div_ceil(self.m, self.mr()), e.div_ceil(self.n, self.nr()));
        // A launch has tiles only where there are rows.
        let some = e.max(rows, one);
        let alone = e.cmp(Cmp::Eq, some, one);
        let [of_one, of_several] = self.spec.order.tiles().map(|n| e.int(n as i64));
        let tiles = e.select(alone, of_one, of_several);
        let group = e.mul(rows, panels);
        let group = e.div(group, tiles);
        let (group, most) = (e.max(group, one), e.max(panels, one));
        let group = e.min(group, most);
        let width = e.mul_int(group, self.nr());
        let (begin, end) = (e.begin(), e.end());
        let (first, last) = (e.div(begin, some), e.add(end, some));
        let last = e.sub(last, one);
        let last = e.div(last, some);
        // Tiles of one panel of rows are neighbours, so its rows are packed once for all of them.
        let (tiles, behind) = (e.sub(end, begin), e.add(begin, one));
        let together = e.mul(tiles, width);
        let (together, last) = (
            e.select(alone, together, width),
            e.select(alone, behind, last),
        );
        e.for_each(first, last, 1, |e, g| {
            let (column, before) = (e.mul(g, width), e.mul(g, some));
            let columns = match self.n.known() {
                Some(n) if n <= self.nr() => self.n,
                _ => {
                    let left = e.sub(self.n, column);
                    e.min(left, together)
                }
            };
            let (from, to) = (e.sub(begin, before), e.sub(end, before));
            let (from, to) = (e.max(from, zero), e.min(to, some));
            body(e, (column, columns), (from, to));
        });
    }

    /// Runs `body` for each packed panel of so many columns: the first of its columns, and how many exist.
    fn panels(&self, e: &mut Emitter, columns: Val, body: impl FnOnce(&mut Emitter, Val, Val)) {
        match self.n.known() {
            // Whole panels alone, however columns are cut into groups and blocks.
            Some(n) if n > 0 && n % self.nr() == 0 => {
                let zero = e.int(0);
                e.for_each(zero, columns, self.nr(), |e, jr| {
                    let width = e.int(self.nr());
                    body(e, jr, width);
                });
            }
            _ => blocks(e, columns, self.nr(), body),
        }
    }

    fn mr(&self) -> i64 {
        self.spec.blocking.mr as i64
    }
    fn nr(&self) -> i64 {
        self.spec.blocking.nr as i64
    }

    /// The same of integers.
    fn integers(&self, e: &mut Emitter, of: Quantized, column: Val, pc: Val) -> Integers {
        Integers::at(e, of, self.nr() as u64, self.b, (column, pc), self.k)
    }

    /// The packed panel of B that begins with a column, at a block of the inner length.
    fn panel(&self, e: &mut Emitter, column: Val, pc: Val) -> Val {
        let offset = e.mul(column, self.depth);
        let block = e.mul_int(pc, self.nr());
        let offset = e.add(offset, block);
        e.at(self.b, offset, Elem::of(self.spec.b))
    }

    /// Where the panel that begins with column `jr` of the block lies when it is widened.
    fn widened(&self, e: &mut Emitter, jr: Val) -> Val {
        let first = self.spec.tile_scratch().next_multiple_of(16);
        let scratch = e.scratch();
        let blocks = e.at_const(scratch, first as i64, e.elem);
        let offset = e.mul_int(jr, self.spec.blocking.kc as i64);
        e.at(blocks, offset, e.elem)
    }

    /// Widens a block of B's panels into scratch: their rows lie one after the other there, too.
    fn widen(&self, e: &mut Emitter, (jc, columns): (Val, Val), (pc, depth): (Val, Val)) {
        self.panels(e, columns, |e, jr, _| {
            let column = e.add(jc, jr);
            let to = self.widened(e, jr);
            if let Layout::Quantized(q) = self.spec.layout {
                let from = self.integers(e, q, column, pc);
                return from.widen(e, depth, to);
            }
            let from = self.panel(e, column, pc);
            let (elem, lanes) = (Elem::of(self.spec.b), e.lanes);
            let (zero, count) = (e.int(0), e.mul_int(depth, self.nr()));
            e.for_each(zero, count, lanes as i64, |e, i| {
                let p = e.at(from, i, elem);
                let x = e.load(p, Type::vector(elem, lanes));
                let x = e.convert(x, e.elem);
                let p = e.at(to, i, e.elem);
                e.store(x, p);
            });
        });
    }

    /// One panel of rows, for one block of columns and of the inner length. Whether the block is widened, is an i1 where it may be.
    fn rows(
        &self,
        e: &mut Emitter,
        tile: Val,
        (jc, columns): (Val, Val),
        (pc, depth): (Val, Val),
        widened: Option<Val>,
    ) {
        let (mr, elem) = (self.mr(), Elem::of(self.spec.a));
        let row = e.mul_int(tile, mr);
        let whole = e.int(mr);
        let rows = match self.m.known() {
            Some(m) if m % mr == 0 => whole,
            _ => {
                let left = e.sub(self.m, row);
                e.min(left, whole)
            }
        };
        let panel = |from, stride, to| Panel {
            from,
            elem,
            rounding: match self.spec.b {
                DType::Bf16 => Rounding::Rounded,
                _ => Rounding::None,
            },
            stride,
            valid: rows,
            count: depth,
            to,
            width: mr as u64,
        };
        let (major, minor, stride) = match self.spec.a_transposed {
            true => (pc, row, self.m),
            false => (row, pc, self.k),
        };
        let offset = e.mul(major, stride);
        let offset = e.add(offset, minor);
        let from = e.at(self.a, offset, elem);
        let length = self.spec.blocking.kc.into();
        match (self.spec.order, self.spec.a_transposed) {
            (Order::Pairs, _) => tiles::left(e, self.spec, from, stride, rows, depth),
            (Order::Dots, transposed) => {
                let p = Pairs {
                    from,
                    elem,
                    stride,
                    valid: rows,
                    count: depth,
                    to: e.scratch(),
                    width: mr as u64,
                    order: self.spec.order,
                };
                match transposed {
                    true => pairs::copy(e, p),
                    false => self.left(e, rows, |e, all| match all {
                        Some(_) if self.in_place() => {}
                        Some(valid) => pairs::transpose(e, Pairs { valid, ..p }),
                        None => pairs::rows(e, p, length),
                    }),
                }
            }
            (Order::Chain, true) => panel::copy(e, panel(from, stride, e.scratch())),
            (Order::Chain, false) => {
                let p = panel(from, stride, e.scratch());
                self.left(e, rows, |e, all| match all {
                    Some(_) if self.in_place() => {}
                    Some(valid) => panel::transpose(e, Panel { valid, ..p }),
                    None => panel::rows(e, p, length),
                });
            }
        }
        let tiles = |e: &mut Emitter, widened| {
            let place = (row, rows);
            self.tiles(e, place, (jc, columns), (pc, depth), widened);
        };
        match widened {
            None => tiles(e, false),
            Some(widened) => e.either(widened, tiles),
        }
    }

    /// The packed rows, with each panel of a block of columns.
    fn tiles(
        &self,
        e: &mut Emitter,
        (row, rows): (Val, Val),
        (jc, columns): (Val, Val),
        (pc, depth): (Val, Val),
        widened: bool,
    ) {
        self.panels(e, columns, |e, jr, width| {
            let column = e.add(jc, jr);
            let offset = e.mul(row, self.n);
            let offset = e.add(offset, column);
            let c = e.at(self.c, offset, e.elem);
            let b = match (widened, self.spec.layout) {
                (true, _) => Block::Panel(self.widened(e, jr), e.elem),
                (false, Layout::Quantized(q)) => Block::Integers(self.integers(e, q, column, pc)),
                (false, _) => Block::Panel(self.panel(e, column, pc), Elem::of(self.spec.b)),
            };
            self.tile(
                e,
                Job {
                    row,
                    column,
                    rows,
                    width,
                    b,
                    c,
                    pc,
                    depth,
                },
            );
        });
    }

    /// Packs rows of A: whole panels, of so many rows, or fewer rows, one after the other.
    fn left(&self, e: &mut Emitter, rows: Val, pack: impl Fn(&mut Emitter, Option<Val>)) {
        let all = e.int(self.mr());
        match rows.known() {
            Some(n) => pack(e, (n == self.mr()).then_some(all)),
            None => {
                let whole = e.cmp(Cmp::Eq, rows, all);
                e.either(whole, |e, whole| pack(e, whole.then_some(all)));
            }
        }
    }

    fn tile(&self, e: &mut Emitter, job: Job) {
        if self.spec.order == Order::Pairs {
            return self.pairs_tile(e, job);
        }
        let mut unknown = Vec::new();
        for (have, want) in [(job.rows, self.mr()), (job.width, self.nr())] {
            match have.known() {
                Some(n) if n == want => {}
                Some(_) => return self.ragged_tile(e, job),
                None => {
                    let want = e.int(want);
                    unknown.push(e.cmp(Cmp::Eq, have, want));
                }
            }
        }
        match unknown.into_iter().reduce(|a, b| e.and(a, b)) {
            None => self.whole_tile(e, job),
            Some(whole) => e.either(whole, |e, whole| match whole {
                true => self.whole_tile(e, job),
                false => self.ragged_tile(e, job),
            }),
        }
    }

    /// Whether whole panels of A are read where they are: rows of what is multiplied, if their lines lie well in the nearest cache.
    fn in_place(&self) -> bool {
        let (spec, k) = (self.spec, self.k.known());
        let ready = match spec.order {
            Order::Chain => spec.a == spec.dtype && spec.b != DType::Bf16,
            Order::Dots => spec.a == DType::Bf16 && k.is_some_and(|k| k % 2 == 0),
            Order::Pairs => false,
        };
        ready && !spec.a_transposed && k.is_some_and(|k| lie_well(spec, k))
    }

    /// Where the micro-kernel finds rows of A: packed, as [`Kernel::left`] leaves them, or in place.
    fn packed(&self, e: &mut Emitter, rows: Val, job: Job) -> Left {
        let (one, mr) = (e.int(1), e.int(self.mr()));
        let length = i64::from(self.spec.blocking.kc) / self.spec.order.chunk() as i64;
        let scratch = e.scratch();
        let line = [scratch, e.int(length), one];
        let panel = match self.in_place() {
            false => [scratch, one, mr],
            true => {
                let first = e.mul(job.row, self.k);
                let first = e.add(first, job.pc);
                let pointer = e.at(self.a, first, Elem::of(self.spec.a));
                [
                    pointer,
                    e.div_int(self.k, self.spec.order.chunk() as i64),
                    one,
                ]
            }
        };
        let [pointer, row, inner] = match rows.known() {
            _ if self.spec.a_transposed => panel,
            Some(n) if n == self.mr() => panel,
            Some(_) => line,
            None => {
                let whole = e.cmp(Cmp::Eq, rows, mr);
                std::array::from_fn(|i| e.select(whole, panel[i], line[i]))
            }
        };
        Left {
            pointer,
            row,
            inner,
        }
    }

    /// A register tile of so many rows. `rows` of them exist.
    fn multiply(&self, e: &mut Emitter, tile: Tile, rows: Val, job: Job) -> Vec<Val> {
        let nr = e.int(self.nr());
        let left = self.packed(e, rows, job);
        let zeros = micro::zeros(e, tile);
        let (pointer, elem) = match job.b {
            Block::Panel(pointer, elem) => (pointer, elem),
            Block::Integers(panel) => return panel.multiply(e, tile, left, job.depth, &zeros),
        };
        // Pairs of values of k, of which the last may have a zero for its second, or single ones.
        let (elem, count) = match self.spec.order {
            Order::Dots => (micro::PAIRS, e.div_ceil(job.depth, 2)),
            _ => (elem, job.depth),
        };
        let right = Right {
            pointer,
            elem,
            inner: nr,
            prefetch: PREFETCH,
        };
        micro::multiply(e, tile, left, right, count, &zeros)
    }

    fn whole_tile(&self, e: &mut Emitter, job: Job) {
        let (lanes, elem) = (e.lanes as i64, e.elem);
        let line = |e: &mut Emitter, i: u64| {
            let offset = e.mul_int(self.n, i as i64);
            e.at(job.c, offset, elem)
        };
        for i in 0..self.tile.rows {
            let p = line(e, i);
            for v in 0..self.tile.vectors {
                let p = e.at_const(p, v as i64 * lanes, elem);
                e.prefetch(p, true);
            }
        }
        let all = e.int(self.mr());
        let sums = self.multiply(e, self.tile, all, job);
        self.finish(e, job, |e, how| {
            for v in 0..self.tile.vectors {
                let first = e.add_int(job.column, v as i64 * lanes);
                let columns = Columns { first, mask: None };
                let epilogue = self.epilogue.as_ref().filter(|_| how.last);
                let epilogue = epilogue.map(|x| (x, x.at_columns(e, columns)));
                for i in 0..self.tile.rows {
                    let p = line(e, i);
                    let p = e.at_const(p, v as i64 * lanes, elem);
                    let mut x = sums[(i * self.tile.vectors + v) as usize];
                    if how.add {
                        let old = e.load(p, x.ty);
                        x = e.add(old, x);
                    }
                    if let Some((epilogue, values)) = &epilogue {
                        let row = e.add_int(job.row, i as i64);
                        x = epilogue.apply(e, values, x, row, columns);
                    }
                    e.store(x, p);
                }
            }
        });
    }

    /// A tile of which not all rows or columns exist: as many rows as needed are computed, spilled, and finished
    /// one by one.
    fn ragged_tile(&self, e: &mut Emitter, job: Job) {
        let (lanes, elem, nr) = (e.lanes as i64, e.elem, self.nr());
        let spill = {
            let offset = self.spec.blocking.mr as u64 * self.spec.blocking.kc as u64 + OVERRUN;
            let scratch = e.scratch();
            e.at_const(scratch, offset as i64, elem)
        };
        // vectors of columns that are known not to exist are not computed
        let vectors = match job.width.known() {
            Some(width) => (width as u64).div_ceil(e.lanes) as i64,
            None => self.tile.vectors as i64,
        };
        self.some_rows(e, &self.heights(), job.rows, &|e, rows| {
            let tile = Tile {
                rows,
                vectors: vectors as u64,
            };
            // In a tile that is not high enough for a whole panel, rows are few whatever their number.
            let few = match rows < self.tile.rows {
                true => e.int(rows as i64),
                false => job.rows,
            };
            let sums = self.multiply(e, tile, few, job);
            for (n, x) in sums.into_iter().enumerate() {
                let (row, v) = (n as i64 / vectors, n as i64 % vectors);
                let p = e.at_const(spill, row * nr + v * lanes, elem);
                e.store(x, p);
            }
        });
        self.finish(e, job, |e, how| {
            self.finish_rows(e, job, how, (spill, vectors));
        });
    }

    /// A tile in tile registers. Where the product has no epilogue, the first sums of a whole tile are stored from there to C.
    fn pairs_tile(&self, e: &mut Emitter, job: Job) {
        let Block::Panel(right, _) = job.b else {
            unreachable!("integers are not multiplied in pairs")
        };
        if self.epilogue.is_some() {
            return self.any_pairs_tile(e, job, right);
        }
        let [rows, width] = [(job.rows, self.mr()), (job.width, self.nr())].map(|(have, want)| {
            let want = e.int(want);
            e.cmp(Cmp::Eq, have, want)
        });
        let whole = e.and(rows, width);
        e.either(whole, |e, whole| {
            if !whole {
                return self.any_pairs_tile(e, job, right);
            }
            let registers = (self.tile.rows / tile::ROWS, self.nr() as u64 / tile::COLS);
            let product = tiles::multiply(e, self.spec.blocking, right, registers, job.depth);
            self.finish(e, job, |e, how| match how.add {
                false => product.store(e, job.c, self.n),
                true => {
                    let (sums, nr) = (tiles::sums(e), e.int(self.nr()));
                    product.store(e, sums, nr);
                    let vectors = self.nr() / e.lanes as i64;
                    self.finish_rows(e, job, how, (sums, vectors));
                }
            });
        });
    }

    /// The same for a tile of any size, by scratch: only those registers are used that some of its rows and columns are in.
    fn any_pairs_tile(&self, e: &mut Emitter, job: Job, right: Val) {
        let registers = |n: u64| n.div_ceil(tile::ROWS);
        let wide = registers(job.width.known().unwrap_or(self.nr()) as u64);
        let heights = match job.rows.known() {
            Some(rows) => vec![registers(rows as u64) * tile::ROWS],
            None => (tile::ROWS..=self.tile.rows)
                .step_by(tile::ROWS as usize)
                .collect(),
        };
        let sums = tiles::sums(e);
        self.some_rows(e, &heights, job.rows, &|e, rows| {
            let registers = (registers(rows), wide);
            let product = tiles::multiply(e, self.spec.blocking, right, registers, job.depth);
            let nr = e.int(self.nr());
            product.store(e, sums, nr);
        });
        let vectors = (wide * tile::COLS / e.lanes) as i64;
        self.finish(e, job, |e, how| {
            self.finish_rows(e, job, how, (sums, vectors));
        });
    }

    /// The numbers of rows that ragged tiles are computed with, ascending; the last one serves all.
    fn heights(&self) -> Vec<u64> {
        let mr = self.tile.rows;
        match self.m.known() {
            // only the last panel can be ragged; whole panels come here if the columns are
            Some(m) => {
                let mut heights = vec![m as u64 % mr, mr];
                let ragged_columns = self.n.known().is_none_or(|n| n % self.nr() != 0);
                heights.retain(|&h| h > 0 && (h < mr || (ragged_columns && m as u64 >= mr)));
                heights
            }
            None => [1, 4, 8]
                .into_iter()
                .filter(|&h| h < mr)
                .chain([mr])
                .collect(),
        }
    }

    /// Runs `body` for the smallest of `heights` that is at least `rows`.
    fn some_rows(
        &self,
        e: &mut Emitter,
        heights: &[u64],
        rows: Val,
        body: &dyn Fn(&mut Emitter, u64),
    ) {
        match *heights {
            [] => {}
            [height] => body(e, height),
            [height, ref higher @ ..] => {
                let most = e.int(height as i64);
                let enough = e.cmp(Cmp::Le, rows, most);
                e.either(enough, |e, enough| match enough {
                    true => body(e, height),
                    false => self.some_rows(e, higher, rows, body),
                });
            }
        }
    }
}
