//! B-series of any straight-line step: evaluations, exact flows of single fields, exact past values.
//!
//! A value is a B-series (Hairer, Lubich & Wanner 2006, III.1, with colours III.2): one coefficient for the empty tree, which
//! is that of the old state, and one for each tree. An evaluation takes the product over the subtrees at the root;
//! an exact flow solves `Y'(s) = F(Y(s))`, whose coefficients are polynomials in s, integrated one tree after the other.
//! Slower than [`crate::order::Weights`], which tableaus use, but nothing about a line is asked.

use crate::exponential::sums::over_factorial;
use crate::linear_step::{LinearStep, NoTableau, Step, Value};
use crate::order::{Expansion, expected};
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// What coefficients of a line are: exact numbers, or [`crate::jet::Jet`]s.
pub trait Number: Clone {
    fn exact(x: &Exact) -> Self;
    fn is_zero(&self) -> bool;
    fn plus(&self, other: &Self) -> Self;
    fn times(&self, other: &Self) -> Self;
}

impl Number for Exact {
    fn exact(x: &Exact) -> Exact {
        x.clone()
    }
    fn is_zero(&self) -> bool {
        self.is_zero()
    }
    fn plus(&self, other: &Exact) -> Exact {
        self + other
    }
    fn times(&self, other: &Exact) -> Exact {
        self * other
    }
}

fn zero<C: Number>() -> C {
    C::exact(&Exact::zero())
}
fn one<C: Number>() -> C {
    C::exact(&Exact::one())
}

/// A polynomial, by rising powers.
type Poly<C> = Vec<C>;

/// Coefficients of one value so far.
#[derive(Clone, Debug)]
struct Known<C> {
    /// By tree.
    own: Vec<C>,
    /// Of an evaluation: the product over the subtrees, by tree.
    products: Vec<C>,
    /// Of a flow: the same at time s, and the state at time s.
    moving: Vec<(Poly<C>, Poly<C>)>,
}

/// The expansion of a line's result.
pub struct Series<C = Exact> {
    line: LinearStep<C>,
    known: Vec<Known<C>>,
    /// The coefficient of the old state in each value.
    states: Vec<C>,
    result: usize,
}

impl<C: Number> LinearStep<C> {
    /// The coefficient of the old state in each value: that of the empty tree.
    pub fn states(&self) -> Vec<C> {
        let mut states = vec![one::<C>()];
        for step in &self.steps {
            states.push(match step {
                Step::Eval { .. } => zero(),
                Step::Flow { .. } | Step::Past(_) => one(),
                Step::Phi { index, at, .. } => {
                    states[*at].times(&C::exact(&over_factorial(*index)))
                }
                Step::Combine(terms) => sum(terms.iter().map(|(v, c)| c.times(&states[*v]))),
            });
        }
        states
    }
}

impl Series {
    /// Refused where a field meets, or the step ends with, a multiple of the state: such a line has no B-series.
    pub fn new(line: &LinearStep) -> Result<Series, NoTableau> {
        line.comparable()?;
        let (series, states) = Series::of(line);
        match states.into_iter().next() {
            Some((v, off)) => Err(NoTableau::State(v, &off + &Exact::one())),
            None => Ok(series),
        }
    }
}

impl<C: Number> Series<C> {
    /// The expansion as if the old state stood once in every state that a field meets and in the result; where it does
    /// not, the value and what is too much.
    pub fn of(line: &LinearStep<C>) -> (Series<C>, Vec<(usize, C)>) {
        let states = line.states();
        let less = C::exact(&Exact::int(-1));
        let met = line.steps.iter().filter_map(|step| match step {
            Step::Eval { at, .. } | Step::Flow { at, .. } => Some(*at),
            Step::Phi { .. } | Step::Past(_) | Step::Combine(_) => None,
        });
        let off = met.chain([line.result]).map(|v| (v, states[v].plus(&less)));
        let wrong = off.filter(|(_, off)| !off.is_zero()).collect();
        let empty = Known {
            own: Vec::new(),
            products: Vec::new(),
            moving: Vec::new(),
        };
        let series = Series {
            known: vec![empty; line.steps.len() + 1],
            states,
            result: line.result,
            line: line.clone(),
        };
        (series, wrong)
    }

