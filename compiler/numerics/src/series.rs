//! Expansions of any straight line over trees: evaluations, exact flows of single fields, exact past values.
//!
//! A value is a B-series (Hairer, Lubich & Wanner 2006, III.1, with colours III.2): one coefficient for the empty tree, which
//! is that of the old state, and one for each tree. An evaluation takes the product over the subtrees at the root;
//! an exact flow solves `Y'(s) = F(Y(s))`, whose coefficients are polynomials in s, integrated one tree after the other.
//! Slower than [`crate::order::Weights`], which tableaus use, but nothing about a line is asked.

use crate::line::{Line, NoTableau, Step};
use crate::order::{Expansion, expected};
use crate::trees::{TreeId, Trees};
use num_bigint::BigInt;
use num_rational::BigRational;
use odec_exact::Exact;

/// A polynomial, by rising powers.
type Poly = Vec<Exact>;

/// Coefficients of one value so far.
#[derive(Clone, Debug, Default)]
struct Known {
    /// By tree.
    own: Vec<Exact>,
    /// Of an evaluation: the product over the subtrees, by tree.
    products: Vec<Exact>,
    /// Of a flow: the same at time s, and the state at time s.
    moving: Vec<(Poly, Poly)>,
}

/// The expansion of a line's result.
pub struct Series {
    line: Line,
    known: Vec<Known>,
    result: usize,
}

impl Series {
    /// Refused where a field meets, or the step ends with, a multiple of the state: such a line has no B-series.
    pub fn new(line: &Line) -> Result<Series, NoTableau> {
        let mut states = vec![Exact::one()];
        let whole = |states: &[Exact], v: usize| match states[v].is_one() {
            true => Ok(()),
            false => Err(NoTableau::State(v, states[v].clone())),
        };
        for step in &line.steps {
            states.push(match step {
                Step::Eval { at, .. } => {
                    whole(&states, *at)?;
                    Exact::zero()
                }
                Step::Flow { at, .. } => {
                    whole(&states, *at)?;
                    Exact::one()
                }
                Step::Solution(_) => Exact::one(),
                Step::Combine(terms) => terms.iter().map(|(v, c)| c * &states[*v]).sum(),
            });
        }
        whole(&states, line.result)?;
        Ok(Series {
            known: vec![Known::default(); line.steps.len() + 1],
            result: line.result,
            line: line.clone(),
        })
    }

    fn reach(&mut self, trees: &Trees, t: TreeId) {
        while self.known[0].own.len() <= t.0 as usize {
            let tree = TreeId(self.known[0].own.len() as u32);
            self.known[0].own.push(Exact::zero());
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
            Step::Combine(terms) => terms.iter().map(|(v, c)| c * of(*v, t)).sum(),
            Step::Solution(time) => {
                let power = num_traits::pow(BigInt::from(*time), trees.order(t));
                &Exact::from(BigRational::from_integer(power)) * &expected(trees, t)
            }
            Step::Eval { field, at } => {
                let product = match parts {
                    _ if trees.colour(t) != *field => Exact::zero(),
                    None => Exact::one(),
                    Some((l, r)) => &self.known[i + 1].products[l.0 as usize] * of(*at, r),
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
                    None => vec![Exact::one()],
                    Some((l, r)) => times(&moving[l.0 as usize].0, &moving[r.0 as usize].1),
                };
                let mut state = vec![of(*at, t).clone()];
                let integral = product.iter().enumerate();
                state.extend(integral.map(|(n, c)| c * &Exact::ratio(1, n as i64 + 1)));
                while state.last().is_some_and(Exact::is_zero) {
                    state.pop();
                }
                let end = state.iter().rev();
                let end = end.fold(Exact::zero(), |sum, c| &(&sum * fraction) + c);
                self.known[i + 1].moving.push((product, state));
                end
            }
        };
        self.known[i + 1].own.push(own);
    }
}

fn times(p: &Poly, q: &Poly) -> Poly {
    if p.is_empty() || q.is_empty() {
        return Vec::new();
    }
    let mut product = vec![Exact::zero(); p.len() + q.len() - 1];
    for (i, a) in p.iter().enumerate() {
        for (j, b) in q.iter().enumerate() {
            product[i + j] = &product[i + j] + &(a * b);
        }
    }
    product
}

impl Expansion for Series {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        self.reach(trees, t);
        self.known[self.result].own[t.0 as usize].clone()
    }
}
