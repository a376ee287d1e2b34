//! Exact coefficients: polynomials over the step size `h`, learned numbers and functions of these, with exact constants.
//!
//! Takes arithmetic as it is written in a scheme; gives a canonical form, so that equal coefficients are equal values
//! and cancellation is exact. Every result is checked against [`MAX_TERMS`], [`MAX_DEGREE`] and the limits of [`Exact`]: a
//! scheme cannot make the compiler compute with numbers of astronomical size. Leaves rounding to whoever emits code.

use super::function::{Function, Symbol, apply, divisor, simplified};
use odec_exact::MAX_BITS;
use odec_exact::{Exact, ExactError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use thiserror::Error;

/// Most monomials of one coefficient.
pub const MAX_TERMS: usize = 65;
/// Largest total degree of a monomial.
pub const MAX_DEGREE: u32 = 64;

/// Why arithmetic with coefficients has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CoeffError {
    #[error(transparent)]
    Exact(#[from] ExactError),
    #[error("an exponent must be a whole number")]
    Exponent,
    #[error("the logarithm of a number that is not positive")]
    Logarithm,
}

/// A product of powers of symbols, sorted, names before functions; the empty product is 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Monomial(Vec<(Symbol, u32)>);

impl Monomial {
    /// The product. Functions that meet in it may become something simpler, which may be a sum.
    fn times(&self, other: &Monomial) -> Result<Coeff, CoeffError> {
        let mut powers: BTreeMap<Symbol, u32> = self.0.iter().cloned().collect();
        for (s, n) in &other.0 {
            *powers.entry(s.clone()).or_default() += n;
        }
        if powers.values().map(|n| u64::from(*n)).sum::<u64>() > u64::from(MAX_DEGREE) {
            return Err(ExactError::TooLarge.into());
        }
        let functions = self.has_functions() || other.has_functions();
        let instead = match functions {
            true => simplified(&mut powers)?,
            false => Coeff::one(),
        };
        let own = Coeff {
            terms: [(Monomial(powers.into_iter().collect()), Exact::one())].into(),
        };
        match instead.is_one() {
            true => Ok(own),
            false => own.mul(&instead),
        }
    }

    fn has_functions(&self) -> bool {
        self.0
            .iter()
            .any(|(s, _)| matches!(s, Symbol::Function(..)))
    }

    fn weight(&self) -> usize {
        self.0.iter().map(|(s, n)| *n as usize * s.weight()).sum()
    }

    /// With a constant before it: `1/2*h/(1 + a)^2`.
    fn scaled_by(&self, magnitude: &str) -> String {
        let power = |text: String, n: u32| match n {
            1 => text,
            n => format!("{text}^{n}"),
        };
        let (mut over, mut under) = (String::new(), String::new());
        for (s, n) in &self.0 {
            match s {
                Symbol::Function(Function::Recip, of) => {
                    under += &format!("/{}", power(divisor(of), *n));
                }
                s => {
                    over += if over.is_empty() { "" } else { "*" };
                    over += &power(s.to_string(), *n);
                }
            }
        }
        match (magnitude, over.is_empty()) {
            ("1", false) => over + &under,
            (_, true) => format!("{magnitude}{under}"),
            (_, false) => format!("{magnitude}*{over}{under}"),
        }
    }
}

impl fmt::Display for Monomial {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.scaled_by("1"))
    }
}

/// A polynomial with exact constants. No term is zero, so equality is equality of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Coeff {
    terms: BTreeMap<Monomial, Exact>,
}

impl Coeff {
    pub fn zero() -> Coeff {
        Coeff::default()
    }
    pub fn one() -> Coeff {
        Coeff::constant(Exact::one())
    }
    pub fn constant(value: Exact) -> Coeff {
        let terms = if value.is_zero() {
            BTreeMap::new()
        } else {
            [(Monomial::default(), value)].into()
        };
        Coeff { terms }
    }
    /// The step size or another named number.
    pub fn symbol(name: &str) -> Coeff {
        Coeff::of_symbol(Symbol::Name(name.into()))
    }
    pub fn of_symbol(symbol: Symbol) -> Coeff {
        Coeff {
            terms: [(Monomial(vec![(symbol, 1)]), Exact::one())].into(),
        }
    }

