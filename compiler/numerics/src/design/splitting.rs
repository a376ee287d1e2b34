//! Symmetric splittings of two fields with given stages and order that have the least error.
//!
//! A product of flows differs from the exact one by a commutator of each Lyndon word of the next degrees (Hairer, Lubich & Wanner 2006, III.5). Order 2
//! needs the sums alone; order 4 is linear and then quadratic in the fractions of one field, so that their exact values have one square root.

use super::round::rounded;
use super::scalar::{Scalar, sum};
use super::search::{Problem, spread};
use super::{Design, Goal, Method, Refused};
use odec_exact::Exact;
use std::collections::BTreeMap;

/// Most flows of the second field that are searched.
pub const MAX_STAGES: usize = 8;
/// Losses that are tried, as multiples of the requested one.
const LOSSES: [f64; 4] = [1.0, 10.0, 100.0, 500.0];
const STARTS: usize = 40;
const EVALUATIONS: usize = 1200;

/// `A(a₁) B(b₁) A(a₂) … B(b₁) A(a₁)`: the fractions of both fields up to the middle.
#[derive(Clone, Debug)]
struct Family {
    stages: usize,
    order: usize,
    /// The words of degrees 3 that order 4 lets vanish, and the commutators of the next degree.
    next: Vec<Bracket>,
}

/// A Lyndon word, with what its commutator has of all words.
#[derive(Clone, Debug)]
struct Bracket {
    word: Vec<usize>,
    expanded: BTreeMap<Vec<usize>, f64>,
}

fn is_lyndon(word: &[usize]) -> bool {
    (1..word.len()).all(|k| word < &word[k..])
}

/// `[left, right]` of the longest right part that is a Lyndon word.
fn bracket(word: &[usize]) -> BTreeMap<Vec<usize>, f64> {
    let cut = (1..word.len()).find(|k| is_lyndon(&word[*k..]));
    let Some(cut) = cut else {
        return BTreeMap::from([(word.to_vec(), 1.0)]);
    };
    let (left, right) = (bracket(&word[..cut]), bracket(&word[cut..]));
    let mut all = BTreeMap::new();
    for (l, a) in &left {
        for (r, b) in &right {
            *all.entry([&l[..], r].concat()).or_insert(0.0) += a * b;
            *all.entry([&r[..], l].concat()).or_insert(0.0) -= a * b;
        }
    }
    all
}

/// In rising order: each word is the least of its own commutator.
fn brackets(degree: usize) -> Vec<Bracket> {
    let word = |n: usize| (0..degree).rev().map(|k| n >> k & 1).collect();
    let words = (0..1 << degree).map(word);
    let lyndon = words.filter(|w: &Vec<usize>| is_lyndon(w));
    let made = lyndon.map(|word| Bracket {
        expanded: bracket(&word),
        word,
    });
    made.collect()
}

/// The coefficient of a word in a product of flows.
fn coefficient<N: Scalar>(flows: &[(usize, N)], word: &[usize]) -> N {
    let zero = N::ratio(0, 1);
    let mut values = vec![zero.clone(); word.len() + 1];
    values[0] = N::ratio(1, 1);
    for (field, c) in flows {
        for k in (1..=word.len()).rev() {
            let mut term = N::ratio(1, 1);
            for j in (0..k).rev().take_while(|j| word[*j] == *field) {
                term = term.times(c).times(&N::ratio(1, (k - j) as i64));
                values[k] = values[k].plus(&term.times(&values[j]));
            }
        }
    }
    values[word.len()].clone()
}

fn missed<N: Scalar>(flows: &[(usize, N)], word: &[usize]) -> N {
    let factorial: i64 = (1..=word.len() as i64).product();
    coefficient(flows, word).minus(&N::ratio(1, factorial))
}

impl Family {
    fn new(stages: usize, order: usize) -> Family {
        Family {
            stages,
            order,
            next: brackets(order + 1),
        }
    }

