//! Properties of a tableau of one field: kinds, simplifying assumptions, symmetries.

use crate::modular::Residue;
use crate::series::Number;
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
        let exact = Rows {
            a: t.a.clone(),
            b: t.b.clone(),
            c,
        };
        // What does not hold modulo a prime does not hold.
        let residues = exact.residues();
        type Holds<C> = fn(&Rows<C>, usize) -> bool;
        let up_to = |modulo: Holds<Residue>, exactly: Holds<Exact>| {
            let holds =
                |k: &usize| residues.as_ref().is_none_or(|r| modulo(r, *k)) && exactly(&exact, *k);
            (1..=2 * s + 1).take_while(holds).count()
        };
        let explicit_first = t.a.first().is_some_and(|r| r.iter().all(Exact::is_zero));
        let stiffly_accurate = t.a.last().is_some_and(|r| *r == t.b);
        Properties {
            kind: kind(t),
            quadrature: up_to(Rows::quadrature, Rows::quadrature),
            stages: up_to(Rows::stages, Rows::stages),
            weights: up_to(Rows::weights, Rows::weights),
            first_same_as_last: stiffly_accurate && explicit_first && s > 1,
            stiffly_accurate,
            symplectic: symplectic(t).is_ok(),
            symmetric: t.is_symmetric(),
        }
    }
}

/// A tableau with its row sums c.
struct Rows<C> {
    a: Vec<Vec<C>>,
    b: Vec<C>,
    c: Vec<C>,
}

impl Rows<Exact> {
    /// `None`: some coefficient has no residue.
    fn residues(&self) -> Option<Rows<Residue>> {
        let all = |row: &Vec<Exact>| row.iter().map(Residue::of).collect::<Option<_>>();
        Some(Rows {
            a: self.a.iter().map(all).collect::<Option<_>>()?,
            b: all(&self.b)?,
            c: all(&self.c)?,
        })
    }
}

impl<C: Number + PartialEq> Rows<C> {
    fn powers(&self, k: usize) -> Vec<C> {
        let one = C::exact(&Exact::one());
        let power = |c: &C| (0..k).fold(one.clone(), |p, _| p.times(c));
        self.c.iter().map(power).collect()
    }
    fn over(k: usize) -> C {
        C::exact(&Exact::ratio(1, k as i64))
    }
    fn sum(terms: impl Iterator<Item = C>) -> C {
        terms.fold(C::exact(&Exact::zero()), |sum, t| sum.plus(&t))
    }

    /// `Σ bᵢ cᵢᵏ⁻¹ = 1/k`.
    fn quadrature(&self, k: usize) -> bool {
        let terms = self.b.iter().zip(self.powers(k - 1));
        Rows::sum(terms.map(|(b, c)| b.times(&c))) == Rows::over(k)
    }

    /// `Σ aᵢⱼ cⱼᵏ⁻¹ = cᵢᵏ/k`, which for k = 1 says what c is.
    fn stages(&self, k: usize) -> bool {
        let (inner, outer) = (self.powers(k - 1), self.powers(k));
        let row = |(row, c): (&Vec<C>, &C)| {
            let terms = row.iter().zip(&inner).map(|(a, c)| a.times(c));
            Rows::sum(terms) == c.times(&Rows::over(k))
        };
        k == 1 || self.a.iter().zip(&outer).all(row)
    }

    /// `Σ bᵢ cᵢᵏ⁻¹ aᵢⱼ = bⱼ (1 − cⱼᵏ)/k`.
    fn weights(&self, k: usize) -> bool {
        let (inner, outer) = (self.powers(k - 1), self.powers(k));
        let (one, less) = (Exact::one(), C::exact(&Exact::int(-1)));
        let column = |j: usize| {
            let terms = (0..self.b.len()).map(|i| self.b[i].times(&inner[i]).times(&self.a[i][j]));
            let rest = C::exact(&one).plus(&outer[j].times(&less));
            Rows::sum(terms) == self.b[j].times(&rest).times(&Rows::over(k))
        };
        (0..self.b.len()).all(column)
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
