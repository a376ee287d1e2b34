//! Explicit methods of a given order, parametrised by nodes, weights and free entries.
//!
//! The weights solve the conditions of quadrature at given nodes; the other conditions up to order 4, and what is
//! asked of the stability polynomial, are linear in entries of the last rows. So exact nodes and free entries give an exact method.

use super::scalar::{Scalar, pivots, solve, sum};
use crate::trees::{TreeId, Trees};
use odec_exact::Exact;

/// Highest order whose conditions are linear in the last rows.
pub const MAX_ORDER: usize = 4;

/// What is prescribed of a method.
#[derive(Clone, Debug)]
pub struct Explicit {
    pub stages: usize,
    pub order: usize,
    /// Entries that are 0, by row and column from 0; row `stages` holds the weights.
    pub zeros: Vec<(usize, usize)>,
    /// Coefficients of the stability polynomial from `z^(order + 1)` on; empty: whatever they become.
    pub polynomial: Vec<Exact>,
    trees: Trees,
    /// What the nodes and weights alone do not decide.
    tall: Vec<TreeId>,
}

/// A method's coefficients.
#[derive(Clone, Debug)]
pub struct Coefficients<N> {
    pub a: Vec<Vec<N>>,
    pub b: Vec<N>,
    pub c: Vec<N>,
}

/// Which variables the conditions are solved for, by their numbers.
#[derive(Clone, Debug)]
pub struct Chart {
    weights: Vec<usize>,
    /// Of each block of equations, in turn.
    entries: Vec<Vec<usize>>,
}

impl Explicit {
    pub fn new(stages: usize, order: usize, zeros: &[(usize, usize)]) -> Explicit {
        let mut trees = Trees::new(1);
        while trees.orders() < order + 1 && trees.grow() {}
        let tall = tall(&trees, stages, order);
        Explicit {
            stages,
            order,
            zeros: zeros.to_vec(),
            polynomial: Vec::new(),
            trees,
            tall,
        }
    }

    /// The same, with a given stability polynomial.
    pub fn with_polynomial(&self, coefficients: &[Exact]) -> Explicit {
        Explicit {
            polynomial: coefficients.to_vec(),
            ..self.clone()
        }
    }

    /// The number of variables: nodes from the second one on, weights, entries from the second column on.
    pub fn variables(&self) -> usize {
        let s = self.stages;
        (s - 1) + s + (s - 1) * s.saturating_sub(2) / 2
    }

    fn entry(&self, i: usize, j: usize) -> usize {
        let s = self.stages;
        (s - 1) + s + (i - 2) * (i - 1) / 2 + (j - 1)
    }

    /// Variables whose values are given.
    fn given(&self) -> Vec<(usize, i64)> {
        let s = self.stages;
        let mut given = Vec::new();
        for (i, j) in &self.zeros {
            match (*i, *j) {
                (i, j) if i == s => given.push((s - 1 + j, 0)),
                (_, 0) => {}
                (i, j) => given.push((self.entry(i, j), 0)),
            }
        }
        // Four stages of order 4 have their last node at 1 (Butcher 1963).
        if s == 4 && self.order == 4 {
            given.push((2, 1));
        }
        given
    }

    /// Whether order 4 is reached in two blocks: entries above the last row, then those of the last row.
    fn is_in_two(&self) -> bool {
        self.order == 4 && self.stages > 4 && self.polynomial.is_empty()
    }

    fn blocks(&self) -> usize {
        1 + usize::from(self.is_in_two())
    }

    /// Entries that the conditions of a block are solved for: no condition has a product of two of them.
    fn is_open(&self, block: usize, i: usize, j: usize) -> bool {
        let s = self.stages;
        match self.order {
            _ if self.is_in_two() => (i + 1 == s) == (block == 1),
            4 if s > 4 => i + 2 >= s && (i, j) != (s - 1, s - 2),
            4 => true,
            _ if self.polynomial.is_empty() => true,
            _ => i + 1 == s,
        }
    }