    /// How many fractions of a field there are up to the middle, and whether the last one stands there alone.
    fn half(&self, field: usize) -> (usize, bool) {
        let all = if field == 0 {
            self.stages + 1
        } else {
            self.stages
        };
        (all.div_ceil(2), all % 2 == 1)
    }

    /// The field whose fractions order 4 is solved for.
    fn solved(&self) -> Option<usize> {
        [1, 0].into_iter().find(|f| self.half(*f).0 >= 3)
    }

    /// Numbers that stay free, of each field.
    fn free(&self, field: usize) -> usize {
        let own = self.half(field).0 - 1;
        match self.order == 4 && self.solved() == Some(field) {
            true => own - 2,
            false => own,
        }
    }

    /// The last fraction, from the sum.
    fn closed<N: Scalar>(&self, field: usize, mut parts: Vec<N>) -> Vec<N> {
        let (n, alone) = self.half(field);
        let rest = sum(parts[..n - 1].iter().cloned());
        parts[n - 1] = match alone {
            true => N::ratio(1, 1).minus(&rest.times(&N::ratio(2, 1))),
            false => N::ratio(1, 2).minus(&rest),
        };
        parts
    }

    fn flows<N: Scalar>(&self, parts: &[Vec<N>; 2]) -> Vec<(usize, N)> {
        let count = 2 * self.stages + 1;
        let flow = |k: usize| {
            let k = k.min(count - 1 - k);
            (k % 2, parts[k % 2][k / 2].clone())
        };
        (0..count).map(flow).collect()
    }

    /// The splitting of some free numbers; `plus`: which root of the quadratic equation.
    fn splitting<N: Scalar>(&self, free: &[N], plus: bool) -> Option<Vec<(usize, N)>> {
        let mut free = free.iter().cloned();
        let parts = [0, 1].map(|field| {
            let mut parts: Vec<N> = free.by_ref().take(self.free(field)).collect();
            parts.resize(self.half(field).0, N::ratio(0, 1));
            self.closed(field, parts)
        });
        match self.solved() {
            _ if self.order == 2 => Some(self.flows(&parts)),
            Some(field) => self.solve(parts, field, plus),
            None => None,
        }
    }

    /// Two fractions more: one from the word that has the field once, one from that which has it twice.
    fn solve<N: Scalar>(
        &self,
        parts: [Vec<N>; 2],
        field: usize,
        plus: bool,
    ) -> Option<Vec<(usize, N)>> {
        let (once, twice) = match field {
            1 => ([0, 0, 1], [0, 1, 1]),
            _ => ([0, 1, 1], [0, 0, 1]),
        };
        let at = self.half(field).0 - 3;
        let with = |u: &N, v: &N| {
            let mut parts = parts.clone();
            parts[field][at] = u.clone();
            parts[field][at + 1] = v.clone();
            parts[field] = self.closed(field, parts[field].clone());
            self.flows(&parts)
        };
        let whole = |n: i64| N::ratio(n, 1);
        // m(u, v) = m₀ + p u + q v is 0 on a line.
        let base = missed(&with(&whole(0), &whole(0)), &once);
        let p = missed(&with(&whole(1), &whole(0)), &once).minus(&base);
        let q = missed(&with(&whole(0), &whole(1)), &once).minus(&base);
        let on_line = |u: &N| {
            let v = whole(0).minus(&base.plus(&p.times(u))).over(&q)?;
            Some(with(u, &v))
        };
        let [minus, zero, one] = [-1, 0, 1].map(|n| on_line(&whole(n)).map(|f| missed(&f, &twice)));
        let (minus, zero, one) = (minus?, zero?, one?);
        let half = N::ratio(1, 2);
        let slope = one.minus(&minus).times(&half);
        let square = one.plus(&minus).times(&half).minus(&zero);
        let under = slope
            .times(&slope)
            .minus(&square.times(&zero).times(&whole(4)));
        let root = under.root()?;
        let root = if plus { root } else { whole(0).minus(&root) };
        let u = root.minus(&slope).over(&square.times(&whole(2)))?;
        on_line(&u)
    }

