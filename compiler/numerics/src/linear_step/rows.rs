//! What the stages and the results of a step are made of: rows over incoming values and evaluations.
//!
//! With the old state alone as incoming value they are a [`Tableau`], with older ones a general linear method. One pass
//! over the values serves all kinds of coefficients: [`Sums`] says how these are added. Leaves proofs to `order.rs`, `glm/`.

use super::{LinearStep, MAX_TERMS, NoTableau, Step, Value};
use crate::tableau::Tableau;
use num_bigint::BigInt;
use num_traits::{One, Zero};
use odec_exact::Exact;
use odec_exact::fraction::{gcd, lcm, quotient};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// What sums are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// 0 is the old state.
    Incoming(usize),
    Evaluation(usize),
}

/// How values are added.
pub trait Sums {
    type Number;
    type Sum;
    /// Why a sum is not formed.
    type Failure;
    fn unit(&self, place: Place) -> Self::Sum;
    fn combined(
        &mut self,
        terms: &[(&Self::Sum, &Self::Number)],
    ) -> Result<Self::Sum, Self::Failure>;
    fn entry(&self, sum: &Self::Sum, place: Place) -> Self::Number;
    fn is_one(&self, c: &Self::Number) -> bool;
}

/// The coefficients of one value.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<C = Exact> {
    pub incoming: Vec<C>,
    pub evaluations: Vec<C>,
}

/// Those of all points that fields are evaluated at, and of some other values.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<C = Exact> {
    /// The field of each evaluation, and the value it is evaluated at.
    pub stages: Vec<(usize, Value)>,
    pub points: Vec<Row<C>>,
    pub ends: Vec<Row<C>>,
}

/// The values that come in.
#[derive(Clone, Copy)]
pub struct Inputs<'f, P> {
    pub count: usize,
    /// Which of them a past value is; `None`: it is no value of a method of this kind.
    pub place: &'f dyn Fn(&P) -> Option<usize>,
}

impl<C, P> LinearStep<C, P> {
    /// The rows of all stages and of `ends`.
    pub fn rows_by<S: Sums<Number = C>>(
        &self,
        sums: &mut S,
        ends: &[Value],
        inputs: Inputs<P>,
    ) -> Result<Result<Rows<C>, NoTableau<C>>, S::Failure> {
        let mut values = vec![sums.unit(Place::Incoming(0))];
        let mut stages: Vec<(usize, Value)> = Vec::new();
        for (i, step) in self.steps.iter().enumerate() {
            values.push(match step {
                Step::Eval { field, at } => {
                    stages.push((*field, *at));
                    sums.unit(Place::Evaluation(stages.len() - 1))
                }
                Step::Combine(terms) => {
                    let terms: Vec<(&S::Sum, &C)> =
                        terms.iter().map(|(v, c)| (&values[*v], c)).collect();
                    sums.combined(&terms)?
                }
                Step::Past(past) => match (inputs.place)(past) {
                    Some(place) => sums.unit(Place::Incoming(place)),
                    None => return Ok(Err(NoTableau::History(i + 1))),
                },
                Step::Flow { .. } => return Ok(Err(NoTableau::Flow(i + 1))),
                Step::Phi { .. } => return Ok(Err(NoTableau::Phi(i + 1))),
            });
        }
        let row = |v: &Value| {
            let entry = |place| sums.entry(&values[*v], place);
            Row {
                incoming: (0..inputs.count).map(Place::Incoming).map(entry).collect(),
                evaluations: (0..stages.len())
                    .map(Place::Evaluation)
                    .map(entry)
                    .collect(),
            }
        };
        Ok(Ok(Rows {
            // What an evaluation reads may be made after it.
            points: stages.iter().map(|(_, at)| row(at)).collect(),
            ends: ends.iter().map(row).collect(),
            stages,
        }))
    }

    /// One stage for each evaluation.
    pub fn tableau_by<S: Sums<Number = C>>(
        &self,
        sums: &mut S,
    ) -> Result<Result<Tableau<C>, NoTableau<C>>, S::Failure> {
        let state_alone = Inputs {
            count: 1,
            place: &|_| None,
        };
        let ends: Vec<Value> = self.embedded.into_iter().chain([self.result]).collect();
        let Rows {
            stages,
            points,
            ends: found,
        } = match self.rows_by(sums, &ends, state_alone)? {
            Ok(rows) => rows,
            Err(no) => return Ok(Err(no)),
        };
        let state = |(v, mut row): (Value, Row<C>)| match row.incoming.pop() {
            Some(c) if !sums.is_one(&c) => Err(NoTableau::State(v, c)),
            _ => Ok(row.evaluations),
        };
        let at = stages.iter().map(|(_, at)| *at);
        let all = at.zip(points).chain(ends.into_iter().zip(found));
        Ok(all.map(state).collect::<Result<Vec<_>, _>>().map(|mut a| {
            let b = a.pop().unwrap_or_default();
            Tableau {
                embedded: self.embedded.and_then(|_| a.pop()),
                fields: self.fields.clone(),
                field_of: stages.iter().map(|(field, _)| *field).collect(),
                a,
                b,
            }
        }))
    }
}

