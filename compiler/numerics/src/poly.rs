//! Polynomials with exact coefficients: gcd, the Routh–Hurwitz criterion, how far they are positive. Leaves roots to [`crate::descartes`].
//!
//! What divides coefficients may have no exact result ([`Exact::recip`] has limits for numbers with many radicals); such
//! questions are answered by `None`: not decided.

use crate::descartes::first_change;
use crate::modular::Residue;
use crate::series::Number;
use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_exact::Exact;
use odec_exact::fraction::{gcd, lcm};
use std::cmp::Ordering;

/// Most bits of a coefficient's numerator or denominator, times the degree, in a greatest common divisor.
const MAX_SIZE: u64 = 60_000;

/// By rising powers; the last coefficient is not 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poly(pub Vec<Exact>);

/// `1/x`.
pub(crate) fn inverse(x: &Exact) -> Option<Exact> {
    match x.as_rational() {
        Some(q) if !q.is_zero() => Some(Exact::from(q.recip())),
        Some(_) => None,
        None => x.recip().ok(),
    }
}

/// `q` with `q(0) = 1` and `qⁿ = p`, from `n p q' = p' q`; `p(0) = 1`, and n divides the degree.
fn nth_root<C: Number>(p: &[C], n: usize) -> Option<Vec<C>> {
    let degree = p.len() - 1;
    let whole = |k: i64| C::exact(&Exact::int(k));
    let mut q = vec![whole(1)];
    for k in 1..=degree + degree / n {
        let mut sum = whole(0);
        for (i, q) in q.iter().enumerate() {
            let j = k - i;
            if (1..=degree).contains(&j) {
                let factor = whole(j as i64 - (n * i) as i64);
                sum = sum.plus(&factor.times(&p[j]).times(q));
            }
        }
        if k <= degree / n {
            let over = C::exact(&Exact::ratio(1, (n * k) as i64));
            q.push(sum.times(&over));
        } else if !sum.is_zero() {
            return None;
        }
    }
    Some(q)
}

