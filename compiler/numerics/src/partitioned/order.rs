//! The order of a partitioned method with the best start of p.
//!
//! What a step keeps as p need not be p: leapfrog keeps the velocity half a step before. So p is given an expansion ξ over trees
//! with a root of B, while q is itself. The method has order p when there is a ξ such that a step takes it to what it is at t + h, up to
//! order p (Hairer, Nørsett & Wanner 1993, III.8): `Σ bⱼ Bⱼ(t) + ξ(t) = (Eξ)(t)` for roots of B, `Σ b̂ᵢ Aᵢ(t) = 1/γ(t)` for those of A.
//! The second equation, for a tree with a single branch t below its root, is `Σ b̂ᵢ (ξ(t) + Σ aᵢⱼ Bⱼ(t)) = 1/γ`: this is ξ(t). A start that
//! differs from ξ in a tree of m vertices limits the order to m.

use super::{A, B};
use crate::linear_step::{LinearStep, Value};
use crate::order::{Expansion, expected};
use crate::series::Series;
use crate::tableau::Tableau;
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;
use std::collections::BTreeMap;

/// Trees without some of their branches, with coefficients.
type Pruned = BTreeMap<TreeId, Exact>;

/// The expansion of a step: 1/γ and what it is off.
pub struct Started {
    method: Tableau,
    /// By tree: ξ, 0 for roots of A.
    values: Vec<Exact>,
    /// By tree: of each stage its argument, and its evaluation.
    arguments: Vec<Vec<Exact>>,
    evaluations: Vec<Vec<Exact>>,
    errors: Vec<Exact>,
    /// What is left of a tree when branches are cut and integrated, as its expansion moves by h.
    pruned: Vec<Pruned>,
    known: BTreeMap<(usize, Vec<TreeId>), TreeId>,
}

/// The first steps of a method, and where they end.
#[derive(Clone, Debug)]
pub struct FirstSteps {
    /// Fields as in the method's tableau; value 0 is both q and p at the start. Where `A(p) = p`, all values are multiples of q, h p and h² B(q).
    pub line: LinearStep,
    pub q: Value,
    /// Where `A(p) = p`: h p.
    pub p: Value,
    pub steps: usize,
    /// p is 0 at the start.
    pub at_rest: bool,
    pub second_order: bool,
}

/// What is off after the first steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// Its power of h: to this the order is limited.
    pub order: usize,
    /// Whether it is p.
    pub of_p: bool,
    /// `None`: the state itself.
    pub tree: Option<TreeId>,
    pub has: Exact,
    pub expected: Exact,
}

impl FirstSteps {
    /// The first power of h below `below` that is off; `Err`: a field is evaluated at a multiple of the state other than 1, or there are
    /// too many trees.
    pub fn missed(
        &self,
        method: &mut Started,
        trees: &mut Trees,
        below: usize,
    ) -> Result<Option<Missed>, &'static str> {
        if below == 0 {
            return Ok(None);
        }
        let states = self.line.states();
        let (mut series, strange) = Series::of(&self.line);
        let kept = |of_p: bool| match of_p && self.second_order {
            true => (self.p, Exact::zero()),
            false if of_p => (self.p, Exact::one()),
            false => (self.q, Exact::one()),
        };
        for of_p in [false, true] {
            let (value, expected) = kept(of_p);
            if states[value] != expected {
                return Ok(Some(Missed {
                    order: 0,
                    of_p,
                    tree: None,
                    has: states[value].clone(),
                    expected,
                }));
            }
        }
        if strange.iter().any(|(v, _)| *v != self.line.result) {
            return Err("a field is evaluated at a multiple of the state other than 1");
        }
        // One order more: h p has p's trees below a vertex of A.
        for n in 0..below {
            while trees.orders() < n + 1 {
                if !trees.grow() {
                    return Err("there are too many trees for its first steps");
                }
            }
            for tree in trees.of_order(n + 1).chain(trees.of_order(n)) {
                if self.at_rest && ends_in_p(trees, tree) {
                    continue;
                }
                let root = trees.colour(tree);
                let (of_p, has, expected) = match (root, trees.order(tree) == n) {
                    (A, true) => {
                        let whole = &expected(trees, tree) * &power(self.steps, n);
                        (false, series.value_of(trees, tree, self.q), whole)
                    }
                    (A, false) if self.second_order => {
                        let own = match trees.children(tree)[..] {
                            [child] => method.later(trees, child, self.steps),
                            _ => Exact::one(),
                        };
                        (true, series.value_of(trees, tree, self.p), own)
                    }
                    (B, true) if !self.second_order => {
                        let own = method.later(trees, tree, self.steps);
                        (true, series.value_of(trees, tree, self.p), own)
                    }
                    _ => continue,
                };
                if has != expected {
                    return Ok(Some(Missed {
                        order: n,
                        of_p,
                        tree: Some(tree),
                        has,
                        expected,
                    }));
                }
            }
        }
        Ok(None)
    }
}

fn power(x: usize, n: usize) -> Exact {
    (0..n).fold(Exact::one(), |p, _| &p * &Exact::int(x as i64))
}

/// Whether a vertex of A has no branch: it stands for p itself.
fn ends_in_p(trees: &Trees, t: TreeId) -> bool {
    let children = trees.children(t);
    match children.is_empty() {
        true => trees.colour(t) == A,
        false => children.into_iter().any(|c| ends_in_p(trees, c)),
    }
}

fn dot<'x>(x: impl Iterator<Item = &'x Exact>, y: &[Exact]) -> Exact {
    x.zip(y)
        .filter(|(x, _)| !x.is_zero())
        .map(|(x, y)| x * y)
        .sum()
}

