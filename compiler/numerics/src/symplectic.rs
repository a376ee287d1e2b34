//! Symplectic Runge–Kutta methods (Sanz-Serna 1988; Lasagni 1988), partitioned pairs (Sun 1993; Suris 1990) and additive methods
//! (Günther, Sandu & Zanna 2021): `bᵢaᵢⱼ + bⱼaⱼᵢ = bᵢbⱼ`.
//!
//! Takes a tableau; gives the systems for which it keeps the symplectic form, or stages that break the condition. The conditions
//! are necessary as well for irreducible methods (Hairer, Lubich & Wanner 2006, VI.7), so the tableau is reduced first.

use crate::tableau::Tableau;
use odec_exact::Exact;

/// For which systems a method is symplectic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symplectic {
    /// Sums of Hamiltonian fields; with one field, Hamiltonian systems.
    Sums,
    /// `q' = A(q, p)`, `p' = B(q, p)`.
    Partitioned,
    /// `q' = A(p)`, `p' = B(q)`.
    Separable,
}

/// Two stages of the reduced method that break the condition: numbers from 0, and both sides of the condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    pub stages: (usize, usize),
    pub left: Exact,
    pub right: Exact,
    /// The method has fewer stages than are written.
    pub reduced: bool,
}

pub fn symplectic(t: &Tableau) -> Result<Symplectic, Box<Broken>> {
    let r = t.reduced();
    let pairs = || (0..r.stages()).flat_map(|i| (0..=i).map(move |j| (i, j)));
    let broken = |(i, j): (usize, usize)| {
        let left = &(&r.b[i] * &r.a[i][j]) + &(&r.b[j] * &r.a[j][i]);
        let right = &r.b[i] * &r.b[j];
        let reduced = r.stages() < t.stages();
        (left != right).then(|| {
            Box::new(Broken {
                stages: (i, j),
                left,
                right,
                reduced,
            })
        })
    };
    let Some(first) = pairs().find_map(broken) else {
        return Ok(Symplectic::Sums);
    };
    if r.fields.len() != 2 {
        return Err(first);
    }
    let across = |(i, j): &(usize, usize)| r.field_of[*i] != r.field_of[*j];
    match pairs().filter(across).find_map(broken) {
        Some(broken) => Err(broken),
        None if same_weights(&r) => Ok(Symplectic::Partitioned),
        None => Ok(Symplectic::Separable),
    }
}

/// Whether both fields have the same weight at each point.
fn same_weights(t: &Tableau) -> bool {
    let parts = t.parts();
    parts.windows(2).all(|p| p[0].b == p[1].b)
}
