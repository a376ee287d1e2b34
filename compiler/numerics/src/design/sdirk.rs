//! Singly diagonally implicit methods of two stages: γ is a root of what order or damping at infinity asks, the rest fractions.
//!
//! Order 3 asks γ² − γ + 1/6 = 0, R(∞) = 0 with order 2 asks γ² − 2γ + 1/2 = 0 (Nørsett 1974; Alexander 1977; Hairer & Wanner 1996, IV.6). With γ as it is, the
//! second node is free for order 2.

use super::round::rounded;
use super::runge_kutta::error_of;
use super::search::Program;
use super::{Design, Goal, Method, Refused};
use crate::Tableau;
use crate::order::{Weights, prove};
use crate::poly::inverse;
use crate::stability::Stability;
use crate::trees::Trees;
use odec_exact::Exact;

const STAGES: usize = 2;
const EVALUATIONS: usize = 120;

/// The roots of γ² − pγ + q.
fn roots(p: Exact, q: Exact) -> Option<[Exact; 2]> {
    let half = &p * &Exact::ratio(1, 2);
    let root = (&(&half * &half) - &q).root(2).ok()?;
    Some([&half - &root, &half + &root])
}

/// Nodes γ and c, weights from two conditions of quadrature.
fn method(gamma: &Exact, c: &Exact) -> Option<Tableau> {
    let over = inverse(&(c - gamma))?;
    let second = &(&Exact::ratio(1, 2) - gamma) * &over;
    let first = &Exact::one() - &second;
    let a = vec![
        vec![gamma.clone(), Exact::zero()],
        vec![c - gamma, gamma.clone()],
    ];
    Some(Tableau::single(a, vec![first, second]))
}

fn is_stable(t: &Tableau, damped: bool) -> bool {
    Stability::new(t).is_some_and(|s| match damped {
        true => s.l_stable == Some(true),
        false => s.a_stable == Some(true),
    })
}

/// The method of least error for each γ, the best of them; `damped`: L-stable, else A-stable.
///
/// # Errors
/// When there is no such method.
pub fn design(stages: usize, order: usize, damped: bool, loss: f64) -> Result<Design, Refused> {
    let no = |what: &str, help: &str| Refused::Impossible {
        what: what.into(),
        help: help.into(),
    };
    let gammas = match (stages, order, damped) {
        (STAGES, 2, true) => roots(Exact::int(2), Exact::ratio(1, 2)),
        (STAGES, 2 | 3, false) => roots(Exact::one(), Exact::ratio(1, 6)),
        (STAGES, 3, true) => {
            return Err(no(
                "no method of two stages with one diagonal entry has order 3 and R(∞) = 0",
                "leave out --l-stable, or take --order 2",
            ));
        }
        (STAGES, ..) => {
            return Err(no(
                "methods of two stages with one diagonal entry are searched for order 2 and, A-stable, 3",
                "take --order 2 or 3",
            ));
        }
        _ => {
            return Err(no(
                "methods with one diagonal entry are searched with two stages",
                "take --stages 2; sdirk4, esdirk3 and kencarp4 of the library have more",
            ));
        }
    };
    // With order 2 alone, A-stable methods come as near to order 3 as one likes.
    let order = if damped { order } else { 3 };
    let all = gammas.into_iter().flatten();
    let found = all.filter_map(|gamma| best(&gamma, order, damped, loss));
    let best = found.min_by(|(_, one), (_, two)| one.total_cmp(two));
    let (tableau, error) = best.ok_or(Refused::NotFound)?;
    Ok(Design {
        method: Method::Tableau(tableau),
        order,
        within: None,
        goal: Goal::Error,
        level: None,
        value: error,
        error,
        against: Goal::Error,
        traded: Vec::new(),
    })
}

fn best(gamma: &Exact, order: usize, damped: bool, loss: f64) -> Option<(Tableau, f64)> {
    let make = |c: &Exact| {
        let t = method(gamma, c)?;
        let proved = prove(&mut Weights::new(&t)?, &mut Trees::new(1), order, None).order;
        (proved == order && is_stable(&t, damped)).then_some(t)
    };
    if order == 3 {
        let t = make(&(&Exact::one() - gamma))?;
        let error = error_of(&t, order)?;
        return Some((t, error));
    }
    let objective = |y: &[f64]| {
        let t = Exact::float(y[0]).and_then(|c| method(gamma, &c));
        t.and_then(|t| error_of(&t, order)).unwrap_or(f64::INFINITY)
    };
    let program = Program {
        objective: &objective,
        slack: &|_| Vec::new(),
    };
    let mut c = vec![gamma.to_f64() + 0.4];
    for size in [0.1, 0.001] {
        c = program.solve(&c, &[size], EVALUATIONS);
    }
    let least = objective(&c);
    let keep = |fractions: &[Exact]| {
        let t = make(&fractions[0])?;
        let error = error_of(&t, order)?;
        (error <= least * (1.0 + loss)).then_some((t, error))
    };
    rounded(&c, keep)
}
