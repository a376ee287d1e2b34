//! Real roots of polynomials as isolating intervals of any precision.
//!
//! Takes polynomials with exact coefficients; gives disjoint intervals in order. Leaves finding them to [`crate::descartes`], and what
//! a root means to callers.

use crate::descartes::odd_roots;
use crate::poly::Poly;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::One;
use odec_exact::Exact;
use std::cmp::Ordering;

/// Most halvings in one question.
const MAX_HALVINGS: usize = 20_000;

/// A polynomial without multiple roots.
pub struct Simple(pub Poly);

/// Its only root between two numbers, or the one that both are.
pub struct Root<'p> {
    of: &'p Simple,
    pub lo: Exact,
    pub hi: Exact,
}

/// The polynomial with each root once.
pub fn squarefree(p: &Poly) -> Option<Poly> {
    let common = p.gcd(&p.derivative())?;
    Some(p.divided(&common)?.0)
}

pub fn middle(a: &Exact, b: &Exact) -> Exact {
    &(a + b) * &Exact::ratio(1, 2)
}

/// 2ⁿ.
pub fn power_of_two(n: i64) -> Exact {
    let power = BigInt::one() << n.unsigned_abs();
    let power = BigRational::from_integer(power);
    Exact::from(if n < 0 { power.recip() } else { power })
}

impl Simple {
    /// The same roots, each once, but for those that others have.
    pub fn new(p: &Poly, others: &[Simple]) -> Option<Simple> {
        let mut poly = squarefree(p)?;
        for Simple(other) in others {
            poly = poly.divided(&poly.gcd(other)?)?.0;
        }
        Some(Simple(poly))
    }

    /// The roots in the open interval, in order.
    pub fn between(&self, from: &Exact, to: &Exact) -> Option<Vec<Root<'_>>> {
        if self.0.degree() == 0 {
            return Some(Vec::new());
        }
        let found = odd_roots(&self.0, from, to)?;
        let root = |(lo, hi)| Root { of: self, lo, hi };
        Some(found.into_iter().map(root).collect())
    }

    /// The positive roots of a rational polynomial, in order; they lie below 1 + max |cᵢ/cₙ| (Cauchy 1829).
    pub fn positive(&self) -> Option<Vec<Root<'_>>> {
        let over = crate::poly::inverse(&self.0.leading())?;
        let bits = self.0.0.iter().map(|c| {
            let c = c * &over;
            let q = c.as_rational()?;
            Some((q.numer().bits() + 1).saturating_sub(q.denom().bits()))
        });
        let bits: Option<Vec<u64>> = bits.collect();
        let most = bits?.into_iter().max()? as i64;
        self.between(&Exact::zero(), &power_of_two(most + 1))
    }

    /// The sign right of a number.
    fn after(&self, x: &Exact) -> Ordering {
        match self.0.sign_at(x) {
            Ordering::Equal => self.0.derivative().sign_at(x),
            sign => sign,
        }
    }
}

impl Root<'_> {
    pub fn halve(&mut self) {
        if self.lo == self.hi {
            return;
        }
        let middle = middle(&self.lo, &self.hi);
        match self.of.0.sign_at(&middle) {
            Ordering::Equal => (self.lo, self.hi) = (middle.clone(), middle),
            sign if sign == self.of.after(&self.lo) => self.lo = middle,
            _ => self.hi = middle,
        }
    }
    /// Until it is narrower than this.
    pub fn narrow(&mut self, width: &Exact) {
        while &self.hi - &self.lo > *width {
            self.halve();
        }
    }
}

/// Halves intervals until there is room between any two of them, and above `from` as well; in order. The roots are different.
pub fn apart<'p>(mut roots: Vec<Root<'p>>, from: &Exact) -> Option<Vec<Root<'p>>> {
    let mut left = MAX_HALVINGS;
    loop {
        roots.sort_by(|a, b| a.lo.cmp(&b.lo).then(a.hi.cmp(&b.hi)));
        let mut touching = vec![false; roots.len()];
        for i in 0..roots.len() {
            let before = match i {
                0 => from,
                _ => &roots[i - 1].hi,
            };
            if roots[i].lo <= *before {
                touching[i] = true;
                if i > 0 {
                    touching[i - 1] = true;
                }
            }
        }
        if !touching.contains(&true) {
            return Some(roots);
        }
        let halved = roots.iter_mut().zip(&touching).filter(|(_, t)| **t);
        halved.for_each(|(root, _)| root.halve());
        left = left.checked_sub(roots.len())?;
    }
}