impl Started {
    pub(super) fn new(method: &Tableau) -> Started {
        Started {
            method: method.clone(),
            values: Vec::new(),
            arguments: Vec::new(),
            evaluations: Vec::new(),
            errors: Vec::new(),
            pruned: Vec::new(),
            known: BTreeMap::new(),
        }
    }

    /// ξ(t), of a tree with a root of B.
    pub fn value(&mut self, trees: &Trees, t: TreeId) -> Exact {
        while self.values.len() <= t.0 as usize {
            let tree = TreeId(self.values.len() as u32);
            self.extend(trees, tree);
        }
        self.values[t.0 as usize].clone()
    }

    /// The part of a step by which p lies off the time of q: ξ of a single B.
    pub fn offset(&mut self, trees: &mut Trees) -> Exact {
        if trees.orders() == 0 {
            trees.grow();
        }
        let leaf = trees.of_order(1).find(|t| trees.colour(*t) == B);
        leaf.map_or_else(Exact::zero, |t| self.value(trees, t))
    }

    /// Up to which order, at most `up_to`, what is kept as p is `at` of it: the first power of h that is off.
    pub fn agrees(
        &mut self,
        trees: &mut Trees,
        up_to: usize,
        at: &mut dyn FnMut(&Trees, TreeId) -> Option<Exact>,
    ) -> Option<(TreeId, Exact, Exact)> {
        for n in 1..up_to {
            if trees.orders() < n && !trees.grow() {
                return None;
            }
            for t in trees.of_order(n).filter(|t| trees.colour(*t) == B) {
                let own = self.value(trees, t);
                match at(trees, t) {
                    Some(x) if x != own => return Some((t, x, own)),
                    _ => {}
                }
            }
        }
        None
    }

    /// ξ(t) so many steps later on the exact solution.
    pub fn later(&mut self, trees: &Trees, t: TreeId, steps: usize) -> Exact {
        self.value(trees, t);
        let n = Exact::int(steps as i64);
        let times = |vertices: usize| (0..vertices).fold(Exact::one(), |p, _| &p * &n);
        let parts = self.pruned[t.0 as usize].iter();
        let of = |(s, c): (&TreeId, &Exact)| {
            let moved = &times(trees.order(t) - trees.order(*s)) * &self.values[s.0 as usize];
            c * &moved
        };
        let whole = &expected(trees, t) * &times(trees.order(t));
        &parts.map(of).sum::<Exact>() + &whole
    }

    fn grafted(&self, trees: &Trees, left: TreeId, right: TreeId) -> Option<TreeId> {
        let mut children = trees.children(left);
        let at = children.partition_point(|c| *c <= right);
        children.insert(at, right);
        self.known.get(&(trees.colour(left), children)).copied()
    }

    /// The trees that are left of t, and t itself.
    fn cut(&self, trees: &Trees, t: TreeId) -> Pruned {
        let Some((l, r)) = trees.parts(t) else {
            return [(t, Exact::one())].into();
        };
        let mut pruned = Pruned::new();
        let mut add = |tree, c: Exact| {
            let slot: &mut Exact = pruned.entry(tree).or_default();
            *slot = &*slot + &c;
        };
        let whole = expected(trees, r);
        for (left, c) in &self.pruned[l.0 as usize] {
            add(*left, c * &whole);
            for (right, d) in &self.pruned[r.0 as usize] {
                // Not larger than t, so it is known.
                if let Some(tree) = self.grafted(trees, *left, *right) {
                    add(tree, c * d);
                }
            }
        }
        pruned
    }

    fn extend(&mut self, trees: &Trees, t: TreeId) {
        self.known.insert((trees.colour(t), trees.children(t)), t);
        let m = &self.method;
        let root = trees.colour(t);
        let product = |i: usize| match trees.parts(t) {
            _ if m.field_of[i] != root => Exact::zero(),
            None => Exact::one(),
            Some((l, r)) => &self.evaluations[l.0 as usize][i] * &self.arguments[r.0 as usize][i],
        };
        let evaluations: Vec<Exact> = (0..m.stages()).map(product).collect();
        let pruned = self.cut(trees, t);
        let sums: Vec<Exact> =
            m.a.iter()
                .map(|row| dot(row.iter(), &evaluations))
                .collect();
        let result = dot(m.b.iter(), &evaluations);
        let exact = expected(trees, t);
        let (value, error) = match root {
            A => (Exact::zero(), &result - &exact),
            _ => {
                // 1/γ of the tree with one vertex more below this one.
                let above = &exact * &Exact::ratio(1, trees.order(t) as i64 + 1);
                let of_a = |i: &usize| m.field_of[*i] == A;
                let inner = (0..m.stages()).filter(of_a).map(|i| &m.b[i] * &sums[i]);
                let value = &above - &inner.sum::<Exact>();
                let smaller = pruned.iter().filter(|(s, _)| **s != t);
                let moved: Exact = smaller.map(|(s, c)| c * &self.values[s.0 as usize]).sum();
                // ξ(t) stands on both sides.
                (value, &(&result - &moved) - &exact)
            }
        };
        // A is evaluated at p, and so at ξ.
        let arguments = sums
            .into_iter()
            .enumerate()
            .map(|(i, sum)| match m.field_of[i] {
                A => &sum + &value,
                _ => sum,
            });
        self.arguments.push(arguments.collect());
        self.evaluations.push(evaluations);
        self.values.push(value);
        self.errors.push(error);
        self.pruned.push(pruned);
    }
}

impl Expansion for Started {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        self.value(trees, t);
        &expected(trees, t) + &self.errors[t.0 as usize]
    }
}