    fn open(&self, block: usize) -> Vec<(usize, usize, usize)> {
        let given = self.given();
        let all = (2..self.stages).flat_map(|i| (1..i).map(move |j| (i, j)));
        let all = all.filter(|(i, j)| self.is_open(block, *i, *j));
        let all = all.map(|(i, j)| (i, j, self.entry(i, j)));
        all.filter(|(_, _, v)| given.iter().all(|(g, _)| g != v))
            .collect()
    }

    /// Φ(t) of all trees that are known.
    fn weights<N: Scalar>(&self, m: &Coefficients<N>) -> Vec<N> {
        let mut stages: Vec<Vec<N>> = Vec::new();
        for t in 0..self.trees.len() {
            let own = match self.trees.parts(TreeId(t as u32)) {
                None => vec![N::ratio(1, 1); self.stages],
                Some((left, right)) => {
                    let (left, right) = (&stages[left.0 as usize], &stages[right.0 as usize]);
                    let row = |i: usize| dot(&m.a[i], right).times(&left[i]);
                    (0..self.stages).map(row).collect()
                }
            };
            stages.push(own);
        }
        stages.iter().map(|v| dot(&m.b, v)).collect()
    }

    /// By how much each condition of the order is missed.
    pub fn conditions<N: Scalar>(&self, m: &Coefficients<N>) -> Vec<N> {
        let all = self.weights(m).into_iter().enumerate();
        let off = |(t, value): (usize, N)| {
            let t = TreeId(t as u32);
            let exact = || N::ratio(1, self.trees.density(t) as i64);
            (self.trees.order(t) <= self.order).then(|| value.minus(&exact()))
        };
        all.filter_map(off).collect()
    }

    /// By how much the conditions of a block are missed.
    fn missed<N: Scalar>(&self, block: usize, m: &Coefficients<N>) -> Vec<N> {
        let values = self.weights(m);
        let off = |t: &TreeId| {
            let exact = N::ratio(1, self.trees.density(*t) as i64);
            values[t.0 as usize].minus(&exact)
        };
        let mut missed: Vec<N> = self.tall.iter().map(off).collect();
        if self.is_in_two() {
            // Order 3 first, then the tree with a branch at its root: c_s b A c − b c A c says nothing of the last row.
            let at = self
                .tall
                .iter()
                .position(|t| self.trees.children(*t).len() == 2);
            let branched = missed.remove(at.unwrap_or(0));
            if block == 0 {
                let last = &m.c[self.stages - 1];
                missed = vec![last.times(&missed[0]).minus(&branched)];
            }
        }
        let polynomial = stability(m);
        // In order 1 the first one is a condition on nodes and weights.
        let wanted = self.polynomial.iter().enumerate();
        for (n, c) in wanted.skip(usize::from(self.order == 1)) {
            missed.push(polynomial[self.order + 1 + n].minus(&N::exact(c)));
        }
        for (i, _) in self
            .zeros
            .iter()
            .filter(|(i, j)| *j == 0 && *i < self.stages)
        {
            if !self.is_in_two() || (i + 1 == self.stages) == (block == 1) {
                missed.push(m.c[*i].minus(&sum(m.a[*i][1..*i].iter().cloned())));
            }
        }
        missed
    }

    /// Conditions on the weights: powers of the nodes, and what they sum up to.
    fn quadrature<N: Scalar>(&self, c: &[N]) -> Vec<Vec<N>> {
        let mut power = vec![N::ratio(1, 1); self.stages];
        let mut rows = Vec::new();
        for k in 1..=self.order {
            let mut row = power.clone();
            row.push(N::ratio(1, k as i64));
            rows.push(row);
            power = power.iter().zip(c).map(|(p, c)| p.times(c)).collect();
        }
        if let (1, Some(second)) = (self.order, self.polynomial.first()) {
            power.push(N::exact(second));
            rows.push(power);
        }
        rows
    }

    fn start<N: Scalar>(&self, x: &[N]) -> Coefficients<N> {
        let s = self.stages;
        let mut x = x.to_vec();
        for (v, value) in self.given() {
            x[v] = N::ratio(value, 1);
        }
        let mut c = vec![N::ratio(0, 1)];
        c.extend_from_slice(&x[..s - 1]);
        let mut a = vec![vec![N::ratio(0, 1); s]; s];
        for i in 2..s {
            for j in 1..i {
                a[i][j] = x[self.entry(i, j)].clone();
            }
        }
        Coefficients {
            a,
            b: x[s - 1..2 * s - 1].to_vec(),
            c,
        }
    }

