//! Exact coefficients: polynomials over the step size `h` with rational constants.
//!
//! Takes arithmetic as it is written in a scheme; gives a canonical form, so that equal coefficients are equal values
//! and cancellation is exact. Every result is checked against [`MAX_TERMS`], [`MAX_DEGREE`] and [`MAX_BITS`]: a
//! scheme cannot make the compiler compute with numbers of astronomical size. Leaves rounding to whoever emits code.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_graph::Exact;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Most monomials of one coefficient.
pub const MAX_TERMS: usize = 65;
/// Largest total degree of a monomial.
pub const MAX_DEGREE: u32 = 64;
/// Most bits of a numerator or denominator.
pub const MAX_BITS: u64 = 2048;

/// Why exact arithmetic has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExactError {
    #[error("this number is too large to be kept exact")]
    TooLarge,
    #[error("division by zero")]
    DivisionByZero,
    #[error("division by something that is not a constant")]
    NotConstant,
    #[error("an exponent must be a whole number that is not negative")]
    Exponent,
}

/// A product of powers of symbols, sorted by name; the empty product is 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monomial(Vec<(Arc<str>, u32)>);

impl Monomial {
    fn degree(&self) -> u32 {
        self.0.iter().map(|(_, n)| n).sum()
    }

    fn times(&self, other: &Monomial) -> Result<Monomial, ExactError> {
        let mut powers: BTreeMap<Arc<str>, u32> = self.0.iter().cloned().collect();
        for (s, n) in &other.0 {
            *powers.entry(s.clone()).or_default() += n;
        }
        let product = Monomial(powers.into_iter().collect());
        if product.degree() > MAX_DEGREE {
            Err(ExactError::TooLarge)
        } else {
            Ok(product)
        }
    }
}

impl fmt::Display for Monomial {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(s, n)| {
                if *n == 1 {
                    s.to_string()
                } else {
                    format!("{s}^{n}")
                }
            })
            .collect();
        f.write_str(&parts.join("*"))
    }
}

/// A polynomial with exact rational constants. No term is zero, so equality is equality of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coeff {
    terms: BTreeMap<Monomial, Exact>,
}

