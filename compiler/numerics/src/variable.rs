//! Multistep methods on unequal steps: coefficients by interpolation through the points of the grid, and how perturbations grow
//! (Hairer, Nørsett & Wanner 1993, III.5).
//!
//! Adams, Nyström and Milne methods integrate the polynomial through values of f; backward differentiation formulas
//! differentiate the one through values of x. Either definition has a meaning on every grid of different points and keeps its
//! order there. Rows of other methods do not say what they become: there is no family, and the rows stay as they are.

use crate::multistep::Multistep;
use crate::poly::{Poly, inverse};
use odec_exact::Exact;

/// What the rows of a method are made from. Points are numbered as the rows are, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `x[0] = x[from] + ∫ p`, p through the values of f from the point `newest` on.
    Quadrature { from: usize, newest: usize },
    /// `p'(t) = f(t)` at the point `at`, p through all values of x.
    Differentiation { at: usize },
}

impl Multistep {
    /// The family whose method on equal steps this is.
    pub fn family(&self) -> Option<Family> {
        let over = inverse(self.alpha.first()?)?;
        let scaled = |row: &[Exact]| row.iter().map(|c| c * &over).collect();
        let own = Multistep {
            alpha: scaled(&self.alpha),
            beta: scaled(&self.beta),
        };
        let points: Vec<Exact> = (0..own.alpha.len())
            .map(|i| Exact::int(1 - i as i64))
            .collect();
        let newest = usize::from(own.beta[0].is_zero());
        let quadratures = (1..points.len()).map(|from| Family::Quadrature { from, newest });
        let derivatives = (0..points.len()).map(|at| Family::Differentiation { at });
        let mut all = quadratures.chain(derivatives);
        all.find(|f| f.on(&points).as_ref() == Some(&own))
    }
}

impl Family {
    /// The rows on a grid, where the first is divided by α₀; `points` newest first, in units of the step to be taken.
    /// `None`: points coincide, or the new state has no weight.
    pub fn on(self, points: &[Exact]) -> Option<Multistep> {
        let n = points.len();
        let mut rows = Multistep {
            alpha: vec![Exact::zero(); n],
            beta: vec![Exact::zero(); n],
        };
        match self {
            Family::Quadrature { from, newest } => {
                rows.alpha[0] = Exact::one();
                rows.alpha[from] = Exact::int(-1);
                for i in newest..n {
                    let whole = integral(&lagrange(&points[newest..], i - newest)?);
                    rows.beta[i] = &whole.at(&points[0]) - &whole.at(&points[from]);
                }
            }
            Family::Differentiation { at } => {
                for i in 0..n {
                    rows.alpha[i] = lagrange(points, i)?.derivative().at(&points[at]);
                }
                let over = inverse(&rows.alpha[0])?;
                rows.alpha.iter_mut().for_each(|a| *a = &*a * &over);
                rows.beta[at] = over;
            }
        }
        Some(rows)
    }
}

/// The polynomial that is 1 at point `i` and 0 at the others.
fn lagrange(points: &[Exact], i: usize) -> Option<Poly> {
    let mut product = Poly::constant(Exact::one());
    for (_, other) in points.iter().enumerate().filter(|(j, _)| *j != i) {
        let over = inverse(&(&points[i] - other))?;
        let factor = Poly::new(vec![-other, Exact::one()]);
        product = product.times(&factor).scaled(&over);
    }
    Some(product)
}

fn integral(p: &Poly) -> Poly {
    let terms = p.0.iter().enumerate();
    let over = terms.map(|(n, c)| c * &Exact::ratio(1, n as i64 + 1));
    Poly::new([Exact::zero()].into_iter().chain(over).collect())
}

/// The points of a step on a grid, newest first: 1, 0, and earlier ones. `sizes`: of the step, of the one before it, ….
pub fn points(sizes: &[Exact]) -> Option<Vec<Exact>> {
    let over = inverse(sizes.first()?)?;
    let mut points = vec![Exact::one(), Exact::zero()];
    for h in &sizes[1..] {
        let before = &points[points.len() - 1] - &(h * &over);
        points.push(before);
    }
    Some(points)
}

/// How many times larger than a perturbation of the values that a step reads a later state's can be, where f is 0: the largest
/// norm of a row of Cⱼ … Cᵢ, C the companion matrices of the first rows of consecutive steps, each over its α₀. To be printed.
pub fn growth(alphas: &[Vec<Exact>]) -> f64 {
    let rows: Vec<Vec<f64>> = alphas
        .iter()
        .map(|row| row[1..].iter().map(|a| -a.to_f64()).collect())
        .collect();
    let mut largest: f64 = 1.0;
    for first in 0..rows.len() {
        let n = rows[first].len();
        // How the newest states depend on those at the start.
        let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect();
        let mut states: Vec<Vec<f64>> = (0..n).map(unit).collect();
        for row in &rows[first..] {
            let entry = |j: usize| row.iter().zip(&states).map(|(a, s)| a * s[j]).sum();
            let next: Vec<f64> = (0..n).map(entry).collect();
            largest = largest.max(next.iter().map(|x: &f64| x.abs()).sum());
            states.rotate_right(1);
            states[0] = next;
        }
    }
    largest
}

/// Whether the second-order backward differentiation formula is zero-stable on all grids with steps of one sign that grow from one
/// to the next by at most this factor: below 1 + √2 (Grigorieff 1983; Hairer, Nørsett & Wanner 1993, III.5).
pub fn bdf2_is_stable(ratio: &Exact) -> bool {
    let two = &Exact::int(2) * ratio;
    &(ratio * ratio) - &two < Exact::one()
}
