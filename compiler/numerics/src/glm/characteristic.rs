//! The stability matrix M(z) = V + zB(I − zA)⁻¹U of a general linear method through its characteristic polynomial
//! `Φ(w, z) = det(I − zA) det(wI − M(z))` (Butcher 2006, section 5; Jackiewicz 2009, 2.7), with exact coefficients.
//!
//! Found at as many whole z as its degree asks for, and interpolated.

use super::matrix::{Matrix, characteristic, divided, identity, times};
use super::{Glm, MAX_SIZE, size};
use crate::poly::{Poly, inverse};
use odec_exact::Exact;

/// Most values, and most stages, of a method whose Φ is sought.
const MAX_VALUES: usize = 16;
const MAX_STAGES: usize = 40;

/// A polynomial in w whose coefficients are polynomials in z; the highest one is not 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Characteristic {
    /// By rising powers of w.
    pub by_w: Vec<Poly>,
}

impl Characteristic {
    /// Without the powers of w and the factors in z alone that all coefficients share: they are eigenvalues 0, and poles that are
    /// none.
    pub fn new(mut by_w: Vec<Poly>) -> Option<Characteristic> {
        while by_w.last().is_some_and(Poly::is_zero) {
            by_w.pop();
        }
        let lowest = by_w.iter().position(|c| !c.is_zero())?;
        by_w.drain(..lowest);
        let mut common = Poly::default();
        for c in &by_w {
            common = common.gcd(c)?;
        }
        if common.degree() > 0 {
            for c in &mut by_w {
                *c = c.divided(&common)?.0;
            }
        }
        // 1 at z = 0, where it can be.
        let lead = by_w.last()?.0.iter().find(|c| !c.is_zero())?;
        let over = inverse(lead)?;
        let by_w = by_w.iter().map(|c| c.scaled(&over)).collect();
        Some(Characteristic { by_w })
    }

    /// ρ(w) − zσ(w), of a linear multistep method; rows newest first.
    pub fn of_multistep(alpha: &[Exact], beta: &[Exact]) -> Option<Characteristic> {
        let both = alpha.iter().zip(beta).rev();
        Characteristic::new(both.map(|(a, b)| Poly::new(vec![a.clone(), -b])).collect())
    }

    pub fn of(g: &Glm) -> Option<Characteristic> {
        let (s, r) = (g.stages(), g.values());
        if s > MAX_STAGES || r > MAX_VALUES {
            return None;
        }
        let entries = [&g.a, &g.u, &g.b, &g.v].into_iter().flatten().flatten();
        if size(entries, s + r) > MAX_SIZE {
            return None;
        }
        // Of degree s in z at most.
        let (mut at, mut values): (Vec<Exact>, Vec<Poly>) = (Vec::new(), Vec::new());
        let mut z = 0;
        while at.len() <= s {
            let point = Exact::int(z);
            z = if z > 0 { -z } else { 1 - z };
            if let Some(value) = value(g, &point) {
                at.push(point);
                values.push(value);
            }
            // No more than s of them are poles.
            if z > 2 * s as i64 + 2 {
                return None;
            }
        }
        let coefficient = |w: usize| {
            let values = values.iter().map(|v| v.coefficient(w)).collect();
            interpolated(&at, values)
        };
        let by_w: Option<Vec<Poly>> = (0..=r).map(coefficient).collect();
        Characteristic::new(by_w?)
    }

    /// The degree in w.
    pub fn degree(&self) -> usize {
        self.by_w.len() - 1
    }
    /// The coefficient of the highest power of w.
    pub fn leading(&self) -> &Poly {
        &self.by_w[self.degree()]
    }
    /// Whether all roots w go to 0 as z goes to infinity.
    pub fn is_damped(&self) -> bool {
        let most = self.leading().degree();
        let others = &self.by_w[..self.degree()];
        others.iter().all(|c| c.is_zero() || c.degree() < most)
    }
    /// As a polynomial in w.
    pub fn at(&self, z: &Exact) -> Poly {
        Poly::new(self.by_w.iter().map(|c| c.at(z)).collect())
    }
}

/// Φ at some z; `None` at a pole.
fn value(g: &Glm, z: &Exact) -> Option<Poly> {
    let scaled = |m: &Matrix| -> Matrix {
        let row = |r: &Vec<Exact>| r.iter().map(|x| x * z).collect();
        m.iter().map(row).collect()
    };
    let mut m = identity(g.stages());
    for (row, a) in m.iter_mut().zip(scaled(&g.a)) {
        row.iter_mut().zip(&a).for_each(|(x, a)| *x = &*x - a);
    }
    let (stages, determinant) = divided(&m, &g.u)?;
    let mut matrix = times(&scaled(&g.b), &stages);
    for (row, v) in matrix.iter_mut().zip(&g.v) {
        // A method without stages has an empty product.
        row.resize(v.len(), Exact::zero());
        row.iter_mut().zip(v).for_each(|(x, v)| *x = &*x + v);
    }
    Some(characteristic(&matrix).scaled(&determinant))
}

/// The polynomial through some points (Newton).
pub fn interpolated(at: &[Exact], mut values: Vec<Exact>) -> Option<Poly> {
    for k in 1..values.len() {
        for i in (k..values.len()).rev() {
            let over = inverse(&(&at[i] - &at[i - k]))?;
            values[i] = &(&values[i] - &values[i - 1]) * &over;
        }
    }
    let step = |p: Poly, (x, c): (&Exact, &Exact)| {
        let linear = Poly::new(vec![-x, Exact::one()]);
        p.times(&linear).plus(&Poly::constant(c.clone()))
    };
    Some(at.iter().zip(&values).rev().fold(Poly::default(), step))
}