impl Coeff {
    pub fn zero() -> Coeff {
        Coeff::default()
    }
    pub fn one() -> Coeff {
        Coeff::constant(Exact::one())
    }
    pub fn constant(value: Exact) -> Coeff {
        let terms = if value.is_zero() {
            BTreeMap::new()
        } else {
            [(Monomial::default(), value)].into()
        };
        Coeff { terms }
    }
    /// The step size or another named number.
    pub fn symbol(name: &str) -> Coeff {
        Coeff {
            terms: [(Monomial(vec![(name.into(), 1)]), Exact::one())].into(),
        }
    }

    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }
    /// Number of monomials.
    pub fn weight(&self) -> usize {
        self.terms.len()
    }
    pub fn is_one(&self) -> bool {
        self.as_constant().is_some_and(|c| c.is_one())
    }
    /// The value, when no symbol occurs in it.
    pub fn as_constant(&self) -> Option<Exact> {
        match self.terms.len() {
            0 => Some(Exact::zero()),
            1 => self.terms.get(&Monomial::default()).cloned(),
            _ => None,
        }
    }

    pub fn add(&self, other: &Coeff) -> Result<Coeff, ExactError> {
        let mut terms = self.terms.clone();
        for (m, c) in &other.terms {
            let sum = terms
                .get(m)
                .map_or_else(|| c.0.clone(), |have| &have.0 + &c.0);
            if sum.is_zero() {
                terms.remove(m);
            } else {
                terms.insert(m.clone(), checked(sum)?);
            }
        }
        Coeff { terms }.sized()
    }

    pub fn neg(&self) -> Coeff {
        Coeff {
            terms: self
                .terms
                .iter()
                .map(|(m, c)| (m.clone(), Exact(-&c.0)))
                .collect(),
        }
    }

    pub fn sub(&self, other: &Coeff) -> Result<Coeff, ExactError> {
        self.add(&other.neg())
    }

    pub fn mul(&self, other: &Coeff) -> Result<Coeff, ExactError> {
        let mut terms: BTreeMap<Monomial, BigRational> = BTreeMap::new();
        for (m, a) in &self.terms {
            for (n, b) in &other.terms {
                let slot = terms.entry(m.times(n)?).or_insert_with(BigRational::zero);
                *slot += checked(&a.0 * &b.0)?.0;
            }
            if terms.len() > MAX_TERMS {
                return Err(ExactError::TooLarge);
            }
        }
        let terms = terms
            .into_iter()
            .filter(|(_, c)| !c.is_zero())
            .map(|(m, c)| Ok((m, checked(c)?)))
            .collect::<Result<_, ExactError>>()?;
        Coeff { terms }.sized()
    }

    /// Division by a number; polynomials are not inverted.
    pub fn div(&self, other: &Coeff) -> Result<Coeff, ExactError> {
        let d = other.as_constant().ok_or(ExactError::NotConstant)?;
        if d.is_zero() {
            return Err(ExactError::DivisionByZero);
        }
        self.mul(&Coeff::constant(Exact(d.0.recip())))
    }

    /// A whole power; numbers may also have negative ones.
    pub fn pow(&self, exponent: &Coeff) -> Result<Coeff, ExactError> {
        let e = exponent
            .as_constant()
            .filter(|e| e.0.is_integer())
            .ok_or(ExactError::Exponent)?;
        let n: i64 =
            e.0.to_integer()
                .try_into()
                .map_err(|_| ExactError::TooLarge)?;
        if n.unsigned_abs() > MAX_BITS {
            return match self.as_constant() {
                Some(c) if c.is_one() || (c.is_zero() && n > 0) => Ok(self.clone()),
                _ => Err(ExactError::TooLarge),
            };
        }
        let base = match n {
            0.. => self.clone(),
            _ if self.as_constant().is_none() => return Err(ExactError::Exponent),
            _ => Coeff::one().div(self)?,
        };
        let (mut power, mut square, mut left) = (Coeff::one(), base, n.unsigned_abs());
        while left > 0 {
            if left & 1 == 1 {
                power = power.mul(&square)?;
            }
            left >>= 1;
            if left > 0 {
                square = square.mul(&square)?;
            }
        }
        Ok(power)
    }

    /// The symbols that occur.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let all = self.terms.keys().flat_map(|m| &m.0);
        all.map(|(s, _)| s.clone()).collect()
    }

    /// As a polynomial in one symbol: what stands before its powers 0, 1, 2 …, up to the highest.
    pub fn in_powers_of(&self, symbol: &str) -> Vec<Coeff> {
        let mut powers = vec![Coeff::zero()];
        for (m, c) in &self.terms {
            let power = m.0.iter().find(|(s, _)| **s == *symbol);
            let power = power.map_or(0, |(_, n)| *n as usize);
            let rest = m.0.iter().filter(|(s, _)| **s != *symbol);
            if powers.len() <= power {
                powers.resize(power + 1, Coeff::zero());
            }
            let rest = Monomial(rest.cloned().collect());
            powers[power].terms.insert(rest, c.clone());
        }
        powers
    }

    /// The rational factor of a single monomial, and what is left of it; 1 and the polynomial itself otherwise.
    pub fn content(&self) -> (Exact, Coeff) {
        match self.terms.iter().next() {
            Some((m, c)) if self.terms.len() == 1 => {
                let terms = [(m.clone(), Exact::one())].into();
                (c.clone(), Coeff { terms })
            }
            _ => (Exact::one(), self.clone()),
        }
    }

    /// With a number for one symbol.
    pub fn with(&self, symbol: &str, value: &Exact) -> Result<Coeff, ExactError> {
        let value = Coeff::constant(value.clone());
        let powers = self.in_powers_of(symbol);
        let horner = |sum: Coeff, p: &Coeff| sum.mul(&value)?.add(p);
        powers.iter().rev().try_fold(Coeff::zero(), horner)
    }

    /// The value for given symbols; `None` when one is missing or the result is too large.
    pub fn at(&self, symbols: &dyn Fn(&str) -> Option<Exact>) -> Option<Exact> {
        let mut sum = Coeff::zero();
        for (m, c) in &self.terms {
            let mut product = Coeff::constant(c.clone());
            for (s, n) in &m.0 {
                let power =
                    Coeff::constant(symbols(s)?).pow(&Coeff::constant(Exact::int(*n as i64)));
                product = product.mul(&power.ok()?).ok()?;
            }
            sum = sum.add(&product).ok()?;
        }
        sum.as_constant()
    }

    fn sized(self) -> Result<Coeff, ExactError> {
        if self.terms.len() > MAX_TERMS {
            Err(ExactError::TooLarge)
        } else {
            Ok(self)
        }
    }

    /// As a factor in a product: sums in parentheses, after the symbols that all their terms have where some symbol
    /// is not the step size: `b*h*(1 - b)`.
    pub fn factor(&self) -> String {
        if self.terms.len() < 2 {
            return self.to_string();
        }
        let common = self.common();
        if common.0.is_empty() || self.symbols().iter().all(|s| &**s == "h") {
            return format!("({self})");
        }
        let over = |m: &Monomial| {
            let power = |s: &Arc<str>| common.0.iter().find(|(c, _)| c == s).map_or(0, |(_, n)| *n);
            let left = m.0.iter().map(|(s, n)| (s.clone(), n - power(s)));
            Monomial(left.filter(|(_, n)| *n > 0).collect())
        };
        let terms = self.terms.iter().map(|(m, c)| (over(m), c.clone()));
        let rest = Coeff {
            terms: terms.collect(),
        };
        format!("{common}*({rest})")
    }

    /// The symbols that every term has, with their lowest powers.
    fn common(&self) -> Monomial {
        let lowest = |s: &Arc<str>| {
            let power = |m: &Monomial| m.0.iter().find(|(t, _)| t == s).map_or(0, |(_, n)| *n);
            self.terms.keys().map(power).min().unwrap_or(0)
        };
        let all = self.symbols().into_iter().map(|s| (s.clone(), lowest(&s)));
        Monomial(all.filter(|(_, n)| *n > 0).collect())
    }
}

