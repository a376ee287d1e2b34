//! Weights in integers: groups of numbers along the inner length of a contraction, each with one scale.
//!
//! Takes f32; gives integers of 8 or 4 bits and scales in bf16, and what these stand for. Everything that quantizes means these functions: the
//! interpreter, [`Pack`](crate::kernel::Pack) on the reference device, compiled code.
//!
//! With `L = 2^(bits − 1) − 1`, a group x₁ … x_g has the scale `s`, the least bf16 that is not below `max |xᵢ| / L` (a quotient in f32), and the
//! integers `qᵢ = round(xᵢ / s)`, the quotient in f32, ties to even, from −L to L. The number is `qᵢ · s`. A group of zeros has the scale 0.
//!
//! - A scale takes two bytes: for groups of 32 the integers of 8 bits take 17/64 of the bytes of f32, those of 4 bits 9/64.
//! - A scale has 8 significant bits and an integer at most 7, so `qᵢ · s` is exact in f32: it does not matter where it is computed.
//! - As the scale is rounded up, nothing is cut off: `|xᵢ − qᵢ s| ≤ s/2`, up to the rounding of a quotient, 2⁻¹⁷ s. (Of groups whose largest
//!   magnitude is at least 2⁻¹²⁶; smaller ones may become zero.)
//! - NaN is not counted in a scale, and ∞ makes one of ∞: whoever quantizes weights refuses both before.
//!
//! Which matrices are read so is said by `compiler/passes/src/quantize.rs`; kernels for processors are in `compiler/mlir/src/quantized.rs`.
//! `driver/src/quantized.rs` builds the model of a run again with integers (`Options::weights`), and `runtime/src/infer/quantized.rs` compares the
//! two.

use crate::bf16;
use crate::eval::Memory;
use crate::real::Real;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Integers of so many bits, 8 or 4, and a scale for so many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Quantized {
    pub bits: u32,
    pub group: u32,
}

/// Bytes of a scale.
const SCALE: u64 = 2;

/// Where a number lies in panels: its scale and its integer, in bytes from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub scale: u64,
    pub integer: u64,
    /// Whether it is the upper half of its byte.
    pub upper: bool,
}

impl Quantized {
    pub const INT8: Quantized = Quantized { bits: 8, group: 32 };
    pub const INT4: Quantized = Quantized { bits: 4, group: 32 };
    pub const ALL: [Quantized; 2] = [Quantized::INT8, Quantized::INT4];
    /// The longest group.
    pub const MOST: u32 = 1 << 12;

    /// The largest integer.
    pub const fn largest(self) -> i8 {
        match self.bits {
            4 => 7,
            _ => 127,
        }
    }

    /// # Errors
    /// What makes no sense, in words.
    pub fn validate(self) -> Result<(), String> {
        match matches!(self.bits, 4 | 8) && (1..=Quantized::MOST).contains(&self.group) {
            true => Ok(()),
            false => Err(format!(
                "its integers have {} bits, in groups of {}",
                self.bits, self.group
            )),
        }
    }

    /// Bytes of a row of integers in a panel of `nr` columns; with 4 bits, columns j and j + nr/2 share a byte, the first of them its lower half.
    pub const fn row(self, nr: u64) -> u64 {
        nr * self.bits as u64 / 8
    }

    /// Bytes of a whole group of rows in a panel: first its scales, then its integers row by row.
    pub const fn stride(self, nr: u64) -> u64 {
        SCALE * nr + self.group as u64 * self.row(nr)
    }

    /// Bytes of the scales of a group in a panel.
    pub const fn scales(self, nr: u64) -> u64 {
        SCALE * nr
    }

    /// Bytes of a panel of inner length `k`, of which the last group may have fewer rows.
    pub fn panel(self, nr: u64, k: u64) -> Option<u64> {
        let groups = k.div_ceil(self.group.into());
        let scales = groups.checked_mul(self.scales(nr))?;
        k.checked_mul(self.row(nr))?.checked_add(scales)
    }

    /// Bytes of all panels of `n` columns.
    pub fn bytes(self, n: u64, nr: u64, k: u64) -> Option<u64> {
        n.div_ceil(nr).checked_mul(self.panel(nr, k)?)
    }

    /// Where the number of row k and this column is, in panels of `nr` columns and inner length `len`.
    pub fn place(self, k: u64, column: u64, len: u64, nr: u64) -> Place {
        let (group, j) = (u64::from(self.group), column % nr);
        let panel = self.panel(nr, len).expect("it is in memory");
        let start = column / nr * panel + k / group * self.stride(nr);
        let (at, upper) = match self.bits {
            4 => (j % (nr / 2), j >= nr / 2),
            _ => (j, false),
        };
        Place {
            scale: start + SCALE * j,
            integer: start + self.scales(nr) + k % group * self.row(nr) + at,
            upper,
        }
    }

    /// The scale of a group.
    pub fn scale(self, group: &[f32]) -> f32 {
        let larger = |most: f32, x: &f32| if x.abs() > most { x.abs() } else { most };
        let most = group.iter().fold(0.0, larger);
        let least = most / f32::from(self.largest());
        f32::from_bits(least.to_bits().wrapping_add(0xFFFF) & 0xFFFF_0000)
    }

    /// The integer of a number of a group with this scale.
    pub fn integer(self, x: f32, scale: f32) -> i8 {
        let most = f32::from(self.largest());
        let x = x / if scale == 0.0 { 1.0 } else { scale };
        let x = if x > -most { x } else { -most };
        let x = if x < most { x } else { most };
        x.round_ties_even() as i8
    }

