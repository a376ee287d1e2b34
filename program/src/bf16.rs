//! bfloat16: the upper half of an f32, rounded to nearest, ties to even.
//!
//! Takes f32 and f64; gives the bits of the nearest bf16, and back (which is exact). Everything that rounds to bf16 means
//! these functions: the interpreter ([`of_f64`]), the reference device and compiled code ([`of_f32`]). Subnormals are
//! rounded like all numbers, what is too large becomes ±∞, NaN stays NaN: sign and upper fraction are kept, and it is
//! made quiet. (The instructions `vcvtneps2bf16` and `tdpbf16ps` take subnormals as zero: numbers among which one is subnormal are not given to
//! the former, the latter is what sums of [`crate::tile`] mean.)
//!
//! The unit roundoff is u = 2⁻⁸: a bf16 has 8 significant bits, so |round(x) − x| ≤ u·|x| for 2⁻¹²⁶ ≤ |x| ≤ [`MAX`],
//! and |round(x) − x| ≤ 2⁻¹³⁴, half of the smallest subnormal, below that.

/// Unit roundoff: half the distance from one to the next number.
pub const UNIT: f64 = 1.0 / 256.0;

/// The largest finite number, (2 − 2⁻⁷)·2¹²⁷.
pub const MAX: f64 = 255.0 / 128.0 * (1u128 << 127) as f64;

/// The nearest bf16 of an f32.
pub const fn of_f32(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // Half of the last place, less one where the upper half is even: a carry out of it rounds up, to ∞ at the end.
    let even = bits >> 16 & 1;
    ((bits + 0x7FFF + even) >> 16) as u16
}

/// The nearest bf16 of an f64, rounded once: first to an f32 whose last bit says whether anything was cut off, which no
/// tie of the second rounding can then miss.
pub const fn of_f64(x: f64) -> u16 {
    let near = x as f32;
    if x.is_nan() {
        return of_f32(near);
    }
    let bits = near.to_bits();
    let back = near as f64;
    of_f32(f32::from_bits(if back == x {
        bits
    } else if back.abs() > x.abs() {
        // Towards zero again; the number before an even one is odd.
        (bits - 1) | 1
    } else {
        bits | 1
    }))
}

/// The number with these bits.
pub const fn to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every bf16 that is a number, rising; +0 and −0 once each.
    fn all() -> Vec<u16> {
        let positive = 0..=0x7F80u16;
        let negative = (0x8000..=0xFF80u16).rev();
        negative.chain(positive).collect()
    }

    #[test]
    fn every_bf16_survives_the_way_there_and_back() {
        for bits in 0..=u16::MAX {
            let x = to_f32(bits);
            let quiet = if x.is_nan() { bits | 0x40 } else { bits };
            assert_eq!(of_f32(x), quiet, "{bits:#x}");
            assert_eq!(of_f64(x.into()), quiet, "{bits:#x}");
        }
    }

    #[test]
    fn ties_go_to_even_and_their_neighbours_to_the_nearest() {
        // ∞ stands where the number after the largest would be.
        let value = |bits: u16| match f64::from(to_f32(bits)) {
            x if x.is_infinite() => 2f64.powi(128).copysign(x),
            x => x,
        };
        for pair in all().windows(2).filter(|p| p[0] != 0x8000) {
            let middle = (value(pair[0]) + value(pair[1])) / 2.0;
            let even = if pair[0] & 1 == 0 { pair[0] } else { pair[1] };
            assert_eq!(of_f64(middle), even, "{middle}");
            assert_eq!(of_f64(middle.next_down()), pair[0], "{middle}");
            assert_eq!(of_f64(middle.next_up()), pair[1], "{middle}");
            // The smallest tie is no f32.
            if f64::from(middle as f32) == middle {
                assert_eq!(of_f32(middle as f32), even, "{middle}");
            }
        }
    }

    proptest! {
        /// Rounding an f64 by way of f32 rounds twice; `of_f64` does not. Where the f64 is an f32, both agree.
        #[test]
        fn the_result_is_the_nearest(x in any::<f32>(), more in -1.0..1.0f64) {
            prop_assert_eq!(of_f64(x.into()), of_f32(x));
            let x = f64::from(x) * (1.0 + more * 1e-8);
            let got = f64::from(to_f32(of_f64(x)));
            if x.abs() <= MAX {
                prop_assert!((got - x).abs() <= (UNIT * x.abs()).max(2f64.powi(-134)), "{x} {got}");
                for other in [of_f64(x).wrapping_add(1), of_f64(x).wrapping_sub(1)] {
                    let other = f64::from(to_f32(other));
                    prop_assert!(other.is_nan() || (other - x).abs() >= (got - x).abs(), "{x} {got} {other}");
                }
            }
        }
    }

    #[test]
    fn rounding_once_differs_from_rounding_twice() {
        // Just above a tie, by less than an f32 can hold.
        let x = 1.0 + UNIT + 2f64.powi(-40);
        assert_eq!(to_f32(of_f64(x)), 1.0 + 2.0 * UNIT as f32);
        assert_eq!(to_f32(of_f32(x as f32)), 1.0);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(f64::from(to_f32(0x7F7F)), MAX);
        assert_eq!(of_f32(f32::MAX), 0x7F80);
        assert_eq!(of_f64(1e300), 0x7F80);
        assert_eq!(of_f64(-1e300), 0xFF80);
        assert_eq!(
            of_f64(2f64.powi(-134)),
            0,
            "half of the smallest subnormal, a tie"
        );
        assert_eq!(of_f64(1.01 * 2f64.powi(-134)), 1);
        assert_eq!(of_f64(-1e-300), 0x8000);
        assert!(to_f32(of_f64(f64::NAN)).is_nan());
        assert!(to_f32(of_f32(f32::from_bits(0x7F80_0001))).is_nan());
    }
}
