//! Polynomials with whole coefficients: divisors, discriminants, and intervals that hold one real root each.
//!
//! Coefficients are listed from the constant up; the last one is not 0, and 0 is the empty list.

use num_bigint::{BigInt, Sign};
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::{One, Signed, Zero};

pub type Poly = Vec<BigInt>;

pub fn degree(p: &[BigInt]) -> usize {
    p.len().saturating_sub(1)
}

pub fn trim(mut p: Poly) -> Poly {
    while p.last().is_some_and(Zero::is_zero) {
        p.pop();
    }
    p
}

/// Without common factors of its coefficients, the leading one positive.
pub fn primitive(p: Poly) -> Poly {
    let p = trim(p);
    let content = p.iter().fold(BigInt::zero(), |g, c| g.gcd(c));
    match p.last() {
        None => p,
        Some(lead) => {
            let by = if lead.is_negative() {
                -content
            } else {
                content
            };
            p.iter().map(|c| c / &by).collect()
        }
    }
}

pub fn derivative(p: &[BigInt]) -> Poly {
    let term = |(i, c): (usize, &BigInt)| c * i;
    p.iter().enumerate().skip(1).map(term).collect()
}

/// The rest of `lead(b)ᵏ·a` after division by b, with an even k, so that signs stay.
fn remainder(a: &[BigInt], b: &[BigInt]) -> Poly {
    let mut rest = a.to_vec();
    let lead = &b[b.len() - 1];
    let square = lead * lead;
    while rest.len() >= b.len() {
        let top = rest[rest.len() - 1].clone() * lead;
        let shift = rest.len() - b.len();
        rest.iter_mut().for_each(|c| *c *= &square);
        for (i, c) in b.iter().enumerate() {
            rest[i + shift] -= &top * c;
        }
        rest = positive_content(trim(rest));
    }
    rest
}

/// Divided by the positive common factor of its coefficients.
fn positive_content(p: Poly) -> Poly {
    let content = p.iter().fold(BigInt::zero(), |g, c| g.gcd(c));
    match content.is_zero() {
        true => p,
        false => p.iter().map(|c| c / &content).collect(),
    }
}

pub fn gcd(a: &[BigInt], b: &[BigInt]) -> Poly {
    let (mut a, mut b) = (a.to_vec(), b.to_vec());
    while !b.is_empty() {
        let rest = remainder(&a, &b);
        (a, b) = (b, rest);
    }
    primitive(a)
}

/// `a / b`, where that has whole coefficients and no rest.
pub fn quotient(a: &[BigInt], b: &[BigInt]) -> Option<Poly> {
    let lead = b.last()?;
    let mut rest = a.to_vec();
    let mut quotient = vec![BigInt::zero(); (a.len() + 1).checked_sub(b.len())?];
    for shift in (0..quotient.len()).rev() {
        let (c, left) = rest[shift + b.len() - 1].div_rem(lead);
        if !left.is_zero() {
            return None;
        }
        for (i, x) in b.iter().enumerate() {
            rest[i + shift] -= &c * x;
        }
        quotient[shift] = c;
    }
    rest.iter().all(Zero::is_zero).then_some(quotient)
}

/// Each root once.
pub fn squarefree(p: &[BigInt]) -> Poly {
    let repeated = gcd(p, &derivative(p));
    primitive(quotient(&primitive(p.to_vec()), &repeated).unwrap_or_default())
}