    pub fn is_zero(&self) -> bool {
        self.terms.is_empty()
    }
    /// Terms of all constants: what work on it costs.
    pub fn weight(&self) -> usize {
        let functions: usize = self.terms.keys().map(Monomial::weight).sum();
        functions + self.terms.values().map(Exact::weight).sum::<usize>()
    }
    pub fn is_one(&self) -> bool {
        self.as_constant().is_some_and(|c| c.is_one())
    }
    /// The value, when no symbol occurs in it.
    pub fn as_constant(&self) -> Option<Exact> {
        match self.terms.len() {
            0 => Some(Exact::zero()),
            1 => self.terms.get(&Monomial::default()).cloned(),
            _ => None,
        }
    }
    /// The symbol that this is.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.as_monomial()? {
            ([(s, 1)], c) if c.is_one() => Some(s),
            _ => None,
        }
    }
    /// The powers of symbols and the constant, where this is one term.
    pub fn as_monomial(&self) -> Option<(&[(Symbol, u32)], &Exact)> {
        let (m, c) = self.terms.first_key_value()?;
        (self.terms.len() == 1).then_some((&m.0, c))
    }
    /// The constant of the first term.
    pub fn first_constant(&self) -> Exact {
        self.terms.values().next().cloned().unwrap_or_default()
    }
    /// Whether functions occur in it.
    pub fn has_functions(&self) -> bool {
        self.terms.keys().any(Monomial::has_functions)
    }

    pub fn add(&self, other: &Coeff) -> Result<Coeff, CoeffError> {
        let mut terms = self.terms.clone();
        for (m, c) in &other.terms {
            let sum = terms.get(m).map_or_else(|| c.clone(), |have| have + c);
            if sum.is_zero() {
                terms.remove(m);
            } else {
                terms.insert(m.clone(), sum.checked()?);
            }
        }
        Coeff { terms }.sized()
    }

    pub fn neg(&self) -> Coeff {
        Coeff {
            terms: self.terms.iter().map(|(m, c)| (m.clone(), -c)).collect(),
        }
    }

    pub fn sub(&self, other: &Coeff) -> Result<Coeff, CoeffError> {
        self.add(&other.neg())
    }

    pub fn mul(&self, other: &Coeff) -> Result<Coeff, CoeffError> {
        let mut terms: BTreeMap<Monomial, Exact> = BTreeMap::new();
        for (m, a) in &self.terms {
            for (n, b) in &other.terms {
                let c = (a * b).checked()?;
                for (product, d) in m.times(n)?.terms {
                    let c = if d.is_one() {
                        c.clone()
                    } else {
                        (&c * &d).checked()?
                    };
                    let slot = terms.entry(product).or_default();
                    *slot = (&*slot + &c).checked()?;
                }
            }
            if terms.len() > MAX_TERMS {
                return Err(ExactError::TooLarge.into());
            }
        }
        terms.retain(|_, c| !c.is_zero());
        Coeff { terms }.sized()
    }

    pub fn div(&self, other: &Coeff) -> Result<Coeff, CoeffError> {
        self.mul(&apply(Function::Recip, other)?)
    }

    /// A whole power.
    pub fn pow(&self, exponent: &Coeff) -> Result<Coeff, CoeffError> {
        let e = exponent.as_constant().and_then(|e| e.as_integer());
        let e = e.ok_or(CoeffError::Exponent)?;
        let n: i64 = e.try_into().map_err(|_| ExactError::TooLarge)?;
        if n.unsigned_abs() > MAX_BITS {
            return match self.as_constant() {
                Some(c) if c.is_one() || (c.is_zero() && n > 0) => Ok(self.clone()),
                _ => Err(ExactError::TooLarge.into()),
            };
        }
        match n {
            0.. => self.power(n.unsigned_abs()),
            _ => Coeff::one().div(self)?.power(n.unsigned_abs()),
        }
    }

    pub(super) fn power(&self, n: u64) -> Result<Coeff, CoeffError> {
        let (mut power, mut square, mut left) = (Coeff::one(), self.clone(), n);
        while left > 0 {
            if left & 1 == 1 {
                power = power.mul(&square)?;
            }
            left >>= 1;
            if left > 0 {
                square = square.mul(&square)?;
            }
        }
        Ok(power)
    }

    /// Each product of symbols, a symbol as often as its power, and its coefficient.
    pub fn terms(&self) -> impl Iterator<Item = (Vec<&Symbol>, &Exact)> {
        self.terms.iter().map(|(m, c)| {
            let each =
                m.0.iter()
                    .flat_map(|(s, n)| std::iter::repeat_n(s, *n as usize));
            (each.collect(), c)
        })
    }

    /// What it is a polynomial in.
    pub fn factors(&self) -> BTreeSet<&Symbol> {
        let all = self.terms.keys().flat_map(|m| &m.0);
        all.map(|(s, _)| s).collect()
    }

    /// The functions that it is a polynomial in.
    pub fn functions(&self) -> impl Iterator<Item = &Symbol> {
        let all = self.factors().into_iter();
        all.filter(|s| matches!(s, Symbol::Function(..)))
    }

    /// The names that occur, those in functions too.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        let all = self.factors().into_iter();
        all.flat_map(Symbol::names).collect()
    }

    /// As a polynomial in one name: the coefficients of its powers 0, 1, 2 …, up to the highest. Functions stay as they are, also those
    /// that the name occurs in.
    pub fn in_powers_of(&self, name: &str) -> Vec<Coeff> {
        self.in_powers_of_symbol(&Symbol::Name(name.into()))
    }

    /// The same of any symbol.
    pub fn in_powers_of_symbol(&self, symbol: &Symbol) -> Vec<Coeff> {
        let mut powers = vec![Coeff::zero()];
        for (m, c) in &self.terms {
            let power = m.0.iter().find(|(s, _)| s == symbol);
            let power = power.map_or(0, |(_, n)| *n as usize);
            let rest = m.0.iter().filter(|(s, _)| s != symbol);
            if powers.len() <= power {
                powers.resize(power + 1, Coeff::zero());
            }
            let rest = Monomial(rest.cloned().collect());
            powers[power].terms.insert(rest, c.clone());
        }
        powers
    }

    /// The rational factor of a single monomial, and what is left of it; 1 and the polynomial itself otherwise.
    pub fn content(&self) -> (Exact, Coeff) {
        match self.terms.iter().next() {
            Some((m, c)) if self.terms.len() == 1 => {
                let terms = [(m.clone(), Exact::one())].into();
                (c.clone(), Coeff { terms })
            }
            _ => (Exact::one(), self.clone()),
        }
    }

    /// With a number for one name.
    pub fn with(&self, name: &str, value: &Exact) -> Result<Coeff, CoeffError> {
        if self.has_functions() {
            return self.mapped(&|s| match s {
                Symbol::Name(n) if **n == *name => Ok(Coeff::constant(value.clone())),
                Symbol::Name(_) => Ok(Coeff::of_symbol(s.clone())),
                Symbol::Function(f, of) => apply(*f, &of.with(name, value)?),
            });
        }
        let value = Coeff::constant(value.clone());
        let powers = self.in_powers_of(name);
        let horner = |sum: Coeff, p: &Coeff| sum.mul(&value)?.add(p);
        powers.iter().rev().try_fold(Coeff::zero(), horner)
    }

    /// With numbers for names in functions, and nowhere else.
    pub fn with_in_functions(
        &self,
        values: &dyn Fn(&str) -> Option<Exact>,
    ) -> Result<Coeff, CoeffError> {
        self.mapped(&|s| match s {
            Symbol::Name(_) => Ok(Coeff::of_symbol(s.clone())),
            Symbol::Function(f, of) => {
                let known = of.symbols().into_iter();
                let known = known.filter_map(|n| Some((values(&n)?, n)));
                let with = |c: Coeff, (value, n): (Exact, Arc<str>)| c.with(&n, &value);
                apply(*f, &known.into_iter().try_fold((**of).clone(), with)?)
            }
        })
    }

    /// With functions of numbers computed in f64.
    pub fn rounded(&self) -> Result<Coeff, CoeffError> {
        if !self.has_functions() {
            return Ok(self.clone());
        }
        self.mapped(&|s| match s {
            Symbol::Name(_) => Ok(Coeff::of_symbol(s.clone())),
            Symbol::Function(f, of) => {
                let of = of.rounded()?;
                let Some(x) = of.as_constant() else {
                    return apply(*f, &of);
                };
                let value = Exact::float(f.at(x.to_f64()));
                value
                    .map(Coeff::constant)
                    .ok_or(ExactError::TooLarge.into())
            }
        })
    }

    /// The same polynomial in other things.
    fn mapped(
        &self,
        to: &dyn Fn(&Symbol) -> Result<Coeff, CoeffError>,
    ) -> Result<Coeff, CoeffError> {
        let mut sum = Coeff::zero();
        for (m, c) in &self.terms {
            let mut product = Coeff::constant(c.clone());
            for (s, n) in &m.0 {
                product = product.mul(&to(s)?.power(u64::from(*n))?)?;
            }
            sum = sum.add(&product)?;
        }
        Ok(sum)
    }

    /// The value for given symbols; `None` when one is missing, or where the result is too large or has no exact value.
    pub fn at(&self, symbols: &dyn Fn(&str) -> Option<Exact>) -> Option<Exact> {
        let mut sum = Coeff::zero();
        for (m, c) in &self.terms {
            let mut product = Coeff::constant(c.clone());
            for (s, n) in &m.0 {
                let value = match s {
                    Symbol::Name(name) => symbols(name)?,
                    Symbol::Function(f, of) => {
                        let at = Coeff::constant(of.at(symbols)?);
                        apply(*f, &at).ok()?.as_constant()?
                    }
                };
                let power = Coeff::constant(value).power(u64::from(*n));
                product = product.mul(&power.ok()?).ok()?;
            }
            sum = sum.add(&product).ok()?;
        }
        sum.as_constant()
    }

    /// The value in f64 for given symbols; `None` when one is missing.
    pub fn to_f64(&self, symbols: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        let mut sum = 0.0;
        for (m, c) in &self.terms {
            let mut product = c.to_f64();
            for (s, n) in &m.0 {
                let value = match s {
                    Symbol::Name(name) => symbols(name)?,
                    Symbol::Function(f, of) => f.at(of.to_f64(symbols)?),
                };
                product *= value.powi(*n as i32);
            }
            sum += product;
        }
        Some(sum)
    }

    fn sized(self) -> Result<Coeff, CoeffError> {
        if self.terms.len() > MAX_TERMS {
            Err(ExactError::TooLarge.into())
        } else {
            Ok(self)
        }
    }

    /// As a factor in a product: sums in parentheses, after the symbols that all their terms have where some symbol
    /// is not the step size: `b*h*(1 - b)`.
    pub fn factor(&self) -> String {
        if self.terms.len() < 2 {
            return match self.as_constant() {
                Some(c) if c.is_sum() && c.starts_with_minus() => format!("-({})", -&c),
                Some(c) if c.is_sum() => format!("({c})"),
                _ => self.to_string(),
            };
        }
        let common = self.common();
        if common.0.is_empty()
            || self.symbols().iter().all(|s| &**s == "h")
            || common.has_functions()
        {
            return format!("({self})");
        }
        let over = |m: &Monomial| {
            let power = |s: &Symbol| common.0.iter().find(|(c, _)| c == s).map_or(0, |(_, n)| *n);
            let left = m.0.iter().map(|(s, n)| (s.clone(), n - power(s)));
            Monomial(left.filter(|(_, n)| *n > 0).collect())
        };
        let terms = self.terms.iter().map(|(m, c)| (over(m), c.clone()));
        let rest = Coeff {
            terms: terms.collect(),
        };
        format!("{common}*({rest})")
    }

    /// The symbols that every term has, with their lowest powers.
    fn common(&self) -> Monomial {
        let lowest = |s: &Symbol| {
            let power = |m: &Monomial| m.0.iter().find(|(t, _)| t == s).map_or(0, |(_, n)| *n);
            self.terms.keys().map(power).min().unwrap_or(0)
        };
        let all = self.factors().into_iter();
        let all = all.map(|s| (s.clone(), lowest(s)));
        Monomial(all.filter(|(_, n)| *n > 0).collect())
    }
}

