//! Tiles of 64 columns that walk over tokens: which columns a tile takes, in up to four vectors, and rows of these.
//!
//! For kernels whose columns do not meet: neither the split into tiles nor the width of the target's vectors shows in their results.

use crate::access::{self, load_columns, store_columns};
use crate::emit::{Cmp, Emitter, Type, Val};
use odec_program::expr::ColMap;
use odec_program::kernel::{Delay, LinearAttend, Scan};

/// Lanes of a vector.
pub(crate) const WIDTH: u64 = 16;
/// Columns of a tile.
pub(crate) const TILE: u64 = 64;

const _: () = assert!(Delay::TILE == TILE && Scan::TILE == TILE && LinearAttend::COLS == TILE);

/// Emits the loop over a launch's tiles. `run` takes the number of what has so many columns (a sequence, or a head of one), and the tile's.
pub(crate) fn for_each_tile(e: &mut Emitter, cols: u64, run: impl Fn(&mut Emitter, Val, &Vectors)) {
    let (begin, end) = (e.begin(), e.end());
    let (whole, rest) = (cols / TILE, cols % TILE);
    e.for_each(begin, end, 1, |e, tile| {
        let blocks = e.int(cols.div_ceil(TILE) as i64);
        let (number, block) = (e.div(tile, blocks), e.rem(tile, blocks));
        let first = e.mul_int(block, TILE as i64);
        let of_width = |e: &mut Emitter, width| {
            let vectors = Vectors::new(e, first, width);
            run(e, number, &vectors);
        };
        match (whole, rest) {
            (_, 0) => of_width(e, TILE),
            (0, _) => of_width(e, rest),
            _ => {
                let all = e.int(whole as i64);
                let is_whole = e.cmp(Cmp::Gt, all, block);
                e.either(is_whole, |e, is_whole| {
                    of_width(e, if is_whole { TILE } else { rest });
                });
            }
        }
    });
}

/// Vectors of a tile: where each begins in the tile, and its columns.
pub(crate) struct Vectors(pub(crate) Vec<(u64, access::Columns)>);

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

    pub(crate) fn zeros(&self, e: &mut Emitter) -> Vec<Val> {
        self.all(e, 0.0)
    }

    /// One number for all columns.
    pub(crate) fn all(&self, e: &mut Emitter, x: f64) -> Vec<Val> {
        vec![e.float(x, Type::vector(e.elem, WIDTH)); self.0.len()]
    }

    /// Its columns of a row.
    pub(crate) fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val> {
        let load = |(_, cols): &_| load_columns(e, row, e.elem, ColMap::Col, *cols);
        self.0.iter().map(load).collect()
    }

    pub(crate) fn store(&self, e: &mut Emitter, x: &[Val], row: Val) {
        for ((_, cols), x) in self.0.iter().zip(x) {
            store_columns(e, *x, row, e.elem, *cols);
        }
    }
}
