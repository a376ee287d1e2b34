//! Exact numbers: the coefficients of schemes until the moment code is emitted.
//!
//! Rational numbers and the real roots of rational numbers, with sums, products and quotients of them:
//! `1/2 - sqrt(3)/6`, `1/(2 - root(2, 3))`. A number is kept as a sum of rational multiples of radicals `∏ pᵢ^eᵢ`
//! (primes pᵢ, fractions 0 < eᵢ < 1). Different radicals are linearly independent over the rationals (Besicovitch
//! 1940, J. London Math. Soc. 15, 3), so the form is canonical: equal numbers are equal values, the empty sum alone is
//! 0, and signs are found by enclosing the number more and more tightly. Nested square roots are taken apart where
//! that is possible, and refused where it is not. Leaves symbols such as `h` to whoever computes with them.

mod enclose;
mod radical;
mod root;

pub use radical::Radical;
pub use root::MAX_DEGREE;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Mul, Neg, Sub};
use thiserror::Error;

/// Most bits of a numerator or denominator.
pub const MAX_BITS: u64 = 2048;
/// Most radicals of one number.
pub const MAX_RADICALS: usize = 32;

/// Why exact arithmetic has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExactError {
    #[error("this number is too large to be kept exact")]
    TooLarge,
    #[error("division by zero")]
    DivisionByZero,
    #[error("an even root of a negative number")]
    NotReal,
    #[error("roots have whole degrees from 1 to {MAX_DEGREE}")]
    Degree,
    #[error("this number under a root has a prime factor that is too large")]
    PrimeFactor,
    #[error("this nested root is no sum of roots of rational numbers")]
    Nested,
}

/// An exact real number. Printed as `3`, `-1/2`, `1/2 - sqrt(3)/6`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Exact {
    rational: BigRational,
    /// What stands before each radical; never 0.
    roots: BTreeMap<Radical, BigRational>,
}

impl Exact {
    pub fn zero() -> Exact {
        Exact::default()
    }
    pub fn one() -> Exact {
        Exact::from(BigRational::one())
    }
    pub fn ratio(n: i64, d: i64) -> Exact {
        Exact::from(BigRational::new(BigInt::from(n), BigInt::from(d)))
    }
    pub fn int(n: i64) -> Exact {
        Exact::from(BigRational::from_integer(BigInt::from(n)))
    }

    /// The value, when it is rational.
    pub fn as_rational(&self) -> Option<&BigRational> {
        self.roots.is_empty().then_some(&self.rational)
    }
    /// The value, when it is a whole number.
    pub fn as_integer(&self) -> Option<BigInt> {
        let q = self.as_rational().filter(|q| q.is_integer())?;
        Some(q.to_integer())
    }
    pub fn is_zero(&self) -> bool {
        self.roots.is_empty() && self.rational.is_zero()
    }
    pub fn is_one(&self) -> bool {
        self.roots.is_empty() && self.rational.is_one()
    }
    pub fn is_negative(&self) -> bool {
        self.sign() == Ordering::Less
    }
    /// Compared with 0.
    pub fn sign(&self) -> Ordering {
        let zero = BigRational::zero();
        let parts = self.roots.values().chain([&self.rational]);
        let mut signs: Vec<Ordering> = parts.map(|c| c.cmp(&zero)).collect();
        signs.retain(|s| s.is_ne());
        match signs.first() {
            None => Ordering::Equal,
            Some(first) if signs.iter().all(|s| s == first) => *first,
            Some(_) => enclose::sign(self),
        }
    }
    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        match self.as_rational() {
            Some(q) => q.to_f64().unwrap_or(f64::NAN),
            None => enclose::nearest(self),
        }
    }

    /// Terms of the sum: what work on it costs.
    pub fn weight(&self) -> usize {
        self.roots.len() + 1
    }
    /// What making it costs: a quotient is the solution of linear equations, one for each term.
    pub fn cost(&self) -> usize {
        self.weight().pow(3)
    }
    /// The number itself, unless it is too large.
    pub fn checked(self) -> Result<Exact, ExactError> {
        let small = |c: &BigRational| c.numer().bits().max(c.denom().bits()) <= MAX_BITS;
        let small = self.roots.values().chain([&self.rational]).all(small);
        if small && self.roots.len() <= MAX_RADICALS {
            Ok(self)
        } else {
            Err(ExactError::TooLarge)
        }
    }

    /// The value of a float, which is a whole number over a power of 2; `None`: it is infinite or no number.
    pub fn float(x: f64) -> Option<Exact> {
        BigRational::from_float(x).map(Exact::from)
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
        Exact::from(if shift < 0 {
            BigRational::new(n, scale)
        } else {
            BigRational::from_integer(n * scale)
        })
        .checked()
    }

    /// Whether it is printed as a sum, which needs parentheses in a product.
    pub fn is_sum(&self) -> bool {
        self.roots.len() + usize::from(!self.rational.is_zero()) > 1
    }
    /// Whether it is printed with a minus sign in front.
    pub fn starts_with_minus(&self) -> bool {
        match self.roots.values().next() {
            Some(c) if self.rational.is_zero() => c.is_negative(),
            _ => self.rational.is_negative(),
        }
    }

    fn add_radical(&mut self, r: Radical, c: BigRational) {
        if r.is_one() {
            self.rational += c;
            return;
        }
        let sum = match self.roots.get(&r) {
            Some(have) => have + c,
            None => c,
        };
        if sum.is_zero() {
            self.roots.remove(&r);
        } else {
            self.roots.insert(r, sum);
        }
    }

    /// The terms of the sum; the rational one has the radical 1.
    pub fn terms(&self) -> impl Iterator<Item = (Radical, &BigRational)> {
        let rational = [(Radical::one(), &self.rational)].into_iter();
        let rational = rational.filter(|(_, c)| !c.is_zero());
        rational.chain(self.roots.iter().map(|(r, c)| (r.clone(), c)))
    }

    fn scaled(&self, by: &BigRational) -> Exact {
        if by.is_zero() {
            return Exact::zero();
        }
        let roots = self.roots.iter().map(|(r, c)| (r.clone(), c * by));
        Exact {
            rational: &self.rational * by,
            roots: roots.collect(),
        }
    }
}

