//! Integers of a real number field, in which order conditions are computed.
//!
//! Coefficients are brought to one denominator d, and what belongs to a tree of n vertices is kept times dⁿ: then there are
//! only sums and products of whole numbers, and nothing is ever cancelled. With roots among the coefficients, a
//! number is a sum of whole multiples of products of roots, whose products are looked up in a table.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero};
use odec_exact::fraction::{lcm, quotient};
use odec_exact::{Exact, Field};

/// Most products of roots that products of the coefficients may have.
const MAX_DIMENSION: usize = 48;
/// The same where few products are formed.
pub const LARGE: usize = 128;

/// One whole number for each product of roots in the field.
pub type Int = Vec<BigInt>;

/// The field of some numbers, and their common denominator.
pub struct Ring {
    field: Field,
    /// The product of two elements of the basis: whole multiples of others.
    products: Vec<Vec<Vec<(BigInt, usize)>>>,
    denominator: BigInt,
}

impl Ring {
    /// A ring for some numbers; `None`: their products have too many different roots.
    pub fn of<'e>(numbers: impl Iterator<Item = &'e Exact> + Clone) -> Option<Ring> {
        Ring::up_to(numbers, MAX_DIMENSION)
    }
    /// The same with a limit of the dimension.
    pub fn up_to<'e>(
        numbers: impl Iterator<Item = &'e Exact> + Clone,
        most: usize,
    ) -> Option<Ring> {
        let field = Field::of(numbers.clone(), most).ok()?;
        let mut denominator = BigInt::one();
        for (_, c) in numbers.flat_map(|x| field.coordinates(x)) {
            if !(&denominator % c.denom()).is_zero() {
                denominator = lcm(&denominator, c.denom());
            }
        }
        let n = field.dimension();
        let whole =
            |(place, c): (usize, BigRational)| c.is_integer().then(|| (c.to_integer(), place));
        let product = |i, j| field.product(i, j).into_iter().map(whole).collect();
        let row = |i| (0..n).map(|j| product(i, j)).collect();
        let products: Option<Vec<Vec<_>>> = (0..n).map(row).collect();
        Some(Ring {
            products: products?,
            field,
            denominator,
        })
    }

    /// The common denominator d.
    pub fn denominator(&self) -> &BigInt {
        &self.denominator
    }
    pub fn zero(&self) -> Int {
        vec![BigInt::zero(); self.field.dimension()]
    }
    pub fn one(&self) -> Int {
        let mut one = self.zero();
        one[0] = BigInt::one();
        one
    }

    /// d times a number that the ring was made for.
    pub fn scaled(&self, x: &Exact) -> Int {
        let mut int = self.zero();
        for (i, c) in self.field.coordinates(x) {
            int[i] = c.numer() * (&self.denominator / c.denom());
        }
        int
    }

    /// The whole number and the least denominator that a number of this field is the quotient of.
    pub fn quotient(&self, x: &Exact) -> (Int, BigInt) {
        let coordinates = self.field.coordinates(x);
        let denominator = coordinates
            .iter()
            .fold(BigInt::one(), |d, (_, c)| lcm(&d, c.denom()));
        let mut int = self.zero();
        for (i, c) in coordinates {
            int[i] = c.numer() * (&denominator / c.denom());
        }
        (int, denominator)
    }

    /// `sum += a·b`.
    pub fn add_product(&self, sum: &mut Int, a: &Int, b: &Int) {
        for (a, row) in a.iter().zip(&self.products).filter(|(a, _)| !a.is_zero()) {
            for (b, terms) in b.iter().zip(row).filter(|(b, _)| !b.is_zero()) {
                let product = a * b;
                for (whole, place) in terms {
                    if whole.is_one() {
                        sum[*place] += &product;
                    } else {
                        sum[*place] += &product * whole;
                    }
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
        let terms = x.iter().enumerate().filter(|(_, c)| !c.is_zero());
        self.field
            .number(terms.map(|(i, c)| (i, quotient(c.clone(), over))))
    }
}

/// Whether a number is 0.
pub fn is_zero(x: &Int) -> bool {
    x.iter().all(Zero::is_zero)
}
