//! Polynomials in small changes of some coefficients, cut off above a degree: derivatives of order conditions, exactly.
//!
//! A jet of degree 1 is a value with its gradient (forward differentiation; Wengert 1964, Comm. ACM 7, 463), one of a
//! large degree the whole polynomial. All jets of a computation share a [`Space`], which counts the work; what would
//! take more is *lost*, and says so. Takes exact numbers; leaves what the variables stand for to whoever made them.

use crate::series::Number;
use odec_exact::Exact;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A product of variables, by number, in rising order.
pub type Monomial = Vec<u32>;

/// What jets are cut off at, and how much work is left.
#[derive(Debug)]
pub struct Space {
    degree: usize,
    left: Cell<usize>,
}

impl Space {
    /// `work`: products of terms, counted as often as [`Exact::weight`] says.
    pub fn new(degree: usize, work: usize) -> Rc<Space> {
        let left = Cell::new(work);
        Rc::new(Space { degree, left })
    }

    fn spend(&self, work: usize) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(work));
        left > work
    }
}

/// A polynomial. Constants belong to every space.
#[derive(Clone, Debug, Default)]
pub struct Jet {
    /// None is zero.
    terms: BTreeMap<Monomial, Exact>,
    space: Option<Rc<Space>>,
    lost: bool,
}

impl Jet {
    pub fn constant(x: &Exact) -> Jet {
        Jet::term(Monomial::new(), x)
    }
    fn term(m: Monomial, c: &Exact) -> Jet {
        let terms = Some((m, c.clone())).filter(|_| !c.is_zero());
        Jet {
            terms: terms.into_iter().collect(),
            ..Jet::default()
        }
    }
    /// `at` plus the change with a number.
    pub fn variable(number: u32, at: &Exact, space: &Rc<Space>) -> Jet {
        let mut jet = Jet::constant(at);
        jet.terms.insert(vec![number], Exact::one());
        jet.space = Some(space.clone());
        jet
    }
    pub fn from_terms(
        terms: impl Iterator<Item = (Monomial, Exact)>,
        space: Option<Rc<Space>>,
    ) -> Jet {
        let terms = terms.filter(|(_, c)| !c.is_zero()).collect();
        Jet::made(terms, space, false)
    }
    pub fn space(&self) -> Option<Rc<Space>> {
        self.space.clone()
    }
    /// Whether some of it took too much work, so that nothing is known.
    pub fn is_lost(&self) -> bool {
        self.lost
    }
    /// The value where nothing changes.
    pub fn value(&self) -> Exact {
        self.of(&Monomial::new())
    }
    /// The coefficient of a product of variables.
    pub fn of(&self, m: &Monomial) -> Exact {
        self.terms.get(m).cloned().unwrap_or_default()
    }
    pub fn terms(&self) -> impl Iterator<Item = (&Monomial, &Exact)> {
        self.terms.iter()
    }
    /// The derivative by a variable where nothing changes.
    pub fn slope(&self, variable: u32) -> Exact {
        self.of(&vec![variable])
    }
    /// The highest degree of a term.
    pub fn degree(&self) -> usize {
        self.terms.keys().map(Vec::len).max().unwrap_or(0)
    }
    pub fn has(&self, variable: u32) -> bool {
        self.terms.keys().any(|m| m.contains(&variable))
    }
    pub fn minus(&self, other: &Jet) -> Jet {
        self.plus(&other.times(&Jet::constant(&Exact::int(-1))))
    }

    /// As a polynomial in one variable: the coefficients of its powers 0, 1, 2 …
    pub fn in_powers_of(&self, variable: u32) -> Vec<Jet> {
        let empty = || Jet {
            space: self.space.clone(),
            lost: self.lost,
            ..Jet::default()
        };
        let mut powers = vec![empty()];
        for (m, c) in &self.terms {
            let rest: Monomial = m.iter().copied().filter(|v| *v != variable).collect();
            let power = m.len() - rest.len();
            while powers.len() <= power {
                powers.push(empty());
            }
            powers[power].terms.insert(rest, c.clone());
        }
        powers
    }

