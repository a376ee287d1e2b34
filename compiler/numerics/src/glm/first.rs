//! How the first steps of a method with a history limit its order (Hairer, Nørsett & Wanner 1993, III.4 and III.8).
//!
//! Takes the first steps as one line, and which of its values the method finds in `y`. They are compared with ξ, the values of an exact
//! starting procedure, at the same time. A difference of order m is made once and is never made good: it limits the order to m. Where
//! `l` of it is not 0 it stays in the state, so the order is m and no more. Where `l` of it is 0, it may die away, and m is a lower bound.

use super::matrix::dot;
use super::order::Started;
use crate::linear_step::{LinearStep, Step, Value};
use crate::series::Series;
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// The first difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// Its power of h: to this the order is limited.
    pub order: usize,
    /// Which value is off.
    pub value: usize,
    pub why: Why,
    /// Whether the order is not higher.
    pub lasts: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The multiple of the initial state in it, and what it should be.
    State { has: Exact, expected: Exact },
    /// A coefficient.
    Tree {
        tree: TreeId,
        has: Exact,
        expected: Exact,
    },
    /// A field was evaluated at another multiple of the state than 1: such a value has no expansion over trees.
    NoSeries,
}

/// There are too many trees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooMany;

/// How many powers of h, from 0, of each value are right as a series over trees. An implicit step reads later values, so all are
/// taken to be right at first.
fn valid(line: &LinearStep, states: &[Exact]) -> Vec<usize> {
    let mut valid = vec![usize::MAX; states.len()];
    loop {
        let before = valid.clone();
        for (i, step) in line.steps.iter().enumerate() {
            let at = |v: Value, good: usize| match states[v].is_one() {
                true => valid[v].saturating_add(good),
                false => good,
            };
            valid[i + 1] = match step {
                Step::Eval { at: v, .. } => at(*v, 1),
                Step::Flow { at: v, .. } | Step::Phi { at: v, .. } => at(*v, 0),
                Step::Past(_) => usize::MAX,
                Step::Combine(terms) => {
                    let read = terms.iter().filter(|(_, c)| !c.is_zero());
                    read.map(|(v, _)| valid[*v]).min().unwrap_or(usize::MAX)
                }
            };
        }
        if valid == before {
            return valid;
        }
    }
}

/// Compares the values after `steps` first steps with exact ones, in powers of h below `below`; `within`: what a coefficient may be off. `ends`: the value of the line in the
/// place of each value of the method; `None`: it is 0.
pub fn missed(
    line: &LinearStep,
    ends: &[Option<Value>],
    (method, trees): (&mut Started, &mut Trees),
    steps: usize,
    (below, within): (usize, Option<&Exact>),
) -> Result<Option<Missed>, TooMany> {
    let states = line.states();
    let known = valid(line, &states);
    let (mut series, _) = Series::of(line);
    let left = method.left().to_vec();
    let lasts = |off: &[Exact]| !dot(&left, off).is_zero();
    let unknown = |order| {
        let strange = |v: &Option<Value>| v.is_some_and(|v| known[v] <= order);
        let value = ends.iter().position(strange)?;
        let why = Why::NoSeries;
        Some(Missed {
            order,
            value,
            why,
            lasts: false,
        })
    };
    let small = |x: &Exact| {
        let size = if x.is_negative() { -x } else { x.clone() };
        within.is_some_and(|within| size <= *within)
    };
    // The first value that is off: what it is, and what it should be.
    let first = |has: &[Exact], expected: &[Exact]| {
        let mut off: Vec<Exact> = has.iter().zip(expected).map(|(a, b)| a - b).collect();
        off.iter_mut()
            .filter(|x| small(x))
            .for_each(|x| *x = Exact::zero());
        let value = off.iter().position(|x| !x.is_zero())?;
        let both = (has[value].clone(), expected[value].clone());
        Some((value, both, lasts(&off)))
    };
    for m in 0..below {
        if let Some(missed) = unknown(m) {
            return Ok(Some(missed));
        }
        if m == 0 {
            let has = ends
                .iter()
                .map(|v| v.map_or(Exact::zero(), |v| states[v].clone()));
            let has: Vec<Exact> = has.collect();
            if let Some((value, (has, expected), lasts)) = first(&has, method.states()) {
                let why = Why::State { has, expected };
                return Ok(Some(Missed {
                    order: 0,
                    value,
                    why,
                    lasts,
                }));
            }
            continue;
        }
        if trees.orders() < m && !trees.grow() {
            return Err(TooMany);
        }
        let mut found: Option<Missed> = None;
        for tree in trees.of_order(m) {
            let has = ends.iter().map(|v| match v {
                Some(v) => series.value_of(trees, tree, *v),
                None => Exact::zero(),
            });
            let has: Vec<Exact> = has.collect();
            let expected = method.later(trees, tree, steps);
            if let Some((value, (has, expected), lasts)) = first(&has, &expected) {
                let why = Why::Tree {
                    tree,
                    has,
                    expected,
                };
                // A difference that lasts says more than one that may die away.
                if lasts || found.is_none() {
                    found = Some(Missed {
                        order: m,
                        value,
                        why,
                        lasts,
                    });
                }
                if lasts {
                    break;
                }
            }
        }
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