    /// The norm of the coefficients of the commutators.
    fn error(&self, flows: &[(usize, f64)]) -> f64 {
        let mut known: Vec<f64> = Vec::new();
        for b in &self.next {
            let before = self.next.iter().zip(&known);
            let others: f64 = before
                .map(|(other, c)| c * other.expanded.get(&b.word).copied().unwrap_or(0.0))
                .sum();
            known.push(missed(flows, &b.word) - others);
        }
        known.iter().map(|c| c * c).sum::<f64>().sqrt()
    }
}

/// The norm of the coefficients of the next order's commutators, in Lyndon's basis.
pub fn error(flows: &[(usize, Exact)], order: usize) -> f64 {
    let floats: Vec<(usize, f64)> = flows.iter().map(|(f, c)| (*f, c.to_f64())).collect();
    Family::new(1, order).error(&floats)
}

/// # Errors
/// When there is no such splitting, or none was found.
pub fn design(
    stages: usize,
    order: usize,
    loss: f64,
    tell: &mut dyn FnMut(&str),
) -> Result<Design, Refused> {
    possible(stages, order)?;
    let family = Family::new(stages, order);
    let n = family.free(0) + family.free(1);
    let mut best: Option<(Vec<f64>, bool, f64)> = None;
    for start in 0..STARTS {
        tell(&format!("start {} of {STARTS}", start + 1));
        let plus = start % 2 == 0;
        let objective = |y: &[f64]| {
            let flows = family.splitting(y, plus);
            flows.map_or(f64::INFINITY, |f| family.error(&f))
        };
        let problem = Problem {
            objective: &objective,
            slack: &|_| Vec::new(),
        };
        let mut y: Vec<f64> = spread(start / 2, n).iter().map(|u| u - 0.4).collect();
        for size in [0.1, 0.01, 0.001] {
            y = problem.solve(&y, &vec![size; n], EVALUATIONS);
        }
        let error = objective(&y);
        if error.is_finite() && best.as_ref().is_none_or(|(_, _, e)| error < *e) {
            best = Some((y, plus, error));
        }
    }
    let (y, plus, least) = best.ok_or(Refused::NotFound)?;
    let make = |fractions: &[Exact], loss: f64| {
        let flows = family.splitting(fractions, plus)?;
        (error(&flows, order) <= least * (1.0 + loss)).then_some(flows)
    };
    // A square root of a long fraction cannot be taken apart: simpler ones then lose more.
    let mut losses = LOSSES.iter().map(|by| by * loss);
    let flows = losses.find_map(|loss| rounded(&y, |fractions| make(fractions, loss)));
    let flows = flows.ok_or(Refused::NotFound)?;
    let value = error(&flows, order);
    Ok(Design {
        method: Method::Flows(flows),
        order,
        within: None,
        goal: Goal::Error,
        level: None,
        value,
        error: value,
        against: Goal::Error,
        traded: Vec::new(),
    })
}

fn possible(stages: usize, order: usize) -> Result<(), Refused> {
    let no = |what: String, help: &str| {
        Err(Refused::Impossible {
            what,
            help: help.into(),
        })
    };
    match (stages, order) {
        (0, _) => no(
            "a splitting has a flow of each field".into(),
            "such as --stages 2",
        ),
        (_, 1 | 3) => no(
            format!("symmetric splittings have even orders, not {order}"),
            "take --order 2 or 4",
        ),
        (_, 2 | 4) if stages > MAX_STAGES => no(
            format!("more than {MAX_STAGES} stages are not searched"),
            "take fewer",
        ),
        (1..=2, 4) => no(
            "a symmetric splitting of order 4 has at least 3 flows of the second field".into(),
            "take --stages 4 or more",
        ),
        (3, 4) => no(
            "three stages of order 4 leave nothing to choose: it is Forest and Ruth's splitting"
                .into(),
            "`yoshida4` of the library is that; take --stages 4 or more",
        ),
        (_, 2 | 4) => Ok(()),
        _ => no(
            format!("splittings of order {order} are not searched"),
            "take --order 2 or 4",
        ),
    }
}
