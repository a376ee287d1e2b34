//! Roots and reciprocals of exact numbers.

use super::radical::{Radical, factors};
use super::{Exact, ExactError, MAX_BITS};
use num_bigint::{BigInt, BigUint};
use num_rational::{BigRational, Ratio};
use num_traits::{One, Zero};
use std::cmp::Ordering;

/// Highest degree of a root.
pub const MAX_DEGREE: u32 = 12;
/// Most radicals of the field in which a reciprocal is sought.
const MAX_DIMENSION: usize = 12;
/// Deepest nesting of square roots that are taken apart.
const MAX_DENESTING: usize = 4;

impl Exact {
    /// The real root of a degree: positive for positive numbers, negative for negative ones of odd degree.
    pub fn root(&self, degree: u32) -> Result<Exact, ExactError> {
        if !(1..=MAX_DEGREE).contains(&degree) {
            return Err(ExactError::Degree);
        }
        match self.sign() {
            _ if degree == 1 => Ok(self.clone()),
            Ordering::Equal => Ok(Exact::zero()),
            Ordering::Less if degree.is_multiple_of(2) => Err(ExactError::NotReal),
            Ordering::Less => Ok(-&positive(&-self, degree)?),
            Ordering::Greater => positive(self, degree),
        }
    }

    /// `1/x`: the solution y of x·y = 1 in the field that the radicals of x span.
    pub fn recip(&self) -> Result<Exact, ExactError> {
        if self.is_zero() {
            return Err(ExactError::DivisionByZero);
        }
        if let Some((r, c)) = self.as_term() {
            let (whole, inverse) = r.inverse();
            return multiple(inverse, whole / c).checked();
        }
        let basis = self.basis()?;
        let bits = self
            .terms()
            .map(|(_, c)| c.numer().bits().max(c.denom().bits()));
        if bits.max().unwrap_or(0) * basis.len() as u64 > MAX_BITS {
            return Err(ExactError::TooLarge);
        }
        // In whole numbers, which multiply fast: d·x instead of x.
        let d = self.terms().fold(BigInt::one(), |d, (_, c)| {
            let part = c * &d;
            d * part.denom()
        });
        let x = self.scaled(&BigRational::from_integer(d.clone()));
        let one = BigRational::one();
        let columns = basis.iter().map(|r| &x * &multiple(r.clone(), one.clone()));
        let columns: Vec<Exact> = columns.collect();
        let row = |r: &Radical| -> Vec<BigInt> {
            let entries = columns.iter().map(|c| c.before(r).to_integer());
            entries
                .chain([BigInt::from(u8::from(r.is_one()))])
                .collect()
        };
        let mut rows: Vec<Vec<BigInt>> = basis.iter().map(row).collect();
        let determinant = solve(&mut rows)?;
        let mut inverse = Exact::zero();
        for (r, mut row) in basis.into_iter().zip(rows) {
            let c = row.pop().unwrap_or_default() * &d;
            inverse = &inverse + &multiple(r, BigRational::new(c, determinant.clone()));
        }
        inverse.checked()
    }

    /// The only term, when there is one.
    fn as_term(&self) -> Option<(Radical, &BigRational)> {
        let mut terms = self.terms();
        let first = terms.next()?;
        terms.next().is_none().then_some(first)
    }

    /// What stands before a radical.
    fn before(&self, r: &Radical) -> BigRational {
        let found = if r.is_one() {
            Some(&self.rational)
        } else {
            self.roots.get(r)
        };
        found.cloned().unwrap_or_else(BigRational::zero)
    }

    /// All products of the radicals: a basis of the field they span. The first one is 1.
    fn basis(&self) -> Result<Vec<Radical>, ExactError> {
        let mut basis = vec![Radical::one()];
        let mut at = 0;
        while at < basis.len() {
            for r in self.roots.keys() {
                let (_, product) = basis[at].times(r);
                if !basis.contains(&product) {
                    basis.push(product);
                }
            }
            if basis.len() > MAX_DIMENSION {
                return Err(ExactError::TooLarge);
            }
            at += 1;
        }
        Ok(basis)
    }
}

fn multiple(r: Radical, c: BigRational) -> Exact {
    let mut x = Exact::zero();
    if !c.is_zero() {
        x.add_radical(r, c);
    }
    x
}

