//! General linear methods: `Y = h A F(Y) + U y[n]`, `y[n+1] = h B F(Y) + V y[n]` (Butcher 2006, Acta Numerica 15, 157; Jackiewicz
//! 2009, General Linear Methods for Ordinary Differential Equations).
//!
//! `y[n]` holds the state and what a step keeps for later ones: older states, evaluations times h, and combinations of both.
//! Gives pre-consistency and consistency, zero-stability, the order with an exact starting procedure ([`order`]), Φ(w, z)
//! ([`characteristic`]) and how far the method is stable along the axes ([`axis`]). Leaves finding the matrices of a stage
//! program to odec-compiler.

pub mod axis;
pub mod characteristic;
pub mod first;
pub mod matrix;
pub mod order;

use crate::order::{expected, prove};
use crate::poly::Extent;
use crate::tableau::Tableau;
use crate::trees::{TreeId, Trees};
use crate::unit_disc::root_condition;
use characteristic::Characteristic;
use matrix::{Matrix, dot, kernel, minimal_polynomial, transposed};
use odec_exact::Exact;
use order::Started;

/// Most values that a step hands to the next one.
pub const MAX_VALUES: usize = 32;
/// Most evaluations of a step.
pub const MAX_STAGES: usize = 256;
/// Highest order that is looked for.
const MAX_ORDER: usize = 12;
/// Trees are made for so many values at least: a starting procedure has longer expansions than a stage.
const VALUES: usize = 150;

/// Most bits of an entry, times the square of how many rows there are.
const MAX_SIZE: u64 = 100_000;

/// What elimination on these entries is measured by.
fn size<'e>(entries: impl Iterator<Item = &'e Exact>, rows: usize) -> u64 {
    let bits = entries.map(|x| {
        let bits = x.coefficients();
        let bits = bits.map(|c| c.numer().bits() + c.denom().bits());
        bits.max().unwrap_or(0)
    });
    bits.max().unwrap_or(0) * (rows * rows) as u64
}

/// `[A U; B V]`, and what its rows mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Glm {
    pub fields: Vec<String>,
    /// The field that each stage evaluates.
    pub field_of: Vec<usize>,
    /// `stages × stages`.
    pub a: Matrix,
    /// `stages × values`.
    pub u: Matrix,
    /// `values × stages`.
    pub b: Matrix,
    /// `values × values`.
    pub v: Matrix,
    /// Which of the values is the state.
    pub state: usize,
}

/// What is true of a method; `None`: not decided, or without meaning.
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// `u` with V u = u, U u = 1 and 1 at the state: the multiple of the solution that each value is.
    pub preconsistency: Option<Vec<Exact>>,
    /// `v` with B1 + V v = u + v and 0 at the state: the multiple of h times its derivative.
    pub consistency: Option<Vec<Exact>>,
    /// V is power bounded.
    pub zero_stable: Option<bool>,
    /// The same, and its only eigenvalue on the circle is a simple 1.
    pub strongly_stable: Option<bool>,
    /// Of methods of one field whose expansion is known.
    pub order: Option<usize>,
    /// C, where the local error is `C h^{p+1} x^{(p+1)}`; exact minus computed, as C_{p+1}/σ(1) is.
    pub error_constant: Option<Exact>,
    /// Φ(w, z) = det(I − zA) det(wI − M(z)), without factors that depend on w or z alone; of methods of one field.
    pub characteristic: Option<Characteristic>,
    pub a_stable: Option<bool>,
    /// How far all roots of Φ(w, −x) lie in the closed unit disc.
    pub real: Option<Extent>,
    /// The same for Φ(w, iy), as y².
    pub imaginary_squared: Option<Extent>,
}

impl Glm {
    /// A method of one step: one value, U = 1, V = 1.
    pub fn of_tableau(t: &Tableau) -> Glm {
        Glm {
            fields: t.fields.clone(),
            field_of: t.field_of.clone(),
            a: t.a.clone(),
            u: vec![vec![Exact::one()]; t.stages()],
            b: vec![t.b.clone()],
            v: vec![vec![Exact::one()]],
            state: 0,
        }
    }

    pub fn stages(&self) -> usize {
        self.field_of.len()
    }
    pub fn values(&self) -> usize {
        self.v.len()
    }

    /// `u` with V u = u, U u = 1 and 1 at the state (Butcher 2006, 3.1). `None`: there is none, or several.
    pub fn preconsistency(&self) -> Option<Vec<Exact>> {
        let [u] = &kernel(&self.minus_identity())?[..] else {
            return None;
        };
        let over = crate::poly::inverse(&u[self.state])?;
        let u: Vec<Exact> = u.iter().map(|x| x * &over).collect();
        self.u.iter().all(|row| dot(row, &u).is_one()).then_some(u)
    }

    /// V − I.
    fn minus_identity(&self) -> Matrix {
        let mut m = self.v.clone();
        for (i, row) in m.iter_mut().enumerate() {
            row[i] = &row[i] - &Exact::one();
        }
        m
    }

    /// The left eigenvector of V to 1, times `u` 1; `None` where 1 is no simple eigenvalue.
    pub(crate) fn left(&self, u: &[Exact]) -> Option<Vec<Exact>> {
        let [l] = &kernel(&transposed(&self.minus_identity()))?[..] else {
            return None;
        };
        let over = crate::poly::inverse(&dot(l, u))?;
        Some(l.iter().map(|x| x * &over).collect())
    }

