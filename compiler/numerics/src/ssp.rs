//! Strong stability preservation: the radius of absolute monotonicity (Kraaijevanger 1991, BIT 31, 482).
//!
//! With `K = [A 0; bᵀ 0]` a method is absolutely monotone at −r when `X = rK(I + rK)⁻¹` is nowhere negative and its rows sum to at most 1;
//! the coefficient is how far this holds. The entries of X are quotients of polynomials in r with one denominator, found by
//! Faddeev and LeVerrier's recursion in ring operations alone, so roots among the coefficients are no obstacle; the
//! coefficient is the first root of a numerator.

use crate::poly::{Extent, Poly, extent};
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use odec_exact::Exact;
use std::cmp::Ordering;

/// Most stages of a method whose coefficient is sought.
const MAX_STAGES: usize = 64;
/// Most products of numbers that are formed on the way.
const MAX_PRODUCTS: u64 = 400_000;
/// Largest coefficients of x² and x of the quadratic equations whose roots are recognised.
const SQUARE: i64 = 12;
const LINEAR: i64 = 120;
/// Most decimals that are compared.
const MAX_PLACES: usize = 400;

/// A coefficient of strong stability preservation.
#[derive(Clone, Debug, PartialEq)]
pub enum Ssp {
    /// No step is monotone.
    None,
    Unbounded,
    /// Exactly: a fraction, or a root of a quadratic equation with small coefficients.
    Exactly(Exact),
    /// Between two numbers, 2⁻⁴⁰ of it apart.
    Between(Enclosed),
}

/// The smallest of some algebraic numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Enclosed {
    pub lo: Exact,
    pub hi: Exact,
    /// Polynomials that change their sign once in `(lo, hi]`, at one of the numbers each.
    of: Vec<(Exact, Exact, Poly)>,
}

impl Ssp {
    /// The coefficient, compared with a number; `None`: not decided.
    pub fn compared(&self, with: &Exact) -> Option<Ordering> {
        match self {
            Ssp::None => Some(Exact::zero().cmp(with)),
            Ssp::Unbounded => Some(Ordering::Greater),
            Ssp::Exactly(c) => Some(c.cmp(with)),
            Ssp::Between(e) => e.compared(with),
        }
    }
}

impl Enclosed {
    /// The number, compared with another.
    pub fn compared(&self, with: &Exact) -> Option<Ordering> {
        let mut least = Ordering::Greater;
        for (lo, hi, p) in &self.of {
            least = least.min(change_compared(p, lo, hi, with)?);
        }
        Some(least)
    }

    /// As many decimals as tell it from another number, six at least: it lies between what is printed and one more in the last place.
    /// `None`: too many are alike.
    pub fn decimals(&self, other: &Exact) -> Option<String> {
        let ten = BigInt::from(10);
        let mut scale = BigInt::from(1_000_000);
        let at =
            |n: &BigInt, scale: &BigInt| Exact::from(BigRational::new(n.clone(), scale.clone()));
        let mut n = (self.lo.as_rational()? * BigRational::from_integer(scale.clone()))
            .floor()
            .to_integer();
        for places in 6..MAX_PLACES {
            while self.compared(&at(&(&n + 1), &scale))?.is_ge() {
                n += 1;
            }
            if *other < at(&n, &scale) || *other >= at(&(&n + 1), &scale) {
                let (whole, rest) = n.div_rem(&scale);
                return Some(format!("{whole}.{:0>places$}", rest.to_string()));
            }
            n *= &ten;
            scale *= &ten;
        }
        None
    }
}

/// Where a polynomial changes its sign, the only such place in `(lo, hi]`, compared with a number.
fn change_compared(p: &Poly, lo: &Exact, hi: &Exact, with: &Exact) -> Option<Ordering> {
    if with <= lo {
        return Some(Ordering::Greater);
    }
    if with > hi {
        return Some(Ordering::Less);
    }
    let sign = p.sign_at(with);
    if sign.is_eq() {
        return match p.derivative().sign_at(with) {
            // A multiple root need not be a change.
            Ordering::Equal => change_compared(&p.odd_part()?, lo, hi, with),
            _ => Some(Ordering::Equal),
        };
    }
    let (before, after) = (p.sign_at(lo), p.sign_at(hi));
    match (before.is_ne(), after.is_ne()) {
        (true, _) if sign == before => Some(Ordering::Greater),
        (true, _) => Some(Ordering::Less),
        (_, true) if sign == after => Some(Ordering::Less),
        (_, true) => Some(Ordering::Greater),
        // Both ends are multiple roots.
        (false, false) => change_compared(&p.odd_part()?, lo, hi, with),
    }
}