/// Elimination in whole numbers (Bareiss 1968, Math. Comp. 22, 565): the last column becomes the solution times the
/// determinant, which is returned.
fn solve(rows: &mut [Vec<BigInt>]) -> Result<BigInt, ExactError> {
    let mut last = BigInt::one();
    for j in 0..rows.len() {
        let pivot = (j..rows.len()).find(|i| !rows[*i][j].is_zero());
        rows.swap(j, pivot.ok_or(ExactError::DivisionByZero)?);
        let pivot = rows[j].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != j) {
            let by = row[j].clone();
            for (x, p) in row.iter_mut().zip(&pivot) {
                *x = (&*x * &pivot[j] - &by * p) / &last;
            }
        }
        last = pivot[j].clone();
    }
    Ok(last)
}

/// The root of a positive number.
fn positive(x: &Exact, degree: u32) -> Result<Exact, ExactError> {
    match x.as_term() {
        Some((r, c)) => term(&r, c, degree),
        None if degree.is_multiple_of(2) => square(x, MAX_DENESTING)?.root(degree / 2),
        None => Err(ExactError::Nested),
    }
}

/// The root of one term.
fn term(r: &Radical, c: &BigRational, degree: u32) -> Result<Exact, ExactError> {
    let (n, d) = (c.numer().magnitude(), c.denom().magnitude());
    let whole = |n: &BigUint| Some(n.nth_root(degree)).filter(|root| root.pow(degree) == *n);
    if let (true, Some(n), Some(d)) = (r.is_one(), whole(n), whole(d)) {
        return Ok(Exact::from(BigRational::new(n.into(), d.into())));
    }
    let (n, d) = (factors(n)?, factors(d)?);
    let one = n.iter().map(|(p, k)| (*p, Ratio::from_integer(*k)));
    let over = d.iter().map(|(p, k)| (*p, Ratio::from_integer(-*k)));
    let powers = one.chain(over).chain(r.powers());
    let (whole, radical) = Radical::of(powers.map(|(p, e)| (p, e / i64::from(degree))));
    if radical
        .powers()
        .any(|(_, e)| *e.denom() > i64::from(MAX_DEGREE))
    {
        return Err(ExactError::Degree);
    }
    multiple(radical, whole).checked()
}

/// The square root of a positive number by `√(a + b) = √((a+s)/2) ± √((a−s)/2)`, s² = a² − b², where b holds the
/// terms with √p for some prime p and all these roots exist.
fn square(x: &Exact, depth: usize) -> Result<Exact, ExactError> {
    if let Some((r, c)) = x.as_term() {
        return term(&r, c, 2);
    }
    let inner = depth.checked_sub(1).ok_or(ExactError::Nested)?;
    if x.rational.is_zero() {
        // √(r·y) = √r·√y, so that one term is rational.
        let r = x.roots.keys().next().ok_or(ExactError::Nested)?;
        let (whole, inverse) = r.inverse();
        let y = (x * &multiple(inverse, whole)).checked()?;
        return (&term(r, &BigRational::one(), 2)? * &square(&y, inner)?).checked();
    }
    let primes = x.roots.keys().flat_map(Radical::powers).map(|(p, _)| p);
    let p = primes.max().ok_or(ExactError::Nested)?;
    let (mut a, mut b) = (Exact::zero(), Exact::zero());
    for (r, c) in x.terms() {
        match r.exponent(p) {
            e if e.is_zero() => a = &a + &multiple(r, c.clone()),
            e if e == Ratio::new(1, 2) => b = &b + &multiple(r, c.clone()),
            _ => return Err(ExactError::Nested),
        }
    }
    let s = (&(&a * &a) - &(&b * &b)).checked()?;
    if a.is_negative() || s.is_negative() {
        return Err(ExactError::Nested);
    }
    let s = square(&s, inner)?;
    let half = Exact::ratio(1, 2);
    let larger = square(&(&(&a + &s) * &half), inner)?;
    let smaller = square(&(&(&a - &s) * &half), inner)?;
    let found = if b.is_negative() {
        &larger - &smaller
    } else {
        &larger + &smaller
    };
    let found = found.checked()?;
    if &found * &found == *x {
        Ok(found)
    } else {
        Err(ExactError::Nested)
    }
}
