//! A step as a straight line of evaluations, combinations and exact flows, with the step size divided out.
//!
//! Takes what a scheme computes, value by value; gives its [`Tableau`] when every state is the old one plus a sum of
//! evaluations. Values are states, or evaluations times h, so coefficients are pure numbers. Leaves finding the
//! values of a stage program to odec-compiler.

use crate::ring::Ring;
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_traits::{One, Zero};
use odec_exact::fraction::{gcd, lcm, quotient};
use odec_exact::{Exact, ExactError};
use std::collections::BTreeMap;

/// Most terms of all numbers of a tableau in which roots occur.
pub const MAX_TERMS: usize = 200_000;
/// Bits of a numerator or denominator that is long.
const LONG: u64 = 512;

/// A value of a line: 0 is the state at the start of the step, `n` the result of step `n − 1`.
pub type Value = usize;

/// One value more.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<C = Exact> {
    /// `h·F(y)`. In an implicit step y may be a later value; all other steps read earlier ones.
    Eval { field: usize, at: Value },
    /// `Σ cᵢ vᵢ`.
    Combine(Vec<(Value, C)>),
    /// The state that the exact flow of one field reaches from a state in `fraction·h`.
    Flow {
        field: usize,
        at: Value,
        fraction: C,
    },
    /// `φₖ(over·hL) v` of a linear field L, whatever v is; φ₀ is the exponential.
    Phi {
        field: usize,
        index: u32,
        over: C,
        at: Value,
    },
    /// The exact solution at a time in units of the step, 0 at its start; earlier ones are negative.
    Solution(C),
}

/// What one step computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<C = Exact> {
    /// Names of the fields; a different one for each set of parameters.
    pub fields: Vec<String>,
    pub steps: Vec<Step<C>>,
    /// The state after the step.
    pub result: Value,
    /// A second result.
    pub embedded: Option<Value>,
}

/// Why a line has no equivalent tableau. The value is the one to point at.
#[derive(Clone, Debug, PartialEq)]
pub enum NoTableau {
    /// An exact flow has no stages.
    Flow(Value),
    /// A function of a linear field is no coefficient of a tableau.
    Phi(Value),
    /// A value from before the step.
    History(Value),
    /// A field is evaluated at, or the step ends with, a sum in which the old state has another coefficient than 1.
    State(Value, Exact),
    /// It would have so many terms in all.
    Large(Value, usize),
    /// Its coefficients have no common field that is small enough.
    Roots(Value, ExactError),
}

/// `x·c + Σ aⱼ kⱼ`, x the old state and kⱼ evaluations.
trait Sum: Sized {
    /// The old state.
    fn start() -> Self;
    fn evaluation(j: usize) -> Self;
    fn combined(terms: &[(&Self, &Exact)]) -> Self;
    /// c.
    fn state(&self) -> Exact;
    /// All aⱼ, for so many evaluations.
    fn row(&self, n: usize) -> Vec<Exact>;
}

/// With any numbers.
#[derive(Default)]
struct Numbers {
    state: Exact,
    evals: BTreeMap<usize, Exact>,
}

impl Sum for Numbers {
    fn start() -> Numbers {
        Numbers {
            state: Exact::one(),
            evals: BTreeMap::new(),
        }
    }
    fn evaluation(j: usize) -> Numbers {
        Numbers {
            state: Exact::zero(),
            evals: [(j, Exact::one())].into(),
        }
    }
    fn combined(terms: &[(&Numbers, &Exact)]) -> Numbers {
        let mut sum = Numbers::default();
        for (value, c) in terms {
            sum.state = &sum.state + &(&value.state * c);
            for (j, a) in &value.evals {
                let slot = sum.evals.entry(*j).or_default();
                *slot = &*slot + &(a * c);
            }
        }
        sum.evals.retain(|_, a| !a.is_zero());
        sum
    }
    fn state(&self) -> Exact {
        self.state.clone()
    }
    fn row(&self, n: usize) -> Vec<Exact> {
        let mut row = vec![Exact::zero(); n];
        for (j, a) in &self.evals {
            row[*j] = a.clone();
        }
        row
    }
}

