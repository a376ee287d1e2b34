//! Linear attention.
//!
//! Takes a [`LinearAttend`] spec; emits, for each tile (64 columns of values of a head), a walk over the tokens ([`walk`]) with the
//! tile's columns of the matrix in scratch, up to four vectors for each of its rows. Neither tiles nor vectors show in the result.

pub(crate) mod walk;

use crate::access::load_scalar;
use crate::emit::{Emitter, Type, Val};
use crate::vectors::{TILE, Vectors, WIDTH, for_each_tile};
use odec_program::kernel::{Decay, LinearAttend};
use walk::{Columns, Head};

/// Emits the kernel.
///
/// # Errors
/// None: every valid kernel can be made.
pub(crate) fn emit(e: &mut Emitter, kernel: &LinearAttend) -> Result<(), String> {
    for_each_tile(e, kernel.value, |e, number, columns| {
        Head::new(e, kernel, number).walk(e, columns);
    });
    Ok(())
}

impl Columns for Vectors {
    fn zero(&self, e: &mut Emitter) -> Vec<Val> {
        self.zeros(e)
    }

    fn all(&self, e: &mut Emitter, row: Val, i: Val) -> Val {
        let p = e.at(row, i, e.elem);
        let x = load_scalar(e, p, e.elem);
        e.broadcast(x, WIDTH)
    }

    fn load(&self, e: &mut Emitter, row: Val) -> Vec<Val> {
        Vectors::load(self, e, row)
    }

    fn store(&self, e: &mut Emitter, x: &[Val], row: Val) {
        Vectors::store(self, e, x, row);
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

    fn keep_ones(&self, e: &mut Emitter) {
        let one = e.float(1.0, e.scalar());
        for (start, columns) in &self.0 {
            for lane in 0..columns.count {
                let row = e.add_int(columns.first, lane as i64);
                let p = in_scratch(e, row, start + lane);
                e.store(one, p);
            }
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
    let row = e.mul_int(i, TILE as i64);
    let at = e.add_int(row, start as i64);
    e.at(e.scratch(), at, e.elem)
}
