//! Singly diagonally implicit methods of two and three stages: γ is a root of what order or damping at infinity asks, the rest fractions.
//!
//! With as many stages as order R(∞) = 0 is an equation for γ, and so is one order more than stages (Nørsett 1974; Alexander 1977; Crouzeix 1975; Hairer & Wanner 1996,
//! IV.6). With γ as it is, the other nodes are free, but for the most accurate methods, which are single.

use super::explicit::{Coefficients, Explicit};
use super::round::rounded;
use super::runge_kutta::error_of;
use super::scalar::{Scalar, solve};
use super::search::Problem;
use super::{Design, Goal, Method, Refused};
use crate::Tableau;
use crate::order::{Weights, prove};
use crate::stability::Stability;
use crate::trees::Trees;
use odec_exact::Exact;

const EVALUATIONS: usize = 200;
const SIZES: [f64; 3] = [0.1, 0.01, 0.0005];
/// Last nodes from which the search of three stages begins.
const STARTS: [f64; 3] = [1.0, 0.7, 1.3];

/// What γ is, and the nodes that are free.
struct Kind {
    stages: usize,
    order: usize,
    damped: bool,
    /// The equation for γ, from the constant up.
    equation: Vec<Exact>,
}

impl Kind {
    fn new(stages: usize, order: usize, damped: bool) -> Option<Kind> {
        let q = Exact::ratio;
        // With less order, methods come as near to the highest one as one likes.
        let (order, equation) = match (stages, order, damped) {
            (2, 2, true) => (2, vec![q(1, 2), q(-2, 1), q(1, 1)]),
            (2, 2 | 3, false) => (3, vec![q(1, 6), q(-1, 1), q(1, 1)]),
            (3, 2 | 3, true) => (3, vec![q(-1, 6), q(3, 2), q(-3, 1), q(1, 1)]),
            (3, 2..=4, false) => (4, vec![q(-1, 24), q(1, 2), q(-3, 2), q(1, 1)]),
            _ => return None,
        };
        Some(Kind {
            stages,
            order,
            damped,
            equation,
        })
    }

    fn gammas(&self) -> Vec<Exact> {
        let near = Exact::real_roots(&self.equation).unwrap_or_default();
        let root = |x: f64| Exact::root_of(&self.equation, &Exact::float(x)?).ok();
        near.into_iter().filter_map(root).collect()
    }

    /// How many nodes are free.
    fn free(&self) -> usize {
        match self.order > self.stages {
            true => 0,
            false => self.stages - 1,
        }
    }

    /// All nodes.
    fn nodes<N: Scalar>(&self, gamma: &N, free: &[N]) -> Vec<N> {
        let one = || N::ratio(1, 1);
        let mirrored = one().minus(gamma);
        match (self.order > self.stages, self.stages) {
            (false, _) => [std::slice::from_ref(gamma), free].concat(),
            (true, 2) => vec![gamma.clone(), mirrored],
            (true, _) => vec![gamma.clone(), N::ratio(1, 2), mirrored],
        }
    }

    /// The method of given nodes: weights by quadrature, the entry below the diagonal of the last row by the condition of the tall tree of order 3.
    fn method<N: Scalar>(&self, gamma: &N, free: &[N]) -> Option<Coefficients<N>> {
        let c = self.nodes(gamma, free);
        let s = self.stages;
        let zero = N::ratio(0, 1);
        let mut power = vec![N::ratio(1, 1); s];
        let mut conditions = Vec::new();
        for k in 1..=s as i64 {
            let mut row = power.clone();
            row.push(N::ratio(1, k));
            conditions.push(row);
            power = power.iter().zip(&c).map(|(p, c)| p.times(c)).collect();
        }
        let b = solve(conditions)?;
        let mut a = vec![vec![zero.clone(); s]; s];
        for i in 0..s {
            a[i][i] = gamma.clone();
            if i > 0 {
                a[i][0] = c[i].minus(gamma);
            }
        }
        if s == 3 {
            // γ/2 + γ b₂ (c₂ − γ) + γ b₃ (c₃ − γ) + b₃ a₃₂ (c₂ − γ) = 1/6.
            let part = |i: usize| b[i].times(&c[i].minus(gamma)).times(gamma);
            let half = gamma.times(&N::ratio(1, 2));
            let rest = N::ratio(1, 6).minus(&half).minus(&part(1)).minus(&part(2));
            let entry = rest.over(&b[2].times(&c[1].minus(gamma)))?;
            a[2][0] = a[2][0].minus(&entry);
            a[2][1] = entry;
        }
        Some(Coefficients { a, b, c })
    }