/// With fractions: whole numbers over one denominator, so that a combination takes few greatest common divisors. The old state
/// stands at 0, evaluation j at j + 1.
struct Fractions {
    whole: BTreeMap<usize, BigInt>,
    under: BigInt,
}

impl Fractions {
    fn unit(place: usize) -> Fractions {
        Fractions {
            whole: [(place, BigInt::one())].into(),
            under: BigInt::one(),
        }
    }
    fn at(&self, place: usize) -> Exact {
        let quotient = |x: &BigInt| quotient(x.clone(), &self.under);
        self.whole
            .get(&place)
            .map(quotient)
            .map_or_else(Exact::zero, Exact::from)
    }
}

impl Sum for Fractions {
    fn start() -> Fractions {
        Fractions::unit(0)
    }
    fn evaluation(j: usize) -> Fractions {
        Fractions::unit(j + 1)
    }
    fn combined(terms: &[(&Fractions, &Exact)]) -> Fractions {
        let rational = |(value, c): &(&Fractions, &Exact)| {
            let c = c.as_rational().cloned().unwrap_or_default();
            (c.denom() * &value.under, c.numer().clone())
        };
        let factors: Vec<(BigInt, BigInt)> = terms.iter().map(rational).collect();
        let mut under = BigInt::one();
        for (own, _) in &factors {
            if !(&under % own).is_zero() {
                under = lcm(&under, own);
            }
        }
        let mut whole: BTreeMap<usize, BigInt> = BTreeMap::new();
        for ((value, _), (own, by)) in terms.iter().zip(&factors) {
            let by = by * (&under / own);
            for (place, x) in &value.whole {
                *whole.entry(*place).or_default() += x * &by;
            }
        }
        whole.retain(|_, x| !x.is_zero());
        let mut common = under.clone();
        for x in whole.values().rev() {
            if common.is_one() {
                break;
            }
            common = gcd(&common, &(x % &common));
        }
        if !common.is_one() {
            whole.values_mut().for_each(|x| *x /= &common);
            under /= &common;
        }
        Fractions { whole, under }
    }
    fn state(&self) -> Exact {
        self.at(0)
    }
    fn row(&self, n: usize) -> Vec<Exact> {
        (0..n).map(|j| self.at(j + 1)).collect()
    }
}

impl<C> Line<C> {
    /// Whether all states but results are made by exact flows alone, so that words decide its order.
    pub fn is_product_of_flows(&self) -> bool {
        let flows = |v: &Value| match v.checked_sub(1).and_then(|i| self.steps.get(i)) {
            None => true,
            Some(Step::Flow { .. }) => true,
            Some(_) => false,
        };
        self.steps.iter().all(|s| match s {
            Step::Flow { at, .. } => flows(at),
            Step::Combine(_) => true,
            Step::Eval { .. } | Step::Phi { .. } | Step::Solution(_) => false,
        })
    }

    /// Of each field, whether it is linear: functions of it are applied.
    pub fn linear(&self) -> Vec<bool> {
        let mut linear = vec![false; self.fields.len()];
        for step in &self.steps {
            if let Step::Phi { field, .. } = step {
                linear[*field] = true;
            }
        }
        linear
    }
}

impl Line {
    /// The exact flows that make the result one after the other, each with its part of the step: neighbours of one field joined, those of
    /// no time left out. `None`: it is made of more than flows. Flows of fields of which nothing is known satisfy no relations, so
    /// two such words are the same method only if they are the same.
    pub fn word(&self) -> Option<Vec<(usize, Exact)>> {
        let mut word: Vec<(usize, Exact)> = Vec::new();
        let mut value = self.result;
        while let Some(step) = value.checked_sub(1).map(|i| &self.steps[i]) {
            value = match step {
                Step::Flow {
                    field,
                    at,
                    fraction,
                } => {
                    match word.last_mut().filter(|(last, _)| last == field) {
                        Some((_, sum)) => *sum = &*sum + fraction,
                        None => word.push((*field, fraction.clone())),
                    }
                    if word.last().is_some_and(|(_, sum)| sum.is_zero()) {
                        word.pop();
                    }
                    *at
                }
                Step::Combine(terms) => match &terms[..] {
                    [(v, c)] if c.is_one() => *v,
                    _ => return None,
                },
                Step::Eval { .. } | Step::Phi { .. } | Step::Solution(_) => return None,
            };
        }
        word.reverse();
        Some(word)
    }

