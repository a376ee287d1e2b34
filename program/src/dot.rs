//! Dot products of pairs (AVX512-BF16), of contractions and of attention: what they add up.
//!
//! `vdpbf16ps` adds to each f32 of a register the products of two pairs of bf16, the second ones first. Each product is added as by a fused
//! multiply-add that rounds to nearest, ties to even, whatever the control register says, takes subnormal factors and sums as zeros and makes
//! zeros of subnormal results (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS; order 325383): that of
//! [`fma`], which tile registers have too. So compiled code and the reference device agree. A processor is asked whether it adds so
//! before it is given such code ([`as_defined`]).

use crate::bf16;
use crate::tile::fma;

/// A sum with the products of a pair of terms (aₗ, bₗ) added to it, the second one first.
pub fn add(sum: f32, [first, second]: [(f32, f32); 2]) -> f32 {
    let sum = fma(second.0, second.1, sum);
    fma(first.0, first.1, sum)
}

/// `Σ aₗ bₗ` over terms (aₗ, bₗ) that are bf16: from zero, two terms after two, the second of them first; a last one without a second is
/// added behind a product of zeros.
pub fn sum(terms: impl IntoIterator<Item = (f32, f32)>) -> f32 {
    let mut terms = terms.into_iter();
    let mut total = 0.0;
    while let Some(first) = terms.next() {
        total = add(total, [first, terms.next().unwrap_or((0.0, 0.0))]);
    }
    total
}

/// Whether `add`, a processor's instruction on registers of 16 sums and of their pairs, gives the bits of [`add`], on numbers that show the
/// order, every rounding, and what becomes of subnormal ones.
pub fn as_defined(mut instruction: impl FnMut(&mut [f32; 16], [&[u32; 16]; 2])) -> bool {
    // A linear congruential generator (Knuth 1997, The Art of Computer Programming, volume 2, 3.3.4).
    let mut state = 1u64;
    let mut next = |n: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % n
    };
    // Exponents of factors: about 1, or such that products are near the smallest normal number; each with few and with many bits.
    let mut factor = |round: u64| {
        let exponent = match round % 3 {
            0 => 127 - 12 + next(24),
            1 => 60 + next(8),
            _ => next(70),
        };
        (next(2) << 15 | exponent << 7 | next(128)) as u32
    };
    (0..96).all(|round| {
        let mut pairs =
            || -> [u32; 16] { std::array::from_fn(|_| factor(round) << 16 | factor(round)) };
        let (a, b) = (pairs(), pairs());
        // The first sum is small beside the products; it then grows.
        let mut sums = [f32::from_bits((round as u32 % 5) << 21); 16];
        (0..4).all(|_| {
            let want = lanes(&sums, [&a, &b]);
            instruction(&mut sums, [&a, &b]);
            sums.map(f32::to_bits) == want.map(f32::to_bits)
        })
    })
}

/// What [`as_defined`] compares with: [`add`] for each of 16 sums.
fn lanes(sums: &[f32; 16], factors: [&[u32; 16]; 2]) -> [f32; 16] {
    std::array::from_fn(|i| {
        let [a, b] =
            factors.map(|words| [words[i] as u16, (words[i] >> 16) as u16].map(bf16::to_f32));
        add(sums[i], [(a[0], b[0]), (a[1], b[1])])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In f32, 2²⁴ + 1 is a tie that goes to 2²⁴.
    #[test]
    fn the_order_of_a_sum() {
        let big = 2f32.powi(24);
        let of = |numbers: &[f32]| sum(numbers.iter().map(|x| (*x, 1.0)));
        // The second of a pair is added first,
        assert_eq!(of(&[-big, big, 1.0, 0.0]), 1.0);
        assert_eq!(of(&[1.0, big]), big);
        assert_eq!(of(&[big, 1.0]), big);
        assert_eq!(of(&[big, 0.0, 1.0, 0.0]), big);
        // and sums go on from pair to pair.
        assert_eq!(of(&[1.0, 1.0, 0.0, big]), big + 2.0);
        assert_eq!(of(&[3.0]), 3.0);
        assert_eq!(of(&[]), 0.0);
    }

    /// Other instructions than the one that is defined are told from it.
    #[test]
    fn other_orders_and_roundings_are_seen() {
        type Lane = fn(f32, [(f32, f32); 2]) -> f32;
        let seen = |lane: Lane| {
            as_defined(|sums, [a, b]| {
                for (i, sum) in sums.iter_mut().enumerate() {
                    let [a, b] =
                        [a[i], b[i]].map(|w| [w as u16, (w >> 16) as u16].map(bf16::to_f32));
                    *sum = lane(*sum, [(a[0], b[0]), (a[1], b[1])]);
                }
            })
        };
        assert!(seen(add));
        let first_first: Lane = |s, [x, y]| add(s, [y, x]);
        let once: Lane = |s, [x, y]| {
            let exact = f64::from(x.0) * f64::from(x.1) + f64::from(y.0) * f64::from(y.1);
            (exact + f64::from(s)) as f32
        };
        let subnormal: Lane = |s, [x, y]| x.0.mul_add(x.1, y.0.mul_add(y.1, s));
        let products: Lane = |s, [x, y]| fma(1.0, fma(x.0, x.1, fma(y.0, y.1, 0.0)), s);
        for other in [first_first, once, subnormal, products] {
            assert!(!seen(other));
        }
    }

    #[test]
    fn what_is_subnormal_is_zero() {
        let tiny = f32::MIN_POSITIVE;
        assert_eq!(sum([(tiny, 0.5), (0.0, 1.0)]), 0.0);
        assert_eq!(sum([(tiny, 0.5), (tiny, 1.0)]), tiny * 1.5);
        // Each sum, not the last alone.
        assert_eq!(sum([(tiny, 0.5), (tiny, 0.5)]), 0.0);
    }
}
