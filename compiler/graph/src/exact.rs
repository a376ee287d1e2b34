//! Exact numbers: the coefficients of schemes until the moment code is emitted.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::fmt;

/// An exact rational number. Printed as `3`, `-1/2`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Exact(pub BigRational);

impl Exact {
    pub fn zero() -> Exact {
        Exact(BigRational::zero())
    }
    pub fn one() -> Exact {
        Exact(BigRational::one())
    }
    pub fn ratio(n: i64, d: i64) -> Exact {
        Exact(BigRational::new(BigInt::from(n), BigInt::from(d)))
    }
    pub fn int(n: i64) -> Exact {
        Exact(BigRational::from_integer(BigInt::from(n)))
    }
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }
    pub fn is_one(&self) -> bool {
        self.0.is_one()
    }
    pub fn is_negative(&self) -> bool {
        self.0.is_negative()
    }
    /// The nearest double.
    pub fn to_f64(&self) -> f64 {
        self.0.to_f64().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.0.is_integer() {
            write!(f, "{}", self.0.numer())
        } else {
            write!(f, "{}/{}", self.0.numer(), self.0.denom())
        }
    }
}
