//! Exact numbers: the coefficients of schemes, until code is emitted.
//!
//! Rational numbers, the real roots of rational numbers, nested square roots and real roots of polynomials, with sums, products and
//! quotients of them: `1/2 - sqrt(3)/6`, `1/(2 - root(2, 3))`, `sqrt(15 + 2*sqrt(30))`, `root(x^3 - 3*x + 1, 0.35)`. A number is kept
//! as a sum of rational multiples of units: radicals `∏ pᵢ^eᵢ` (primes pᵢ, fractions 0 < eᵢ < 1) times nested square roots
//! times a power of a polynomial's root. Different radicals are linearly independent over the rationals (Besicovitch 1940,
//! J. London Math. Soc. 15, 3); a nested root is taken apart where that is possible (`denest.rs`) and otherwise generates a
//! quadratic extension of what lies below it (`tower.rs`); the root of a polynomial is one of these, or lies in no field of
//! them (`choose.rs`), and where two such roots meet, one is expressed by the other (`conjugate.rs`). So the empty sum
//! alone is 0, and signs are found by enclosing the number more and more tightly (`enclose.rs`). Leaves symbols such as `h` to whoever computes with them.
//!
//! # Invariants
//!
//! - Nothing is rounded. A number is 0 only if every coefficient is.
//! - Numbers whose independence is not known are refused, never approximated.

mod choose;
mod conjugate;
mod denest;
mod enclose;
mod factor;
mod field;
mod finite;
pub mod fraction;
mod poly;
mod polynomial_root;
mod radical;
pub mod read;
mod root;
mod tower;

pub use choose::{MAX_COEFFICIENT, MAX_POLYNOMIAL};
pub use field::Field;
pub use root::MAX_DEGREE;
pub use tower::MAX_NESTED;

use radical::Unit;
use tower::Tower;

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::Sum;
use std::ops::{Add, Mul, Neg, Sub};
use thiserror::Error;

/// Most bits of a numerator or denominator in a number with roots.
pub const MAX_BITS: u64 = 2048;
/// The same in a fraction. What numbers cost grows with their bits ([`Exact::weight`]), so that work stays limited.
pub const MAX_FRACTION_BITS: u64 = 4096;
/// Most roots that one number is a sum of.
pub const MAX_RADICALS: usize = 128;

/// Why exact arithmetic has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ExactError {
    #[error("this number is too large to be kept exact")]
    TooLarge,
    #[error("division by zero")]
    DivisionByZero,
    #[error("an even root of a negative number")]
    NotReal,
    #[error("the degree of a root is a whole number from 1 to {MAX_DEGREE}")]
    Degree,
    #[error("this number under a root has a prime factor that is too large")]
    PrimeFactor,
    #[error("a root of a sum of roots is exact only where both are square roots")]
    Nested,
    #[error("a number has at most four independent nested roots")]
    TooManyNested,
    #[error("a constant has no roots")]
    ConstantPolynomial,
    #[error(
        "this polynomial is too large: degrees go up to {MAX_POLYNOMIAL}, and coefficients without denominators to {MAX_COEFFICIENT} binary digits"
    )]
    LargePolynomial,
    #[error("the coefficients of a polynomial, and the value that its root is near, are rational")]
    NotRational,
    #[error("this polynomial has no real root")]
    NoRealRoot,
    #[error("this value is not near enough to one root")]
    Ambiguous,
    #[error("it is not known how this root of a polynomial depends on roots of rational numbers")]
    Undecided,
    #[error("the root of a number that contains a root of a polynomial cannot be kept exactly")]
    RootOfGenerator,
    #[error("this number mixes roots of two polynomials, and odec cannot express one by the other")]
    TwoPolynomials,
}

