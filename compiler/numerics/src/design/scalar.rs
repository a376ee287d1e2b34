//! Linear equations, generic over exact numbers and floats.

use crate::poly::inverse;
use crate::series::Number;
use odec_exact::Exact;

/// A number that can be divided by.
pub trait Scalar: Number {
    /// `None`: division by 0, or the quotient is too large.
    fn over(&self, by: &Self) -> Option<Self>;
    /// The square root; `None`: it is not real, or too large.
    fn root(&self) -> Option<Self>;
    fn float(&self) -> f64;

    fn ratio(n: i64, d: i64) -> Self {
        Self::exact(&Exact::ratio(n, d))
    }
    fn minus(&self, other: &Self) -> Self {
        self.plus(&other.times(&Self::ratio(-1, 1)))
    }
}

impl Number for f64 {
    fn exact(x: &Exact) -> f64 {
        x.to_f64()
    }
    fn is_zero(&self) -> bool {
        *self == 0.0
    }
    fn plus(&self, other: &f64) -> f64 {
        self + other
    }
    fn times(&self, other: &f64) -> f64 {
        self * other
    }
}

impl Scalar for f64 {
    fn over(&self, by: &f64) -> Option<f64> {
        let quotient = self / by;
        quotient.is_finite().then_some(quotient)
    }
    fn root(&self) -> Option<f64> {
        (*self >= 0.0).then(|| self.sqrt())
    }
    fn float(&self) -> f64 {
        *self
    }
    fn ratio(n: i64, d: i64) -> f64 {
        n as f64 / d as f64
    }
    fn minus(&self, other: &f64) -> f64 {
        self - other
    }
}

impl Scalar for Exact {
    fn over(&self, by: &Exact) -> Option<Exact> {
        (self * &inverse(by)?).checked().ok()
    }
    fn root(&self) -> Option<Exact> {
        Exact::root(self, 2).ok()
    }
    fn float(&self) -> f64 {
        self.to_f64()
    }
}

pub fn sum<N: Scalar>(terms: impl Iterator<Item = N>) -> N {
    terms.fold(N::ratio(0, 1), |s, t| s.plus(&t))
}

/// The solution of equations, each with its right side at its end; `None`: they have none, or many.
pub fn solve<N: Scalar>(mut rows: Vec<Vec<N>>) -> Option<Vec<N>> {
    let n = rows.len();
    for k in 0..n {
        let size = |r: &Vec<N>| r[k].float().abs();
        let best = (k..n).max_by(|i, j| size(&rows[*i]).total_cmp(&size(&rows[*j])))?;
        rows.swap(k, best);
        let pivot = rows[k].clone();
        for (i, row) in rows.iter_mut().enumerate() {
            if i == k || row[k].is_zero() {
                continue;
            }
            let factor = row[k].over(&pivot[k])?;
            for (x, p) in row.iter_mut().zip(&pivot).skip(k) {
                *x = x.minus(&factor.times(p));
            }
        }
    }
    let solved = rows.iter().enumerate().map(|(k, r)| r[n].over(&r[k]));
    solved.collect()
}

/// As many columns as there are rows, the most independent ones: those that equations are best solved for. `None`: the rows depend
/// on each other.
pub fn pivots(mut rows: Vec<Vec<f64>>) -> Option<Vec<usize>> {
    let mut chosen = Vec::new();
    for k in 0..rows.len() {
        let entries = (k..rows.len()).flat_map(|i| (0..rows[i].len()).map(move |j| (i, j)));
        let open = entries.filter(|(_, j)| !chosen.contains(j));
        let (i, j) = open.max_by(|(i, j), (k, l)| {
            let (one, two) = (rows[*i][*j].abs(), rows[*k][*l].abs());
            one.total_cmp(&two)
        })?;
        if rows[i][j].abs() < 1e-7 {
            return None;
        }
        rows.swap(k, i);
        let pivot = rows[k].clone();
        for row in &mut rows[k + 1..] {
            let factor = row[j] / pivot[j];
            for (x, p) in row.iter_mut().zip(&pivot) {
                *x -= factor * p;
            }
        }
        chosen.push(j);
    }
    chosen.sort_unstable();
    Some(chosen)
}
