//! Whole numbers of a real number field: what order conditions are computed in.
//!
//! Coefficients are brought to one denominator d, and what belongs to a tree of n vertices is kept times dⁿ: then there are
//! only sums and products of whole numbers, and nothing is ever cancelled. With roots among the coefficients, a
//! number is a sum of whole multiples of radicals; their products are looked up in a table.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_exact::{Exact, Radical};

/// Most radicals that products of the coefficients may have.
const MAX_DIMENSION: usize = 48;

/// One whole number for each radical of the ring.
pub type Int = Vec<BigInt>;

/// The radicals that occur in products of some numbers, and the numbers' common denominator.
pub struct Ring {
    radicals: Vec<Radical>,
    /// `radicals[i]·radicals[j]` is a whole number times a radical.
    products: Vec<Vec<(BigInt, usize)>>,
    denominator: BigInt,
}

impl Ring {
    /// A ring for some numbers; `None`: their products have too many different radicals.
    pub fn of<'e>(numbers: impl Iterator<Item = &'e Exact> + Clone) -> Option<Ring> {
        let mut radicals = vec![Radical::one()];
        let mut denominator = BigInt::one();
        let mut generators: Vec<Radical> = Vec::new();
        for (r, c) in numbers.flat_map(Exact::terms) {
            let scaled = c * &denominator;
            denominator *= scaled.denom();
            if !r.is_one() && !generators.contains(&r) {
                generators.push(r);
            }
        }
        let mut at = 0;
        while at < radicals.len() {
            for g in &generators {
                let (_, product) = radicals[at].times(g);
                if !radicals.contains(&product) {
                    radicals.push(product);
                }
            }
            if radicals.len() > MAX_DIMENSION {
                return None;
            }
            at += 1;
        }
        let product = |r: &Radical, s: &Radical| {
            let (whole, radical) = r.times(s);
            let place = radicals.iter().position(|r| *r == radical)?;
            Some((whole.to_integer(), place))
        };
        let row = |r| radicals.iter().map(|s| product(r, s)).collect();
        let products: Option<Vec<Vec<_>>> = radicals.iter().map(row).collect();
        Some(Ring {
            products: products?,
            radicals,
            denominator,
        })
    }

    /// The common denominator d.
    pub fn denominator(&self) -> &BigInt {
        &self.denominator
    }
    pub fn zero(&self) -> Int {
        vec![BigInt::zero(); self.radicals.len()]
    }
    pub fn one(&self) -> Int {
        let mut one = self.zero();
        one[0] = BigInt::one();
        one
    }

    /// d times a number that the ring was made for.
    pub fn scaled(&self, x: &Exact) -> Int {
        let mut int = self.zero();
        for (r, c) in x.terms() {
            if let Some(i) = self.radicals.iter().position(|s| *s == r) {
                int[i] = (c * &self.denominator).to_integer();
            }
        }
        int
    }

    /// `sum += a·b`.
    pub fn add_product(&self, sum: &mut Int, a: &Int, b: &Int) {
        for (a, row) in a.iter().zip(&self.products).filter(|(a, _)| !a.is_zero()) {
            for (b, (whole, place)) in b.iter().zip(row).filter(|(b, _)| !b.is_zero()) {
                if whole.is_one() {
                    sum[*place] += a * b;
                } else {
                    sum[*place] += a * b * whole;
                }
            }
        }
    }
    pub fn product(&self, a: &Int, b: &Int) -> Int {
        let mut product = self.zero();
        self.add_product(&mut product, a, b);
        product
    }

    /// `x / over`.
    pub fn exact(&self, x: &Int, over: &BigInt) -> Exact {
        let terms = self.radicals.iter().zip(x);
        let terms = terms.map(|(r, c)| (r.clone(), BigRational::new(c.clone(), over.clone())));
        terms.collect()
    }
}

/// Whether a number is 0.
pub fn is_zero(x: &Int) -> bool {
    x.iter().all(Zero::is_zero)
}