impl<P> LinearStep<Exact, P> {
    /// One stage for each evaluation.
    pub fn tableau(&self) -> Result<Tableau, NoTableau> {
        let Ok(found) = match self.adder()? {
            Adder::Fractions => self.tableau_by(&mut Fractions),
            Adder::Numbers => self.tableau_by(&mut Numbers),
        };
        found
    }

    /// The rows of all stages and of `ends`.
    pub fn rows(&self, ends: &[Value], inputs: Inputs<P>) -> Result<Rows, NoTableau> {
        let Ok(found) = match self.adder()? {
            Adder::Fractions => self.rows_by(&mut Fractions, ends, inputs),
            Adder::Numbers => self.rows_by(&mut Numbers, ends, inputs),
        };
        found
    }

    fn adder(&self) -> Result<Adder, NoTableau> {
        Exact::are_comparable(self.coefficients())
            .map_err(|why| NoTableau::Roots(self.result, why))?;
        let rational = |s: &Step<Exact, P>| match s {
            Step::Combine(terms) => terms.iter().all(|(_, c)| c.as_rational().is_some()),
            _ => true,
        };
        if self.steps.iter().all(rational) {
            return Ok(Adder::Fractions);
        }
        let stages = self.steps.iter().filter(|s| matches!(s, Step::Eval { .. }));
        let (n, weight) = (stages.count(), self.coefficients().map(Exact::weight).max());
        match n * n / 2 * weight.unwrap_or(0) {
            terms if terms > MAX_TERMS => Err(NoTableau::Large(self.result, terms)),
            _ => Ok(Adder::Numbers),
        }
    }
}

/// How exact numbers are added.
enum Adder {
    Fractions,
    Numbers,
}

/// Any exact numbers.
struct Numbers;

impl Sums for Numbers {
    type Number = Exact;
    type Sum = BTreeMap<Place, Exact>;
    type Failure = Infallible;
    fn unit(&self, place: Place) -> BTreeMap<Place, Exact> {
        [(place, Exact::one())].into()
    }
    fn combined(
        &mut self,
        terms: &[(&BTreeMap<Place, Exact>, &Exact)],
    ) -> Result<BTreeMap<Place, Exact>, Infallible> {
        let mut sum: BTreeMap<Place, Exact> = BTreeMap::new();
        for (value, c) in terms {
            for (place, x) in *value {
                let slot = sum.entry(*place).or_default();
                *slot = &*slot + &(x * c);
            }
        }
        sum.retain(|_, x| !x.is_zero());
        Ok(sum)
    }
    fn entry(&self, sum: &BTreeMap<Place, Exact>, place: Place) -> Exact {
        sum.get(&place).cloned().unwrap_or_default()
    }
    fn is_one(&self, c: &Exact) -> bool {
        c.is_one()
    }
}

/// Fractions: whole numbers over one denominator, so that a combination takes few greatest common divisors.
struct Fractions;

/// Whole numbers over a denominator.
struct Quotients {
    whole: BTreeMap<Place, BigInt>,
    under: BigInt,
}

impl Sums for Fractions {
    type Number = Exact;
    type Sum = Quotients;
    type Failure = Infallible;
    fn unit(&self, place: Place) -> Quotients {
        Quotients {
            whole: [(place, BigInt::one())].into(),
            under: BigInt::one(),
        }
    }
    fn combined(&mut self, terms: &[(&Quotients, &Exact)]) -> Result<Quotients, Infallible> {
        let rational = |(value, c): &(&Quotients, &Exact)| {
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
        let mut whole: BTreeMap<Place, BigInt> = BTreeMap::new();
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
        Ok(Quotients { whole, under })
    }
    fn entry(&self, sum: &Quotients, place: Place) -> Exact {
        let quotient = |x: &BigInt| quotient(x.clone(), &sum.under);
        let found = sum.whole.get(&place).map(quotient);
        found.map_or_else(Exact::zero, Exact::from)
    }
    fn is_one(&self, c: &Exact) -> bool {
        c.is_one()
    }
}
