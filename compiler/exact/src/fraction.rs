//! Sums and products of fractions in lowest terms, and the greatest common divisor that they take.
//!
//! Long numbers are divided by Lehmer's (1938) method: quotients are found from the leading digits, some thirty binary places at
//! a time (Knuth 1997, 4.5.2, algorithm L). Whole numbers need no divisor at all.

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Zero};

/// Binary digits below which a division of the whole numbers is as fast.
const SHORT: u64 = 128;
/// Leading binary digits that quotients are found from.
const LEADING: u64 = 62;

/// The greatest common divisor.
pub fn gcd(a: &BigInt, b: &BigInt) -> BigInt {
    if a.is_one() || b.is_one() {
        return BigInt::one();
    }
    if let (Ok(a), Ok(b)) = (u64::try_from(a.magnitude()), u64::try_from(b.magnitude()))
        && a != 0
    {
        return BigInt::from(short_gcd(a.into(), b.into()));
    }
    let (mut a, mut b) = (a.magnitude().clone(), b.magnitude().clone());
    if a < b {
        std::mem::swap(&mut a, &mut b);
    }
    while b.bits() > SHORT {
        (a, b) = match cofactors(&a, &b) {
            Some([p, q, r, s]) => (combined(&a, p, &b, q), combined(&a, r, &b, s)),
            None => {
                let rest = &a % &b;
                (b, rest)
            }
        };
    }
    if b.is_zero() {
        return BigInt::from(a);
    }
    let rest = short(&(&a % &b));
    BigInt::from(short_gcd(short(&b), rest))
}

/// A number of at most 128 binary digits.
fn short(n: &BigUint) -> u128 {
    n.iter_u64_digits()
        .rev()
        .fold(0, |n, digit| n << 64 | u128::from(digit))
}

/// The greatest common divisor of numbers of which the first is not zero, by J. Stein's (1967) method, which shifts and subtracts.
fn short_gcd(a: u128, b: u128) -> u128 {
    if b == 0 {
        return a;
    }
    let twos = (a | b).trailing_zeros();
    let (mut a, mut b) = (a >> a.trailing_zeros(), b);
    while b != 0 {
        b >>= b.trailing_zeros();
        if u64::try_from(a | b).is_ok() {
            let (mut x, mut y) = (a as u64, b as u64);
            while y != 0 {
                y >>= y.trailing_zeros();
                (x, y) = (x.min(y), x.abs_diff(y));
            }
            return u128::from(x) << twos;
        }
        (a, b) = (a.min(b), a.abs_diff(b));
    }
    a << twos
}

/// Some steps of Euclid's algorithm as one: the next two numbers are `pa + qb` and `ra + sb`. `None`: the first quotient is not known
/// from the leading digits.
fn cofactors(a: &BigUint, b: &BigUint) -> Option<[i64; 4]> {
    let from = a.bits() - LEADING;
    let (mut x, mut y) = (digits(a, from), digits(b, from));
    let (mut p, mut q, mut r, mut s) = (1i64, 0i64, 0i64, 1i64);
    // The numbers lie between (x + p)/(y + r) and (x + q)/(y + s).
    while y + r != 0 && y + s != 0 {
        let quotient = (x + p) / (y + r);
        if quotient != (x + q) / (y + s) {
            break;
        }
        (p, r) = (r, p - quotient * r);
        (q, s) = (s, q - quotient * s);
        (x, y) = (y, x - quotient * y);
    }
    (q != 0).then_some([p, q, r, s])
}

/// The binary digits of a number from a place on, of which there are at most [`LEADING`].
fn digits(n: &BigUint, from: u64) -> i64 {
    let (word, shift) = ((from / 64) as usize, from % 64);
    let words = n.iter_u64_digits();
    let (length, mut last) = (words.len(), words.rev());
    let pair = match length.checked_sub(word) {
        Some(2) => {
            let high = last.next().unwrap_or(0);
            u128::from(high) << 64 | u128::from(last.next().unwrap_or(0))
        }
        Some(1) => u128::from(last.next().unwrap_or(0)),
        _ => 0,
    };
    (pair >> shift) as i64
}

/// `pa + qb`, which is not negative.
fn combined(a: &BigUint, p: i64, b: &BigUint, q: i64) -> BigUint {
    let (a, b) = (a * p.unsigned_abs(), b * q.unsigned_abs());
    match (p < 0, q < 0) {
        (false, true) => a - b,
        (true, false) => b - a,
        _ => a + b,
    }
}

