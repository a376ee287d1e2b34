//! Fixed points `z = f(z)` in a graph: the next iterate, token by token.
//!
//! Takes iterates and what the equation makes of them; gives the iterate after them, by plain iteration, by Broyden's method
//! (`broyden.rs`) or by Anderson's mixing of type II (Anderson 1965, J. ACM 12, 547; Walker & Ni 2011, SIAM J. Numer. Anal. 49, 1715, Algorithm AA). Every row, a token, has a least-squares
//! problem and a stopping test of its own, over all unknowns that are solved for together: its iterates depend on no other token but
//! through f, so that what is causal stays causal and no text changes another's. A row whose residual is small keeps its
//! iterate. Everything is made of other ops, and so are its derivatives. Leaves evaluating f, and how often, to the caller.

use crate::exact::Exact;
use crate::graph::Solution;
use crate::nn::combine;
use crate::op::{TypeError, TypeResult};
use crate::ops::{
    Broadcast, Builder, Combine, Constant, Mul, Recip, Shift, SumCols, WherePositive,
};
use crate::types::TensorType;
pub use crate::value::Pair;
use crate::value::Value;
pub use odec_solver::{Mixing, Rule, Solver};
use std::collections::BTreeMap;

/// The squared length below which a solution counts as 0: `(10⁻¹⁰)²`; cotangents of long texts are that small.
fn floor() -> Exact {
    let root = Exact::ratio(1, 10_000_000_000);
    &root * &root
}

/// What is left of a squared difference must be larger than this, or its inverse is not a number in f32.
fn least() -> Exact {
    &floor() * &Exact::ratio(1, 10_000_000_000)
}

/// A difference is left out of the least-squares problem where all but this share of its squared length lies in the newer
/// ones: what is left of it would be rounding.
fn dependent() -> Exact {
    Exact::ratio(1, 10_000_000_000)
}

/// Makes the iterates of one solve; keeps what the next ones need again.
#[derive(Clone, Debug, Default)]
pub struct Mixer {
    /// `a − b`.
    differences: BTreeMap<[Value; 2], Value>,
    /// `a · b`, row by row.
    products: BTreeMap<[Value; 2], Value>,
}

impl Builder {
    /// What an equation makes of its solution, with a gradient by the implicit function theorem: `pair.z` must have been cut off, by
    /// [`crate::ops::StopGradient`], and `pair.f` be made of it.
    pub fn solution(&mut self, pair: Pair, solver: Solver) -> Result<Vec<Value>, TypeError> {
        let one = || Combine::of([Exact::one()]);
        let outs: Result<Vec<Value>, TypeError> =
            pair.f.iter().map(|f| self.push1(one(), &[*f])).collect();
        let outs = outs?;
        self.graph.solutions.push(Solution {
            pair,
            outs: outs.clone(),
            solver,
        });
        Ok(outs)
    }
}

/// Iterates from a start. `f` is called as often as there are iterations.
pub fn iterate<E: From<TypeError>>(
    solver: &Solver,
    b: &mut Builder,
    start: Vec<Value>,
    mut f: impl FnMut(&mut Builder, &[Value]) -> Result<Vec<Value>, E>,
) -> Result<Vec<Value>, E> {
    let (mut z, mut seen, mut mixer) = (start, Vec::<Pair>::new(), Mixer::default());
    for _ in 0..solver.iterations {
        let made = f(b, &z)?;
        z = match &solver.mixing {
            None => made,
            Some(mixing) => {
                seen.insert(0, Pair { z, f: made });
                seen.truncate(mixing.memory + 1);
                mixer.next(b, mixing, &seen)?
            }
        };
    }
    Ok(z)
}

