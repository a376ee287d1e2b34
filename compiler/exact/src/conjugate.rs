//! Roots of two polynomials in one field.
//!
//! Let r and s be roots of monic irreducible polynomials f and g of one degree n, all of whose roots are real. If s = φ(r) for a
//! polynomial φ over the rationals, the conjugates of s are φ of those of r in some order σ, and f'(r)·φ(r) is a whole
//! combination of 1, r, …, rⁿ⁻¹ (Euler; Neukirch 1992, Algebraische Zahlentheorie, III.2.4): the polynomial
//! `Σ s_σ(i) f(x)/(x − rᵢ)`. So φ is found by rounding, and then verified: g(φ(r)) = 0 exactly. The other roots of a cubic are
//! `(t − r ± √D/f'(r))/2`, t the sum of all and D the discriminant. Leaves undecided what it does not find.

use super::poly::{Poly, derivative, discriminant};
use super::polynomial_root::PolynomialRoot;
use super::{Exact, ExactError};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use std::sync::Arc;

/// Highest degree for which all orders of the roots are tried.
const MAX_TRIED: usize = 5;

type Common = (Option<Arc<PolynomialRoot>>, [Option<Exact>; 2]);

/// One of two roots, and the other one expressed by it; `None` stands for the chosen root itself.
pub fn common(a: &Arc<PolynomialRoot>, b: &Arc<PolynomialRoot>) -> Result<Common, ExactError> {
    if a == b {
        return Ok((Some(a.clone()), [None, None]));
    }
    // In the same order from both sides, so that sums do not depend on theirs.
    let key = |r: &Arc<PolynomialRoot>| {
        let size: u64 = r.polynomial.iter().map(BigInt::bits).sum();
        (size, r.polynomial.clone(), r.place)
    };
    match key(a) < key(b) {
        true => Ok((Some(a.clone()), [None, Some(expressed(b, a)?)])),
        false => Ok((Some(b.clone()), [Some(expressed(a, b)?), None])),
    }
}

/// `s` in a field that holds `r`.
fn expressed(s: &PolynomialRoot, r: &Arc<PolynomialRoot>) -> Result<Exact, ExactError> {
    let n = r.degree();
    let (from, to) = (
        PolynomialRoot::all(&r.polynomial),
        PolynomialRoot::all(&s.polynomial),
    );
    if s.degree() != n || n > MAX_TRIED || from.len() != n || to.len() != n {
        return Err(ExactError::TwoPolynomials);
    }
    for order in orders(n) {
        let Some(whole) = rounded(r, &from, &to, &order) else {
            continue;
        };
        // s is the image of this root of f.
        let at = order.iter().position(|j| *j == s.place);
        let own = match at {
            Some(at) if at == r.place => Some(Exact::of_polynomial(r.clone())),
            Some(at) if n == 3 => Some(conjugate(r, &from[at])?),
            _ => None,
        };
        let Some(own) = own else { continue };
        let image = &value(&whole, &own) * &value(&derivative(&r.polynomial), &own).recip()?;
        let [lo, hi] = s.ends().map(Exact::from);
        if value(&s.polynomial, &image).is_zero() && lo < image && image < hi {
            return image.checked();
        }
    }
    Err(ExactError::TwoPolynomials)
}

/// All orders of the first n numbers.
fn orders(n: usize) -> Vec<Vec<usize>> {
    (0..n).fold(vec![Vec::new()], |all, last| {
        let insert = |order: &Vec<usize>| -> Vec<Vec<usize>> {
            let at = |place: usize| {
                let mut next = order.clone();
                next.insert(place, last);
                next
            };
            (0..=order.len()).map(at).collect()
        };
        all.iter().flat_map(insert).collect()
    })
}

/// The whole numbers nearest to the coefficients of `Σ s_σ(i) f(x)/(x − rᵢ)`; `None`: one is far from any.
fn rounded(
    r: &PolynomialRoot,
    from: &[PolynomialRoot],
    to: &[PolynomialRoot],
    order: &[usize],
) -> Option<Poly> {
    let n = r.degree();
    let size = |roots: &[PolynomialRoot]| -> u64 {
        roots[0]
            .polynomial
            .iter()
            .map(BigInt::bits)
            .max()
            .unwrap_or(0)
    };
    // Roots have at most as many binary digits as coefficients, and a quotient's coefficients as many again each time.
    let bits = 128 + n as u64 * (size(from) + 1) + size(to);
    let mut sums = vec![BigInt::zero(); n];
    for (r, j) in from.iter().zip(order) {
        let (x, s) = (r.enclosure(bits).lo, to[*j].enclosure(bits).lo);
        let mut quotient = BigInt::one() << bits;
        for k in (0..n).rev() {
            sums[k] += (&quotient * &s) >> bits;
            quotient = ((&quotient * &x) >> bits) + (&r.polynomial[k] << bits);
        }
    }
    let near = |sum: BigInt| {
        let whole = (&sum + (BigInt::one() << (bits - 1))) >> bits;
        let rest: BigInt = sum - (&whole << bits);
        (rest.bits() < bits - 32).then_some(whole)
    };
    sums.into_iter().map(near).collect()
}

/// A polynomial's value, by Horner's scheme.
fn value(p: &[BigInt], at: &Exact) -> Exact {
    let whole = |c: &BigInt| Exact::from(BigRational::from_integer(c.clone()));
    p.iter()
        .rev()
        .fold(Exact::zero(), |sum, c| &(&sum * at) + &whole(c))
}

/// Another root of a cubic.
fn conjugate(r: &Arc<PolynomialRoot>, other: &PolynomialRoot) -> Result<Exact, ExactError> {
    let own = Exact::of_polynomial(r.clone());
    let slope = value(&derivative(&r.polynomial), &own);
    let apart = &Exact::from(discriminant(&r.polynomial)).root(2)? * &slope.recip()?;
    let sum = -&Exact::from(BigRational::from_integer(r.polynomial[2].clone()));
    let [lo, hi] = other.ends().map(Exact::from);
    for apart in [apart.clone(), -&apart] {
        let x = &(&(&sum - &own) + &apart) * &Exact::ratio(1, 2);
        if lo < x && x < hi {
            return Ok(x);
        }
    }
    Err(ExactError::TwoPolynomials)
}
