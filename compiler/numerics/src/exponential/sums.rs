//! Sums `Σ r zᵐ e^{cz}` with exact numbers r and c: what coefficients of exponential integrators are, as functions of z.
//!
//! All `φₖ(cz)` are such sums, and so are their products. The functions `zᵐ e^{cz}` are linearly independent, also as products in several
//! variables, so a sum is zero only if all its terms are: equality is decided without evaluating anything.

use odec_exact::Exact;
use std::collections::BTreeMap;

/// Most terms of a sum, and of a sum in several variables on the way.
const MAX_TERMS: usize = 256;
const MAX_PRODUCTS: usize = 400_000;

/// Of a term its c and m.
type Term = (Exact, i32);

/// `Σ r zᵐ e^{cz}`, no r is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpSum(BTreeMap<Term, Exact>);

/// `1/n!`.
pub fn over_factorial(n: u32) -> Exact {
    (1..=i64::from(n)).fold(Exact::one(), |f, i| &f * &Exact::ratio(1, i))
}

fn power(base: &Exact, n: u32) -> Exact {
    (0..n).fold(Exact::one(), |p, _| &p * base)
}

impl ExpSum {
    pub fn constant(r: Exact) -> ExpSum {
        let mut sum = ExpSum::default();
        sum.add((Exact::zero(), 0), r);
        sum
    }

    /// z.
    pub fn variable() -> ExpSum {
        let mut sum = ExpSum::default();
        sum.add((Exact::zero(), 1), Exact::one());
        sum
    }

    /// `φₖ(cz) = (e^{cz} − Σ_{j<k} (cz)ʲ/j!)/(cz)ᵏ`.
    pub fn phi(k: u32, c: &Exact) -> ExpSum {
        let Ok(under) = c.recip() else {
            return ExpSum::constant(over_factorial(k));
        };
        let mut sum = ExpSum::default();
        sum.add((c.clone(), -(k as i32)), power(&under, k));
        for j in 0..k {
            let r = &over_factorial(j) * &power(&under, k - j);
            sum.add((Exact::zero(), j as i32 - k as i32), -&r);
        }
        sum
    }

    fn add(&mut self, term: Term, r: Exact) {
        let sum = match self.0.remove(&term) {
            Some(have) => &have + &r,
            None => r,
        };
        if !sum.is_zero() {
            self.0.insert(term, sum);
        }
    }

    /// How many terms.
    pub fn terms(&self) -> usize {
        self.0.len()
    }

    pub fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    /// c, where this is `e^{cz}`.
    pub fn as_exponential(&self) -> Option<&Exact> {
        match self.0.first_key_value() {
            Some(((c, 0), r)) if self.0.len() == 1 && r.is_one() => Some(c),
            _ => None,
        }
    }

    pub fn plus(&self, by: &Exact, other: &ExpSum) -> ExpSum {
        let mut sum = self.clone();
        for (term, r) in &other.0 {
            sum.add(term.clone(), by * r);
        }
        sum
    }

    pub fn minus(&self, other: &ExpSum) -> ExpSum {
        self.plus(&Exact::int(-1), other)
    }

    pub fn scaled(&self, by: &Exact) -> ExpSum {
        ExpSum::default().plus(by, self)
    }

    /// `None`: too many terms.
    pub fn times(&self, other: &ExpSum) -> Option<ExpSum> {
        let mut product = ExpSum::default();
        for ((c, m), r) in &self.0 {
            for ((d, n), s) in &other.0 {
                product.add((c + d, m + n), r * s);
            }
        }
        (product.0.len() <= MAX_TERMS).then_some(product)
    }

    /// The value at z = 0 of a sum that has one: the coefficient of z⁰.
    pub fn at_zero(&self) -> Exact {
        let finite = self.0.iter().filter(|((_, m), _)| *m <= 0);
        let terms = finite.map(|((c, m), r)| {
            let n = m.unsigned_abs();
            r * &(&power(c, n) * &over_factorial(n))
        });
        terms.fold(Exact::zero(), |sum, t| &sum + &t)
    }

    /// The same everywhere.
    pub fn frozen(&self) -> ExpSum {
        ExpSum::constant(self.at_zero())
    }
}

/// Whether `Σ f(z₁) g(z₂) …` vanishes for all z₁, z₂, …, each factor a function of a variable of its own. `None`: too many terms.
pub fn vanishes(products: &[Vec<ExpSum>]) -> Option<bool> {
    let mut sum: BTreeMap<Vec<Term>, Exact> = BTreeMap::new();
    let mut work = 0;
    for factors in products {
        let mut terms: Vec<(Vec<Term>, Exact)> = vec![(Vec::new(), Exact::one())];
        for factor in factors {
            work += terms.len() * factor.0.len();
            if work > MAX_PRODUCTS {
                return None;
            }
            let longer = terms.iter().flat_map(|(key, r)| {
                factor.0.iter().map(move |(term, s)| {
                    let key = key.iter().chain([term]).cloned().collect();
                    (key, r * s)
                })
            });
            terms = longer.collect();
        }
        for (key, r) in terms {
            let slot = sum.entry(key).or_default();
            *slot = &*slot + &r;
        }
    }
    Some(sum.values().all(Exact::is_zero))
}