/// The coefficient of a method of one field; `None`: there are too many stages.
pub fn ssp(t: &Tableau) -> Option<Ssp> {
    // What the result does not depend on limits no step.
    let t = t.reduced();
    let n = t.stages() + 1;
    let entry = |i: usize, j: usize| match (i + 1 < n, j + 1 < n) {
        (_, false) => Exact::zero(),
        (true, true) => t.a[i][j].clone(),
        (false, true) => t.b[j].clone(),
    };
    let k: Vec<Vec<Exact>> = (0..n)
        .map(|i| (0..n).map(|j| entry(i, j)).collect())
        .collect();
    // For small r an entry of X has the sign of K's, or where that is 0 the opposite one of K²'s.
    if k.iter().flatten().any(Exact::is_negative) {
        return Some(Ssp::None);
    }
    let shared = |i: usize, j: usize| (0..n).any(|m| !k[i][m].is_zero() && !k[m][j].is_zero());
    if (0..n).any(|i| (0..n).any(|j| k[i][j].is_zero() && shared(i, j))) {
        return Some(Ssp::None);
    }
    if t.stages() > MAX_STAGES {
        return None;
    }
    let mut found: Vec<(Exact, Exact, Poly)> = Vec::new();
    for p in numerators(&k)? {
        match extent(std::slice::from_ref(&p))? {
            Extent::Infinite => {}
            Extent::Zero => return Some(Ssp::None),
            Extent::Until { lo, hi } => found.push((lo, hi, p)),
        }
    }
    // Those that may be the smallest one.
    let Some(most) = found.iter().map(|(_, hi, _)| hi.clone()).min() else {
        return Some(Ssp::Unbounded);
    };
    found.retain(|(lo, ..)| *lo < most);
    let enclosed = Enclosed {
        lo: found.iter().map(|(lo, ..)| lo.clone()).min()?,
        hi: most,
        of: found,
    };
    let exact = enclosed.of.iter().find_map(|(lo, hi, p)| {
        let root = recognised(p, lo, hi)?;
        (enclosed.compared(&root) == Some(Ordering::Equal)).then_some(root)
    });
    Some(match exact {
        Some(r) => Ssp::Exactly(r),
        None => Ssp::Between(enclosed),
    })
}

/// Numerators of the entries of X and of what its rows leave of 1. Up to the first negative one X is bounded, and with it
/// `(I + rK)⁻¹ = I − X`; so the denominator `det(I + rK)`, which begins with 1, stays positive.
fn numerators(k: &[Vec<Exact>]) -> Option<Vec<Poly>> {
    let n = k.len();
    let mut products = 0;
    // adj(I + rK) = Σ rᵐ Aₘ and det(I + rK) = Σ eₘ rᵐ: A₀ = I, eₘ = tr(K Aₘ₋₁)/m, Aₘ = eₘ I − K Aₘ₋₁.
    let unit = |i: usize, j: usize| Exact::int(i64::from(i == j));
    let mut adjoint: Vec<Vec<Exact>> = (0..n)
        .map(|i| (0..n).map(|j| unit(i, j)).collect())
        .collect();
    let mut determinant = vec![Exact::one()];
    let mut entries = vec![vec![vec![Exact::zero()]; n]; n];
    for m in 1..=n {
        let mut next = vec![vec![Exact::zero(); n]; n];
        for (row, next) in k.iter().zip(&mut next) {
            for (by, from) in row.iter().zip(&adjoint).filter(|(by, _)| !by.is_zero()) {
                for (x, a) in next.iter_mut().zip(from).filter(|(_, a)| !a.is_zero()) {
                    *x = &*x + &(by * a);
                    products += 1;
                }
            }
        }
        if products > MAX_PRODUCTS {
            return None;
        }
        let trace: Exact = (0..n).map(|i| next[i][i].clone()).sum();
        let e = &trace * &Exact::ratio(1, m as i64);
        for i in 0..n {
            for j in 0..n {
                entries[i][j].push(next[i][j].clone());
                let own = if i == j { e.clone() } else { Exact::zero() };
                adjoint[i][j] = &own - &next[i][j];
            }
        }
        determinant.push(e);
    }
    let determinant = Poly::new(determinant);
    let mut all = Vec::new();
    for row in entries {
        let row: Vec<Poly> = row.into_iter().map(Poly::new).collect();
        all.push(row.iter().fold(determinant.clone(), |d, p| d.minus(p)));
        all.extend(row);
    }
    Some(all)
}

/// The root in an interval, where it is a simple number.
fn recognised(p: &Poly, lo: &Exact, hi: &Exact) -> Option<Exact> {
    let (a, b) = (lo.as_rational()?, hi.as_rational()?);
    let simple = Exact::from(simplest(a, b));
    if p.at(&simple).is_zero() {
        return Some(simple);
    }
    // Candidates are found in floating point; what is returned is a root.
    let x = hi.to_f64();
    for square in 1..=SQUARE {
        for linear in -LINEAR..=LINEAR {
            let rest = square as f64 * x * x + linear as f64 * x;
            let constant = (-rest).round();
            if (rest + constant).abs() > 1e-8 || constant.abs() > 1e6 {
                continue;
            }
            let under = linear * linear - 4 * square * constant.to_i64()?;
            let Ok(root) = Exact::int(under).root(2) else {
                continue;
            };
            for sign in [1, -1] {
                let top = &Exact::int(-linear) + &(&root * &Exact::int(sign));
                let found = &top * &Exact::ratio(1, 2 * square);
                if found >= *lo && found <= *hi && p.at(&found).is_zero() {
                    return Some(found);
                }
            }
        }
    }
    None
}

/// The fraction with the smallest denominator in `[a, b]`, by continued fractions; `0 ≤ a < b`.
pub(crate) fn simplest(a: &BigRational, b: &BigRational) -> BigRational {
    let whole = a.ceil();
    if whole <= *b {
        return whole;
    }
    let floor = BigRational::from_integer(a.numer().div_floor(a.denom()));
    let (x, y) = ((b - &floor).recip(), (a - &floor).recip());
    floor + simplest(&x, &y).recip()
}
