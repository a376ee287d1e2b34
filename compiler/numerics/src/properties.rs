//! What a tableau of one field is called: kinds, simplifying assumptions, symmetries.

use crate::symplectic::symplectic;
use crate::tableau::Tableau;
use odec_exact::Exact;

/// How stages depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Explicit,
    /// Diagonally implicit, with one diagonal entry.
    Sdirk,
    /// The same, with an explicit first stage.
    Esdirk,
    Dirk,
    /// Fully implicit.
    Firk,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Explicit => "explicit",
            Kind::Sdirk => "SDIRK",
            Kind::Esdirk => "ESDIRK",
            Kind::Dirk => "DIRK",
            Kind::Firk => "FIRK",
        }
    }
}

/// How a method treats `x' = f(t)`, polynomials and its adjoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    pub kind: Kind,
    /// Largest p with B(p): the weights integrate polynomials of degree p − 1.
    pub quadrature: usize,
    /// Largest q with C(q): so do the stages.
    pub stages: usize,
    /// Largest r with D(r).
    pub weights: usize,
    /// The last stage is the result.
    pub stiffly_accurate: bool,
    /// The last stage of a step is the first one of the next.
    pub first_same_as_last: bool,
    pub symplectic: bool,
    pub symmetric: bool,
}

impl Properties {
    /// `min(B, C)`.
    pub fn stage_order(&self) -> usize {
        self.quadrature.min(self.stages)
    }

    pub fn new(t: &Tableau) -> Properties {
        let s = t.stages();
        let c = t.nodes();
        let up_to =
            |holds: &dyn Fn(usize) -> bool| (1..=2 * s + 1).take_while(|k| holds(*k)).count();
        let powers = |k: usize| -> Vec<Exact> {
            let power = |c: &Exact| (0..k).fold(Exact::one(), |p, _| &p * c);
            c.iter().map(power).collect()
        };
        let over = |k: usize| Exact::ratio(1, k as i64);
        let sum = |a: &[Exact], v: &[Exact]| -> Exact { a.iter().zip(v).map(|(a, v)| a * v).sum() };
        let explicit_first = t.a.first().is_some_and(|r| r.iter().all(Exact::is_zero));
        let stiffly_accurate = t.a.last().is_some_and(|r| *r == t.b);
        Properties {
            kind: kind(t),
            quadrature: up_to(&|k| sum(&t.b, &powers(k - 1)) == over(k)),
            stages: up_to(&|k| {
                let (inner, outer) = (powers(k - 1), powers(k));
                let row = |i: usize| sum(&t.a[i], &inner) == &outer[i] * &over(k);
                (0..s).all(row)
            }),
            weights: up_to(&|k| {
                let (inner, outer) = (powers(k - 1), powers(k));
                let column = |j: usize| {
                    let left: Exact = (0..s).map(|i| &(&t.b[i] * &inner[i]) * &t.a[i][j]).sum();
                    left == &(&t.b[j] * &(&Exact::one() - &outer[j])) * &over(k)
                };
                (0..s).all(column)
            }),
            first_same_as_last: stiffly_accurate && explicit_first && s > 1,
            stiffly_accurate,
            symplectic: symplectic(t).is_ok(),
            symmetric: t.is_symmetric(),
        }
    }
}

fn kind(t: &Tableau) -> Kind {
    let s = t.stages();
    let above = |i: usize| t.a[i][i + 1..].iter().any(|a| !a.is_zero());
    let diagonal: Vec<&Exact> = (0..s).map(|i| &t.a[i][i]).collect();
    let same = |d: &[&Exact]| d.windows(2).all(|w| w[0] == w[1]);
    match () {
        () if (0..s).any(above) => Kind::Firk,
        () if diagonal.iter().all(|d| d.is_zero()) => Kind::Explicit,
        () if same(&diagonal) => Kind::Sdirk,
        () if diagonal[0].is_zero() && same(&diagonal[1..]) => Kind::Esdirk,
        () => Kind::Dirk,
    }
}
