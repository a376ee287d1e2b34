//! Signs and nearest doubles of sums of radicals, from enclosures in fixed point that shrink until they decide.
//!
//! They always do: a number with a radical is irrational, so it is neither 0 nor half-way between two doubles.

use super::Exact;
use super::radical::Radical;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Binary places of the first attempt; each next one has twice as many.
const BITS: u64 = 128;

/// A number between `lo / 2ᵇ` and `hi / 2ᵇ`.
struct Enclosure {
    lo: BigInt,
    hi: BigInt,
}

pub(super) fn sign(x: &Exact) -> Ordering {
    decide(x, |lo, hi| match (lo.is_positive(), hi.is_negative()) {
        (true, _) => Some(Ordering::Greater),
        (_, true) => Some(Ordering::Less),
        _ => None,
    })
}

pub(super) fn nearest(x: &Exact) -> f64 {
    decide(x, |lo, hi| {
        let (lo, hi) = (lo.to_f64()?, hi.to_f64()?);
        (lo == hi).then_some(lo)
    })
}

fn decide<T>(x: &Exact, verdict: impl Fn(&BigRational, &BigRational) -> Option<T>) -> T {
    let mut bits = BITS;
    loop {
        let (lo, hi) = enclosed(x, bits);
        if let Some(decided) = verdict(&lo, &hi) {
            return decided;
        }
        bits *= 2;
    }
}

/// Two rationals around a number.
fn enclosed(x: &Exact, bits: u64) -> (BigRational, BigRational) {
    let one = BigInt::one() << bits;
    let (mut lo, mut hi) = (BigRational::zero(), BigRational::zero());
    for (r, c) in x.terms() {
        let r = radical(&r, bits);
        let a = c * BigRational::new(r.lo, one.clone());
        let b = c * BigRational::new(r.hi, one.clone());
        if c.is_negative() {
            lo += b;
            hi += a;
        } else {
            lo += a;
            hi += b;
        }
    }
    (lo, hi)
}

fn radical(r: &Radical, bits: u64) -> Enclosure {
    let one = || Enclosure {
        lo: BigInt::one() << bits,
        hi: BigInt::one() << bits,
    };
    r.powers().fold(one(), |product, (p, e)| {
        let mut root = Enclosure {
            lo: BigInt::from(p) << bits,
            hi: BigInt::from(p) << bits,
        };
        // One prime degree after the other keeps the numbers short.
        let (mut degree, mut q) = (e.denom().unsigned_abs(), 2);
        while degree > 1 {
            if degree.is_multiple_of(q) {
                root = root.root(q as u32, bits);
                degree /= q;
            } else {
                q += 1;
            }
        }
        (0..*e.numer()).fold(product, |product, _| product.times(&root, bits))
    })
}

impl Enclosure {
    /// Of a number that is not negative.
    fn root(&self, degree: u32, bits: u64) -> Enclosure {
        let shift = bits * u64::from(degree - 1);
        Enclosure {
            lo: (&self.lo << shift).nth_root(degree),
            hi: (&self.hi << shift).nth_root(degree) + 1,
        }
    }

    /// Of numbers that are not negative.
    fn times(&self, other: &Enclosure, bits: u64) -> Enclosure {
        Enclosure {
            lo: (&self.lo * &other.lo) >> bits,
            hi: ((&self.hi * &other.hi) >> bits) + 1,
        }
    }
}
