//! Designs explicit methods with Newton's method: low storage, and zeros that determine nodes.
//!
//! Local searches along the solutions, from those of many starts that are best. What order is exact, and what to a residual, is decided by the end.

use super::curved::{Curved, Form, fractions};
use super::goal::Level;
use super::round::rounded;
use super::runge_kutta::{
    Request, Task, error_of, floats, missing, optimum, polynomial, possible, value,
};
use super::{Design, Goal, Method, Refused};
use crate::order::{Weights, prove};
use crate::{Tableau, Trees};
use odec_exact::Exact;

/// Starts of Newton's method, and of local searches.
const STARTS: usize = 160;
const SEARCHES: usize = 8;
const EVALUATIONS: usize = 200;
/// Sizes of first steps, one search after the other.
const SIZES: [f64; 4] = [0.1, 0.02, 0.002, 1e-4];
/// Losses that are tried for fractions that solve the conditions exactly, as multiples of the requested one.
const LOSSES: [f64; 3] = [1.0, 50.0, 500.0];
/// Denominators and the distance of such fractions, where one variable is free.
const DENOMINATOR: i64 = 40;
const REACH: f64 = 0.06;
/// Decimal places more that are tried.
const MORE_PLACES: i32 = 6;

/// A solution, and what it has of what is to be made small.
#[derive(Clone, Debug)]
struct Local {
    x: Vec<f64>,
    value: f64,
}

/// What becomes of it in exact numbers.
struct Ended {
    x: Vec<Exact>,
    tableau: Tableau,
    within: Option<Exact>,
    level: Option<Level>,
}

