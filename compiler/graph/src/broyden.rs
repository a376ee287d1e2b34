//! The quasi-Newton step of Broyden's good method (Broyden 1965, Math. Comp. 19, 577; on whole tokens, as in equilibrium models: Bai,
//! Kolter & Koltun 2019, NeurIPS), from the last iterates alone.
//!
//! With `r = f − z`, steps sᵢ and differences yᵢ of residuals from the oldest on, B₀ = −I is updated to
//! `B + (y − B s) sᵀ/(sᵀs)`. The inverse after all updates is of low rank beside −I (Byrd, Nocedal & Schnabel 1994, Math. Program. 63, 129,
//! Theorem 6.2), so that `z − B⁻¹ r = f − Σ γⱼ Δfⱼ` with
//! ```text
//! A γ = −Sᵀ r,    Aᵢⱼ = −sᵢ · yⱼ for i ≤ j,  −sᵢ · Δfⱼ for i > j
//! ```
//! A memory of m keeps the last m steps. Eliminated without exchanges, the j-th pivot is the divisor `−sⱼᵀ B⁻¹ yⱼ` of the j-th update: where
//! it is a small part of ‖sⱼ‖², the update is left out. Every row has its own; leaves which rows move to [`crate::solve`].

use crate::exact::Exact;
use crate::nn::combine;
use crate::op::TypeError;
use crate::ops::{Builder, Mul, WherePositive};
use crate::solve::{Mixer, Pair, inverse};
use crate::value::Value;

/// An update is left out whose divisor is no more than this share of the squared length of its step.
fn singular() -> Exact {
    Exact::ratio(1, 100_000)
}

impl Mixer {
    /// The weights γ of the differences of f, newest first, with those differences.
    pub(crate) fn broyden(
        &mut self,
        b: &mut Builder,
        residual: &[Value],
        seen: &[Pair],
    ) -> Result<(Vec<Value>, Vec<Vec<Value>>), TypeError> {
        let (mut s, mut y, mut df) = (Vec::new(), Vec::new(), Vec::new());
        for pair in seen.windows(2).rev() {
            let (new, old) = (self.residuals(b, &pair[0])?, self.residuals(b, &pair[1])?);
            s.push(self.apart(b, &pair[0].z, &pair[1].z)?);
            y.push(self.apart(b, &new, &old)?);
            df.push(self.apart(b, &pair[0].f, &pair[1].f)?);
        }
        let n = s.len();
        let mut minus = |b: &mut Builder, x: &[Value], y: &[Value]| {
            let product = self.product(b, x, y)?;
            combine(b, &[(Exact::int(-1), product)])
        };
        let (mut a, mut right, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for (i, step) in s.iter().enumerate() {
            let row = (0..n).map(|j| minus(b, step, if i > j { &df[j] } else { &y[j] }));
            a.push(row.collect::<Result<Vec<Value>, TypeError>>()?);
            right.push(minus(b, step, residual)?);
            let length = minus(b, step, step)?;
            lengths.push(combine(b, &[(Exact::int(-1), length)])?);
        }
        let mut weights = eliminated(b, a, right, &lengths)?;
        weights.reverse();
        df.reverse();
        Ok((weights, df))
    }
}

/// γ with `A γ = right`, row by row of the state, without exchanges. Where a pivot is small its unknown is 0.
fn eliminated(
    b: &mut Builder,
    mut a: Vec<Vec<Value>>,
    mut right: Vec<Value>,
    lengths: &[Value],
) -> Result<Vec<Value>, TypeError> {
    let less = |b: &mut Builder, x: Value, [u, v]: [Value; 2]| {
        let product = b.push1(Mul, &[u, v])?;
        combine(b, &[(Exact::one(), x), (Exact::int(-1), product)])
    };
    let n = a.len();
    let mut over = Vec::new();
    for j in 0..n {
        over.push(signed_inverse(b, a[j][j], lengths[j])?);
        let pivot = a[j].clone();
        for i in j + 1..n {
            let l = b.push1(Mul, &[a[i][j], over[j]])?;
            for (x, p) in a[i].iter_mut().zip(&pivot).skip(j + 1) {
                *x = less(b, *x, [l, *p])?;
            }
            right[i] = less(b, right[i], [l, right[j]])?;
        }
    }
    let mut found: Vec<Value> = right.clone();
    for j in (0..n).rev() {
        let mut sum = right[j];
        for k in j + 1..n {
            sum = less(b, sum, [a[j][k], found[k]])?;
        }
        found[j] = b.push1(Mul, &[sum, over[j]])?;
    }
    Ok(found)
}

/// `1/pivot`, or 0 where its size is a small part of `length`.
fn signed_inverse(b: &mut Builder, pivot: Value, length: Value) -> Result<Value, TypeError> {
    let minus = combine(b, &[(Exact::int(-1), pivot)])?;
    let above = b.push1(WherePositive, &[pivot, pivot])?;
    let below = b.push1(WherePositive, &[minus, minus])?;
    let size = combine(b, &[(Exact::one(), above), (Exact::one(), below)])?;
    let over = inverse(b, size, length, &singular())?;
    let above = b.push1(WherePositive, &[pivot, over])?;
    let below = b.push1(WherePositive, &[minus, over])?;
    combine(b, &[(Exact::one(), above), (Exact::int(-1), below)])
}
