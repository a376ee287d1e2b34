//! Contractions on tile registers (Intel AMX): the sizes of tiles, and what they add up.
//!
//! A tile register holds 16 rows of 64 bytes: 16 × 16 sums in f32, 16 rows of A with 32 bf16 each, or 16 pairs of rows of B
//! with 16 columns. `tdpbf16ps` adds to the sums the products of such an A and B. Its arithmetic is defined to the last bit
//! (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS; order 325383): [`sum`] is that, so
//! compiled code and the reference device agree. It rounds to nearest, ties to even, whatever the control register says,
//! takes subnormal factors and sums as zeros and makes zeros of subnormal results ([`fma`]).

/// Rows of a tile register.
pub const ROWS: u64 = 16;
/// Columns of a tile of f32.
pub const COLS: u64 = 16;
/// Values of k in a tile of bf16: 16 pairs.
pub const K: u64 = 32;
/// Bytes of a row.
pub const ROW_BYTES: u64 = 64;
/// Bytes that `ldtilecfg` reads.
pub const CONFIGURATION: u64 = 64;

/// `Σ aₗ bₗ` over terms (aₗ, bₗ) that are bf16: chunk after chunk of [`K`] terms, filled up with zeros, is added to the sum so
/// far, which begins as zero.
pub fn sum(terms: impl IntoIterator<Item = (f32, f32)>) -> f32 {
    let mut terms = terms.into_iter().peekable();
    let mut total = 0.0;
    while terms.peek().is_some() {
        total = add_chunk(total, 0, terms.by_ref().take(K as usize));
    }
    total
}

/// A sum with terms of a chunk added to it, of which the first has number `first` in the order of the whole; terms before and behind them are zeros. Terms of
/// even and of odd number are accumulated apart, in order and from zero; the two results are added, then their sum to the one so far.
pub fn add_chunk(total: f32, first: usize, terms: impl IntoIterator<Item = (f32, f32)>) -> f32 {
    let (mut parts, chunk) = ([0.0f32; 2], K as usize);
    let zeros = std::iter::repeat((0.0, 0.0));
    for (l, (a, b)) in (first % chunk..chunk).zip(terms.into_iter().chain(zeros)) {
        let part = &mut parts[l % 2];
        *part = fma(a, b, *part);
    }
    add(total, add(parts[0], parts[1]))
}

/// `a + b` as [`fma`] adds.
fn add(a: f32, b: f32) -> f32 {
    fma(1.0, a, b)
}