    /// Whether few terms of long numbers make values that are long sums of evaluations, as in a recursion of three terms: a tableau
    /// would have many times as many entries. Only steps that evaluate earlier values are such.
    pub fn is_recursion(&self) -> bool {
        let (mut terms, mut stages, mut bits) = (0, 0, 0);
        for (made, step) in self.steps.iter().enumerate() {
            match step {
                Step::Combine(of) => {
                    terms += of.len();
                    bits = of.iter().map(|(_, c)| c.bits()).fold(bits, u64::max);
                }
                Step::Eval { at, .. } if *at <= made => stages += 1,
                _ => return false,
            }
        }
        bits >= LONG && 8 * terms < stages * stages
    }

    /// Whether its coefficients can be computed with.
    pub fn comparable(&self) -> Result<(), NoTableau> {
        Exact::are_comparable(self.coefficients()).map_err(|why| NoTableau::Roots(self.result, why))
    }

    fn coefficients(&self) -> impl Iterator<Item = &Exact> + Clone {
        self.steps.iter().flat_map(|s| match s {
            Step::Combine(terms) => terms.iter().map(|(_, c)| c).collect(),
            Step::Flow { fraction, .. } => vec![fraction],
            Step::Phi { over, .. } => vec![over],
            Step::Solution(time) => vec![time],
            Step::Eval { .. } => Vec::new(),
        })
    }

    /// Whether tableaus of such numbers have elementary weights in whole numbers ([`crate::order::Weights`]).
    pub fn has_ring(&self) -> bool {
        Ring::of(self.coefficients()).is_some()
    }

    /// One stage for each evaluation.
    pub fn tableau(&self) -> Result<Tableau, NoTableau> {
        self.comparable()?;
        let rational = |s: &Step| match s {
            Step::Combine(terms) => terms.iter().all(|(_, c)| c.as_rational().is_some()),
            _ => true,
        };
        match self.steps.iter().all(rational) {
            true => self.summed::<Fractions>(),
            false => {
                let stages = self.steps.iter().filter(|s| matches!(s, Step::Eval { .. }));
                let (n, weight) = (stages.count(), self.coefficients().map(Exact::weight).max());
                match n * n / 2 * weight.unwrap_or(0) {
                    terms if terms > MAX_TERMS => Err(NoTableau::Large(self.result, terms)),
                    _ => self.summed::<Numbers>(),
                }
            }
        }
    }

    fn summed<S: Sum>(&self) -> Result<Tableau, NoTableau> {
        let mut sums = vec![S::start()];
        // The field of each stage, and the value it is evaluated at.
        let mut stages: Vec<(usize, Value)> = Vec::new();
        let is_state = |sums: &[S], v: Value| match sums[v].state() {
            c if c.is_one() => Ok(()),
            c => Err(NoTableau::State(v, c)),
        };
        for (i, step) in self.steps.iter().enumerate() {
            sums.push(match step {
                Step::Eval { field, at } => {
                    stages.push((*field, *at));
                    S::evaluation(stages.len() - 1)
                }
                Step::Combine(terms) => {
                    let terms: Vec<(&S, &Exact)> =
                        terms.iter().map(|(v, c)| (&sums[*v], c)).collect();
                    S::combined(&terms)
                }
                Step::Flow { .. } => return Err(NoTableau::Flow(i + 1)),
                Step::Phi { .. } => return Err(NoTableau::Phi(i + 1)),
                Step::Solution(_) => return Err(NoTableau::History(i + 1)),
            });
        }
        let n = stages.len();
        let end = |v: Value| is_state(&sums, v).map(|()| sums[v].row(n));
        // What an evaluation reads may be made after it.
        let a = stages.iter().map(|(_, at)| end(*at));
        let a = a.collect::<Result<_, NoTableau>>()?;
        let embedded = self.embedded.map(end).transpose()?;
        Ok(Tableau {
            fields: self.fields.clone(),
            field_of: stages.iter().map(|(f, _)| *f).collect(),
            a,
            b: end(self.result)?,
            embedded,
        })
    }
}
