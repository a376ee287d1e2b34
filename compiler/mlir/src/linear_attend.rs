//! Linear attention, token by token.
//!
//! Takes a [`LinearAttend`] spec; emits, for each tile (64 columns of values of a head), a loop over the tokens with the tile's columns
//! of the matrix in scratch, up to four vectors for each of its rows: as many sums go on side by side, and neither tiles nor vectors show
//! in the result.

use crate::access::{Columns, load_columns, load_scalar, store_columns};
use crate::emit::{Cmp, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::{Decay, LinearAttend};

/// Lanes of a vector.
const WIDTH: u64 = 16;
/// Columns of a tile.
const COLS: u64 = LinearAttend::COLS;

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &LinearAttend) -> Result<(), String> {
    let pointers: Vec<Val> = (0..kernel.operands())
        .map(|n| e.operand(n.into()))
        .collect();
    let seq = e.dim(1);
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, t| {
        let blocks = e.int(kernel.value.div_ceil(COLS) as i64);
        let (number, block) = (e.div(t, blocks), e.rem(t, blocks));
        let heads = e.int(kernel.heads as i64);
        let (batch, head) = (e.div(number, heads), e.rem(number, heads));
        let tile = Tile {
            kernel,
            pointers: &pointers,
            seq,
            batch,
            head,
            number,
        };
        let first = e.mul_int(block, COLS as i64);
        match (kernel.value / COLS, kernel.value % COLS) {
            (_, 0) => tile.run(e, first, COLS),
            (0, rest) => tile.run(e, first, rest),
            (whole, rest) => {
                let last = e.int(whole as i64);
                let is_whole = e.cmp(Cmp::Lt, block, last);
                e.either(is_whole, |e, is_whole| {
                    let width = if is_whole { COLS } else { rest };
                    tile.run(e, first, width);
                });
            }
        }
    });
    Ok(())
}

/// So many columns from `first` on.
fn vectors(e: &mut Emitter, first: Val, width: u64) -> Vec<Columns> {
    let starts = (0..width).step_by(WIDTH as usize);
    let vector = |start: u64| Columns {
        first: e.add_int(first, start as i64),
        lanes: WIDTH,
        count: WIDTH.min(width - start),
    };
    starts.map(vector).collect()
}

struct Tile<'a> {
    kernel: &'a LinearAttend,
    pointers: &'a [Val],
    seq: Val,
    batch: Val,
    head: Val,
    /// `batch · heads + head`.
    number: Val,
}