impl Mixer {
    /// The iterate after `seen`, newest first. Rows that are solved keep their newest one.
    pub fn next(
        &mut self,
        b: &mut Builder,
        mixing: &Mixing,
        seen: &[Pair],
    ) -> TypeResult<Vec<Value>> {
        let Some(newest) = seen.first() else {
            return Ok(Vec::new());
        };
        let residual = self.residuals(b, newest)?;
        let open = self.open(b, mixing, &residual, &newest.f)?;
        let mixed = match seen.len() {
            1 => newest.f.clone(),
            _ => {
                let (weights, df) = match mixing.rule {
                    Rule::Anderson => self.anderson(b, &residual, seen)?,
                    Rule::Broyden => self.broyden(b, &residual, seen)?,
                };
                mixed(b, &newest.f, &weights, &df)?
            }
        };
        let each = mixed.iter().zip(&newest.z);
        each.map(|(next, z)| choose(b, open, *next, *z)).collect()
    }

    pub(crate) fn residuals(&mut self, b: &mut Builder, of: &Pair) -> TypeResult<Vec<Value>> {
        let each = of.f.iter().zip(&of.z);
        each.map(|(f, z)| self.difference(b, *f, *z)).collect()
    }

    /// Positive in rows that are not solved yet.
    fn open(&mut self, b: &mut Builder, mixing: &Mixing, r: &[Value], f: &[Value]) -> TypeResult {
        let (size, scale) = (self.product(b, r, r)?, self.product(b, f, f)?);
        let tol = &mixing.tol * &mixing.tol;
        let by = &(-&tol) * &floor();
        let off = combine(b, &[(Exact::one(), size), (-&tol, scale)])?;
        b.push1(Shift { by }, &[off])
    }

    /// The γ that minimise `‖r₀ − Σ γⱼ Δrⱼ‖`, and the differences of f, newest first.
    fn anderson(
        &mut self,
        b: &mut Builder,
        residual: &[Value],
        seen: &[Pair],
    ) -> TypeResult<(Vec<Value>, Vec<Vec<Value>>)> {
        let (mut dr, mut df): (Vec<Vec<Value>>, Vec<Vec<Value>>) = (Vec::new(), Vec::new());
        for pair in seen.windows(2) {
            let (new, old) = (self.residuals(b, &pair[0])?, self.residuals(b, &pair[1])?);
            dr.push(self.apart(b, &new, &old)?);
            df.push(self.apart(b, &pair[0].f, &pair[1].f)?);
        }
        let mut normal = Vec::new();
        for (i, di) in dr.iter().enumerate() {
            let row: TypeResult<Vec<Value>> =
                dr[..=i].iter().map(|dj| self.product(b, di, dj)).collect();
            normal.push(row?);
        }
        let right: TypeResult<Vec<Value>> =
            dr.iter().map(|d| self.product(b, d, residual)).collect();
        Ok((least_squares(b, &normal, right?)?, df))
    }

    pub(crate) fn apart(
        &mut self,
        b: &mut Builder,
        new: &[Value],
        old: &[Value],
    ) -> TypeResult<Vec<Value>> {
        let each = new.iter().zip(old);
        each.map(|(a, c)| self.difference(b, *a, *c)).collect()
    }

    fn difference(&mut self, b: &mut Builder, a: Value, c: Value) -> TypeResult {
        if let Some(known) = self.differences.get(&[a, c]) {
            return Ok(*known);
        }
        let made = combine(b, &[(Exact::one(), a), (Exact::int(-1), c)])?;
        self.differences.insert([a, c], made);
        Ok(made)
    }

    /// `Σ xᵢ · yᵢ` over the unknowns, a number per row.
    pub(crate) fn product(&mut self, b: &mut Builder, x: &[Value], y: &[Value]) -> TypeResult {
        let mut terms = Vec::new();
        for (x, y) in x.iter().zip(y) {
            let of = [*x.min(y), *x.max(y)];
            let made = match self.products.get(&of) {
                Some(known) => *known,
                None => {
                    let each = b.push1(Mul, &of)?;
                    b.push1(SumCols, &[each])?
                }
            };
            self.products.insert(of, made);
            terms.push((Exact::one(), made));
        }
        combine(b, &terms)
    }
}

