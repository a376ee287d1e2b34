//! Strong stability preservation: the radius of absolute monotonicity (Kraaijevanger 1991, BIT 31, 482).
//!
//! With `K = [A 0; bᵀ 0]` a method is absolutely monotone at −r when `X = rK(I + rK)⁻¹` is nowhere negative and its rows sum to at most 1;
//! the coefficient is how far this holds. The entries of X are quotients of polynomials in r with one denominator, found by
//! Faddeev and LeVerrier's recursion in ring operations alone, so roots among the coefficients are no obstacle; the
//! coefficient is the first root of a numerator.

use crate::poly::{Extent, Poly, extent};
use crate::tableau::Tableau;
use num_integer::Integer;
use num_rational::BigRational;
use num_traits::ToPrimitive;
use odec_exact::Exact;

/// Most stages of a method whose coefficient is sought.
const MAX_STAGES: usize = 64;
/// Most products of numbers that are formed on the way.
const MAX_PRODUCTS: u64 = 400_000;
/// Largest coefficients of x² and x of the quadratic equations whose roots are recognised.
const SQUARE: i64 = 12;
const LINEAR: i64 = 120;

/// A coefficient of strong stability preservation.
#[derive(Clone, Debug, PartialEq)]
pub enum Ssp {
    /// No step is monotone.
    None,
    Unbounded,
    /// Exactly: a fraction, or a root of a quadratic equation with small coefficients.
    Exactly(Exact),
    /// Between two numbers, 2⁻⁴⁰ of it apart.
    Between(Exact, Exact),
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
    let mut first: Option<(Exact, Exact, Poly)> = None;
    for p in numerators(&k)? {
        match extent(std::slice::from_ref(&p))? {
            Extent::Infinite => {}
            Extent::Zero => return Some(Ssp::None),
            Extent::Until { lo, hi } => {
                if first.as_ref().is_none_or(|(_, known, _)| hi < *known) {
                    first = Some((lo, hi, p));
                }
            }
        }
    }
    Some(match first {
        None => Ssp::Unbounded,
        Some((lo, hi, p)) => match recognised(&p, &lo, &hi) {
            Some(r) => Ssp::Exactly(r),
            None => Ssp::Between(lo, hi),
        },
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
fn simplest(a: &BigRational, b: &BigRational) -> BigRational {
    let whole = a.ceil();
    if whole <= *b {
        return whole;
    }
    let floor = BigRational::from_integer(a.numer().div_floor(a.denom()));
    let (x, y) = ((b - &floor).recip(), (a - &floor).recip());
    floor + simplest(&x, &y).recip()
}