/// The least common multiple of positive numbers.
pub fn lcm(a: &BigInt, b: &BigInt) -> BigInt {
    a / gcd(a, b) * b
}

/// A quotient in lowest terms, of a positive denominator.
pub fn quotient(over: BigInt, under: &BigInt) -> BigRational {
    if over.is_zero() {
        return BigRational::zero();
    }
    let common = gcd(&over, under);
    match common.is_one() {
        true => BigRational::new_raw(over, under.clone()),
        false => BigRational::new_raw(over / &common, under / &common),
    }
}

pub(crate) fn product(a: &BigRational, b: &BigRational) -> BigRational {
    if a.is_zero() || b.is_zero() {
        return BigRational::zero();
    }
    let (one, two) = (gcd(a.numer(), b.denom()), gcd(b.numer(), a.denom()));
    let over = |n: &BigInt, by: &BigInt| match by.is_one() {
        true => n.clone(),
        false => n / by,
    };
    BigRational::new_raw(
        over(a.numer(), &one) * over(b.numer(), &two),
        over(a.denom(), &two) * over(b.denom(), &one),
    )
}

pub(crate) fn sum(a: &BigRational, b: &BigRational) -> BigRational {
    if a.is_zero() {
        return b.clone();
    }
    if b.is_zero() {
        return a.clone();
    }
    if a.denom() == b.denom() {
        return quotient(a.numer() + b.numer(), a.denom());
    }
    let common = gcd(a.denom(), b.denom());
    let (below, beside) = (a.denom() / &common, b.denom() / &common);
    let over = a.numer() * beside + b.numer() * &below;
    if over.is_zero() {
        return BigRational::zero();
    }
    let rest = gcd(&over, &common);
    BigRational::new_raw(over / &rest, below * (b.denom() / rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use num_integer::Integer;
    use proptest::prelude::*;

    fn whole(digits: &[u64], negative: bool) -> BigInt {
        let n = digits.iter().fold(BigInt::zero(), |n, d| (n << 64) + d);
        if negative { -n } else { n }
    }

    /// Neighbours among Fibonacci's numbers have quotients 1 alone, powers of two long runs of zeros.
    #[test]
    fn the_longest_and_the_shortest_division() {
        let (mut a, mut b) = (BigInt::one(), BigInt::one());
        for _ in 0..3000 {
            (a, b) = (b.clone(), a + b);
        }
        assert_eq!(gcd(&a, &b), BigInt::one());
        let (two, three) = (BigInt::one() << 4000, (BigInt::one() << 2500) * 3);
        assert_eq!(gcd(&two, &three), BigInt::one() << 2500);
        assert_eq!(gcd(&a, &BigInt::zero()), a);
        assert_eq!(gcd(&BigInt::zero(), &BigInt::zero()), BigInt::zero());
    }

    proptest! {
        /// On both sides of 64 and of 128 binary digits.
        #[test]
        fn divisors_of_short_numbers_are_those_of_the_library(
            a in any::<u128>(), b in any::<u128>(), shifts in prop::array::uniform2(0u32..128), common in any::<u16>(),
        ) {
            let [a, b] = [a >> shifts[0], b >> shifts[1]].map(|n| BigInt::from(n) * common);
            prop_assert_eq!(gcd(&a, &b), a.gcd(&b));
        }

        #[test]
        fn divisors_are_those_of_the_library(
            a in prop::collection::vec(any::<u64>(), 0..30),
            b in prop::collection::vec(any::<u64>(), 0..30),
            c in prop::collection::vec(any::<u64>(), 0..20),
            signs in any::<[bool; 2]>(),
        ) {
            let c = whole(&c, false);
            let (a, b) = (whole(&a, signs[0]) * &c, whole(&b, signs[1]) * &c);
            prop_assert_eq!(gcd(&a, &b), a.gcd(&b));
        }

        #[test]
        fn arithmetic_is_that_of_the_library(
            n in prop::collection::vec(-40i64..40, 2), d in prop::collection::vec(1i64..40, 2), long in any::<bool>(),
        ) {
            let by = if long { BigInt::from(3).pow(300) } else { BigInt::one() };
            let fraction = |i: usize| BigRational::new(&by * n[i] + i, &by * d[i] + 1);
            let (a, b) = (fraction(0), fraction(1));
            prop_assert_eq!(sum(&a, &b), &a + &b);
            prop_assert_eq!(product(&a, &b), &a * &b);
            prop_assert_eq!(sum(&a, &-&a), BigRational::zero());
        }
    }
}