    /// The first column, from the nodes.
    fn close<N: Scalar>(m: &mut Coefficients<N>) {
        for i in 1..m.b.len() {
            m.a[i][0] = m.c[i].minus(&sum(m.a[i][1..i].iter().cloned()));
        }
    }

    /// The rows of the linear conditions on open entries, `missed(0) + Σ slope·entry = 0`.
    fn slopes<N: Scalar>(
        &self,
        block: usize,
        m: &Coefficients<N>,
        open: &[(usize, usize, usize)],
    ) -> Vec<Vec<N>> {
        let zero = N::ratio(0, 1);
        let mut base = m.clone();
        for (i, j, _) in open {
            base.a[*i][*j] = zero.clone();
        }
        let at_zero = {
            let mut closed = base.clone();
            Explicit::close(&mut closed);
            self.missed(block, &closed)
        };
        let mut rows: Vec<Vec<N>> = vec![Vec::new(); at_zero.len()];
        for (i, j, _) in open {
            let mut moved = base.clone();
            moved.a[*i][*j] = N::ratio(1, 1);
            Explicit::close(&mut moved);
            for ((row, own), zero) in rows
                .iter_mut()
                .zip(self.missed(block, &moved))
                .zip(&at_zero)
            {
                row.push(own.minus(zero));
            }
        }
        for (row, zero) in rows.iter_mut().zip(&at_zero) {
            row.push(N::ratio(0, 1).minus(zero));
        }
        rows
    }

    /// The variables that the conditions are best solved for, near a point.
    pub fn chart(&self, x: &[f64]) -> Option<Chart> {
        let s = self.stages;
        let m = self.start(x);
        let given = self.given();
        let is_given = |v: usize| given.iter().any(|(g, _)| *g == v);
        let without = |rows: Vec<Vec<f64>>, of: &dyn Fn(usize) -> usize| -> Vec<Vec<f64>> {
            let entry = |(j, x): (usize, f64)| if is_given(of(j)) { 0.0 } else { x };
            let row = |mut r: Vec<f64>| {
                r.pop();
                r.into_iter().enumerate().map(entry).collect()
            };
            rows.into_iter().map(row).collect()
        };
        let weights = pivots(without(self.quadrature(&m.c), &|j| s - 1 + j))?;
        let mut chart = Chart {
            weights: weights.iter().map(|j| s - 1 + j).collect(),
            entries: Vec::new(),
        };
        let mut m = self.with_weights(&chart, m)?;
        for block in 0..self.blocks() {
            let open = self.open(block);
            let entries = pivots(without(self.slopes(block, &m, &open), &|j| open[j].2))?;
            chart
                .entries
                .push(entries.iter().map(|j| open[*j].2).collect());
            self.solve_block(block, &chart, &mut m)?;
        }
        Some(chart)
    }

    /// The variables that stay free.
    pub fn free(&self, chart: &Chart) -> Vec<usize> {
        let given = self.given();
        let known = |v: &usize| {
            chart.weights.contains(v)
                || chart.entries.iter().flatten().any(|e| e == v)
                || given.iter().any(|(g, _)| g == v)
        };
        (0..self.variables()).filter(|v| !known(v)).collect()
    }

    fn with_weights<N: Scalar>(
        &self,
        chart: &Chart,
        mut m: Coefficients<N>,
    ) -> Option<Coefficients<N>> {
        let s = self.stages;
        let own: Vec<usize> = chart.weights.iter().map(|v| v + 1 - s).collect();
        let solved = solve(reduced(self.quadrature(&m.c), &own, &m.b))?;
        for (j, b) in own.iter().zip(solved) {
            m.b[*j] = b;
        }
        Some(m)
    }

    /// The method at a point: the variables of the chart are solved for, whatever they are at the point.
    pub fn method<N: Scalar>(&self, chart: &Chart, x: &[N]) -> Option<Coefficients<N>> {
        let mut m = self.with_weights(chart, self.start(x))?;
        for block in 0..self.blocks() {
            self.solve_block(block, chart, &mut m)?;
        }
        Explicit::close(&mut m);
        Some(m)
    }