    /// What the numbers of a group become.
    pub fn rounded(self, group: &[f32]) -> impl Iterator<Item = f32> {
        let scale = self.scale(group);
        let number = move |x: &f32| f32::from(self.integer(*x, scale)) * scale;
        group.iter().map(number)
    }

    /// The number at a place of these bytes.
    pub fn number(self, at: Place, byte: impl Fn(u64) -> i8) -> f32 {
        let scale = u16::from_le_bytes([at.scale, at.scale + 1].map(|n| byte(n) as u8));
        let integer = match (self.bits, at.upper) {
            (4, false) => byte(at.integer) << 4 >> 4,
            (4, true) => byte(at.integer) >> 4,
            _ => byte(at.integer),
        };
        f32::from(integer) * bf16::to_f32(scale)
    }

    /// Writes a row of a group of a panel: the integers of all its columns, of which the first is at this byte.
    pub(crate) fn store_row<T: Real>(
        self,
        memory: &mut impl Memory<T>,
        operand: u32,
        at: u64,
        integers: &[i8],
    ) {
        let half = integers.len() / 2;
        let mut store = |j: usize, byte: i8| {
            memory.store(operand, at + j as u64, T::of(byte.into()));
        };
        match self.bits {
            4 => (0..half).for_each(|j| store(j, integers[j] & 15 | integers[j + half] << 4)),
            _ => (0..integers.len()).for_each(|j| store(j, integers[j])),
        }
    }
}

/// `int8`, `int4`, as users write it; groups of another length than [`Quantized::INT8`]'s are named too.
impl fmt::Display for Quantized {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "int{}", self.bits)?;
        match self.group == Quantized::INT8.group {
            true => Ok(()),
            false => write!(f, " in groups of {}", self.group),
        }
    }
}

/// No such integers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("weights are int8 or int4, not `{0}`")]
pub struct NoSuchIntegers(pub String);

impl FromStr for Quantized {
    type Err = NoSuchIntegers;

    fn from_str(name: &str) -> Result<Quantized, NoSuchIntegers> {
        let found = Quantized::ALL.into_iter().find(|q| q.to_string() == name);
        found.ok_or_else(|| NoSuchIntegers(name.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rounded(q: Quantized, group: &[f32]) -> Vec<f32> {
        q.rounded(group).collect()
    }

    proptest! {
        /// No number is off by more than half a step, scales are bf16, and what was quantized stays as it is.
        #[test]
        fn numbers_are_off_by_half_a_step_at_most(
            group in prop::collection::vec(-1f32..1f32, 1..33), exponent in -120..120i32, narrow: bool,
        ) {
            let q = if narrow { Quantized::INT4 } else { Quantized::INT8 };
            let group: Vec<f32> = group.iter().map(|x| x * 2f32.powi(exponent)).collect();
            let scale = q.scale(&group);
            prop_assert_eq!(scale.to_bits() & 0xFFFF, 0);
            let made = rounded(q, &group);
            for (x, y) in group.iter().zip(&made) {
                let off = (f64::from(*x) - f64::from(*y)).abs();
                prop_assert!(off <= f64::from(scale) * (0.5 + 2f64.powi(-17)), "{x} became {y}, a step is {scale}");
                let n = f64::from(q.integer(*x, scale));
                prop_assert_eq!(f64::from(*y), n * f64::from(scale), "it is rounded again");
            }
        }
    }

    #[test]
    fn extremes_are_exact_and_zeros_stay_zero() {
        for q in Quantized::ALL {
            let most = f32::from(q.largest());
            // A scale that bf16 has: both ends are met.
            let ends = [most * 0.75, -most * 0.75, 0.75, 0.0];
            assert_eq!((q.scale(&ends), rounded(q, &ends)), (0.75, ends.to_vec()));
            assert_eq!(
                (q.scale(&[0.0; 5]), rounded(q, &[0.0; 5])),
                (0.0, vec![0.0; 5])
            );
            // Beyond any scale, and no number: what compiled code does, too.
            assert_eq!(q.scale(&[f32::NAN, 0.75 * most]), 0.75);
            assert_eq!(q.integer(f32::NAN, 0.75), -q.largest());
            assert_eq!(q.scale(&[f32::NEG_INFINITY, 1.0]), f32::INFINITY);
        }
    }

    #[test]
    fn every_byte_of_panels_belongs_to_columns_of_it() {
        for q in [8, 4].map(|bits| Quantized { bits, group: 4 }) {
            let (n, nr, k) = (7, 4, 10);
            let mut taken = vec![0; q.bytes(n, nr, k).unwrap() as usize];
            for (k, column) in (0..10).flat_map(|i| (0..8).map(move |j| (i, j))) {
                let at = q.place(k, column, 10, nr);
                taken[at.integer as usize] += 8 / (8 / q.bits);
                if k % 4 == 0 {
                    (0..2).for_each(|n| taken[(at.scale + n) as usize] += 8);
                }
            }
            assert!(taken.iter().all(|bits| *bits == 8), "{q:?}: {taken:?}");
        }
    }

    #[test]
    fn names_round_trip() {
        for q in Quantized::ALL {
            assert_eq!(q.to_string().parse(), Ok(q));
        }
        assert_eq!(
            "int2".parse::<Quantized>().unwrap_err().to_string(),
            "weights are int8 or int4, not `int2`"
        );
    }
}
