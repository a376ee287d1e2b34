//! A step as a straight line of evaluations, combinations and exact flows, with the step size divided out.
//!
//! Values are states, or evaluations times h, so coefficients are pure numbers. Its tableau, where there is one, is
//! found by `rows.rs`. Leaves finding the values of a stage program to odec-scheme.

mod rows;

pub use rows::{Inputs, Place, Row, Rows, Sums};

use crate::ring::Ring;
use odec_exact::{Exact, ExactError};

/// Most terms of all numbers of a tableau in which roots occur.
pub const MAX_TERMS: usize = 200_000;
/// Bits of a numerator or denominator that is long.
const LONG: u64 = 512;

/// A value of a line: 0 is the state at the start of the step, `n` the result of step `n − 1`.
pub type Value = usize;

/// One value more. `C`: what coefficients are; `P`: what is said of a value of an earlier step, its time by default.
#[derive(Clone, Debug, PartialEq)]
pub enum Step<C = Exact, P = C> {
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
    /// A value of an earlier step. Of a time in units of the step, 0 at its start and negative before, it is the exact solution
    /// then.
    Past(P),
}

/// What one step computes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearStep<C = Exact, P = C> {
    /// Names of the fields; a different one for each set of parameters.
    pub fields: Vec<String>,
    pub steps: Vec<Step<C, P>>,
    /// The state after the step.
    pub result: Value,
    /// A second result.
    pub embedded: Option<Value>,
}

/// Why a line has no equivalent tableau. The value is the one to point at.
#[derive(Clone, Debug, PartialEq)]
pub enum NoTableau<C = Exact> {
    /// An exact flow has no stages.
    Flow(Value),
    /// A function of a linear field is no coefficient of a tableau.
    Phi(Value),
    /// A value from before the step.
    History(Value),
    /// A field is evaluated at, or the step ends with, a sum in which the old state has another coefficient than 1.
    State(Value, C),
    /// It would have so many terms in all.
    Large(Value, usize),
    /// Its coefficients have no common field that is small enough.
    Roots(Value, ExactError),
}

impl<C> LinearStep<C> {
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
            Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => false,
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

impl LinearStep {
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
                Step::Eval { .. } | Step::Phi { .. } | Step::Past(_) => return None,
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
        Exact::are_comparable(self.numbers()).map_err(|why| NoTableau::Roots(self.result, why))
    }

    /// Whether tableaus of such numbers have elementary weights in whole numbers ([`crate::order::Weights`]).
    pub fn has_ring(&self) -> bool {
        Ring::of(self.numbers()).is_some()
    }

    /// Its coefficients, and the times of its past values.
    fn numbers(&self) -> impl Iterator<Item = &Exact> + Clone {
        let times = self.steps.iter().filter_map(|s| match s {
            Step::Past(time) => Some(time),
            _ => None,
        });
        self.coefficients().chain(times)
    }
}

impl<P> LinearStep<Exact, P> {
    fn coefficients(&self) -> impl Iterator<Item = &Exact> + Clone {
        self.steps.iter().flat_map(|s| match s {
            Step::Combine(terms) => terms.iter().map(|(_, c)| c).collect(),
            Step::Flow { fraction, .. } => vec![fraction],
            Step::Phi { over, .. } => vec![over],
            Step::Past(_) | Step::Eval { .. } => Vec::new(),
        })
    }
}
