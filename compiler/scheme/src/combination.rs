//! Exact linear combinations of the values of a stage program.

use super::coeff::{Coeff, CoeffError};
use odec_exact::Exact;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A value of a stage program: 0 is the state at the start of the step, `n` the result of instruction `n − 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

impl ValueId {
    /// The state at the start of the step.
    pub const STATE: ValueId = ValueId(0);
}

/// `Σ cᵢ vᵢ`, in the order of the values. No coefficient is zero, so equality is equality of values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Combination {
    terms: BTreeMap<ValueId, Coeff>,
}

impl Combination {
    /// The zero vector.
    pub fn zero() -> Combination {
        Combination::default()
    }
    pub fn value(v: ValueId) -> Combination {
        Combination {
            terms: [(v, Coeff::one())].into(),
        }
    }
    pub fn terms(&self) -> impl DoubleEndedIterator<Item = (ValueId, &Coeff)> {
        self.terms.iter().map(|(v, c)| (*v, c))
    }
    pub fn len(&self) -> usize {
        self.terms.len()
    }
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }
    /// Monomials of all coefficients: what work on it costs.
    pub fn weight(&self) -> usize {
        self.terms.values().map(Coeff::weight).sum()
    }
    /// The symbols that occur in coefficients.
    pub fn symbols(&self) -> BTreeSet<Arc<str>> {
        self.terms.values().flat_map(Coeff::symbols).collect()
    }
    pub fn coeff(&self, v: ValueId) -> Option<&Coeff> {
        self.terms.get(&v)
    }
    /// The value this is, when it is one value with coefficient 1.
    pub fn as_value(&self) -> Option<ValueId> {
        match self.terms.first_key_value() {
            Some((v, c)) if self.terms.len() == 1 && c.is_one() => Some(*v),
            _ => None,
        }
    }

    /// `self += c · other`.
    pub fn add_scaled(&mut self, c: &Coeff, other: &Combination) -> Result<(), CoeffError> {
        for (v, d) in &other.terms {
            let product = if c.is_one() { d.clone() } else { c.mul(d)? };
            let sum = match self.terms.get(v) {
                Some(have) => have.add(&product)?,
                None => product,
            };
            if sum.is_zero() {
                self.terms.remove(v);
            } else {
                self.terms.insert(*v, sum);
            }
        }
        Ok(())
    }

    pub fn scaled(&self, c: &Coeff) -> Result<Combination, CoeffError> {
        let mut out = Combination::zero();
        out.add_scaled(c, self)?;
        Ok(out)
    }

    /// Takes a value out; gives its coefficient.
    pub fn without(&mut self, v: ValueId) -> Option<Coeff> {
        self.terms.remove(&v)
    }

    /// The same vector with `v` replaced by what it was made of.
    pub fn substituted(&self, v: ValueId, by: &Combination) -> Result<Combination, CoeffError> {
        let mut out = self.clone();
        match out.terms.remove(&v) {
            Some(c) => out.add_scaled(&c, by)?,
            None => return Ok(out),
        }
        Ok(out)
    }

    /// With a number for one symbol.
    pub fn with(&self, symbol: &str, value: &Exact) -> Result<Combination, CoeffError> {
        let mut terms = BTreeMap::new();
        for (v, c) in &self.terms {
            let c = c.with(symbol, value)?;
            if !c.is_zero() {
                terms.insert(*v, c);
            }
        }
        Ok(Combination { terms })
    }

    /// The same vector with other names for the values; they must be different again.
    pub fn renamed(&self, to: &dyn Fn(ValueId) -> ValueId) -> Combination {
        let terms = self.terms.iter().map(|(v, c)| (to(*v), c.clone()));
        Combination {
            terms: terms.collect(),
        }
    }

    /// `x + 1/2*h*k1 - k2`, with values named by `name`.
    pub fn display(&self, name: &dyn Fn(ValueId) -> String) -> String {
        let mut text = String::new();
        for (v, c) in &self.terms {
            let minus = c.factor().starts_with('-');
            let magnitude = if minus { c.neg() } else { c.clone() };
            text += match (text.is_empty(), minus) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            if !magnitude.is_one() {
                text += &format!("{}*", magnitude.factor());
            }
            text += &name(*v);
        }
        if text.is_empty() { "0".into() } else { text }
    }
}