impl fmt::Display for Coeff {
    /// Constant first, then rising powers: `1 - 1/2*h + h^2`.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if let Some(c) = self.as_constant() {
            return c.fmt(f);
        }
        for (i, (m, c)) in self.terms.iter().enumerate() {
            let minus = c.starts_with_minus();
            let magnitude = if minus { -c } else { c.clone() };
            match (i, minus) {
                (0, true) => f.write_str("-")?,
                (0, false) => {}
                (_, true) => f.write_str(" - ")?,
                (_, false) => f.write_str(" + ")?,
            }
            match (m.0.is_empty(), magnitude.is_one(), magnitude.is_sum()) {
                (true, _, true) => write!(f, "({magnitude})")?,
                (true, ..) => write!(f, "{magnitude}")?,
                (false, true, _) => write!(f, "{m}")?,
                (false, false, false) => f.write_str(&m.scaled_by(&magnitude.to_string()))?,
                (false, false, true) => f.write_str(&m.scaled_by(&format!("({magnitude})")))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn h() -> Coeff {
        Coeff::symbol("h")
    }
    fn q(n: i64, d: i64) -> Coeff {
        Coeff::constant(Exact::ratio(n, d))
    }

    #[test]
    fn prints_in_rising_powers() {
        let c = q(1, 1)
            .add(&h().mul(&q(-1, 2)).unwrap())
            .unwrap()
            .add(&h().mul(&h()).unwrap())
            .unwrap();
        assert_eq!(c.to_string(), "1 - 1/2*h + h^2");
        assert_eq!(q(1, 6).mul(&h()).unwrap().to_string(), "1/6*h");
        assert_eq!(h().neg().to_string(), "-h");
        assert_eq!(Coeff::zero().to_string(), "0");
        let irrational: Exact = "-1/2 + sqrt(3)/6".parse().unwrap();
        let irrational = Coeff::constant(irrational);
        assert_eq!(irrational.to_string(), "-1/2 + sqrt(3)/6");
        assert_eq!(
            irrational.add(&h()).unwrap().to_string(),
            "-(1/2 - sqrt(3)/6) + h"
        );
    }

    #[test]
    fn cancels_exactly() {
        let c = q(1, 3).mul(&h()).unwrap();
        assert!(
            c.add(&c)
                .unwrap()
                .add(&c)
                .unwrap()
                .sub(&h())
                .unwrap()
                .is_zero()
        );
    }

    #[test]
    fn astronomical_numbers_are_refused() {
        let mut c = q(3, 7);
        let grown = (0..64).try_for_each(|_| {
            c = c.mul(&c)?;
            Ok::<_, CoeffError>(())
        });
        assert_eq!(grown, Err(ExactError::TooLarge.into()));
        assert_eq!(
            q(10, 1).pow(&Exact::decimal("1e9").map(Coeff::constant).unwrap()),
            Err(ExactError::TooLarge.into())
        );
        assert_eq!(h().pow(&q(65, 1)), Err(ExactError::TooLarge.into()));
        assert_eq!(
            q(1, 1).pow(&Exact::decimal("1e9").map(Coeff::constant).unwrap()),
            Ok(q(1, 1))
        );
    }

    #[test]
    fn powers_and_quotients() {
        assert_eq!(q(2, 1).pow(&q(-3, 1)), Ok(q(1, 8)));
        assert_eq!(
            q(1, 1).div(&Coeff::zero()),
            Err(ExactError::DivisionByZero.into())
        );
        assert_eq!(q(1, 1).div(&h()).unwrap().mul(&h()), Ok(q(1, 1)));
        assert_eq!(h().pow(&q(-2, 1)).unwrap().to_string(), "1/h^2");
        assert_eq!(h().pow(&q(1, 2)), Err(CoeffError::Exponent));
        assert_eq!(
            Coeff::zero().pow(&q(-1, 1)),
            Err(ExactError::DivisionByZero.into())
        );
    }

    fn poly() -> impl Strategy<Value = Coeff> {
        prop::collection::vec((-9i64..10, 1i64..10), 0..4).prop_map(|cs| {
            cs.iter().rev().fold(Coeff::zero(), |acc, (n, d)| {
                acc.mul(&h()).unwrap().add(&q(*n, *d)).unwrap()
            })
        })
    }

    proptest! {
        #[test]
        fn a_commutative_ring(a in poly(), b in poly(), c in poly()) {
            prop_assert_eq!(a.mul(&b.add(&c).unwrap()).unwrap(), a.mul(&b).unwrap().add(&a.mul(&c).unwrap()).unwrap());
            prop_assert_eq!(a.mul(&b).unwrap(), b.mul(&a).unwrap());
            prop_assert!(a.sub(&a).unwrap().is_zero());
        }

        #[test]
        fn evaluation_is_a_homomorphism(a in poly(), b in poly(), n in -5i64..6, d in 1i64..6) {
            let at = |c: &Coeff| c.at(&|_| Some(Exact::ratio(n, d))).unwrap();
            prop_assert_eq!(at(&a.mul(&b).unwrap()), &at(&a) * &at(&b));
            prop_assert_eq!(at(&a.add(&b).unwrap()), &at(&a) + &at(&b));
        }
    }
}
