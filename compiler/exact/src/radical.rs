//! Radicals: products of fractional powers of primes, `2^(1/2) · 3^(1/3)`; units: radicals times nested square roots and powers of
//! a polynomial's root.

use super::ExactError;
use num_bigint::{BigInt, BigUint};
use num_rational::{BigRational, Ratio};
use num_traits::{One, ToPrimitive, Zero};
use std::collections::BTreeMap;
use std::fmt;

/// Primes below this are found; a factor without one is a prime when it lies below the square.
const MAX_DIVISOR: u64 = 1 << 12;

/// `∏ pᵉ` with 0 < e < 1, by prime; 1 when empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Radical(BTreeMap<u64, Ratio<i64>>);

impl Radical {
    pub fn one() -> Radical {
        Radical::default()
    }
    pub fn is_one(&self) -> bool {
        self.0.is_empty()
    }
    pub fn powers(&self) -> impl Iterator<Item = (u64, Ratio<i64>)> {
        self.0.iter().map(|(p, e)| (*p, *e))
    }
    /// The exponent of a prime.
    pub fn exponent(&self, prime: u64) -> Ratio<i64> {
        self.0.get(&prime).copied().unwrap_or_else(Ratio::zero)
    }

    /// `∏ pᵉ` for any exponents: a rational number times a radical.
    pub fn of(powers: impl Iterator<Item = (u64, Ratio<i64>)>) -> (BigRational, Radical) {
        let mut sums: BTreeMap<u64, Ratio<i64>> = BTreeMap::new();
        for (p, e) in powers {
            *sums.entry(p).or_insert_with(Ratio::zero) += e;
        }
        let mut whole = BigRational::one();
        let mut radical = Radical::one();
        for (p, e) in sums {
            let floor = e.floor();
            let power = num_traits::pow(BigInt::from(p), floor.numer().unsigned_abs() as usize);
            if *floor.numer() < 0 {
                whole /= BigRational::from_integer(power);
            } else {
                whole *= BigRational::from_integer(power);
            }
            if e != floor {
                radical.0.insert(p, e - floor);
            }
        }
        (whole, radical)
    }

    /// A rational number times a radical; the number is whole.
    pub fn times(&self, other: &Radical) -> (BigRational, Radical) {
        match (self.is_one(), other.is_one()) {
            (true, _) => (BigRational::one(), other.clone()),
            (_, true) => (BigRational::one(), self.clone()),
            _ => Radical::of(self.powers().chain(other.powers())),
        }
    }

    pub fn inverse(&self) -> (BigRational, Radical) {
        Radical::of(self.powers().map(|(p, e)| (p, -e)))
    }
}

/// What a number is a sum of multiples of: a radical, times the nested roots of a tower whose bits are set, times a power of the
/// root of a polynomial at its bottom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Unit {
    pub nested: u32,
    pub power: u32,
    pub radical: Radical,
}

impl Unit {
    pub fn is_one(&self) -> bool {
        self.nested == 0 && self.power == 0 && self.radical.is_one()
    }
}

impl From<Radical> for Unit {
    fn from(radical: Radical) -> Unit {
        Unit {
            radical,
            ..Unit::default()
        }
    }
}

/// The powers of some primes in a positive number, and what is left of it.
pub(super) fn powers_of(
    n: &BigUint,
    primes: impl Iterator<Item = u64>,
) -> (Vec<(u64, i64)>, BigUint) {
    let mut rest = n.clone();
    let mut found = Vec::new();
    for p in primes {
        let mut power = 0;
        while (&rest % p).is_zero() {
            rest /= p;
            power += 1;
        }
        if power > 0 {
            found.push((p, power));
        }
        if rest.is_one() {
            break;
        }
    }
    (found, rest)
}

/// The powers of all small primes in a positive number, and what is left of it.
pub(super) fn small_powers(n: &BigUint) -> (Vec<(u64, i64)>, BigUint) {
    powers_of(n, (2..3).chain((3..MAX_DIVISOR).step_by(2)))
}

/// The primes of a positive number, with their powers, and a number whose power of this degree is the rest.
pub(super) fn factors(n: &BigUint, degree: u32) -> Result<(Vec<(u64, i64)>, BigUint), ExactError> {
    let (mut found, rest) = small_powers(n);
    let root = rest.nth_root(degree);
    if root.pow(degree) == rest {
        return Ok((found, root));
    }
    match rest.to_u64() {
        Some(prime) if prime < MAX_DIVISOR * MAX_DIVISOR => found.push((prime, 1)),
        _ => return Err(ExactError::PrimeFactor),
    }
    Ok((found, BigUint::one()))
}

/// As one root: `sqrt(6)`, `root(4, 3)`.
impl fmt::Display for Radical {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let degree = self.0.values().fold(1, |n, e| n * (e * n).denom());
        let power = |(p, e): (&u64, &Ratio<i64>)| {
            let whole = e * degree;
            num_traits::pow(BigUint::from(*p), whole.numer().unsigned_abs() as usize)
        };
        let inside: BigUint = self.0.iter().map(power).product();
        match degree {
            2 => write!(f, "sqrt({inside})"),
            _ => write!(f, "root({inside}, {degree})"),
        }
    }
}