impl Poly {
    pub fn new(mut coefficients: Vec<Exact>) -> Poly {
        while coefficients.last().is_some_and(Exact::is_zero) {
            coefficients.pop();
        }
        Poly(coefficients)
    }
    pub fn constant(c: Exact) -> Poly {
        Poly::new(vec![c])
    }
    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }
    /// The degree; 0 for constants, 0 among them.
    pub fn degree(&self) -> usize {
        self.0.len().saturating_sub(1)
    }
    pub fn leading(&self) -> Exact {
        self.0.last().cloned().unwrap_or_default()
    }
    pub fn coefficient(&self, n: usize) -> Exact {
        self.0.get(n).cloned().unwrap_or_default()
    }
    pub fn at(&self, x: &Exact) -> Exact {
        let horner = |sum: Exact, c: &Exact| &(&sum * x) + c;
        self.0.iter().rev().fold(Exact::zero(), horner)
    }
    /// The sign of `p(x)`; for whole coefficients at a fraction in whole numbers.
    pub fn sign_at(&self, x: &Exact) -> Ordering {
        let whole: Option<Vec<BigInt>> = self.0.iter().map(Exact::as_integer).collect();
        let (Some(whole), Some(x)) = (whole, x.as_rational()) else {
            return self.at(x).sign();
        };
        // Σ cᵢ nⁱ dᴺ⁻ⁱ, with d > 0.
        let (mut sum, mut power) = (BigInt::zero(), BigInt::one());
        for c in whole.iter().rev() {
            sum = sum * x.numer() + c * &power;
            power *= x.denom();
        }
        sum.cmp(&BigInt::zero())
    }
    pub fn plus(&self, other: &Poly) -> Poly {
        let n = self.0.len().max(other.0.len());
        let sum = |i| &self.coefficient(i) + &other.coefficient(i);
        Poly::new((0..n).map(sum).collect())
    }
    pub fn scaled(&self, by: &Exact) -> Poly {
        Poly::new(self.0.iter().map(|c| c * by).collect())
    }
    pub fn minus(&self, other: &Poly) -> Poly {
        self.plus(&other.scaled(&Exact::int(-1)))
    }
    pub fn times(&self, other: &Poly) -> Poly {
        if self.is_zero() || other.is_zero() {
            return Poly::default();
        }
        let mut product = vec![Exact::zero(); self.0.len() + other.0.len() - 1];
        for (i, a) in self.0.iter().enumerate() {
            for (j, b) in other.0.iter().enumerate() {
                product[i + j] = &product[i + j] + &(a * b);
            }
        }
        Poly::new(product)
    }
    pub fn derivative(&self) -> Poly {
        let terms = self.0.iter().enumerate().skip(1);
        Poly::new(terms.map(|(n, c)| &Exact::int(n as i64) * c).collect())
    }
    /// `p(−x)`.
    pub fn mirrored(&self) -> Poly {
        let terms = self.0.iter().enumerate();
        Poly::new(
            terms
                .map(|(n, c)| if n % 2 == 1 { -c } else { c.clone() })
                .collect(),
        )
    }
    /// `xⁿ p(1/x)` for the degree n.
    pub fn reversed(&self) -> Poly {
        Poly::new(self.0.iter().rev().cloned().collect())
    }

    /// The polynomial q with `q(0) = 1` whose n-th power it is.
    pub(crate) fn root(&self, n: usize) -> Option<Poly> {
        if !self.coefficient(0).is_one() || !self.degree().is_multiple_of(n) {
            return None;
        }
        // What is no power modulo a prime is none.
        let residues: Option<Vec<Residue>> = self.0.iter().map(Residue::of).collect();
        if let Some(residues) = residues {
            nth_root(&residues, n)?;
        }
        nth_root(&self.0, n).map(Poly::new)
    }

    /// Divided by a positive number so that rational coefficients are small whole ones.
    pub(crate) fn primitive(self) -> Poly {
        let rational: Option<Vec<&BigRational>> = self.0.iter().map(Exact::as_rational).collect();
        let Some(rational) = rational.filter(|r| !r.is_empty()) else {
            return self;
        };
        let (mut common, mut under) = (BigInt::zero(), BigInt::one());
        for c in &rational {
            common = gcd(&common, c.numer());
            under = lcm(&under, c.denom());
        }
        let whole = |c: &&BigRational| c.numer() / &common * (&under / c.denom());
        let exact = |c| Exact::from(BigRational::from_integer(whole(c)));
        Poly::new(rational.iter().map(exact).collect())
    }

    /// Two polynomials times one positive number that makes rational coefficients whole.
    pub(crate) fn whole(p: &Poly, q: &Poly) -> (Poly, Poly) {
        let both = p.0.iter().chain(&q.0);
        let under = both.clone().try_fold(BigInt::one(), |under, c| {
            Some(lcm(&under, c.as_rational()?.denom()))
        });
        let by = Exact::from(BigRational::from_integer(under.unwrap_or_else(BigInt::one)));
        (p.scaled(&by), q.scaled(&by))
    }

    fn bits(&self) -> u64 {
        self.0.iter().map(Exact::bits).max().unwrap_or(0)
    }

    /// Quotient and remainder.
    pub fn divided(&self, by: &Poly) -> Option<(Poly, Poly)> {
        let over = inverse(&by.leading())?;
        let mut rest = self.0.clone();
        let n = by.0.len();
        let mut quotient = Vec::new();
        while rest.len() >= n {
            let c = &rest.pop()? * &over;
            let from = rest.len() + 1 - n;
            for (r, b) in rest[from..].iter_mut().zip(&by.0) {
                *r = &*r - &(&c * b);
            }
            quotient.push(c);
        }
        quotient.reverse();
        Some((Poly::new(quotient), Poly::new(rest)))
    }

    /// A positive multiple of the remainder; with rational coefficients nothing is divided on the way.
    fn remainder(&self, by: &Poly) -> Option<Poly> {
        let rational = |p: &Poly| p.0.iter().all(|c| c.as_rational().is_some());
        if !rational(self) || !rational(by) {
            return Some(self.divided(by)?.1.primitive());
        }
        let (mut rest, by) = (self.0.clone(), by.clone().primitive());
        let (lead, n) = (by.leading(), by.0.len());
        let (size, minus) = match lead.is_negative() {
            true => (-&lead, true),
            false => (lead, false),
        };
        while rest.len() >= n {
            let c = rest.pop()?;
            let c = if minus { -&c } else { c };
            let from = rest.len() + 1 - n;
            for r in &mut rest {
                *r = &*r * &size;
            }
            for (r, b) in rest[from..].iter_mut().zip(&by.0) {
                *r = &*r - &(&c * b);
            }
        }
        Some(Poly::new(rest).primitive())
    }

    pub fn gcd(&self, other: &Poly) -> Option<Poly> {
        let (mut a, mut b) = (self.clone().primitive(), other.clone().primitive());
        let size = self.degree() as u64;
        while !b.is_zero() {
            if b.bits() * size > MAX_SIZE {
                return None;
            }
            let rest = a.remainder(&b)?;
            (a, b) = (b, rest);
        }
        Some(a)
    }

    /// The product of the factors of odd multiplicity, each once: where the sign changes (Yun 1976).
    pub(crate) fn odd_part(&self) -> Option<Poly> {
        let mut odd = Poly::constant(Exact::one());
        if self.degree() == 0 {
            return Some(odd);
        }
        let derivative = self.derivative();
        let common = self.gcd(&derivative)?;
        let mut b = self.divided(&common)?.0;
        let mut d = derivative.divided(&common)?.0.minus(&b.derivative());
        let mut multiplicity = 1;
        while b.degree() > 0 {
            let factor = match d.is_zero() {
                true => b.clone(),
                false => b.gcd(&d)?,
            };
            if multiplicity % 2 == 1 {
                odd = odd.times(&factor);
            }
            b = b.divided(&factor)?.0;
            d = d.divided(&factor)?.0.minus(&b.derivative());
            multiplicity += 1;
        }
        Some(odd.primitive())
    }

    /// Whether all roots have a negative real part (Routh 1877). Constants have no roots.
    pub fn is_hurwitz(&self) -> Option<bool> {
        let n = self.degree();
        let descending: Vec<Exact> = self.0.iter().rev().cloned().collect();
        let mut upper: Vec<Exact> = descending.iter().step_by(2).cloned().collect();
        let mut lower: Vec<Exact> = descending.iter().skip(1).step_by(2).cloned().collect();
        let sign = upper.first()?.sign();
        for _ in 0..n {
            let Some(first) = lower.first().cloned() else {
                return Some(false);
            };
            if first.sign() != sign {
                return Some(false);
            }
            let ratio = &upper[0] * &inverse(&first)?;
            let next: Vec<Exact> = (1..upper.len())
                .map(|i| {
                    let below = lower.get(i).cloned().unwrap_or_default();
                    &upper[i] - &(&ratio * &below)
                })
                .collect();
            (upper, lower) = (lower, next);
        }
        Some(true)
    }
}

