//! Weights of extrapolated methods: the last entry of the Aitken–Neville table, as one linear combination of its rows.
//!
//! Row j takes nⱼ steps of h/nⱼ, and its error is `Σ e_q (h/nⱼ)^q` over the exponents of the method's expansion (Gragg 1964; Hairer,
//! Nørsett & Wanner 1993, II.8 and II.9): `Σ wⱼ = 1` and `Σ wⱼ nⱼ^{−q} = 0` for one exponent fewer than there are rows.

use num_bigint::BigInt;
use num_rational::BigRational;
use num_traits::{One, Zero, pow};
use odec_exact::Exact;

/// The exponents that n rows of a method of order p eliminate: p, p + 1, …; of a symmetric one p, p + 2, …
pub fn exponents(order: usize, symmetric: bool, rows: usize) -> Vec<usize> {
    let step = if symmetric { 2 } else { 1 };
    (1..rows).map(|i| order + step * (i - 1)).collect()
}

/// One weight for each row. `None`: two rows take the same number of steps, or the exponents are not one fewer.
pub fn weights(steps: &[u64], exponents: &[usize]) -> Option<Vec<Exact>> {
    let k = steps.len();
    if exponents.len() + 1 != k || steps.contains(&0) {
        return None;
    }
    let unit = |n: u64| BigRational::new(BigInt::one(), BigInt::from(n));
    let equation = |q: usize, right: BigRational| {
        let mut row: Vec<BigRational> = steps.iter().map(|n| pow(unit(*n), q)).collect();
        row.push(right);
        row
    };
    let mut rows = vec![equation(0, BigRational::one())];
    rows.extend(exponents.iter().map(|q| equation(*q, BigRational::zero())));
    for at in 0..k {
        let pivot = (at..k).find(|i| !rows[*i][at].is_zero())?;
        rows.swap(at, pivot);
        let over = rows[at][at].recip();
        rows[at].iter_mut().for_each(|x| *x *= &over);
        let pivot = rows[at].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(i, _)| *i != at) {
            let by = row[at].clone();
            if !by.is_zero() {
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= &by * p);
            }
        }
    }
    Some(
        rows.into_iter()
            .map(|r| Exact::from(r[k].clone()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(pairs: &[(i64, i64)]) -> Vec<Exact> {
        pairs.iter().map(|(n, d)| Exact::ratio(*n, *d)).collect()
    }

    /// The closed forms `wⱼ = Π nⱼ^γ/(nⱼ^γ − nᵢ^γ)` of expansions that begin with h^γ and go on in powers of it.
    #[test]
    fn lagrange() {
        for steps in [vec![1, 2, 3, 4, 5], vec![2, 4, 6, 8], vec![1, 2, 4, 8, 16]] {
            for (gamma, order, symmetric) in [(1, 1, false), (2, 2, true)] {
                let found = weights(&steps, &exponents(order, symmetric, steps.len()));
                let power = |n: u64| pow(n as i64, gamma);
                let closed = |j: &u64| {
                    let others = steps.iter().filter(|i| *i != j);
                    others.fold(Exact::one(), |product, i| {
                        &product * &Exact::ratio(power(*j), power(*j) - power(*i))
                    })
                };
                assert_eq!(found, Some(steps.iter().map(closed).collect()), "{steps:?}");
            }
        }
    }

    /// Richardson's `(4 T₂ − T₁)/3` and `(2^p T₂ − T₁)/(2^p − 1)`; one row is the method itself.
    #[test]
    fn richardson() {
        assert_eq!(weights(&[1, 2], &[2]), Some(ratios(&[(-1, 3), (4, 3)])));
        assert_eq!(weights(&[1, 2], &[5]), Some(ratios(&[(-1, 31), (32, 31)])));
        assert_eq!(weights(&[7], &[]), Some(ratios(&[(1, 1)])));
    }

    #[test]
    fn rows_must_differ() {
        assert_eq!(weights(&[1, 2, 2], &[1, 2]), None);
        assert_eq!(weights(&[0, 1], &[1]), None);
        assert_eq!(weights(&[1, 2], &[]), None);
    }
}
