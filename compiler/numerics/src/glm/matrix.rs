//! Matrices of exact numbers: kernels, inverses, characteristic and minimal polynomials.
//!
//! `None` wherever a number has no exact reciprocal ([`crate::poly`]).

use crate::poly::{Poly, inverse};
use odec_exact::Exact;

/// By rows.
pub type Matrix = Vec<Vec<Exact>>;

pub fn identity(n: usize) -> Matrix {
    let entry = |i, j| Exact::int(i64::from(i == j));
    (0..n)
        .map(|i| (0..n).map(|j| entry(i, j)).collect())
        .collect()
}

pub fn dot(a: &[Exact], b: &[Exact]) -> Exact {
    let products = a.iter().zip(b);
    let products = products.filter(|(a, b)| !a.is_zero() && !b.is_zero());
    products.map(|(a, b)| a * b).sum()
}

pub fn transposed(m: &Matrix) -> Matrix {
    let n = m.first().map_or(0, Vec::len);
    (0..n)
        .map(|j| m.iter().map(|row| row[j].clone()).collect())
        .collect()
}

pub fn times(m: &Matrix, n: &Matrix) -> Matrix {
    let columns = transposed(n);
    let row = |row: &Vec<Exact>| columns.iter().map(|c| dot(row, c)).collect();
    m.iter().map(row).collect()
}

/// Gauss–Jordan elimination over the first `columns`; gives the pivots' columns, and the product of the pivots with its sign.
fn reduce(m: &mut Matrix, columns: usize) -> Option<(Vec<usize>, Exact)> {
    let (mut pivots, mut determinant) = (Vec::new(), Exact::one());
    for j in 0..columns {
        let at = pivots.len();
        let Some(pivot) = (at..m.len()).find(|i| !m[*i][j].is_zero()) else {
            continue;
        };
        if pivot != at {
            m.swap(at, pivot);
            determinant = -&determinant;
        }
        determinant = &determinant * &m[at][j];
        let over = inverse(&m[at][j])?;
        let row: Vec<Exact> = m[at].iter().map(|x| x * &over).collect();
        for (i, other) in m.iter_mut().enumerate() {
            if i == at {
                other.clone_from(&row);
            } else if !other[j].is_zero() {
                let by = other[j].clone();
                for (x, p) in other.iter_mut().zip(&row).filter(|(_, p)| !p.is_zero()) {
                    *x = &*x - &(&by * p);
                }
            }
        }
        pivots.push(j);
    }
    Some((pivots, determinant))
}

/// A basis of what a matrix takes to 0.
pub fn kernel(m: &Matrix) -> Option<Matrix> {
    let n = m.first().map_or(0, Vec::len);
    let mut m = m.clone();
    let (pivots, _) = reduce(&mut m, n)?;
    let free = (0..n).filter(|j| !pivots.contains(j));
    let vector = |j: usize| {
        let mut v = vec![Exact::zero(); n];
        v[j] = Exact::one();
        for (row, p) in m.iter().zip(&pivots) {
            v[*p] = -&row[j];
        }
        v
    };
    Some(free.map(vector).collect())
}

/// `m⁻¹ n` and det m; `None` where m is singular.
pub fn divided(m: &Matrix, n: &Matrix) -> Option<(Matrix, Exact)> {
    let size = m.len();
    let mut both: Matrix = m.iter().zip(n).map(|(a, b)| [&a[..], b].concat()).collect();
    let (pivots, determinant) = reduce(&mut both, size)?;
    if pivots.len() < size {
        return None;
    }
    let right = both.into_iter().map(|row| row[size..].to_vec());
    Some((right.collect(), determinant))
}

/// `det(wI − m)`, by rising powers of w (Faddeev and LeVerrier).
pub fn characteristic(m: &Matrix) -> Poly {
    let n = m.len();
    let mut coefficients = vec![Exact::one()];
    let mut current = vec![vec![Exact::zero(); n]; n];
    for k in 1..=n {
        let last = coefficients[k - 1].clone();
        for (i, row) in current.iter_mut().enumerate() {
            row[i] = &row[i] + &last;
        }
        current = times(m, &current);
        let trace: Exact = (0..n).map(|i| current[i][i].clone()).sum();
        coefficients.push(&trace * &Exact::ratio(-1, k as i64));
    }
    coefficients.reverse();
    Poly::new(coefficients)
}

/// The polynomial of lowest degree that the matrix satisfies.
pub fn minimal_polynomial(m: &Matrix) -> Option<Poly> {
    let n = m.len();
    // One column for each power, all its entries below each other.
    let mut powers: Vec<Vec<Exact>> = Vec::new();
    let mut power = identity(n);
    loop {
        powers.push(power.concat());
        let found = kernel(&transposed(&powers))?;
        if let Some(relation) = found.into_iter().next() {
            return Some(Poly::new(relation));
        }
        power = times(&power, m);
    }
}