/// `a_n^(2n−2) ∏ (xᵢ − xⱼ)²` over pairs of roots, by Euclid's algorithm on the polynomial and its derivative.
pub fn discriminant(p: &[BigInt]) -> BigRational {
    let rational = |p: &[BigInt]| -> Vec<BigRational> {
        p.iter().cloned().map(BigRational::from_integer).collect()
    };
    let n = degree(p);
    let (mut a, mut b) = (rational(p), rational(&derivative(p)));
    let mut resultant = BigRational::one();
    while b.len() > 1 {
        let (m, k) = (a.len() - 1, b.len() - 1);
        let lead = b[k].clone();
        let mut rest = a;
        while rest.len() >= b.len() {
            let top = &rest[rest.len() - 1] / &lead;
            let shift = rest.len() - b.len();
            for (i, c) in b.iter().enumerate() {
                rest[i + shift] -= &top * c;
            }
            while rest.last().is_some_and(Zero::is_zero) {
                rest.pop();
            }
        }
        let Some(left) = rest.len().checked_sub(1) else {
            return BigRational::zero();
        };
        resultant *= num_traits::pow(lead, m - left);
        if m * k % 2 == 1 {
            resultant = -resultant;
        }
        (a, b) = (b, rest);
    }
    let constant = b.first().cloned().unwrap_or_else(BigRational::one);
    resultant *= num_traits::pow(constant, a.len() - 1);
    if n * (n - 1) / 2 % 2 == 1 {
        resultant = -resultant;
    }
    resultant / BigRational::from_integer(p[n].clone())
}

/// The sign at `x / 2ᵇ`.
pub fn sign_at(p: &[BigInt], x: &BigInt, bits: u64) -> Sign {
    let mut sum = BigInt::zero();
    for (i, c) in p.iter().rev().enumerate() {
        sum = sum * x + (c << (bits * i as u64));
    }
    sum.sign()
}

/// The number between `lo / 2ᵇ` and `(lo + 1) / 2ᵇ` where a polynomial changes its sign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Between {
    pub lo: BigInt,
    pub bits: u64,
}

impl Between {
    /// The half in which the sign changes.
    pub fn halved(&mut self, p: &[BigInt]) {
        let middle = (&self.lo << 1) + 1;
        let left = sign_at(p, &self.lo, self.bits);
        self.bits += 1;
        self.lo = match sign_at(p, &middle, self.bits) == left {
            true => middle,
            false => middle - 1,
        };
    }
    pub fn narrowed(mut self, p: &[BigInt], bits: u64) -> Between {
        while self.bits < bits {
            self.halved(p);
        }
        self
    }
    pub fn ends(&self) -> [BigRational; 2] {
        let end = |n: BigInt| BigRational::new(n, BigInt::one() << self.bits);
        [end(self.lo.clone()), end(&self.lo + 1)]
    }
}

/// Intervals with one root each, rising, of a squarefree polynomial without rational roots (Sturm).
pub fn real_roots(p: &[BigInt]) -> Vec<Between> {
    let mut chain = vec![p.to_vec(), derivative(p)];
    while let [.., a, b] = &chain[..]
        && !b.is_empty()
    {
        let rest = remainder(a, b);
        chain.push(rest.iter().map(|c| -c).collect());
    }
    chain.pop();
    let changes = |x: &BigInt, bits: u64| {
        let signs = chain.iter().map(|p| sign_at(p, x, bits));
        let signs: Vec<Sign> = signs.filter(|s| *s != Sign::NoSign).collect();
        signs.windows(2).filter(|w| w[0] != w[1]).count()
    };
    // All roots lie within 1 + max |aᵢ/aₙ| (Cauchy).
    let size = p.iter().map(|c| c.bits()).max().unwrap_or(0);
    let ends = BigInt::one() << (size + 1);
    let mut found = Vec::new();
    let mut open = vec![(-ends.clone(), ends, 0u64)];
    // StepCount first, the left half last on the list, so that roots come in order.
    while let Some((lo, hi, bits)) = open.pop() {
        let count = changes(&lo, bits).saturating_sub(changes(&hi, bits));
        if count == 1 && &hi - &lo <= BigInt::one() {
            found.push(Between { lo, bits });
        } else if count > 0 {
            let sum = &lo + &hi;
            let (lo, middle, hi, bits) = match sum.is_even() {
                true => (lo, sum >> 1, hi, bits),
                false => (lo << 1, sum, hi << 1, bits + 1),
            };
            open.push((middle.clone(), hi, bits));
            open.push((lo, middle, bits));
        }
    }
    found
}