/// An exact real number. Printed as `3`, `-1/2`, `1/2 - sqrt(3)/6`.
#[derive(Clone, Debug, Default)]
pub struct Exact {
    rational: BigRational,
    /// The coefficient of each unit; never 0.
    roots: BTreeMap<Unit, BigRational>,
    /// The nested roots of the units; empty where there are none.
    tower: Tower,
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
        let rational = self.roots.is_empty() && self.tower.fault().is_none();
        rational.then_some(&self.rational)
    }
    /// The value, when it is a whole number.
    pub fn as_integer(&self) -> Option<BigInt> {
        let q = self.as_rational().filter(|q| q.is_integer())?;
        Some(q.to_integer())
    }
    pub fn is_zero(&self) -> bool {
        self.as_rational().is_some_and(Zero::is_zero)
    }
    pub fn is_one(&self) -> bool {
        self.as_rational().is_some_and(One::is_one)
    }
    pub fn is_negative(&self) -> bool {
        self.sign() == Ordering::Less
    }
    /// Compared with 0.
    pub fn sign(&self) -> Ordering {
        if self.tower.fault().is_some() {
            return Ordering::Greater;
        }
        let zero = BigRational::zero();
        let mut signs: Vec<Ordering> = self.coefficients().map(|c| c.cmp(&zero)).collect();
        signs.retain(|s| s.is_ne());
        match signs.first() {
            None => Ordering::Equal,
            // All units are positive but for powers of a polynomial's root.
            Some(first) if self.tower.root().is_none() && signs.iter().all(|s| s == first) => {
                *first
            }
            Some(_) => enclose::sign(self),
        }
    }
    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        match self.as_rational() {
            Some(q) => q.to_f64().unwrap_or(f64::NAN),
            None if self.tower.fault().is_some() => f64::NAN,
            None => enclose::nearest(self),
        }
    }

    /// Whether numbers can be computed with together: they have few nested roots, and it is known which of them depend on
    /// others.
    pub fn are_comparable<'e>(
        numbers: impl Iterator<Item = &'e Exact> + Clone,
    ) -> Result<(), ExactError> {
        tower::in_one_tower(numbers).map(|_| ())
    }

    /// What work on it costs: terms of the sum, twice as much with each nested root, more with each [`MAX_BITS`].
    pub fn weight(&self) -> usize {
        ((self.roots.len() + self.tower.degree()) << self.tower.generators().len()) * self.lengths()
    }
    /// What making it costs: a quotient is the solution of linear equations, one for each term.
    pub fn cost(&self) -> usize {
        let terms =
            (self.roots.len() + self.tower.degree()).pow(3) << self.tower.generators().len();
        terms * self.lengths().pow(2)
    }
    fn lengths(&self) -> usize {
        1 + (self.bits() / MAX_BITS) as usize
    }
    /// The number itself, unless it is too large.
    pub fn checked(self) -> Result<Exact, ExactError> {
        let most = match self.roots.is_empty() {
            true => MAX_FRACTION_BITS,
            false => MAX_BITS,
        };
        let small = self.bits() <= most;
        if let Some(why) = self.tower.fault() {
            return Err(why);
        }
        if small && self.roots.len() <= MAX_RADICALS {
            Ok(self)
        } else {
            Err(ExactError::TooLarge)
        }
    }
    /// The coefficients of its roots, and the rational part.
    pub fn coefficients(&self) -> impl Iterator<Item = &BigRational> {
        self.roots.values().chain([&self.rational])
    }
    /// The largest number of bits of a numerator or denominator.
    pub fn bits(&self) -> u64 {
        let bits = |c: &BigRational| c.numer().bits().max(c.denom().bits());
        self.coefficients().map(bits).max().unwrap_or(0)
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

    /// `c` times a unit of this number's tower more.
    fn add_unit(&mut self, r: Unit, c: BigRational) {
        if c.is_zero() {
            return;
        }
        if r.is_one() {
            self.rational = fraction::sum(&self.rational, &c);
            return;
        }
        let sum = match self.roots.get(&r) {
            Some(have) => fraction::sum(have, &c),
            None => c,
        };
        if sum.is_zero() {
            self.roots.remove(&r);
        } else {
            self.roots.insert(r, sum);
        }
    }

    /// The terms of the sum; the rational one has the unit 1.
    fn terms(&self) -> impl Iterator<Item = (Unit, &BigRational)> {
        let rational = [(Unit::default(), &self.rational)].into_iter();
        let rational = rational.filter(|(_, c)| !c.is_zero());
        rational.chain(self.roots.iter().map(|(r, c)| (r.clone(), c)))
    }

    fn scaled(&self, by: &BigRational) -> Exact {
        if by.is_zero() {
            return Exact::zero();
        }
        if by.is_one() {
            return self.clone();
        }
        let roots = self
            .roots
            .iter()
            .map(|(r, c)| (r.clone(), fraction::product(c, by)));
        Exact {
            rational: fraction::product(&self.rational, by),
            roots: roots.collect(),
            tower: self.tower.clone(),
        }
    }
}

impl From<BigRational> for Exact {
    fn from(rational: BigRational) -> Exact {
        Exact {
            rational,
            ..Exact::default()
        }
    }
}

/// Equal numbers have one form in one tower, so their differences are empty sums.
impl PartialEq for Exact {
    fn eq(&self, other: &Exact) -> bool {
        if self.tower.fault().is_some() {
            false
        } else if self.tower == other.tower {
            // The library compares fractions by dividing them.
            let same =
                |a: &BigRational, b: &BigRational| a.numer() == b.numer() && a.denom() == b.denom();
            let mut both = self.roots.iter().zip(&other.roots);
            self.roots.len() == other.roots.len()
                && same(&self.rational, &other.rational)
                && both.all(|((r, a), (s, b))| r == s && same(a, b))
        } else {
            (self - other).is_zero()
        }
    }
}
impl Eq for Exact {}

/// By the form where it is unique, by the nearest double where the form depends on the tower.
impl Hash for Exact {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.tower.is_empty() {
            // In lowest terms numerators and denominators are unique; the library would divide one by the other.
            for (unit, c) in self.terms() {
                (unit, c.numer(), c.denom()).hash(state);
            }
        } else {
            self.to_f64().to_bits().hash(state);
        }
    }
}

impl Add for &Exact {
    type Output = Exact;
    fn add(self, other: &Exact) -> Exact {
        if other.is_zero() {
            return self.clone();
        }
        if self.is_zero() {
            return other.clone();
        }
        let (a, b) = tower::together(self, other);
        let mut sum = a.into_owned();
        sum.rational = fraction::sum(&sum.rational, &b.rational);
        for (r, c) in &b.roots {
            sum.add_unit(r.clone(), c.clone());
        }
        sum.settled()
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
        let (a, b) = tower::together(self, other);
        a.times(&b).settled()
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
        if self.tower.fault().is_some() {
            return f.write_str("?");
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
                (false, n) if n.is_one() => self.tower.write(f, &r)?,
                (false, n) => {
                    write!(f, "{n}*")?;
                    self.tower.write(f, &r)?;
                }
            }
            if !c.denom().is_one() {
                write!(f, "/{}", c.denom())?;
            }
        }
        Ok(())
    }
}