/// `f₀ − Σ γⱼ Δfⱼ`, of each unknown.
fn mixed(
    b: &mut Builder,
    f: &[Value],
    weights: &[Value],
    df: &[Vec<Value>],
) -> TypeResult<Vec<Value>> {
    let mut mixed = Vec::new();
    for (i, f) in f.iter().enumerate() {
        let mut terms = vec![(Exact::one(), *f)];
        for (w, d) in weights.iter().zip(df) {
            terms.push((Exact::int(-1), b.push1(Mul, &[*w, d[i]])?));
        }
        mixed.push(combine(b, &terms)?);
    }
    Ok(mixed)
}

/// `next` where `open` is positive, else `z`, bit for bit.
pub fn choose(b: &mut Builder, open: Value, next: Value, z: Value) -> TypeResult {
    let to = b.ty(z).clone();
    let open = match *b.ty(open) == to {
        true => open,
        false => b.push1(Broadcast { to }, &[open])?,
    };
    let next = b.push1(WherePositive, &[open, next])?;
    let closed = closed(b, open)?;
    let z = b.push1(WherePositive, &[closed, z])?;
    combine(b, &[(Exact::one(), next), (Exact::one(), z)])
}

/// 1 where `x` is not positive, else 0. By choices alone: passes join sums, and 1 + y − 1 is not y.
fn closed(b: &mut Builder, x: Value) -> TypeResult {
    let to: TensorType = b.ty(x).clone();
    let value = Exact::one();
    let one = b.push1(Constant { value }, &[])?;
    let one = b.push1(Broadcast { to }, &[one])?;
    let open = b.push1(WherePositive, &[x, one])?;
    let left = combine(b, &[(Exact::ratio(1, 2), one), (Exact::int(-1), open)])?;
    b.push1(WherePositive, &[left, one])
}

/// γ with `N γ = right` for the lower half of a symmetric N, row by row of the state: `N = L D Lᵀ`. Where a pivot is no
/// more than a small share of its diagonal, its column is left out and its γ is 0; all-zero columns are.
fn least_squares(
    b: &mut Builder,
    normal: &[Vec<Value>],
    right: Vec<Value>,
) -> TypeResult<Vec<Value>> {
    let n = normal.len();
    // `scaled[i][j]` is lᵢⱼ dⱼ, of the right side as row n; `lower[i][j]` is lᵢⱼ.
    let rows = normal.iter().cloned().chain([right]);
    let mut scaled: Vec<Vec<Value>> = rows.collect();
    let mut lower: Vec<Vec<Value>> = vec![Vec::new(); n + 1];
    for j in 0..n {
        for i in j..=n {
            let mut terms = vec![(Exact::one(), scaled[i][j])];
            for k in 0..j {
                let product = b.push1(Mul, &[lower[i][k], scaled[j][k]])?;
                terms.push((Exact::int(-1), product));
            }
            scaled[i][j] = combine(b, &terms)?;
        }
        let over = inverse(b, scaled[j][j], normal[j][j], &dependent())?;
        for i in j + 1..=n {
            let l = b.push1(Mul, &[scaled[i][j], over])?;
            lower[i].push(l);
        }
        // `lower[j]` is complete: its diagonal is 1.
    }
    let mut weights: Vec<Value> = Vec::new();
    for j in (0..n).rev() {
        let mut terms = vec![(Exact::one(), lower[n][j])];
        for (i, w) in (j + 1..n).rev().zip(&weights) {
            let product = b.push1(Mul, &[lower[i][j], *w])?;
            terms.push((Exact::int(-1), product));
        }
        weights.push(combine(b, &terms)?);
    }
    weights.reverse();
    Ok(weights)
}

/// `1/pivot`, or 0 where it is no more than a share of `diagonal`. No division by 0 is made, so no derivative is infinite.
pub(crate) fn inverse(b: &mut Builder, pivot: Value, diagonal: Value, share: &Exact) -> TypeResult {
    let enough = combine(b, &[(Exact::one(), pivot), (-share, diagonal)])?;
    let enough = b.push1(Shift { by: -&least() }, &[enough])?;
    let not = closed(b, enough)?;
    let kept = b.push1(WherePositive, &[enough, pivot])?;
    let safe = combine(b, &[(Exact::one(), kept), (Exact::one(), not)])?;
    let over = b.push1(Recip, &[safe])?;
    b.push1(WherePositive, &[enough, over])
}
