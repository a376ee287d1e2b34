//! Generators of number fields: real roots of irreducible polynomials that do not lie among the roots of rational numbers.
//!
//! A generator θ is an algebraic integer, so products of its powers are whole combinations of 1, θ, …, θⁿ⁻¹. It stands below
//! the nested square roots of a tower, beside all radicals: `choose.rs` admits it only where its polynomial stays irreducible
//! over the field of all of them, so the products of its powers with other units are linearly independent.

use super::enclose::Enclosure;
use super::poly::{Between, Poly, degree, derivative, real_roots, sign_at};
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};
use std::fmt;

/// Binary places up to which the interval of a root is kept.
const KEPT: u64 = 192;
/// Binary places that Newton's method has more than its result.
const GUARD: u64 = 64;

/// A real root of a monic irreducible polynomial with whole coefficients.
#[derive(Debug, PartialEq, Eq)]
pub struct PolynomialRoot {
    pub polynomial: Poly,
    /// Which of its real roots, counted from the least one.
    pub place: usize,
    near: Between,
    /// The shortest decimal that is nearer to this root than half its distance from the next one.
    decimal: String,
    /// θⁿ, θⁿ⁺¹, … θ²ⁿ⁻² over the lower powers.
    powers: Vec<Poly>,
}

impl PolynomialRoot {
    /// All real roots of a polynomial, rising.
    pub fn all(polynomial: &Poly) -> Vec<PolynomialRoot> {
        let narrowed = |near: Between| near.narrowed(polynomial, KEPT);
        let roots: Vec<Between> = real_roots(polynomial).into_iter().map(narrowed).collect();
        let value = |near: &Between| near.ends()[0].to_f64().unwrap_or(f64::NAN);
        let values: Vec<f64> = roots.iter().map(value).collect();
        let root = |(place, near): (usize, Between)| PolynomialRoot {
            place,
            near,
            decimal: decimal(&values, place),
            powers: powers(polynomial),
            polynomial: polynomial.clone(),
        };
        roots.into_iter().enumerate().map(root).collect()
    }

    pub fn degree(&self) -> usize {
        degree(&self.polynomial)
    }

    /// A power below the square of the highest one, over those of the basis.
    pub fn power(&self, k: usize) -> Poly {
        match k.checked_sub(self.degree()) {
            Some(above) => self.powers[above].clone(),
            None => {
                let mut one = vec![BigInt::zero(); k + 1];
                one[k] = BigInt::one();
                one
            }
        }
    }

    /// Two numbers that only this root of the polynomial lies between.
    pub fn ends(&self) -> [BigRational; 2] {
        self.near.ends()
    }

    pub fn enclosure(&self, bits: u64) -> Enclosure {
        let near = self.to(bits);
        let cut = near.bits - bits;
        let lo = &near.lo >> cut;
        Enclosure { hi: &lo + 1, lo }
    }

    /// An interval with at least so many binary places: Newton's method doubles them, and a change of sign confirms it.
    fn to(&self, bits: u64) -> Between {
        if bits <= self.near.bits {
            return self.near.clone();
        }
        let from = self.to(bits / 2 + 1);
        let slope = derivative(&self.polynomial);
        let inner = bits + GUARD;
        let mut x = &from.lo << (inner - from.bits);
        for _ in 0..3 {
            let below = value(&slope, &x, inner);
            if below.is_zero() {
                break;
            }
            x -= (value(&self.polynomial, &x, inner) << inner) / below;
        }
        let guess: BigInt = x >> GUARD;
        for lo in [guess.clone(), &guess - 1, guess + 1] {
            let near = Between { lo, bits };
            let inside = from.ends()[0] <= near.ends()[0] && near.ends()[1] <= from.ends()[1];
            let at = |x: &BigInt| sign_at(&self.polynomial, x, bits);
            if inside && at(&near.lo) != at(&(&near.lo + 1)) {
                return near;
            }
        }
        from.narrowed(&self.polynomial, bits)
    }

    /// No root of the polynomial, real or not, is larger (Fujiwara 1916).
    pub fn bound(&self) -> f64 {
        let n = self.degree();
        let size = |(i, c): (usize, &BigInt)| 2f64.powf(c.bits() as f64 / (n - i) as f64);
        let lower = self.polynomial[..n].iter().enumerate();
        2.0 * lower.map(size).fold(0.0, f64::max) * (1.0 + 1e-9)
    }
}

/// About `p(x / 2ᵇ) · 2ᵇ`.
fn value(p: &[BigInt], x: &BigInt, bits: u64) -> BigInt {
    let horner = |sum: BigInt, c: &BigInt| ((sum * x) >> bits) + (c << bits);
    p.iter().rev().fold(BigInt::zero(), horner)
}

/// From θⁿ to θ²ⁿ⁻².
fn powers(p: &Poly) -> Vec<Poly> {
    let n = degree(p);
    let mut power: Poly = p[..n].iter().map(|c| -c).collect();
    let mut all = Vec::new();
    for _ in n..2 * n - 1 {
        all.push(power.clone());
        let top = power.pop().unwrap_or_default();
        power.insert(0, BigInt::zero());
        for (c, own) in power.iter_mut().zip(&p[..n]) {
            *c -= &top * own;
        }
    }
    all
}

/// As it is written: `root(x^3 - 3*x + 1, 0.35)`.
impl fmt::Display for PolynomialRoot {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("root(")?;
        let terms = self.polynomial.iter().enumerate().rev();
        for (i, c) in terms.filter(|(_, c)| !c.is_zero()) {
            if i < self.degree() {
                f.write_str(if c.is_negative() { " - " } else { " + " })?;
            }
            match (i, c.magnitude()) {
                (0, n) => write!(f, "{n}")?,
                (_, n) if n.is_one() => {}
                (_, n) => write!(f, "{n}*")?,
            }
            match i {
                0 => {}
                1 => f.write_str("x")?,
                _ => write!(f, "x^{i}")?,
            }
        }
        write!(f, ", {})", self.decimal)
    }
}

/// The shortest decimal that is nearer to the root at `place` than half its distance from the next one.
fn decimal(roots: &[f64], place: usize) -> String {
    let value = roots[place];
    let apart = |x: f64| {
        let others = roots.iter().enumerate().filter(|(i, _)| *i != place);
        let distances = others.map(|(_, o)| (o - x).abs());
        distances.fold(f64::INFINITY, f64::min)
    };
    let clear = |text: &String| {
        let x: f64 = text.parse().unwrap_or(f64::NAN);
        4.0 * (x - value).abs() < apart(x) && (x - value).abs() < value.abs() / 64.0
    };
    let mut texts = (1..17).map(|digits| format!("{value:.digits$}"));
    texts.find(clear).unwrap_or_else(|| value.to_string())
}