impl Tile<'_> {
    /// Computes so many columns from `first` on.
    fn run(&self, e: &mut Emitter, first: Val, width: u64) {
        let cols = &vectors(e, first, width);
        self.start(e, cols);
        let (zero, seq) = (e.int(0), self.seq);
        e.for_each(zero, seq, 1, |e, t| {
            let row = match self.kernel.reversed {
                true => {
                    let last = e.add_int(seq, -1);
                    e.sub(last, t)
                }
                false => t,
            };
            self.token(e, row, cols);
        });
        if let Some(after) = self.kernel.matrices() {
            self.each_row(e, |e, i| {
                let row = self.matrix_row(e, after, i);
                for (n, cols) in cols.iter().enumerate() {
                    let p = in_scratch(e, i, n);
                    let x = e.load(p, Type::vector(e.elem, WIDTH));
                    store_columns(e, x, row, e.elem, *cols);
                }
            });
        }
    }

    /// The matrix before the first token.
    fn start(&self, e: &mut Emitter, cols: &[Columns]) {
        let nothing = e.float(0.0, Type::vector(e.elem, WIDTH));
        let nothing = vec![nothing; cols.len()];
        let Some(before) = self.kernel.matrices() else {
            return self.each_row(e, |e, i| keep(e, i, &nothing));
        };
        let (past, zero) = (e.dim(2), e.int(0));
        let goes_on = e.cmp(Cmp::Gt, past, zero);
        self.each_row(e, |e, i| {
            let row = e.when_with(goes_on, &nothing, |e| {
                let row = self.matrix_row(e, before, i);
                let load = |cols: &Columns| load_columns(e, row, e.elem, ColMap::Col, *cols);
                cols.iter().map(load).collect()
            });
            keep(e, i, &row);
        });
    }

    fn token(&self, e: &mut Emitter, row: Val, cols: &[Columns]) {
        let kernel = self.kernel;
        let [q, k] = [0, 1].map(|n| self.columns(e, n, row, kernel.key));
        let v = self.columns(e, 2, row, kernel.value);
        let load = |cols: &Columns| load_columns(e, v, e.elem, ColMap::Col, *cols);
        let v: Vec<Val> = cols.iter().map(load).collect();
        let decay = self.decay(e, row, cols);
        let each: &[Step] = match kernel.delta {
            true => &[Step::Read, Step::Write],
            false => &[Step::Both],
        };
        let mut o = v;
        for step in each {
            o = self.pass(e, *step, [q, k], &o, &decay);
        }
        let to = self.columns(e, kernel.result(), row, kernel.value);
        for (o, cols) in o.iter().zip(cols) {
            store_columns(e, *o, to, e.elem, *cols);
        }
    }

    /// Takes a token's rows of the matrix once. What it adds to them is `v`; gives what the token reads.
    fn pass(
        &self,
        e: &mut Emitter,
        step: Step,
        [q, k]: [Val; 2],
        v: &[Val],
        decay: &Factors,
    ) -> Vec<Val> {
        let reversed = self.kernel.reversed;
        let (before, after) = (
            !reversed && step != Step::Write,
            reversed && step != Step::Read,
        );
        let (zero, rows) = (e.int(0), e.int(self.kernel.key as i64));
        let nothing = e.float(0.0, Type::vector(e.elem, WIDTH));
        let o = e.for_with(zero, rows, 1, &vec![nothing; v.len()], |e, i, o| {
            let [q, k] = [q, k].map(|row| splat(e, row, i));
            let decay = match decay {
                Factors::None => vec![],
                Factors::Of(each) => each.clone(),
                Factors::OfRows(row) => vec![splat(e, *row, i); v.len()],
            };
            let mut next = vec![];
            for (n, o) in o.iter().enumerate() {
                let p = in_scratch(e, i, n);
                let mut s = e.load(p, Type::vector(e.elem, WIDTH));
                let fade = |e: &mut Emitter, s| decay.get(n).map_or(s, |d| e.mul(*d, s));
                if before {
                    s = fade(e, s);
                }
                if step != Step::Read {
                    s = e.fma(k, v[n], s);
                }
                next.push(match step {
                    Step::Write => *o,
                    Step::Read | Step::Both => e.fma(q, s, *o),
                });
                if after {
                    s = fade(e, s);
                }
                e.store(s, p);
            }
            next
        });
        match step {
            // What the matrix misses is what is added, and the token's result.
            Step::Read => v.iter().zip(o).map(|(v, o)| e.sub(*v, o)).collect(),
            Step::Write => v.to_vec(),
            Step::Both => o,
        }
    }

    /// What a token multiplies the matrix by.
    fn decay(&self, e: &mut Emitter, row: Val, cols: &[Columns]) -> Factors {
        let (Some(operand), Some(all)) = (self.kernel.decay_operand(), self.kernel.decays()) else {
            return Factors::None;
        };
        let p = self.columns(e, operand, row, all / self.kernel.heads);
        match self.kernel.decay {
            Decay::None => Factors::None,
            Decay::Head => {
                let x = load_scalar(e, p, e.elem);
                Factors::Of(vec![e.broadcast(x, WIDTH); cols.len()])
            }
            Decay::Key => Factors::OfRows(p),
            Decay::Value => {
                let load = |cols: &Columns| load_columns(e, p, e.elem, ColMap::Col, *cols);
                Factors::Of(cols.iter().map(load).collect())
            }
        }
    }

    /// The head's columns of a token in an operand that has `width` of them for each head.
    fn columns(&self, e: &mut Emitter, operand: u32, row: Val, width: u64) -> Val {
        let first = e.mul(self.batch, self.seq);
        let row = e.add(first, row);
        let row = e.mul_int(row, self.kernel.heads as i64);
        let row = e.add(row, self.head);
        let offset = e.mul_int(row, width as i64);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    /// Row `i` of the head's matrix in an operand.
    fn matrix_row(&self, e: &mut Emitter, operand: u32, i: Val) -> Val {
        let first = e.mul_int(self.number, self.kernel.key as i64);
        let row = e.add(first, i);
        let offset = e.mul_int(row, self.kernel.value as i64);
        e.at(self.pointers[operand as usize], offset, e.elem)
    }

    fn each_row(&self, e: &mut Emitter, body: impl FnOnce(&mut Emitter, Val)) {
        let (zero, rows) = (e.int(0), e.int(self.kernel.key as i64));
        e.for_each(zero, rows, 1, body);
    }
}

/// What a token does with each row of the matrix.
#[derive(Clone, Copy, PartialEq)]
enum Step {
    /// Reads it and takes what it reads from its value.
    Read,
    /// Adds to it.
    Write,
    /// Adds to it, then reads it.
    Both,
}

/// What the matrix is multiplied by.
enum Factors {
    None,
    /// Every row by these, a vector each.
    Of(Vec<Val>),
    /// Row i by element i from here on.
    OfRows(Val),
}

/// Vector `n` of the tile's columns in row `i` of the matrix.
fn in_scratch(e: &mut Emitter, i: Val, n: usize) -> Val {
    let row = e.mul_int(i, COLS as i64);
    let at = e.add_int(row, (n as u64 * WIDTH) as i64);
    e.at(e.scratch(), at, e.elem)
}

/// Writes row `i` of the matrix.
fn keep(e: &mut Emitter, i: Val, row: &[Val]) {
    for (n, x) in row.iter().enumerate() {
        let p = in_scratch(e, i, n);
        e.store(*x, p);
    }
}

/// Element `i` of a row in all lanes.
fn splat(e: &mut Emitter, row: Val, i: Val) -> Val {
    let p = e.at(row, i, e.elem);
    let x = load_scalar(e, p, e.elem);
    e.broadcast(x, WIDTH)
}
