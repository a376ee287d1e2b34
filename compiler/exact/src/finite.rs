//! Polynomials modulo a prime: their factors, and one of their roots.
//!
//! Distinct degrees, then equal ones (Cantor & Zassenhaus 1981, Math. Comp. 36, 587), with polynomials of a fixed sequence in
//! place of random ones.

use super::poly::{Poly, trim};
use num_bigint::BigInt;
use num_integer::Integer;
use num_traits::{One, Signed, Zero};

/// Polynomials that are tried for one split; each serves with a chance of about a half.
const TRIES: u64 = 128;

pub struct Modulo<'p>(pub &'p BigInt);

impl Modulo<'_> {
    pub fn reduced(&self, p: &[BigInt]) -> Poly {
        trim(p.iter().map(|c| c.mod_floor(self.0)).collect())
    }

    /// `1/x`; `None`: there is none.
    fn inverse(&self, x: &BigInt) -> Option<BigInt> {
        let found = x.extended_gcd(self.0);
        let unit = found.gcd.abs().is_one();
        unit.then(|| (found.x * found.gcd).mod_floor(self.0))
    }

    /// With 1 as the leading coefficient.
    pub fn monic(&self, p: &[BigInt]) -> Option<Poly> {
        let over = self.inverse(p.last()?)?;
        Some(p.iter().map(|c| (c * &over).mod_floor(self.0)).collect())
    }

    /// The rest after division by a monic polynomial, and the quotient.
    fn divided(&self, a: &[BigInt], by: &[BigInt]) -> (Poly, Poly) {
        let mut rest = a.to_vec();
        let n = by.len() - 1;
        let mut quotient = vec![BigInt::zero(); a.len().saturating_sub(n)];
        for shift in (0..quotient.len()).rev() {
            let top = rest[shift + n].mod_floor(self.0);
            if !top.is_zero() {
                for (i, c) in by.iter().enumerate() {
                    rest[i + shift] -= &top * c;
                }
            }
            quotient[shift] = top;
        }
        rest.truncate(n);
        (self.reduced(&rest), trim(quotient))
    }

    fn times(&self, a: &[BigInt], b: &[BigInt], of: &[BigInt]) -> Poly {
        self.divided(&product(a, b), of).0
    }

    /// A power modulo a monic polynomial.
    fn power(&self, base: &[BigInt], exponent: &BigInt, of: &[BigInt]) -> Poly {
        let mut power = self.divided(&[BigInt::one()], of).0;
        for i in (0..exponent.bits()).rev() {
            power = self.times(&power, &power, of);
            if exponent.bit(i) {
                power = self.times(&power, base, of);
            }
        }
        power
    }

    /// The monic greatest common divisor.
    pub fn gcd(&self, a: &[BigInt], b: &[BigInt]) -> Option<Poly> {
        let (mut a, mut b) = (self.reduced(a), self.reduced(b));
        while !b.is_empty() {
            let by = self.monic(&b)?;
            let rest = self.divided(&a, &by).0;
            (a, b) = (by, rest);
        }
        self.monic(&a)
    }

    /// The irreducible factors of a squarefree monic polynomial; `None`: no split was found, as with a modulus that is no prime.
    pub fn factors(&self, p: &[BigInt]) -> Option<Vec<Poly>> {
        let mut found = Vec::new();
        let mut rest = p.to_vec();
        let x = vec![BigInt::zero(), BigInt::one()];
        let mut power = self.divided(&x, &rest).0;
        for d in 1.. {
            if rest.len() <= 2 * d {
                break;
            }
            // x^(pᵈ) − x has all roots of degrees that divide d.
            power = self.power(&power, self.0, &rest);
            let own = self.gcd(&difference(&power, &x), &rest)?;
            if own.len() > 1 {
                self.split(&own, d, &mut found)?;
                rest = self.divided(&rest, &own).1;
                power = self.divided(&power, &rest).0;
            }
        }
        if rest.len() > 1 {
            found.push(rest);
        }
        Some(found)
    }

    /// Factors of one degree d.
    fn split(&self, p: &[BigInt], d: usize, found: &mut Vec<Poly>) -> Option<()> {
        if p.len() == d + 1 {
            found.push(p.to_vec());
            return Some(());
        }
        let half: BigInt = (num_traits::pow(self.0.clone(), d) - 1u32) >> 1;
        for seed in 1..TRIES {
            // Multiples of 2⁶⁴ over the golden ratio, which are spread evenly.
            let spread = |i: u64| (seed * 64 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let base = (0..2 * d as u64).map(|i| BigInt::from(spread(i)));
            let base: Poly = base.chain([BigInt::one()]).collect();
            let power = self.power(&self.divided(&base, p).0, &half, p);
            let part = self.gcd(&difference(&power, &[BigInt::one()]), p)?;
            if (2..p.len()).contains(&part.len()) {
                self.split(&part, d, found)?;
                return self.split(&self.divided(p, &part).1, d, found);
            }
        }
        None
    }

    /// The least root of a polynomial; `None`: none was found.
    pub fn root(&self, p: &[BigInt]) -> Option<BigInt> {
        let p = self.monic(&self.reduced(p))?;
        let x = [BigInt::zero(), BigInt::one()];
        let power = self.power(&self.divided(&x, &p).0, self.0, &p);
        let linear = self.gcd(&difference(&power, &x), &p)?;
        let mut found = Vec::new();
        if linear.len() > 1 {
            self.split(&linear, 1, &mut found)?;
        }
        let roots = found.iter().map(|f| (-&f[0]).mod_floor(self.0));
        roots.min()
    }
}

pub fn product(a: &[BigInt], b: &[BigInt]) -> Poly {
    if a.is_empty() || b.is_empty() {
        return Vec::new();
    }
    let mut product = vec![BigInt::zero(); a.len() + b.len() - 1];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            product[i + j] += x * y;
        }
    }
    product
}

fn difference(a: &[BigInt], b: &[BigInt]) -> Poly {
    let at = |p: &[BigInt], i: usize| p.get(i).cloned().unwrap_or_default();
    let n = a.len().max(b.len());
    trim((0..n).map(|i| at(a, i) - at(b, i)).collect())
}