/// `a·b + c`, rounded once. Operands that are subnormal are zeros of their sign; so is a result that, rounded to 24 bits
/// without a bound of the exponent, is below the smallest normal number.
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    let [a, b, c] = [a, b, c].map(|x| {
        f64::from(if x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        })
    });
    // The product of two f32 is an f64. Of the sum, an f64 whose last bit says whether anything was cut off: rounding
    // it to f32 is rounding once, because f64 has more than two bits more (Boldo & Melquiond 2008, "Emulation of FMA
    // and correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Comput. 57).
    let product = a * b;
    let near = product + c;
    if !near.is_finite() {
        return near as f32;
    }
    // What the sum lacks (Knuth's two-sum): exact, as nothing here is near the ends of f64's range.
    let part = near - product;
    let rest = (product - (near - part)) + (c - part);
    let odd = match rest != 0.0 && near.to_bits() & 1 == 0 {
        false => near,
        true if (rest > 0.0) == (near > 0.0) => f64::from_bits(near.to_bits() + 1),
        true => f64::from_bits(near.to_bits() - 1),
    };
    // Halfway between the smallest normal number and the one of 24 bits before it, where ties go to even, upwards.
    const NORMAL: f64 = f32::MIN_POSITIVE as f64 * (1.0 - 1.0 / (1u64 << 25) as f64);
    match odd.abs() < NORMAL {
        true => 0f32.copysign(near as f32),
        false => odd as f32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16;
    use proptest::prelude::*;

    const TINY: f32 = f32::MIN_POSITIVE;

    #[test]
    fn what_is_subnormal_is_zero() {
        let below = f32::from_bits(TINY.to_bits() - 1);
        assert!(below.is_subnormal());
        // Operands,
        assert_eq!(fma(below, f32::MAX, 0.0), 0.0);
        assert_eq!(fma(-below, 1.0, -0.0).to_bits(), (-0f32).to_bits());
        assert_eq!(fma(1.0, 0.0, below), 0.0);
        assert!(fma(below, f32::INFINITY, 1.0).is_nan());
        // and results,
        assert_eq!(fma(TINY, 0.5, 0.0).to_bits(), 0);
        assert_eq!(fma(-TINY, 0.5, 0.0).to_bits(), (-0f32).to_bits());
        // of which 24 bits are looked at, as if smaller numbers had them: 2⁻¹²⁶ (1 − 2⁻²⁴) is one, 2⁻¹²⁶ (1 − 2⁻²⁵) is not.
        let quarter = 2f32.powi(-24);
        assert_eq!(fma(1.0 - quarter, TINY, 0.0), 0.0);
        assert_eq!(fma(-TINY, quarter / 2.0, TINY), TINY);
        assert_eq!(fma(TINY, 1.0, 0.0), TINY);
    }

    #[test]
    fn the_ends_of_the_range() {
        assert_eq!(fma(f32::MAX, 2.0, 0.0), f32::INFINITY);
        assert_eq!(fma(f32::MAX, 1.0, -f32::MAX).to_bits(), 0);
        assert_eq!(
            fma(f32::MAX, f32::MAX, f32::NEG_INFINITY),
            f32::NEG_INFINITY
        );
        assert!(fma(f32::INFINITY, 1.0, f32::NEG_INFINITY).is_nan());
        assert!(fma(f32::NAN, 1.0, 1.0).is_nan());
    }

    proptest! {
        /// Where no operand is subnormal and the result is well above the smallest normal number, it is that of IEEE 754.
        #[test]
        fn normal_numbers_are_rounded_once(a in any::<f32>(), b in any::<f32>(), shift in -30..30i32, c in 1.0..2f32) {
            let c = (f64::from(a) * f64::from(b) * f64::from(c) * 2f64.powi(shift)) as f32;
            let want = a.mul_add(b, -c);
            prop_assume!([a, b, c].iter().all(|x| x.is_normal()) && (want.abs() > 2.0 * TINY || want == 0.0));
            prop_assert_eq!(fma(a, b, -c).to_bits(), want.to_bits());
        }

        /// Small integers are added exactly, in any order; a chunk that is not whole is filled up.
        #[test]
        fn exact_sums(terms in prop::collection::vec((-100..100i32, -100..100i32), 0..100)) {
            let want: i32 = terms.iter().map(|(a, b)| a * b).sum();
            let got = sum(terms.into_iter().map(|(a, b)| (a as f32, b as f32)));
            prop_assert_eq!(got, want as f32);
        }
    }

    /// Numbers that show who is added to whom: in f32, 2²⁴ + 1 is a tie that goes to 2²⁴.
    #[test]
    fn the_order_of_a_sum() {
        let big = bf16::to_f32(0x4B80);
        assert_eq!(big, 2f32.powi(24));
        let of = |numbers: &[(usize, f32)]| {
            let mut terms = vec![(0.0, 1.0); 64];
            numbers.iter().for_each(|(l, x)| terms[*l].0 = *x);
            sum(terms)
        };
        // Evens keep nothing of a one beside 2²⁴; odds are 2 by then.
        assert_eq!(of(&[(0, big), (2, 1.0)]), big);
        assert_eq!(of(&[(0, big), (1, 1.0), (31, 1.0)]), big + 2.0);
        // The next chunk begins anew.
        assert_eq!(of(&[(0, big), (30, 1.0), (28, 1.0)]), big);
        assert_eq!(of(&[(0, big), (32, 1.0), (34, 1.0)]), big + 2.0);
        assert_eq!(of(&[(0, big), (32, 1.0)]), big);
    }
}