/// How far from 0 on a polynomial that is 0 or positive there stays so.
#[derive(Clone, Debug, PartialEq)]
pub enum Extent {
    /// It is negative at once.
    Zero,
    /// It is never negative.
    Infinite,
    /// The root at which it changes its sign lies in `(lo, hi]`.
    Until { lo: Exact, hi: Exact },
}

/// How far a product of polynomials without common roots is 0 or positive, from 0 on.
pub fn extent(factors: &[Poly]) -> Option<Extent> {
    if factors.iter().any(Poly::is_zero) {
        return Some(Extent::Infinite);
    }
    let lowest = |p: &Poly| {
        p.0.iter()
            .find(|c| !c.is_zero())
            .is_some_and(Exact::is_negative)
    };
    if factors.iter().filter(|p| lowest(p)).count() % 2 == 1 {
        return Some(Extent::Zero);
    }
    let mut first: Option<(Exact, Exact)> = None;
    for p in factors {
        if let Some((lo, hi)) = first_change(p)?
            && first.as_ref().is_none_or(|(_, known)| hi < *known)
        {
            first = Some((lo, hi));
        }
    }
    Some(match first {
        None => Extent::Infinite,
        Some((lo, hi)) => Extent::Until { lo, hi },
    })
}

/// The first root above 0, of any multiplicity, in `(lo, hi]`; `Some(None)`: there is none.
pub(crate) fn first_root(p: &Poly) -> Option<Option<(Exact, Exact)>> {
    let lowest = p.0.iter().position(|c| !c.is_zero()).unwrap_or(0);
    let p = Poly::new(p.0[lowest..].to_vec());
    if p.degree() < 2 {
        return first_change(&p);
    }
    let simple = p.divided(&p.gcd(&p.derivative())?)?.0;
    first_change(&simple)
}

/// Chebyshev's polynomials `T₀, …, Tₙ`.
pub(crate) fn chebyshev(n: usize) -> Vec<Poly> {
    let x = Poly::new(vec![Exact::zero(), Exact::one()]);
    let twice = x.scaled(&Exact::int(2));
    let mut all = vec![Poly::constant(Exact::one()), x];
    while all.len() <= n {
        let m = all.len();
        all.push(twice.times(&all[m - 1]).minus(&all[m - 2]));
    }
    all
}
