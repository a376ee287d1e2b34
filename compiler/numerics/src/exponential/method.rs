//! Exponential Runge–Kutta methods, read off a line: `Yᵢ = e^{cᵢhL}x + h Σ aᵢⱼ(hL) F(Yⱼ)`, `x' = e^{hL}x + h Σ bᵢ(hL) F(Yᵢ)`.
//!
//! Takes a line that applies functions of one linear field; gives its coefficients as functions of z = hL, whatever the line is written
//! with. Leaves what is true of them to [`super::stiff`].

use super::sums::ExpSum;
use crate::linear_step::{LinearStep, Step, Value};
use odec_exact::Exact;

/// Most stages.
const MAX_STAGES: usize = 32;
/// Most terms of all values together.
const MAX_TERMS: usize = 20_000;

/// Its coefficients.
#[derive(Clone, Debug)]
pub struct Exponential {
    pub c: Vec<Exact>,
    pub a: Vec<Vec<ExpSum>>,
    pub b: Vec<ExpSum>,
}

/// Why a line is none of these; the value is the one to point at.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfit {
    pub value: Value,
    pub why: &'static str,
}

/// `s(z) x + h Σ aⱼ(z) F(Yⱼ)`.
#[derive(Clone, Default)]
struct Sum {
    state: ExpSum,
    rates: Vec<ExpSum>,
}

impl Sum {
    fn rate(&self, j: usize) -> ExpSum {
        self.rates.get(j).cloned().unwrap_or_default()
    }

    fn plus(&self, by: &Exact, other: &Sum) -> Sum {
        let n = self.rates.len().max(other.rates.len());
        let rates = (0..n).map(|j| self.rate(j).plus(by, &other.rate(j)));
        Sum {
            state: self.state.plus(by, &other.state),
            rates: rates.collect(),
        }
    }

    fn times(&self, by: &ExpSum) -> Option<Sum> {
        let rates = self.rates.iter().map(|r| r.times(by));
        Some(Sum {
            state: self.state.times(by)?,
            rates: rates.collect::<Option<_>>()?,
        })
    }
}

impl Exponential {
    pub fn new(line: &LinearStep) -> Result<Exponential, Unfit> {
        let unfit = |value: Value, why: &'static str| Unfit { value, why };
        let linear = line.linear();
        let count = |is: bool| linear.iter().filter(|l| **l == is).count();
        if (count(true), count(false)) != (1, 1) {
            let why = "it is not a method of one linear field and one other";
            return Err(unfit(line.result, why));
        }
        let start = Sum {
            state: ExpSum::constant(Exact::one()),
            rates: Vec::new(),
        };
        let mut sums = vec![start];
        let (mut c, mut a, mut terms) = (Vec::new(), Vec::new(), 0);
        for (i, step) in line.steps.iter().enumerate() {
            let v = i + 1;
            let long = || unfit(v, "its coefficients are sums of too many functions");
            let next = match step {
                Step::Combine(terms) => {
                    let plus = |sum: Sum, (v, by): &(Value, Exact)| sum.plus(by, &sums[*v]);
                    terms.iter().fold(Sum::default(), plus)
                }
                Step::Phi {
                    index, at, over, ..
                } => {
                    let function = ExpSum::phi(*index, over);
                    sums[*at].times(&function).ok_or_else(long)?
                }
                Step::Eval { at, .. } if *at > i => {
                    return Err(unfit(v, "it is implicit"));
                }
                Step::Eval { field, at } if linear[*field] => {
                    let z = ExpSum::variable();
                    sums[*at].times(&z).ok_or_else(long)?
                }
                Step::Eval { at, .. } => {
                    let Some(node) = sums[*at].state.as_exponential() else {
                        let why = "a stage does not begin with e^{chL}x";
                        return Err(unfit(*at, why));
                    };
                    if c.len() == MAX_STAGES {
                        return Err(unfit(v, "it has too many stages"));
                    }
                    c.push(node.clone());
                    a.push(sums[*at].rates.clone());
                    let mut rates = vec![ExpSum::default(); c.len()];
                    rates[c.len() - 1] = ExpSum::constant(Exact::one());
                    Sum {
                        state: ExpSum::default(),
                        rates,
                    }
                }
                Step::Flow { .. } => return Err(unfit(v, "it follows exact flows")),
                Step::Past(_) => return Err(unfit(v, "it uses values of earlier steps")),
            };
            terms += next.state.terms() + next.rates.iter().map(ExpSum::terms).sum::<usize>();
            if terms > MAX_TERMS {
                return Err(long());
            }
            sums.push(next);
        }
        let end = &sums[line.result];
        if end.state.as_exponential() != Some(&Exact::one()) {
            return Err(unfit(line.result, "its result does not begin with e^{hL}x"));
        }
        let full = |row: &[ExpSum]| {
            let entry = |j: usize| row.get(j).cloned().unwrap_or_default();
            (0..c.len()).map(entry).collect::<Vec<_>>()
        };
        Ok(Exponential {
            a: a.iter().map(|row| full(row)).collect(),
            b: full(&end.rates),
            c,
        })
    }

    pub fn stages(&self) -> usize {
        self.c.len()
    }
}