    /// Φ(t).
    pub fn value(&mut self, trees: &Trees, t: TreeId) -> C {
        self.value_of(trees, t, self.result)
    }

    /// The coefficient of any value of the line.
    pub fn value_of(&mut self, trees: &Trees, t: TreeId, v: Value) -> C {
        self.reach(trees, t);
        self.known[v].own[t.0 as usize].clone()
    }

    fn reach(&mut self, trees: &Trees, t: TreeId) {
        while self.known[0].own.len() <= t.0 as usize {
            let tree = TreeId(self.known[0].own.len() as u32);
            self.known[0].own.push(zero());
            for i in 0..self.line.steps.len() {
                self.extend(trees, tree, i);
            }
        }
    }

    /// The coefficient of step `i` for the next tree.
    fn extend(&mut self, trees: &Trees, t: TreeId, i: usize) {
        let parts = trees.parts(t);
        let of = |v: usize, t: TreeId| &self.known[v].own[t.0 as usize];
        let own = match &self.line.steps[i] {
            Step::Combine(terms) => sum(terms.iter().map(|(v, c)| c.times(of(*v, t)))),
            Step::Past(time) => {
                let whole = C::exact(&expected(trees, t));
                (0..trees.order(t)).fold(whole, |product, _| product.times(time))
            }
            // `Σⱼ cʲ/(j + k)! (hL)ʲ v`: vertices of L are taken off the root, one after the other.
            Step::Phi {
                field,
                index,
                over,
                at,
            } => {
                let mut total = zero::<C>();
                let (mut power, mut rest, mut j) = (one::<C>(), Some(t), 0);
                loop {
                    let v = match rest {
                        Some(t) => of(*at, t),
                        None => &self.states[*at],
                    };
                    let weight = C::exact(&over_factorial(index + j));
                    total = total.plus(&power.times(&weight).times(v));
                    let Some(root) = rest.filter(|t| trees.colour(*t) == *field) else {
                        break total;
                    };
                    rest = trees.parts(root).map(|(_, child)| child);
                    power = power.times(over);
                    j += 1;
                }
            }
            Step::Eval { field, at } => {
                let product = match parts {
                    _ if trees.colour(t) != *field => zero(),
                    None => one(),
                    Some((l, r)) => self.known[i + 1].products[l.0 as usize].times(of(*at, r)),
                };
                self.known[i + 1].products.push(product.clone());
                product
            }
            Step::Flow {
                field,
                at,
                fraction,
            } => {
                let moving = &self.known[i + 1].moving;
                let product = match parts {
                    _ if trees.colour(t) != *field => Vec::new(),
                    None => vec![one()],
                    Some((l, r)) => times(&moving[l.0 as usize].0, &moving[r.0 as usize].1),
                };
                let mut state = vec![of(*at, t).clone()];
                let integral = product.iter().enumerate();
                let over = |n: usize| C::exact(&Exact::ratio(1, n as i64 + 1));
                state.extend(integral.map(|(n, c)| c.times(&over(n))));
                while state.last().is_some_and(C::is_zero) {
                    state.pop();
                }
                let end = state.iter().rev();
                let end = end.fold(zero::<C>(), |sum, c| sum.times(fraction).plus(c));
                self.known[i + 1].moving.push((product, state));
                end
            }
        };
        self.known[i + 1].own.push(own);
    }
}

fn sum<C: Number>(terms: impl Iterator<Item = C>) -> C {
    terms.fold(zero(), |sum, t| sum.plus(&t))
}

fn times<C: Number>(p: &Poly<C>, q: &Poly<C>) -> Poly<C> {
    if p.is_empty() || q.is_empty() {
        return Vec::new();
    }
    let mut product = vec![zero::<C>(); p.len() + q.len() - 1];
    for (i, a) in p.iter().enumerate() {
        for (j, b) in q.iter().enumerate() {
            product[i + j] = product[i + j].plus(&a.times(b));
        }
    }
    product
}

impl Expansion for Series {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        self.value(trees, t)
    }
}