    /// `v` with B1 + V v = u + v (Butcher 2006, 3.2), and 0 at the state.
    fn consistency(&self, u: &[Exact]) -> Option<Vec<Exact>> {
        let left = self.left(u)?;
        let ones = vec![Exact::one(); self.stages()];
        let sums = self.b.iter().map(|row| dot(row, &ones));
        let rhs: Vec<Exact> = sums.zip(u).map(|(b, u)| &b - u).collect();
        if !dot(&left, &rhs).is_zero() {
            return None;
        }
        let solve = order::solver(&self.v, u, self.state)?;
        Some(solve.iter().map(|row| dot(row, &rhs)).collect())
    }

    /// Whether V is power bounded, and whether 1 is a simple eigenvalue and the only one on the circle: all roots of the minimal
    /// polynomial lie in the closed disc, those on the circle being simple.
    pub fn zero_stable(&self) -> Option<(bool, bool)> {
        if size(self.v.iter().flatten(), self.values()) > MAX_SIZE {
            return None;
        }
        let minimal = minimal_polynomial(&self.v)?;
        let (stable, circle) = root_condition(&minimal)?;
        let one = minimal.at(&Exact::one()).is_zero();
        let simple = kernel(&self.minus_identity())?.len() == 1;
        Some((stable, stable && circle == 1 && one && simple))
    }

    /// The expansion of the state with an exact starting procedure, and the trees it is compared on.
    pub fn expansion(&self) -> Option<(Started, Trees)> {
        let trees = Trees::new(self.fields.len());
        let values = VALUES.max(8 * (self.stages() + self.values()));
        Some((Started::new(self)?, trees.for_values(values)))
    }

    pub fn facts(&self) -> Facts {
        let preconsistency = self.preconsistency();
        let stable = self.zero_stable();
        let (order, error_constant) = match self.expansion() {
            Some((mut e, mut trees)) => {
                let proof = prove(&mut e, &mut trees, MAX_ORDER, None);
                let constant = proof.violation.is_some();
                let constant = constant.then(|| error_constant(&mut e, &trees, proof.order + 1));
                (Some(proof.order), constant.flatten())
            }
            None => (None, None),
        };
        let characteristic = match self.fields.len() {
            1 => Characteristic::of(self),
            _ => None,
        };
        let phi = characteristic.as_ref();
        let real = phi.and_then(axis::real);
        let imaginary_squared = phi.and_then(axis::imaginary);
        let poles = phi.and_then(|p| p.leading().mirrored().is_hurwitz());
        // The spectral radius is subharmonic where there is no pole.
        let a_stable = match (&imaginary_squared, poles, stable) {
            (_, Some(false), _) | (_, _, Some((false, _))) => Some(false),
            (Some(Extent::Infinite), poles, stable) => poles.zip(stable).map(|_| true),
            (Some(_), ..) => Some(false),
            (None, ..) => None,
        };
        Facts {
            consistency: preconsistency.as_ref().and_then(|u| self.consistency(u)),
            preconsistency,
            zero_stable: stable.map(|s| s.0),
            strongly_stable: stable.map(|s| s.1),
            order,
            error_constant,
            a_stable,
            real,
            imaginary_squared,
            characteristic,
        }
    }
}

/// `−ε(t)γ(t)/(p+1)!`, if it is the same for all trees of that order.
fn error_constant(e: &mut Started, trees: &Trees, order: usize) -> Option<Exact> {
    let factorial = (1..=order).fold(Exact::one(), |f, n| &f * &Exact::int(n as i64));
    let over = crate::poly::inverse(&factorial)?;
    let mut constant = |t: TreeId| {
        let expected = expected(trees, t);
        let off = &expected - &crate::order::Expansion::coefficient(e, trees, t);
        Some(&(&off * &crate::poly::inverse(&expected)?) * &over)
    };
    let mut all = trees.of_order(order).map(&mut constant);
    let first = all.next()??;
    all.all(|c| c.as_ref() == Some(&first)).then_some(first)
}

/// A linear multistep method as a general linear one: the state, older states, older evaluations (Butcher 2006, 2.3). Rows newest
/// first, of one length.
pub fn of_multistep(alpha: &[Exact], beta: &[Exact]) -> Option<Glm> {
    let over = crate::poly::inverse(alpha.first()?)?;
    let k = alpha.len() - 1;
    let alpha: Vec<Exact> = alpha.iter().map(|a| a * &over).collect();
    let beta: Vec<Exact> = beta.iter().map(|b| b * &over).collect();
    // Values: x[n], …, x[n−k+1], h f[n−1], …, h f[n−k+1]; stages: x[n+1] where the method is implicit, then x[n].
    let r = (2 * k).checked_sub(1)?;
    let implicit = !beta[0].is_zero();
    let s = 1 + usize::from(implicit);
    let old = s - 1;
    let mut v = vec![vec![Exact::zero(); r]; r];
    let mut b = vec![vec![Exact::zero(); s]; r];
    for i in 1..=k {
        v[0][i - 1] = -&alpha[i];
        if i > 1 {
            v[0][k + i - 2] = beta[i].clone();
            v[i - 1][i - 2] = Exact::one();
        }
        if i > 2 {
            v[k + i - 2][k + i - 3] = Exact::one();
        }
    }
    b[0][old] = beta[1].clone();
    if implicit {
        b[0][0] = beta[0].clone();
    }
    if k > 1 {
        b[k][old] = Exact::one();
    }
    let mut a = vec![vec![Exact::zero(); s]; s];
    let mut u = vec![vec![Exact::zero(); r]; s];
    u[old][0] = Exact::one();
    if implicit {
        (a[0], u[0]) = (b[0].clone(), v[0].clone());
    }
    Some(Glm {
        fields: vec!["F".into()],
        field_of: vec![0; s],
        a,
        u,
        b,
        v,
        state: 0,
    })
}
