//! Signs and nearest doubles of sums of roots, from enclosures in fixed point that shrink until they decide.
//!
//! They always do: a number with a root is irrational, so it is neither 0 nor half-way between two doubles.

use super::Exact;
use super::radical::{Radical, Unit};
use super::tower::bits_of;
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;

/// Binary places of the first attempt; each next one has twice as many.
const BITS: u64 = 128;

/// A number between `lo / 2ᵇ` and `hi / 2ᵇ`.
pub struct Enclosure {
    pub lo: BigInt,
    pub hi: BigInt,
}

pub(super) fn sign(x: &Exact) -> Ordering {
    decide(x, |e, _| match (e.lo.is_positive(), e.hi.is_negative()) {
        (true, _) => Some(Ordering::Greater),
        (_, true) => Some(Ordering::Less),
        _ => None,
    })
}

pub(super) fn nearest(x: &Exact) -> f64 {
    decide(x, |e, bits| {
        let double = |n: &BigInt| BigRational::new(n.clone(), BigInt::one() << bits).to_f64();
        let (lo, hi) = (double(&e.lo)?, double(&e.hi)?);
        (lo == hi).then_some(lo)
    })
}

fn decide<T>(x: &Exact, verdict: impl Fn(&Enclosure, u64) -> Option<T>) -> T {
    let mut bits = BITS;
    loop {
        if let Some(decided) = verdict(&enclosed(x, bits), bits) {
            return decided;
        }
        bits *= 2;
    }
}

fn enclosed(x: &Exact, bits: u64) -> Enclosure {
    // The nested roots that occur, and those that they are roots of.
    let needed = x
        .tower
        .needed(x.terms().fold(0, |all, (u, _)| all | u.nested));
    let mut nested: Vec<Enclosure> = Vec::new();
    for (i, g) in x.tower.generators().iter().enumerate() {
        nested.push(match needed >> i & 1 {
            1 => sum(&mut g.terms.iter().map(|(u, c)| (u, c)), &nested, bits).root(2, bits),
            _ => Enclosure::of(0, bits),
        });
    }
    let rational = Unit::default();
    let all = x.roots.iter().chain([(&rational, &x.rational)]);
    let Some(generator) = x.tower.root() else {
        return sum(&mut all.into_iter(), &nested, bits);
    };
    // Σ cₖθᵏ by Horner's scheme; the root of a polynomial may be negative.
    let root = generator.enclosure(bits);
    (0..generator.degree() as u32)
        .rev()
        .fold(Enclosure::of(0, bits), |value, k| {
            let mut own = all.clone().filter(|(u, _)| u.power == k);
            let own = sum(&mut own, &nested, bits);
            value.signed_times(&root, bits).plus(&own)
        })
}

/// A sum of multiples of units; `nested` holds the nested roots.
fn sum(
    terms: &mut dyn Iterator<Item = (&Unit, &BigRational)>,
    nested: &[Enclosure],
    bits: u64,
) -> Enclosure {
    let mut sum = Enclosure::of(0, bits);
    for (unit, c) in terms.filter(|(_, c)| !c.is_zero()) {
        let mut u = radical(&unit.radical, bits);
        for i in bits_of(unit.nested) {
            u = u.times(&nested[i], bits);
        }
        let (lo, hi) = match c.is_negative() {
            true => (&u.hi, &u.lo),
            false => (&u.lo, &u.hi),
        };
        sum.lo += (c.numer() * lo).div_floor(c.denom());
        sum.hi += (c.numer() * hi).div_ceil(c.denom());
    }
    sum
}

fn radical(r: &Radical, bits: u64) -> Enclosure {
    r.powers().fold(Enclosure::of(1, bits), |product, (p, e)| {
        let mut root = Enclosure::of(p, bits);
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
    fn of(n: u64, bits: u64) -> Enclosure {
        Enclosure {
            lo: BigInt::from(n) << bits,
            hi: BigInt::from(n) << bits,
        }
    }

    /// Of a number that is not negative, which its enclosure may reach below.
    fn root(&self, degree: u32, bits: u64) -> Enclosure {
        let shift = bits * u64::from(degree - 1);
        let lo = (&self.lo).max(&BigInt::ZERO).clone();
        Enclosure {
            lo: (lo << shift).nth_root(degree),
            hi: (&self.hi << shift).nth_root(degree) + 1,
        }
    }

    fn plus(&self, other: &Enclosure) -> Enclosure {
        Enclosure {
            lo: &self.lo + &other.lo,
            hi: &self.hi + &other.hi,
        }
    }

    fn signed_times(&self, other: &Enclosure, bits: u64) -> Enclosure {
        let ends = |x: &BigInt| [x * &other.lo, x * &other.hi];
        let [a, b] = ends(&self.lo);
        let [c, d] = ends(&self.hi);
        Enclosure {
            lo: (&a).min(&b).min(&c).min(&d) >> bits,
            hi: ((&a).max(&b).max(&c).max(&d) >> bits) + 1,
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