    fn solve_block<N: Scalar>(
        &self,
        block: usize,
        chart: &Chart,
        m: &mut Coefficients<N>,
    ) -> Option<()> {
        let open = self.open(block);
        let own: Vec<usize> = (0..open.len())
            .filter(|k| chart.entries[block].contains(&open[*k].2))
            .collect();
        let here: Vec<N> = open.iter().map(|(i, j, _)| m.a[*i][*j].clone()).collect();
        let solved = solve(reduced(self.slopes(block, m, &open), &own, &here))?;
        for (k, a) in own.iter().zip(solved) {
            let (i, j, _) = open[*k];
            m.a[i][j] = a;
        }
        Some(())
    }

    /// The point of a method.
    pub fn point(&self, m: &Coefficients<f64>) -> Vec<f64> {
        let mut x = m.c[1..].to_vec();
        x.extend_from_slice(&m.b);
        for i in 2..self.stages {
            x.extend_from_slice(&m.a[i][1..i]);
        }
        x
    }

    /// (Φ − 1/γ)/σ and 2^leaves of each tree of the next order.
    pub fn terms(&self, m: &Coefficients<f64>) -> Vec<(f64, f64)> {
        let values = self.weights(m);
        let trees = self.trees.of_order(self.order + 1);
        let term = |t: TreeId| {
            let exact = 1.0 / self.trees.density(t) as f64;
            let off = (values[t.0 as usize] - exact) / self.trees.symmetry(t) as f64;
            (off, 2f64.powi(leaves(&self.trees, t) as i32))
        };
        trees.map(term).collect()
    }

    /// √Σ((Φ − 1/γ)/σ)² over the trees of the next order.
    pub fn error(&self, m: &Coefficients<f64>) -> f64 {
        let squares = self.terms(m).into_iter().map(|(off, _)| off * off);
        squares.sum::<f64>().sqrt()
    }
}

/// Vertices without further ones above them.
pub fn leaves(trees: &Trees, t: TreeId) -> usize {
    match trees.children(t)[..] {
        [] => 1,
        ref above => above.iter().map(|c| leaves(trees, *c)).sum(),
    }
}

/// Trees up to an order that are taller than a quadrature, but for the one that follows from the others.
fn tall(trees: &Trees, stages: usize, order: usize) -> Vec<TreeId> {
    let height = |t: TreeId| trees.children(t).iter().any(|c| trees.order(*c) > 1);
    let is_chain = |t: TreeId| match trees.children(t)[..] {
        [above] => trees.order(t) == 4 && trees.children(above).len() == 1,
        _ => false,
    };
    // b A A c is 1/24 where the others hold and the last of four nodes is 1.
    let follows = |t: TreeId| stages == 4 && order == 4 && is_chain(t);
    let all = (3..=order).flat_map(|n| trees.of_order(n));
    all.filter(|t| height(*t) && !follows(*t)).collect()
}

fn dot<N: Scalar>(a: &[N], b: &[N]) -> N {
    sum(a.iter().zip(b).map(|(a, b)| a.times(b)))
}

/// Equations for some of the unknowns, the others being known.
fn reduced<N: Scalar>(rows: Vec<Vec<N>>, own: &[usize], known: &[N]) -> Vec<Vec<N>> {
    let row = |r: Vec<N>| {
        let others = (0..known.len()).filter(|j| !own.contains(j));
        let rest = sum(others.map(|j| r[j].times(&known[j])));
        let mut kept: Vec<N> = own.iter().map(|j| r[*j].clone()).collect();
        kept.push(r[known.len()].minus(&rest));
        kept
    };
    rows.into_iter().map(row).collect()
}

/// The coefficients of the stability polynomial, by rising powers.
pub fn stability<N: Scalar>(m: &Coefficients<N>) -> Vec<N> {
    let mut polynomial = vec![N::ratio(1, 1)];
    let mut stages = vec![N::ratio(1, 1); m.b.len()];
    for _ in 0..m.b.len() {
        polynomial.push(dot(&m.b, &stages));
        stages = (0..m.b.len())
            .map(|i| dot(&m.a[i][..i], &stages[..i]))
            .collect();
    }
    polynomial
}
