//! What a tableau of one field is called: kinds, simplifying assumptions, symmetries, monotonicity.

use crate::tableau::Tableau;
use odec_exact::Exact;

/// Most stages of a method whose SSP coefficient is sought.
const MAX_SSP_STAGES: usize = 12;

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
            symplectic: (0..s).all(|i| {
                (0..=i).all(|j| {
                    let left = &(&t.b[i] * &t.a[i][j]) + &(&t.b[j] * &t.a[j][i]);
                    left == &t.b[i] * &t.b[j]
                })
            }),
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

/// The coefficient of strong stability preservation: the radius of absolute monotonicity (Kraaijevanger 1991, BIT 31, 482).
#[derive(Clone, Debug, PartialEq)]
pub enum Ssp {
    /// No step is monotone.
    None,
    Unbounded,
    /// Exactly.
    Exactly(Exact),
    /// Between two numbers.
    Between(Exact, Exact),
}

/// By bisection on exact conditions, to 2⁻²⁰; a simple fraction in between that is the coefficient itself is recognised.
pub fn ssp(t: &Tableau) -> Option<Ssp> {
    let rational = t.a.iter().flatten().chain(&t.b);
    if t.stages() > MAX_SSP_STAGES || rational.clone().any(|a| a.as_rational().is_none()) {
        return None;
    }
    // For small r the entries of rK(I + rK)⁻¹ have the signs of K's, where those are not 0.
    if rational.clone().any(Exact::is_negative) {
        return Some(Ssp::None);
    }
    let fine = Exact::ratio(1, 1 << 20);
    if !monotone(t, &fine) {
        return Some(Ssp::None);
    }
    if monotone(t, &Exact::int(1 << 20)) {
        return Some(Ssp::Unbounded);
    }
    let (mut lo, mut hi) = (fine.clone(), Exact::int(1));
    while monotone(t, &hi) {
        lo = hi.clone();
        hi = &hi * &Exact::int(2);
    }
    while &hi - &lo > fine {
        let middle = &(&lo + &hi) * &Exact::ratio(1, 2);
        if monotone(t, &middle) {
            lo = middle;
        } else {
            hi = middle;
        }
    }
    for d in 1..=24 {
        let n = (hi.to_f64() * d as f64).round() as i64;
        let simple = Exact::ratio(n, d);
        if simple >= lo && simple <= hi && monotone(t, &simple) {
            let beyond = &simple + &Exact::ratio(1, 1 << 40);
            if !monotone(t, &beyond) {
                return Some(Ssp::Exactly(simple));
            }
        }
    }
    Some(Ssp::Between(lo, hi))
}

/// Whether the method is absolutely monotone at −r: with K = [A 0; bᵀ 0], `rK(I + rK)⁻¹ ≥ 0` and its rows sum to at most 1.
fn monotone(t: &Tableau, r: &Exact) -> bool {
    let s = t.stages();
    let n = s + 1;
    // Solve X (I + rK) = rK for X, row by row: (I + rK)ᵀ xᵀ = rKᵀ.
    let k = |i: usize, j: usize| match (i < s, j < s) {
        (_, false) => Exact::zero(),
        (true, true) => r * &t.a[i][j],
        (false, true) => r * &t.b[j],
    };
    let mut rows: Vec<Vec<Exact>> = (0..n)
        .map(|j| {
            let left = (0..n).map(|i| &k(i, j) + &Exact::int(i64::from(i == j)));
            left.chain((0..n).map(|i| k(i, j))).collect()
        })
        .collect();
    for at in 0..n {
        let Some(pivot) = (at..n).find(|i| !rows[*i][at].is_zero()) else {
            return false;
        };
        rows.swap(at, pivot);
        let Ok(over) = rows[at][at].recip() else {
            return false;
        };
        let pivot: Vec<Exact> = rows[at].iter().map(|x| x * &over).collect();
        rows[at] = pivot.clone();
        for (i, row) in rows.iter_mut().enumerate() {
            if i != at && !row[at].is_zero() {
                let by = row[at].clone();
                for (x, p) in row.iter_mut().zip(&pivot) {
                    *x = &*x - &(&by * p);
                }
            }
        }
    }
    // Column i of the right half is row i of X.
    (0..n).all(|i| {
        let entries = (0..n).map(|j| &rows[j][n + i]);
        let sum: Exact = entries.clone().cloned().sum();
        entries.clone().all(|x| !x.is_negative()) && sum <= Exact::one()
    })
}
