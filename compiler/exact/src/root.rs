//! Roots and reciprocals of exact numbers.

use super::radical::{Radical, Unit, factors};
use super::{Exact, ExactError, MAX_BITS, denest};
use num_bigint::BigInt;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Zero};
use std::cmp::Ordering;

/// Highest degree of a root.
pub const MAX_DEGREE: u32 = 12;
/// Highest degree of a product of roots.
const MAX_COMPOSITE: u32 = 1 << 10;
/// Most radicals of the field in which a reciprocal is sought.
const MAX_DIMENSION: usize = 12;
/// The same where powers of a polynomial's root are beside them.
const MAX_PRODUCTS: usize = 36;

impl Exact {
    /// The real root of a degree: positive for positive numbers, negative for negative ones of odd degree.
    ///
    /// Degrees above [`MAX_DEGREE`] are those of products of roots, which are printed as one root: `root(2, 3)*root(2, 5)` is `root(256, 15)`.
    pub fn root(&self, degree: u32) -> Result<Exact, ExactError> {
        let of_one_term = degree <= MAX_DEGREE || self.as_term().is_some();
        if !of_one_term || !is_degree(degree) {
            return Err(ExactError::Degree);
        }
        if let Some(why) = self.tower.fault() {
            return Err(why);
        }
        if degree > 1 && self.has_generator() {
            return Err(ExactError::RootOfGenerator);
        }
        match self.sign() {
            _ if degree == 1 => Ok(self.clone()),
            Ordering::Equal => Ok(Exact::zero()),
            Ordering::Less if degree.is_multiple_of(2) => Err(ExactError::NotReal),
            Ordering::Less => Ok(-&positive(&-self, degree)?),
            Ordering::Greater => positive(self, degree),
        }
    }

    /// `1/x`: for a nested root n, `1/(a + b·n) = (a − b·n)/(a² − b²·n²)`, where the divisor has no n; without nested roots,
    /// the solution y of x·y = 1 in the field that the radicals of x span, and the polynomial's root in it.
    pub fn recip(&self) -> Result<Exact, ExactError> {
        if let Some(why) = self.tower.fault() {
            return Err(why);
        }
        if self.is_zero() {
            return Err(ExactError::DivisionByZero);
        }
        if let Some(top) = self.top() {
            let (a, b) = self.split(top);
            let below = denest::norm(&a, &b, &self.tower.radicand(top))?;
            let conjugate = &a - &(&b * &self.tower.generator(top));
            return (&conjugate * &below.recip()?).checked();
        }
        if let Some((r, c)) = self.as_term() {
            let (whole, inverse) = r.inverse();
            return multiple(inverse, whole / c).checked();
        }
        let basis = self.basis()?;
        if self.bits() * basis.len() as u64 > MAX_BITS {
            return Err(ExactError::TooLarge);
        }
        // In whole numbers, which multiply fast: d·x instead of x.
        let d = self.terms().fold(BigInt::one(), |d, (_, c)| {
            let part = c * &d;
            d * part.denom()
        });
        let x = self.scaled(&BigRational::from_integer(d.clone()));
        let one = BigRational::one();
        let unit =
            |u: &Unit, c: BigRational| Exact::of_terms(&x.tower, [(u.clone(), c)].into_iter());
        let columns: Vec<Exact> = basis.iter().map(|u| &x * &unit(u, one.clone())).collect();
        let row = |r: &Unit| -> Vec<BigInt> {
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
            inverse = &inverse + &unit(&r, BigRational::new(c, determinant.clone()));
        }
        inverse.settled().checked()
    }

    /// The only term, when there is one and it has no nested root.
    pub(super) fn as_term(&self) -> Option<(Radical, &BigRational)> {
        let mut terms = self.terms();
        let (unit, c) = terms.next()?;
        let alone = terms.next().is_none() && unit.nested == 0 && unit.power == 0;
        alone.then_some((unit.radical, c))
    }

    /// The coefficient of a unit.
    fn before(&self, r: &Unit) -> BigRational {
        let found = if r.is_one() {
            Some(&self.rational)
        } else {
            self.roots.get(r)
        };
        found.cloned().unwrap_or_else(BigRational::zero)
    }

    /// All products of the radicals with powers of the polynomial's root: a basis of the field they span. The first one is 1.
    fn basis(&self) -> Result<Vec<Unit>, ExactError> {
        let mut basis = vec![Radical::one()];
        let mut at = 0;
        while at < basis.len() {
            for unit in self.roots.keys() {
                let (_, product) = basis[at].times(&unit.radical);
                if !basis.contains(&product) {
                    basis.push(product);
                }
            }
            if basis.len() > MAX_DIMENSION {
                return Err(ExactError::TooLarge);
            }
            at += 1;
        }
        let powers = match self.has_generator() {
            true => self.tower.degree(),
            false => 1,
        };
        if powers > 1 && powers * basis.len() > MAX_PRODUCTS {
            return Err(ExactError::TooLarge);
        }
        let with = |power: usize| {
            let unit = move |radical: &Radical| Unit {
                power: power as u32,
                radical: radical.clone(),
                ..Unit::default()
            };
            basis.iter().map(unit)
        };
        Ok((0..powers).flat_map(with).collect())
    }
}

pub(super) fn multiple(r: Radical, c: BigRational) -> Exact {
    let mut x = Exact::zero();
    x.add_unit(r.into(), c);
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
        None if degree.is_multiple_of(2) => {
            let x = x.trimmed();
            let root = denest::root_in(&x, &x.tower, x.tower.generators().len())?;
            let root = root.map_or_else(|| x.adjoined_root(), |r| r.settled().checked())?;
            root.root(degree / 2)
        }
        None => Err(ExactError::Nested),
    }
}

/// The root of one term.
pub(super) fn term(r: &Radical, c: &BigRational, degree: u32) -> Result<Exact, ExactError> {
    let (n, above) = factors(c.numer().magnitude(), degree)?;
    let (d, below) = factors(c.denom().magnitude(), degree)?;
    let one = n.iter().map(|(p, k)| (*p, Ratio::from_integer(*k)));
    let over = d.iter().map(|(p, k)| (*p, Ratio::from_integer(-*k)));
    let powers = one.chain(over).chain(r.powers());
    let (whole, radical) = Radical::of(powers.map(|(p, e)| (p, e / i64::from(degree))));
    if !radical
        .powers()
        .all(|(_, e)| is_degree(e.denom().unsigned_abs() as u32))
    {
        return Err(ExactError::Degree);
    }
    multiple(
        radical,
        whole * BigRational::new(above.into(), below.into()),
    )
    .checked()
}

/// Whether it is a product of coprime degrees up to [`MAX_DEGREE`].
fn is_degree(degree: u32) -> bool {
    let mut rest = degree;
    for prime in 2..=MAX_DEGREE {
        let mut power = 1;
        while rest.is_multiple_of(prime) && rest > 0 {
            (power, rest) = (power * prime, rest / prime);
        }
        if power > MAX_DEGREE {
            return false;
        }
    }
    rest == 1 && degree <= MAX_COMPOSITE
}
