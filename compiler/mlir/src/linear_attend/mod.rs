//! Linear attention.
//!
//! Takes a [`LinearAttend`] spec; emits, for each tile (64 columns of values of a head), a walk over the tokens ([`walk`]) with the
//! tile's columns of the matrix in scratch, up to four vectors for each of its rows. Neither tiles nor vectors show in the result.

pub(crate) mod walk;

use crate::access::{self, load_columns, load_scalar, store_columns};
use crate::emit::{Cmp, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::{Decay, LinearAttend};
use walk::{Columns, Head};

/// Lanes of a vector.
const WIDTH: u64 = 16;
/// Columns of a tile.
const COLS: u64 = LinearAttend::COLS;

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &LinearAttend) -> Result<(), String> {
    let (begin, end) = (e.begin(), e.end());
    e.for_each(begin, end, 1, |e, t| {
        let blocks = e.int(kernel.value.div_ceil(COLS) as i64);
        let (number, block) = (e.div(t, blocks), e.rem(t, blocks));
        let head = Head::new(e, kernel, number);
        let first = e.mul_int(block, COLS as i64);
        let of_width = |e: &mut Emitter, width| {
            let vectors = Vectors::new(e, first, width);
            head.walk(e, &vectors);
        };
        match (kernel.value / COLS, kernel.value % COLS) {
            (_, 0) => of_width(e, COLS),
            (0, rest) => of_width(e, rest),
            (whole, rest) => {
                let last = e.int(whole as i64);
                let is_whole = e.cmp(Cmp::Lt, block, last);
                e.either(is_whole, |e, is_whole| {
                    of_width(e, if is_whole { COLS } else { rest });
                });
            }
        }
    });
    Ok(())
}

/// Vectors of a tile: where each begins in the tile, and its columns.
struct Vectors(Vec<(u64, access::Columns)>);

impl Vectors {
    /// So many columns from `first` on.
    fn new(e: &mut Emitter, first: Val, width: u64) -> Vectors {
        let starts = (0..width).step_by(WIDTH as usize);
        let vector = |start: u64| {
            let columns = access::Columns {
                first: e.add_int(first, start as i64),
                lanes: WIDTH,
                count: WIDTH.min(width - start),
            };
            (start, columns)
        };
        Vectors(starts.map(vector).collect())
    }
}

impl Columns for Vectors {
    fn zero(&self, e: &mut Emitter) -> Vec<Val> {
        vec![e.float(0.0, Type::vector(e.elem, WIDTH)); self.0.len()]
    }

    fn all(&self, e: &mut Emitter, row: Val, i: Val) -> Val {
        let p = e.at(row, i, e.elem);
        let x = load_scalar(e, p, e.elem);
        e.broadcast(x, WIDTH)
    }

    fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val> {
        let load = |(_, cols): &_| load_columns(e, row, e.elem, ColMap::Col, *cols);
        self.0.iter().map(load).collect()
    }

    fn store(&self, e: &mut Emitter, x: &[Val], row: Val) {
        for ((_, cols), x) in self.0.iter().zip(x) {
            store_columns(e, *x, row, e.elem, *cols);
        }
    }

    fn kept(&self, e: &mut Emitter, i: Val) -> Vec<Val> {
        let load = |(start, _): &_| {
            let p = in_scratch(e, i, *start);
            e.load(p, Type::vector(e.elem, WIDTH))
        };
        self.0.iter().map(load).collect()
    }

    fn keep(&self, e: &mut Emitter, x: &[Val], i: Val) {
        for ((start, _), x) in self.0.iter().zip(x) {
            let p = in_scratch(e, i, *start);
            e.store(*x, p);
        }
    }

    fn exist(&self) -> Option<Val> {
        None
    }

    /// As many as leave half of the registers when each has a sum and a value in them; more than four are no faster. With a row of decays for
    /// each token, multiply-adds are busy anyway: measured on a Zen 4, four tokens were up to a tenth slower than one (64 columns).
    fn tokens(&self, e: &Emitter, decay: Decay) -> u64 {
        if matches!(decay, Decay::Key | Decay::Value) {
            return 1;
        }
        let bytes = e.target.vector_bytes();
        let registers = if bytes == 64 { 32 } else { 16 };
        let each = (WIDTH * e.elem.bytes()).div_ceil(bytes);
        (registers / (4 * each)).clamp(1, 4)
    }

    fn parts(&self) -> Vec<Vectors> {
        self.0.iter().map(|v| Vectors(vec![*v])).collect()
    }
}

/// Row `i` of the matrix, from a column of the tile on.
fn in_scratch(e: &mut Emitter, i: Val, start: u64) -> Val {
    let row = e.mul_int(i, COLS as i64);
    let at = e.add_int(row, start as i64);
    e.at(e.scratch(), at, e.elem)
}