    /// With a polynomial for each variable.
    pub fn at(&self, values: &dyn Fn(u32) -> Jet) -> Jet {
        let mut sum = Jet {
            space: self.space.clone(),
            lost: self.lost,
            ..Jet::default()
        };
        for (m, c) in &self.terms {
            let start = Jet::constant(c);
            let product = m.iter().fold(start, |p, v| p.times(&values(*v)));
            sum = sum.plus(&product);
        }
        sum
    }

    /// With other numbers for the variables; it belongs to no space then.
    pub fn renamed(&self, number: &[u32]) -> Jet {
        let terms = self.terms().map(|(m, c)| {
            let mut m: Monomial = m.iter().map(|v| number[*v as usize]).collect();
            m.sort_unstable();
            (m, c.clone())
        });
        Jet::from_terms(terms, None)
    }

    fn made(terms: BTreeMap<Monomial, Exact>, space: Option<Rc<Space>>, lost: bool) -> Jet {
        let lost = lost || terms.values().any(|c| c.clone().checked().is_err());
        Jet { terms, space, lost }
    }
}

/// By value; what is lost equals nothing.
impl PartialEq for Jet {
    fn eq(&self, other: &Jet) -> bool {
        !self.lost && !other.lost && self.terms == other.terms
    }
}

impl Number for Jet {
    fn exact(x: &Exact) -> Jet {
        Jet::constant(x)
    }
    fn is_zero(&self) -> bool {
        self.terms.is_empty() && !self.lost
    }
    fn plus(&self, other: &Jet) -> Jet {
        let mut terms = self.terms.clone();
        for (m, c) in &other.terms {
            let slot = terms.entry(m.clone()).or_default();
            *slot = &*slot + c;
        }
        terms.retain(|_, c| !c.is_zero());
        let space = self.space.clone().or_else(|| other.space.clone());
        Jet::made(terms, space, self.lost || other.lost)
    }
    fn times(&self, other: &Jet) -> Jet {
        let space = self.space.clone().or_else(|| other.space.clone());
        let lost = self.lost || other.lost;
        let weight = |j: &Jet| -> usize { j.terms.values().map(Exact::weight).sum() };
        let work = weight(self) * weight(other);
        if let Some(s) = &space
            && (lost || !s.spend(work))
        {
            return Jet::made(BTreeMap::new(), space, true);
        }
        let most = space.as_ref().map_or(0, |s| s.degree);
        let mut terms: BTreeMap<Monomial, Exact> = BTreeMap::new();
        for (m, a) in &self.terms {
            for (n, b) in &other.terms {
                if m.len() + n.len() > most {
                    continue;
                }
                let mut product = [m.as_slice(), n].concat();
                product.sort_unstable();
                let slot = terms.entry(product).or_default();
                *slot = &*slot + &(a * b);
            }
        }
        terms.retain(|_, c| !c.is_zero());
        Jet::made(terms, space, lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_cut_off() {
        let q = |n, d| Exact::ratio(n, d);
        for (degree, terms) in [(1, 3), (2, 4)] {
            let space = Space::new(degree, 1000);
            let x = Jet::variable(0, &q(1, 2), &space);
            let y = Jet::variable(1, &q(3, 1), &space);
            let p = x.times(&y);
            assert_eq!(
                (p.value(), p.slope(0), p.slope(1)),
                (q(3, 2), q(3, 1), q(1, 2))
            );
            assert_eq!(p.terms().count(), terms);
        }
    }

    #[test]
    fn what_takes_too_much_work_is_lost() {
        let space = Space::new(64, 50);
        let x = Jet::variable(0, &Exact::one(), &space);
        let mut p = x.clone();
        for _ in 0..20 {
            p = p.times(&x);
        }
        assert!(p.is_lost() && !p.is_zero() && p != x);
    }
}
