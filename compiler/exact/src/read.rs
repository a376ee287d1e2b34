//! Reads exact numbers from text: everything that is printed is read back as the same number.
//!
//! `1/2 - sqrt(3)/6`, `root(72, 6)`, `root(x^3 - 3*x + 1, 0.35)^2`: sums, products, quotients, powers and roots, as in the language.

use crate::choose::MAX_POLYNOMIAL;
use crate::{Exact, ExactError};
use num_traits::ToPrimitive;
use std::str::FromStr;
use thiserror::Error;

/// Most parentheses within parentheses.
const MAX_DEPTH: usize = 24;
/// Highest power of a number that is no polynomial.
const MAX_POWER: u32 = 64;

/// Why a text is no exact number, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{why}")]
pub struct ReadError {
    pub at: usize,
    pub why: ReadFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ReadFault {
    #[error("expected {0}")]
    Expected(&'static str),
    #[error(transparent)]
    Number(#[from] ExactError),
}

impl FromStr for Exact {
    type Err = ReadError;

    fn from_str(text: &str) -> Result<Exact, ReadError> {
        let mut reader = Reader {
            text,
            at: 0,
            depth: 0,
        };
        let value = reader.sum()?;
        let value = reader.constant(value)?;
        match reader.rest().is_empty() {
            true => Ok(value),
            false => reader.expected("an operator or the end of the number"),
        }
    }
}

/// Coefficients of a polynomial in x, the constant first; numbers have no others.
type Polynomial = Vec<Exact>;

struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn rest(&mut self) -> &'t str {
        let rest = self.text[self.at..].trim_start();
        self.at = self.text.len() - rest.len();
        rest
    }

    fn expected<T>(&self, what: &'static str) -> Result<T, ReadError> {
        let why = ReadFault::Expected(what);
        Err(ReadError { at: self.at, why })
    }

    fn number<T>(&self, made: Result<T, ExactError>) -> Result<T, ReadError> {
        made.map_err(|why| ReadError {
            at: self.at,
            why: why.into(),
        })
    }

    fn take(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn need(&mut self, sign: &str, what: &'static str) -> Result<(), ReadError> {
        match self.take(sign) {
            true => Ok(()),
            false => self.expected(what),
        }
    }

    fn constant(&self, p: Polynomial) -> Result<Exact, ReadError> {
        match &p[..] {
            [c] => Ok(c.clone()),
            _ => self.expected("a number: `x` is only allowed in the polynomial of a `root`"),
        }
    }

    fn sum(&mut self) -> Result<Polynomial, ReadError> {
        let negative = self.take("-");
        let mut sum = self.product()?;
        if negative {
            sum.iter_mut().for_each(|c| *c = -&*c);
        }
        loop {
            let minus = match () {
                _ if self.take("+") => false,
                _ if self.take("-") => true,
                _ => return Ok(sum),
            };
            let term = self.product()?;
            sum.resize(sum.len().max(term.len()), Exact::zero());
            for (s, t) in sum.iter_mut().zip(&term) {
                let more = if minus { &*s - t } else { &*s + t };
                *s = self.number(more.checked())?;
            }
            while sum.len() > 1 && sum.last().is_some_and(Exact::is_zero) {
                sum.pop();
            }
        }
    }

    fn product(&mut self) -> Result<Polynomial, ReadError> {
        let mut product = self.power()?;
        loop {
            if self.take("*") {
                let factor = self.power()?;
                product = self.times(&product, &factor)?;
            } else if self.take("/") {
                let divisor = self.power()?;
                let divisor = self.constant(divisor)?;
                let factor = self.number(divisor.recip())?;
                product = self.times(&product, &[factor])?;
            } else {
                return Ok(product);
            }
        }
    }

    fn times(&self, a: &[Exact], b: &[Exact]) -> Result<Polynomial, ReadError> {
        if a.len() + b.len() > MAX_POLYNOMIAL + 2 {
            return self.number(Err(ExactError::LargePolynomial));
        }
        let mut product = vec![Exact::zero(); a.len() + b.len() - 1];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let more = &product[i + j] + &(x * y);
                product[i + j] = self.number(more.checked())?;
            }
        }
        Ok(product)
    }

    fn power(&mut self) -> Result<Polynomial, ReadError> {
        let base = self.atom()?;
        if !self.take("^") {
            return Ok(base);
        }
        self.rest();
        let digits = self.digits();
        let Some(power) = digits.parse().ok().filter(|n| *n <= MAX_POWER) else {
            return self.expected("a whole power up to 64");
        };
        (0..power).try_fold(vec![Exact::one()], |p, _| self.times(&p, &base))
    }

    fn digits(&mut self) -> &'t str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let digits = &rest[..end.unwrap_or(rest.len())];
        self.at += digits.len();
        digits
    }

    fn atom(&mut self) -> Result<Polynomial, ReadError> {
        let rest = self.rest();
        if rest.starts_with(|c: char| c.is_ascii_digit()) {
            return self.decimal(rest);
        }
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.expected("fewer parentheses");
        }
        let made = if self.take("(") {
            let inside = self.sum()?;
            self.need(")", "`)`")?;
            Ok(inside)
        } else if self.take("sqrt(") {
            let inside = self.sum()?;
            let inside = self.constant(inside)?;
            self.need(")", "`)`")?;
            Ok(vec![self.number(inside.root(2))?])
        } else if self.take("root(") {
            self.root().map(|x| vec![x])
        } else if self.take("x") {
            Ok(vec![Exact::zero(), Exact::one()])
        } else {
            self.expected("a number")
        };
        self.depth -= 1;
        made
    }

    /// A number and the degree of its root, or a polynomial and what its root is near to.
    fn root(&mut self) -> Result<Exact, ReadError> {
        let of = self.sum()?;
        self.need(",", "`,`")?;
        let second = self.sum()?;
        let second = self.constant(second)?;
        self.need(")", "`)`")?;
        if of.len() > 1 {
            return self.number(Exact::root_of(&of, &second));
        }
        let degree = second.as_integer().and_then(|n| n.to_u32());
        let of = self.constant(of)?;
        self.number(degree.ok_or(ExactError::Degree).and_then(|n| of.root(n)))
    }

    /// `3`, `0.35`, `1e-7`.
    fn decimal(&mut self, rest: &str) -> Result<Polynomial, ReadError> {
        let (from, whole) = (self.at, self.digits());
        let fraction = rest[whole.len()..].starts_with('.');
        if fraction {
            self.at += 1;
            self.digits();
        }
        let after = &self.text[self.at..];
        let exponent = after.strip_prefix(['e', 'E']);
        let sign = |e: &str| usize::from(e.starts_with(['-', '+']));
        if let Some(e) = exponent.filter(|e| e[sign(e)..].starts_with(|c: char| c.is_ascii_digit()))
        {
            self.at += 1 + sign(e);
            self.digits();
        }
        let text = &self.text[from..self.at];
        let value = match text.len() == whole.len() {
            // whole numbers may be longer than decimals
            true => text.parse().map(num_rational::BigRational::from_integer),
            false => return self.number(Exact::decimal(text)).map(|x| vec![x]),
        };
        match value {
            Ok(n) => self.number(Exact::from(n).checked()).map(|x| vec![x]),
            Err(_) => self.expected("a number"),
        }
    }
}
