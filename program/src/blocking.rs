//! How matrix products are cut on processors: a cost model (K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
//! ACM Trans. Math. Softw. 34(3), 2008; T. M. Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", 43(2), 2016).
//!
//! Takes what a processor issues in a cycle; gives the register tile. Units of whole vectors and of halves agree in it, so the target alone says
//! what a program is. docs/guide/profile.md has the times of other tiles and blocks.

use crate::kernel::Blocking;
use crate::{DType, Target};

/// Vectors that a processor works on in a cycle, of the length of a target.
#[derive(Clone, Copy, Debug)]
struct Rates {
    multiply_adds: u64,
    loads: u64,
}

/// Of 256 bits on AMD's processors from Zen 2 on and Intel's from Haswell on, of 512 bits on Zen 5 and on Xeons (A. Fog, "Instruction tables", 2025). Some
/// load three vectors of 256 bits: multiply-adds are as busy there, with this tile.
const WHOLE: Rates = Rates {
    multiply_adds: 2,
    loads: 2,
};

/// Cycles from a multiply-add to the next one of the same sum: 4 on all of these.
const LATENCY: u64 = 4;

/// Rows and vectors of columns of a register tile: its sums, a row of B and an element of A are in registers.
///
/// A value of the inner index takes rows · vectors multiply-adds, and a load for each row and each vector of columns. B comes from the second-level cache,
/// A from the first. Least cycles for each multiply-add come first, then least of B for each.
fn register_tile(registers: u64, rates: Rates) -> (u64, u64) {
    let fits = |vectors: &u64| registers > 2 * vectors;
    let tiles = (1..registers).take_while(fits);
    let tiles = tiles.flat_map(|vectors| {
        let most = (registers - vectors - 1) / vectors;
        (1..=most).map(move |rows| (rows, vectors))
    });
    let hides = |(rows, vectors): &(u64, u64)| rows * vectors >= LATENCY * rates.multiply_adds;
    // Fractions with the denominators rates · rows · vectors, and rows.
    let cycles = |(rows, vectors): (u64, u64)| {
        let multiply = rows * vectors * rates.loads;
        multiply.max((rows + vectors) * rates.multiply_adds)
    };
    let slower = |x: (u64, u64), y: (u64, u64)| {
        let (of_x, of_y) = (cycles(x) * y.0 * y.1, cycles(y) * x.0 * x.1);
        of_x.cmp(&of_y).then(y.0.cmp(&x.0))
    };
    let tile = tiles.filter(hides).min_by(|x, y| slower(*x, *y));
    tile.expect("registers for a tile")
}

/// The blocking of contractions in vectors. `kc` is the same on all targets, because it is part of the meaning. Each panel of A is packed for each block of
/// `nc` columns, so few columns cost time: 128 took 1.16 times that of 512 in gradients of weights on a Zen 3, 256 took 1.06, 2,048 as much.
pub(crate) fn of(target: Target, dtype: DType) -> Blocking {
    let (rows, vectors) = match target {
        // What computes a multiply-add without such an instruction fills the other registers (a 4 × 2 tile of sums leaves half).
        Target::Portable => (4, 2),
        Target::Avx2 => register_tile(16, WHOLE),
        _ => register_tile(32, WHOLE),
    };
    Blocking {
        mr: rows as u32,
        nr: (vectors * target.lanes(dtype)) as u32,
        kc: 256,
        nc: 512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zen 4 takes two cycles for 512 bits in each unit.
    #[test]
    fn units_of_half_a_vector_have_the_tile_of_whole_ones() {
        let halves = Rates {
            multiply_adds: 1,
            loads: 1,
        };
        for rates in [WHOLE, halves] {
            assert_eq!(register_tile(16, rates), (6, 2));
            assert_eq!(register_tile(32, rates), (14, 2));
        }
    }
}