    fn tableau(&self, gamma: &Exact, free: &[Exact]) -> Option<Tableau> {
        let m = self.method(gamma, free)?;
        let small = m.a.iter().flatten().chain(&m.b);
        let small = small.cloned().all(|x| x.checked().is_ok());
        small.then(|| Tableau::single(m.a, m.b))
    }

    /// A method with the required order and stability.
    fn proved(&self, gamma: &Exact, free: &[Exact]) -> Option<Tableau> {
        let t = self.tableau(gamma, free)?;
        let proved = prove(&mut Weights::new(&t)?, &mut Trees::new(1), self.order, None).order;
        let stable = Stability::new(&t)?;
        let is = match self.damped {
            true => stable.l_stable,
            false => stable.a_stable,
        };
        (proved == self.order && is == Some(true)).then_some(t)
    }

    /// The method of least error with one γ.
    fn best(&self, gamma: &Exact, loss: f64) -> Option<(Tableau, f64)> {
        let n = self.free();
        let one = Exact::one();
        let middle = &(&one + gamma) * &Exact::ratio(1, 2);
        let usual = match n {
            1 => vec![one],
            _ => vec![middle, one],
        };
        // What is stable depends on γ alone.
        let t = self.proved(gamma, &usual[..n])?;
        if n == 0 {
            let error = error_of(&t, self.order)?;
            return Some((t, error));
        }
        let float = gamma.to_f64();
        let all = Explicit::new(self.stages, self.order, &[]);
        let error = |y: &[f64]| {
            let m = self.method(&float, y);
            m.map_or(f64::INFINITY, |m| all.error(&m))
        };
        let problem = Problem {
            objective: &error,
            slack: &|_| Vec::new(),
        };
        let search = |last: f64| {
            let mut y: Vec<f64> = usual.iter().map(Exact::to_f64).collect();
            y[n - 1] = last;
            for size in SIZES {
                y = problem.solve(&y, &vec![size; n], EVALUATIONS);
            }
            y
        };
        let found = STARTS.into_iter().map(search);
        let y = found.min_by(|y, z| error(y).total_cmp(&error(z)))?;
        let least = error(&y);
        let keep = |nodes: &[Exact]| {
            let t = self.proved(gamma, nodes)?;
            let error = error_of(&t, self.order)?;
            (error <= least * (1.0 + loss)).then_some((t, error))
        };
        rounded(&y, keep)
    }
}

/// The method of least error for each γ, the best of them; `damped`: L-stable, else A-stable.
///
/// # Errors
/// When there is no such method.
pub fn design(stages: usize, order: usize, damped: bool, loss: f64) -> Result<Design, Refused> {
    let kind = Kind::new(stages, order, damped).ok_or_else(|| impossible(stages, order, damped))?;
    let gammas = kind.gammas().into_iter();
    let found = gammas.filter_map(|gamma| kind.best(&gamma, loss));
    let best = found.min_by(|(_, one), (_, two)| one.total_cmp(two));
    let (tableau, error) = best.ok_or(Refused::NotFound)?;
    Ok(Design {
        method: Method::Tableau(tableau),
        order: kind.order,
        within: None,
        goal: Goal::Error,
        level: None,
        value: error,
        error,
        against: Goal::Error,
        traded: Vec::new(),
    })
}

fn impossible(stages: usize, order: usize, damped: bool) -> Refused {
    let no = |what: String, help: &str| Refused::Impossible {
        what,
        help: help.into(),
    };
    match (stages, order) {
        (2 | 3, p) if damped && p == stages + 1 => no(
            format!(
                "no method of {stages} stages with one diagonal entry has order {p} and R(∞) = 0"
            ),
            "leave out --l-stable, or take a lower order",
        ),
        (2 | 3, p) if p > stages + 1 => no(
            format!(
                "no method of {stages} stages with one diagonal entry has order {p}: it has {} at most (Nørsett & Wolfbrandt 1977)",
                stages + 1
            ),
            "take a lower order",
        ),
        (2 | 3, _) => no(
            "methods with one diagonal entry are searched from order 2 on".into(),
            "take --order 2 or more",
        ),
        _ => no(
            "methods with one diagonal entry are searched with two and three stages".into(),
            "take --stages 2 or 3; sdirk4, esdirk3 and kencarp4 of the library have more",
        ),
    }
}
