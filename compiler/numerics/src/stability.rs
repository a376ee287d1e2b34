//! Stability functions: what a method does to `x' = λx`, `z = hλ`, as exact rational functions (Hairer & Wanner 1996, IV.3).
//!
//! `R(z) = det(I − zA + z·1bᵀ) / det(I − zA)`, by Faddeev and LeVerrier's recursion; for explicit methods
//! stage by stage (`stages.rs`). Where `R = rⁿ`, as for n equal steps, `|R| ≤ 1` is decided on r. I-stability is decided on the E-polynomial `|Q(iy)|² − |P(iy)|²`, A-stability on it and the poles.

use crate::linear_step::LinearStep;
use crate::poly::{Extent, Poly, extent, inverse};
use crate::stages;
use crate::tableau::Tableau;
use num_integer::Integer;
use odec_exact::Exact;

/// Most stages of an implicit method whose determinants are expanded.
const MAX_STAGES: usize = 24;

/// `R = P/Q` in lowest terms, `Q(0) = 1`.
#[derive(Clone, Debug, PartialEq)]
pub struct StabilityFunction {
    pub numerator: Poly,
    pub denominator: Poly,
}

/// What follows from a stability function; `None`: not decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Stability {
    pub function: StabilityFunction,
    /// The r of lowest degree of which `function` is a power: `|r| ≤ 1` where `|R| ≤ 1`.
    pub base: StabilityFunction,
    /// `|R(iy)| ≤ 1` for all y.
    pub i_stable: Option<bool>,
    pub a_stable: Option<bool>,
    pub l_stable: Option<bool>,
    /// How far `|R(−x)| ≤ 1`.
    pub real: Option<Extent>,
    /// How far `|R(iy)| ≤ 1`, as y².
    pub imaginary_squared: Option<Extent>,
}

impl StabilityFunction {
    pub fn new(t: &Tableau) -> Option<StabilityFunction> {
        let s = t.stages();
        if t.is_explicit() {
            return Some(StabilityFunction::of_polynomial(stages::stability(t)?.0));
        }
        if s > MAX_STAGES {
            return None;
        }
        let shifted: Vec<Vec<Exact>> =
            t.a.iter()
                .map(|row| row.iter().zip(&t.b).map(|(a, b)| a - b).collect())
                .collect();
        let (p, q) = (determinant(&shifted), determinant(&t.a));
        let common = p.gcd(&q)?;
        let (p, q) = (p.divided(&common)?.0, q.divided(&common)?.0);
        let over = inverse(&q.coefficient(0))?;
        Some(StabilityFunction {
            numerator: p.scaled(&over),
            denominator: q.scaled(&over),
        })
    }

    /// That of an explicit step of one field, value by value; `None`: the step is none.
    pub fn of_linear_step(line: &LinearStep) -> Option<StabilityFunction> {
        Some(StabilityFunction::of_polynomial(
            stages::of_linear_step(line)?.0,
        ))
    }

    fn of_polynomial(numerator: Poly) -> StabilityFunction {
        StabilityFunction {
            numerator,
            denominator: Poly::constant(Exact::one()),
        }
    }

    /// The r of lowest degree with `R = rⁿ`.
    fn base(&self) -> StabilityFunction {
        let (p, q) = (&self.numerator, &self.denominator);
        let n = p.degree().gcd(&q.degree());
        let mut powers = (2..=n).rev().filter(|k| n.is_multiple_of(*k));
        let found = powers.find_map(|k| {
            Some(StabilityFunction {
                numerator: p.root(k)?,
                denominator: q.root(k)?,
            })
        });
        found.unwrap_or_else(|| self.clone())
    }

    /// A positive multiple of `|Q(iy)|² − |P(iy)|²` as a polynomial in y².
    fn e_polynomial(&self) -> Poly {
        let (p, q) = Poly::whole(&self.numerator, &self.denominator);
        absolute(&q).minus(&absolute(&p))
    }
}

fn dot(a: &[Exact], b: &[Exact]) -> Exact {
    let products = a
        .iter()
        .zip(b)
        .filter(|(a, b)| !a.is_zero() && !b.is_zero());
    products.map(|(a, b)| a * b).sum()
}

/// `|p(iy)|²` by powers of y².
fn absolute(p: &Poly) -> Poly {
    // p(iy) = even(−y²) + iy·odd(−y²)
    let part = |from: usize| {
        let terms = p.0.iter().skip(from).step_by(2).enumerate();
        Poly::new(
            terms
                .map(|(n, c)| if n % 2 == 1 { -c } else { c.clone() })
                .collect(),
        )
    };
    let (even, odd) = (part(0), part(1));
    let y2 = Poly::new(vec![Exact::zero(), Exact::one()]);
    even.times(&even).plus(&y2.times(&odd.times(&odd)))
}

/// `det(I − zM)`.
pub(crate) fn determinant(m: &[Vec<Exact>]) -> Poly {
    let n = m.len();
    // Faddeev–LeVerrier: the characteristic polynomial, whose reverse is wanted.
    let mut coefficients = vec![Exact::one()];
    let mut current: Vec<Vec<Exact>> = vec![vec![Exact::zero(); n]; n];
    for k in 1..=n {
        let last = coefficients[k - 1].clone();
        for (i, row) in current.iter_mut().enumerate() {
            row[i] = &row[i] + &last;
        }
        let columns: Vec<Vec<Exact>> = (0..n)
            .map(|j| current.iter().map(|row| row[j].clone()).collect())
            .collect();
        let product = |row: &Vec<Exact>| columns.iter().map(|c| dot(row, c)).collect();
        current = m.iter().map(product).collect();
        let trace: Exact = (0..n).map(|i| current[i][i].clone()).sum();
        coefficients.push(&trace * &Exact::ratio(-1, k as i64));
    }
    Poly::new(coefficients)
}

impl Stability {
    pub fn new(t: &Tableau) -> Option<Stability> {
        Some(Stability::of(StabilityFunction::new(t)?))
    }

    pub fn of(function: StabilityFunction) -> Stability {
        let base = function.base();
        let imaginary_squared = extent(&[base.e_polynomial()]);
        let (p, q) = Poly::whole(&base.numerator, &base.denominator);
        let (p, q) = (p.mirrored(), q.mirrored());
        // Q² − P² = (Q − P)(Q + P), which have no common roots, as P and Q have none.
        let real = extent(&[q.minus(&p), q.plus(&p)]);
        // Poles have positive real parts when those of Q(−z) have negative ones.
        let poles = q.is_hurwitz();
        // Far out, |R| grows without bound when the numerator has the higher degree.
        let unbounded = p.degree() > q.degree();
        let a_stable = match (&imaginary_squared, poles) {
            _ if unbounded => Some(false),
            (Some(Extent::Infinite), poles) => poles,
            (Some(_), _) | (_, Some(false)) => Some(false),
            (None, _) => None,
        };
        let damped = base.numerator.degree() < base.denominator.degree();
        Stability {
            i_stable: imaginary_squared.as_ref().map(|e| *e == Extent::Infinite),
            l_stable: a_stable.map(|a| a && damped),
            a_stable,
            real,
            imaginary_squared,
            function,
            base,
        }
    }
}