impl FromIterator<(Radical, BigRational)> for Exact {
    fn from_iter<I: IntoIterator<Item = (Radical, BigRational)>>(terms: I) -> Exact {
        let mut sum = Exact::zero();
        for (r, c) in terms {
            if !c.is_zero() {
                sum.add_radical(r, c);
            }
        }
        sum
    }
}

impl From<BigRational> for Exact {
    fn from(rational: BigRational) -> Exact {
        Exact {
            rational,
            roots: BTreeMap::new(),
        }
    }
}

impl Add for &Exact {
    type Output = Exact;
    fn add(self, other: &Exact) -> Exact {
        let mut sum = self.clone();
        sum.rational += &other.rational;
        for (r, c) in &other.roots {
            sum.add_radical(r.clone(), c.clone());
        }
        sum
    }
}

impl Neg for &Exact {
    type Output = Exact;
    fn neg(self) -> Exact {
        self.scaled(&-BigRational::one())
    }
}

impl Sub for &Exact {
    type Output = Exact;
    fn sub(self, other: &Exact) -> Exact {
        self + &-other
    }
}

impl Mul for &Exact {
    type Output = Exact;
    fn mul(self, other: &Exact) -> Exact {
        if let Some(q) = other.as_rational() {
            return self.scaled(q);
        }
        let mut product = Exact::zero();
        for (r, a) in self.terms() {
            for (s, b) in other.terms() {
                let (whole, radical) = r.times(&s);
                let c = if whole.is_one() { a * b } else { a * b * whole };
                product.add_radical(radical, c);
            }
        }
        product
    }
}

impl Sum for Exact {
    fn sum<I: Iterator<Item = Exact>>(terms: I) -> Exact {
        terms.fold(Exact::zero(), |sum, t| &sum + &t)
    }
}

impl PartialOrd for Exact {
    fn partial_cmp(&self, other: &Exact) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By value.
impl Ord for Exact {
    fn cmp(&self, other: &Exact) -> Ordering {
        match (self.as_rational(), other.as_rational()) {
            (Some(a), Some(b)) => a.cmp(b),
            _ => (self - other).sign(),
        }
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        for (i, (r, c)) in self.terms().enumerate() {
            f.write_str(match (i, c.is_negative()) {
                (0, true) => "-",
                (0, false) => "",
                (_, true) => " - ",
                (_, false) => " + ",
            })?;
            match (r.is_one(), c.numer().magnitude()) {
                (true, n) => write!(f, "{n}")?,
                (false, n) if n.is_one() => write!(f, "{r}")?,
                (false, n) => write!(f, "{n}*{r}")?,
            }
            if !c.denom().is_one() {
                write!(f, "/{}", c.denom())?;
            }
        }
        Ok(())
    }
}