fn checked(c: BigRational) -> Result<Exact, ExactError> {
    if c.numer().bits() > MAX_BITS || c.denom().bits() > MAX_BITS {
        Err(ExactError::TooLarge)
    } else {
        Ok(Exact(c))
    }
}

/// The exact value of a decimal as written: `3`, `0.25`, `1e-3`.
pub fn decimal(text: &str) -> Result<Exact, ExactError> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((m, e)) => (m, e.parse::<i64>().map_err(|_| ExactError::TooLarge)?),
        None => (text, 0),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{part}");
    let shift = exponent
        .checked_sub(part.len() as i64)
        .ok_or(ExactError::TooLarge)?;
    if digits.len() > 700 || shift.unsigned_abs() > 1400 {
        return Err(ExactError::TooLarge);
    }
    let n: BigInt = digits.parse().map_err(|_| ExactError::TooLarge)?;
    let scale = num_traits::pow(BigInt::from(10), shift.unsigned_abs() as usize);
    checked(if shift < 0 {
        BigRational::new(n, scale)
    } else {
        BigRational::new(n * scale, BigInt::one())
    })
}

impl fmt::Display for Coeff {
    /// Constant first, then rising powers: `1 - 1/2*h + h^2`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        for (i, (m, c)) in self.terms.iter().enumerate() {
            let magnitude = if c.is_negative() {
                Exact(-&c.0)
            } else {
                c.clone()
            };
            match (i, c.is_negative()) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            match (m.0.is_empty(), magnitude.is_one()) {
                (true, _) => write!(f, "{magnitude}")?,
                (false, true) => write!(f, "{m}")?,
                (false, false) => write!(f, "{magnitude}*{m}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn h() -> Coeff {
        Coeff::symbol("h")
    }
    fn q(n: i64, d: i64) -> Coeff {
        Coeff::constant(Exact::ratio(n, d))
    }

    #[test]
    fn prints_in_rising_powers() {
        let c = q(1, 1)
            .add(&h().mul(&q(-1, 2)).unwrap())
            .unwrap()
            .add(&h().mul(&h()).unwrap())
            .unwrap();
        assert_eq!(c.to_string(), "1 - 1/2*h + h^2");
        assert_eq!(q(1, 6).mul(&h()).unwrap().to_string(), "1/6*h");
        assert_eq!(h().neg().to_string(), "-h");
        assert_eq!(Coeff::zero().to_string(), "0");
    }

    #[test]
    fn cancels_exactly() {
        let c = q(1, 3).mul(&h()).unwrap();
        assert!(
            c.add(&c)
                .unwrap()
                .add(&c)
                .unwrap()
                .sub(&h())
                .unwrap()
                .is_zero()
        );
    }

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("0.1").unwrap(), Exact::ratio(1, 10));
        assert_eq!(decimal("1e-3").unwrap(), Exact::ratio(1, 1000));
        assert_eq!(decimal("2.5e2").unwrap(), Exact::int(250));
        assert_eq!(decimal("1e999999999999"), Err(ExactError::TooLarge));
        assert_eq!(decimal("1e99999999999999999999"), Err(ExactError::TooLarge));
    }

    #[test]
    fn astronomical_numbers_are_refused() {
        let mut c = q(3, 7);
        let grown = (0..64).try_for_each(|_| {
            c = c.mul(&c)?;
            Ok::<_, ExactError>(())
        });
        assert_eq!(grown, Err(ExactError::TooLarge));
        assert_eq!(
            q(10, 1).pow(&decimal("1e9").map(Coeff::constant).unwrap()),
            Err(ExactError::TooLarge)
        );
        assert_eq!(h().pow(&q(65, 1)), Err(ExactError::TooLarge));
        assert_eq!(
            q(1, 1).pow(&decimal("1e9").map(Coeff::constant).unwrap()),
            Ok(q(1, 1))
        );
    }

    #[test]
    fn powers_and_quotients() {
        assert_eq!(q(2, 1).pow(&q(-3, 1)), Ok(q(1, 8)));
        assert_eq!(q(1, 1).div(&Coeff::zero()), Err(ExactError::DivisionByZero));
        assert_eq!(q(1, 1).div(&h()), Err(ExactError::NotConstant));
        assert_eq!(h().pow(&q(1, 2)), Err(ExactError::Exponent));
        assert_eq!(
            Coeff::zero().pow(&q(-1, 1)),
            Err(ExactError::DivisionByZero)
        );
    }

    fn poly() -> impl Strategy<Value = Coeff> {
        prop::collection::vec((-9i64..10, 1i64..10), 0..4).prop_map(|cs| {
            cs.iter().rev().fold(Coeff::zero(), |acc, (n, d)| {
                acc.mul(&h()).unwrap().add(&q(*n, *d)).unwrap()
            })
        })
    }

    proptest! {
        #[test]
        fn a_commutative_ring(a in poly(), b in poly(), c in poly()) {
            prop_assert_eq!(a.mul(&b.add(&c).unwrap()).unwrap(), a.mul(&b).unwrap().add(&a.mul(&c).unwrap()).unwrap());
            prop_assert_eq!(a.mul(&b).unwrap(), b.mul(&a).unwrap());
            prop_assert!(a.sub(&a).unwrap().is_zero());
        }

        #[test]
        fn evaluation_is_a_homomorphism(a in poly(), b in poly(), n in -5i64..6, d in 1i64..6) {
            let at = |c: &Coeff| c.at(&|_| Some(Exact::ratio(n, d))).unwrap();
            prop_assert_eq!(at(&a.mul(&b).unwrap()).0, at(&a).0 * at(&b).0);
            prop_assert_eq!(at(&a.add(&b).unwrap()).0, at(&a).0 + at(&b).0);
        }
    }
}