/// A method of two registers.
///
/// # Errors
/// When no method can meet the requirements, or none was found.
pub fn design(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Design, Refused> {
    possible(request)?;
    if (request.stages, request.order) == (4, 4) {
        return Err(Refused::Impossible {
            what: "two registers of four stages have 7 coefficients, order 4 has 8 conditions"
                .into(),
            help: "take --stages 5 (Carpenter & Kennedy 1994)".into(),
        });
    }
    let family = Curved::two_registers(request.stages, request.order);
    // With the best stability polynomial, if a method of the family has it.
    if request.goal.is_linear() && request.stages > request.order {
        tell("the stability polynomial");
        let (polynomial, level) = polynomial(request, request.goal)?;
        let family = family.with_polynomial(&polynomial);
        let found = searched(&family, request, Some(level), tell);
        if found.is_ok() {
            return found;
        }
    }
    searched(&family, request, None, tell)
}

/// The best method of a family; `wanted`: the level of the goal that its stability polynomial has.
pub fn searched(
    family: &Curved,
    r: &Request,
    wanted: Option<f64>,
    tell: &mut dyn FnMut(&str),
) -> Result<Design, Refused> {
    let task = match r.goal {
        Goal::ErrorBound => Task::ErrorBound,
        Goal::Ssp => Task::Most(Goal::Ssp),
        goal if goal.is_linear() && r.stages > r.order && family.all.polynomial.is_empty() => {
            Task::Most(goal)
        }
        _ => Task::Error,
    };
    let found = best(family, task, tell).ok_or(Refused::NotFound)?;
    tell("fractions");
    let ended = ended(family, &found, r, (task, wanted)).ok_or(Refused::NotFound)?;
    let value = match &ended.level {
        Some(level) => level.float(),
        None => value(r.goal, &family.all, &floats(&ended.tableau)),
    };
    Ok(Design {
        order: r.order,
        within: ended.within,
        error: error_of(&ended.tableau, r.order).unwrap_or(f64::NAN),
        method: match family.form {
            Form::Entries => Method::Tableau(ended.tableau),
            Form::TwoRegisters => Method::Registers {
                a: ended.x[..r.stages - 1].to_vec(),
                b: ended.x[r.stages - 1..].to_vec(),
            },
        },
        goal: r.goal,
        level: ended.level,
        value,
        against: r.goal,
        traded: Vec::new(),
    })
}

fn best(family: &Curved, task: Task, tell: &mut dyn FnMut(&str)) -> Option<Local> {
    tell("solutions");
    let value = |x: &[f64]| missing(&family.all, task, &family.method(x));
    let all = family.solutions(STARTS).into_iter();
    let mut all: Vec<Local> = all
        .map(|x| Local {
            value: value(&x),
            x,
        })
        .collect();
    all.retain(|l| l.value.is_finite());
    all.sort_by(|a, b| a.value.total_cmp(&b.value));
    all.truncate(SEARCHES);
    let count = all.len();
    let mut best: Option<Local> = None;
    for (n, start) in all.into_iter().enumerate() {
        tell(&format!("start {} of {count}", n + 1));
        let found = local(family, task, start);
        if best.as_ref().is_none_or(|b| found.value < b.value) {
            best = Some(found);
        }
    }
    best
}

/// The local optimum that a solution leads to.
fn local(family: &Curved, task: Task, mut at: Local) -> Local {
    for size in SIZES {
        let Some(directions) = family.directions(&at.x) else {
            return at;
        };
        let n = directions.len();
        if n == 0 {
            return at;
        }
        let x = at.x.clone();
        let moved = |y: &[f64]| family.moved(&x, &directions, y);
        let method = |y: &[f64]| moved(y).map(|x| family.method(&x));
        let evaluations = EVALUATIONS * n;
        let start = vec![0.0; n];
        let found = optimum(
            &family.all,
            task,
            &method,
            &start,
            -at.value,
            size,
            evaluations,
        );
        if let Some((y, value)) = found
            && value < at.value
            && let Some(x) = moved(&y)
        {
            at = Local { x, value };
        }
    }
    at
}

/// Fractions near a local optimum that lose no more than is allowed: exact solutions if there are such, else to many digits.
fn ended(
    family: &Curved,
    found: &Local,
    r: &Request,
    (task, wanted): (Task, Option<f64>),
) -> Option<Ended> {
    let free = family.free(&found.x)?;
    let make = |x: Vec<Exact>, within: Option<Exact>, loss: f64| {
        let m = family.method(&x);
        let tableau = Tableau::single(m.a, m.b);
        let level = r.goal.certified(&tableau);
        let value = match (task, &level) {
            (Task::Most(Goal::Area), _) | (_, None) => {
                missing(&family.all, task, &floats(&tableau))
            }
            (Task::Most(_), Some(level)) => -level.float(),
            _ => missing(&family.all, task, &floats(&tableau)),
        };
        let has = |wanted| matches!(&level, Some(l) if l.float() >= wanted * (1.0 - r.loss));
        let good = value <= found.value + loss * found.value.abs() && wanted.is_none_or(has);
        let mut weights = Weights::new(&tableau)?;
        let mut order = || prove(&mut weights, &mut Trees::new(1), r.order, within.as_ref()).order;
        (good && order() == r.order).then_some(Ended {
            x,
            tableau,
            within,
            level,
        })
    };
    if let Some(e) = short(family, found, r, &make) {
        return Some(e);
    }
    let near: Vec<f64> = free.iter().map(|v| found.x[*v]).collect();
    // A residual of either sign may decide whether the imaginary axis is stable at its beginning.
    let places = 0..MORE_PLACES;
    let attempt = |given: &[Exact], more| {
        let (x, within) = family.exact(&found.x, &free, given, more)?;
        make(x, within, r.loss)
    };
    rounded(&near, |given| {
        places.clone().find_map(|more| attempt(given, more))
    })
}

/// Fractions that solve the conditions exactly: a curve of order 3 has such points, and near an optimum they are sought by each coordinate.
fn short(
    family: &Curved,
    found: &Local,
    r: &Request,
    make: &impl Fn(Vec<Exact>, Option<Exact>, f64) -> Option<Ended>,
) -> Option<Ended> {
    let conditions = family.all.conditions(&family.method(&found.x)).len();
    if r.order > 3 || family.variables() != conditions + 1 {
        return None;
    }
    let near = |v: usize| {
        let all = fractions(found.x[v], REACH, DENOMINATOR).into_iter();
        all.filter_map(move |given| family.short(&found.x, &[v], &[given]))
    };
    let all: Vec<Vec<Exact>> = (0..family.variables()).flat_map(near).collect();
    LOSSES.into_iter().find_map(|by| {
        let mut made = all.iter().map(|x| make(x.clone(), None, by * r.loss));
        made.find_map(|e| e)
    })
}
