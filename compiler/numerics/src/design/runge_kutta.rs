//! Designs explicit Runge–Kutta methods of given stages and order, and finds how much accuracy a goal costs.

use super::curved::Curved;
use super::explicit::{Chart, Coefficients, Explicit, MAX_ORDER, stability};
use super::goal::{Goal, Level, area};
use super::round::rounded;
use super::search::{Problem, spread};
use super::{Design, Method, Refused, Traded, registers};
use crate::order::{Weights, principal_error, prove};
use crate::poly::Poly;
use crate::stability::{Stability, StabilityFunction};
use crate::{Tableau, Trees};
use odec_exact::Exact;

/// Most stages that are searched.
pub const MAX_STAGES: usize = 8;
/// Starting points, evaluations from each, and how often the variables to solve for are chosen again.
const STARTS: usize = 12;
const EVALUATIONS: usize = 1500;
const ROUNDS: usize = 3;
/// How far slack may be below 0 in floats.
const TOUCH: f64 = 1e-7;
/// The same, where the search for a stability polynomial ends: margins make it good.
const NEARLY: f64 = 1e-3;
/// Errors below this are 0 but for rounding; what an error may be more than its least value, whatever that is.
const VANISHES: f64 = 1e-8;
const LITTLE: f64 = 1e-6;
/// Starts of Newton's method.
const SOLUTIONS: usize = 60;
/// Levels among which the first that is not reached is sought.
const LEVELS: usize = 400;
/// Areas that are measured from one start.
const AREAS: usize = 200;
/// Starting points for stability polynomials, whose local optima are all alike.
const FEW_STARTS: usize = 3;
/// Margins that are tried where a polynomial touches its bound, as multiples of what may be lost.
const MARGINS: [f64; 4] = [0.5, 2.0, 8.0, 32.0];
/// Shares of the best level at which the least error is sought.
const SHARES: [f64; 10] = [1.0, 0.98, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.45, 0.3];

/// The requirements of a design.
#[derive(Clone, Debug)]
pub struct Request {
    pub stages: usize,
    pub order: usize,
    pub goal: Goal,
    pub zeros: Vec<(usize, usize)>,
    /// The share of the best value that may be lost for simpler coefficients.
    pub loss: f64,
}

/// What one local search is after.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Error,
    ErrorBound,
    Most(Goal),
    /// The least error where a goal has at least a level.
    ErrorAt(Goal, f64),
}

/// A local optimum: the point, and what was to be made small.
#[derive(Clone, Debug)]
struct Local {
    x: Vec<f64>,
    value: f64,
}

/// # Errors
/// When no method can meet the requirements, or none was found.
pub fn design(request: &Request, tell: &mut dyn FnMut(&str)) -> Result<Design, Refused> {
    possible(request)?;
    let goal = request.goal;
    let open = Explicit::new(request.stages, request.order, &request.zeros);
    let mut family = open.clone();
    let mut wanted = None;
    // With five stages of order 4, the stability polynomial is no linear condition on the last rows.
    let is_free = request.stages > request.order && (request.stages, request.order) != (5, 4);
    if goal.is_linear() && is_free {
        tell("the stability polynomial");
        let (polynomial, level) = polynomial(request, goal)?;
        family = family.with_polynomial(&polynomial);
        wanted = Some(level);
    }
    let task = match goal {
        Goal::ErrorBound => Task::ErrorBound,
        Goal::Error => Task::Error,
        _ if goal == Goal::Ssp || !is_free && request.stages > request.order => Task::Most(goal),
        _ => Task::Error,
    };
    let found = match best(&family, task, tell) {
        // Weights that are 0 may determine nodes, which are no unknowns of a linear condition.
        Err(_) if !request.zeros.is_empty() => {
            return registers::searched(&Curved::with_zeros(&family), request, wanted, tell);
        }
        found => found?,
    };
    if let Some(higher) = lifted(request, task, &found, wanted, tell) {
        return Ok(higher);
    }
    tell("fractions");
    let (tableau, level) = exact(&family, &found, request, task).ok_or(Refused::NotFound)?;
    let (against, traded) = trade(&open, request, &found, wanted, tell);
    let value = match &level {
        Some(l) => l.float(),
        None => value(goal, &family, &floats(&tableau)),
    };
    Ok(Design {
        order: request.order,
        within: None,
        error: error_of(&tableau, request.order).unwrap_or(f64::NAN),
        method: Method::Tableau(tableau),
        goal,
        level,
        value,
        against,
        traded,
    })
}

/// Where the least error is 0 there are methods of the next order: the best of those, if it reaches the same level.
fn lifted(
    request: &Request,
    task: Task,
    found: &Local,
    wanted: Option<f64>,
    tell: &mut dyn FnMut(&str),
) -> Option<Design> {
    let vanishes = !matches!(task, Task::Most(_)) && found.value < VANISHES;
    let higher = Request {
        order: request.order + 1,
        ..request.clone()
    };
    let design = vanishes.then(|| design(&higher, tell).ok()).flatten()?;
    let least = wanted.map_or(f64::NEG_INFINITY, |level| level * (1.0 - request.loss));
    (wanted.is_none() || design.value >= least).then_some(design)
}

/// Butcher's barriers, and those of strong stability preservation (Ruuth & Spiteri 2002).
pub(super) fn possible(r: &Request) -> Result<(), Refused> {
    let (s, p) = (r.stages, r.order);
    let no = |what: String, help: &str| {
        Err(Refused::Impossible {
            what,
            help: help.to_string(),
        })
    };
    let least = [1, 2, 3, 4, 6, 7, 9, 11];
    if s == 0 || p == 0 {
        return no(
            "stages and order begin with 1".into(),
            "such as --stages 4 --order 3",
        );
    }
    if let Some(least) = least.get(p - 1).filter(|least| s < **least) {
        let help = format!("take --stages {least} or more, or a lower order");
        return no(
            format!(
                "no explicit method of {s} stages has order {p}: that takes {least} (Butcher 1965, 1985)"
            ),
            &help,
        );
    }
    if r.goal == Goal::Ssp && p > 4 {
        return no(
            format!(
                "no explicit Runge–Kutta method of order {p} preserves strong stability (Ruuth & Spiteri 2002)"
            ),
            "take an order up to 4",
        );
    }
    if r.goal == Goal::Ssp && (s, p) == (4, 4) {
        return no(
            "no explicit method of 4 stages and order 4 preserves strong stability (Gottlieb & Shu 1998)".into(),
            "take --stages 5",
        );
    }
    if p > MAX_ORDER {
        return no(
            format!(
                "orders above {MAX_ORDER} are not searched: their conditions are not linear in the last rows"
            ),
            "`odec methods` lists methods of orders up to 12",
        );
    }
    if s > MAX_STAGES {
        return no(
            format!("more than {MAX_STAGES} stages are not searched"),
            "rkc2, rkl2 and ssp104 of the library take more",
        );
    }
    Ok(())
}

pub(super) fn value(goal: Goal, family: &Explicit, m: &Coefficients<f64>) -> f64 {
    match goal {
        Goal::ErrorBound => bound(family, m),
        Goal::Area => area(&stability(m)),
        _ => family.error(m),
    }
}

fn bound(family: &Explicit, m: &Coefficients<f64>) -> f64 {
    family.terms(m).iter().map(|(off, by)| off.abs() * by).sum()
}

pub(super) fn floats(t: &Tableau) -> Coefficients<f64> {
    let row = |r: &Vec<Exact>| r.iter().map(Exact::to_f64).collect();
    Coefficients {
        a: t.a.iter().map(row).collect(),
        b: row(&t.b),
        c: row(&t.nodes()),
    }
}

/// Coefficients of the stability polynomial after those of the order: the level is as large as it can be, and they are fractions.
pub(super) fn polynomial(r: &Request, goal: Goal) -> Result<(Vec<Exact>, f64), Refused> {
    let (s, p) = (r.stages, r.order);
    let factorial = |k: usize| (1..=k).map(|n| n as f64).product::<f64>();
    let whole = |g: &[f64]| -> Vec<f64> {
        let known = (0..=p).map(|k| 1.0 / factorial(k));
        let own = g.iter().enumerate();
        known
            .chain(own.map(|(n, g)| g / factorial(p + 1 + n)))
            .collect()
    };
    let n = s - p;
    let mut best: Option<(Vec<f64>, f64)> = None;
    for start in 0..FEW_STARTS {
        let g: Vec<f64> = spread(start, n).iter().map(|x| 1.1 * x).collect();
        let (g, level) = match goal {
            Goal::Area => widest(&g, &whole),
            _ => longest(goal, p, &g, &whole),
        };
        if best.as_ref().is_none_or(|b| level > b.1) {
            best = Some((g, level));
        }
    }
    let (best, level) = best.ok_or(Refused::NotFound)?;
    // A little inside, where rounding leaves what touches the bound below it.
    let inner = |share: f64| {
        let level = level * (1.0 - share);
        let margin = |g: &[f64]| {
            let slack = goal.bounded(&whole(g), p, level);
            slack.into_iter().fold(f64::INFINITY, f64::min)
        };
        let objective = |y: &[f64]| -y[n];
        let slack = |y: &[f64]| {
            let slack = goal.bounded(&whole(&y[..n]), p, level);
            slack.into_iter().map(|s| s - y[n]).collect()
        };
        let problem = Problem {
            objective: &objective,
            slack: &slack,
        };
        let mut y = best.clone();
        y.push(margin(&best));
        let mut y = problem.solve(&y, &vec![0.01; n + 1], EVALUATIONS);
        y.truncate(n);
        y
    };
    let scaled = |g: &[Exact]| -> Vec<Exact> {
        let over = |k: usize| Exact::ratio(1, factorial(k) as i64);
        let own = g.iter().enumerate();
        own.map(|(n, g)| g * &over(p + 1 + n)).collect()
    };
    let good = |g: &[Exact]| {
        let own = scaled(g);
        let known = (0..=p).map(|k| Exact::ratio(1, factorial(k) as i64));
        let numerator = Poly::new(known.chain(own.iter().cloned()).collect());
        if numerator.degree() != s {
            return None;
        }
        let found = match goal {
            Goal::Area => area(&numerator.0.iter().map(Exact::to_f64).collect::<Vec<_>>()),
            _ => {
                let all = Stability::of(StabilityFunction {
                    numerator,
                    denominator: Poly::constant(Exact::one()),
                });
                goal.of_stability(&all)?.float()
            }
        };
        Some((own, found))
    };
    let keeps = |share: f64| {
        move |g: &[Exact]| good(g).filter(|(_, found)| *found >= level * (1.0 - share))
    };
    let simple = rounded(&best, keeps(r.loss));
    if goal == Goal::Area {
        return simple.ok_or(Refused::NotFound);
    }
    let mut inside = MARGINS.iter().map(|by| by * r.loss);
    let inside = || inside.find_map(|share| rounded(&inner(share), keeps(2.0 * share)));
    simple.or_else(inside).ok_or(Refused::NotFound)
}

/// Coefficients with which a goal on an axis is as large as it can be.
fn longest(goal: Goal, p: usize, g: &[f64], whole: &dyn Fn(&[f64]) -> Vec<f64>) -> (Vec<f64>, f64) {
    let n = g.len();
    let objective = |y: &[f64]| -y[n];
    let slack = |y: &[f64]| goal.bounded(&whole(&y[..n]), p, y[n]);
    let problem = Problem {
        objective: &objective,
        slack: &slack,
    };
    let mut y = g.to_vec();
    y.push(0.5);
    for round in 0..ROUNDS {
        let size = 0.2 * 0.1f64.powi(round as i32);
        let mut step = vec![size; n];
        step.push(size * y[n].max(0.5));
        y = problem.solve(&y, &step, 2 * EVALUATIONS);
    }
    let level = match problem.violation(&y) < NEARLY {
        true => y[n],
        false => level_of(goal, &whole(&y[..n]), p),
    };
    y.truncate(n);
    (y, level)
}

/// Coefficients with which the region of stability is largest.
fn widest(g: &[f64], whole: &dyn Fn(&[f64]) -> Vec<f64>) -> (Vec<f64>, f64) {
    let objective = |g: &[f64]| -area(&whole(g));
    let problem = Problem {
        objective: &objective,
        slack: &|_| Vec::new(),
    };
    let near = problem.solve(g, &vec![0.2; g.len()], AREAS);
    let best = problem.solve(&near, &vec![0.01; g.len()], AREAS);
    let area = area(&whole(&best));
    (best, area)
}

/// The best of the local optima from all starts.
fn best(family: &Explicit, task: Task, tell: &mut dyn FnMut(&str)) -> Result<Local, Refused> {
    let mut best: Option<Local> = None;
    let starts = starts(family, task);
    let count = starts.len();
    for (n, start) in starts.iter().enumerate() {
        tell(&format!("start {} of {count}", n + 1));
        let found = local(family, task, start, EVALUATIONS);
        if let Some(found) = found
            && best.as_ref().is_none_or(|b| found.value < b.value)
        {
            best = Some(found);
        }
    }
    best.ok_or(Refused::NotFound)
}

/// Of strong stability the methods of the order that have most of it, among many: from elsewhere a search hardly gets to where nothing is negative.
fn starts(family: &Explicit, task: Task) -> Vec<Vec<f64>> {
    if !matches!(task, Task::Most(Goal::Ssp)) {
        return (0..STARTS).map(|n| start(family, n)).collect();
    }
    let all = Curved::with_zeros(family);
    let methods = all.solutions(SOLUTIONS).into_iter().map(|x| all.method(&x));
    let mut methods: Vec<(f64, Vec<f64>)> = methods
        .map(|m| (missing(family, task, &m), family.point(&m)))
        .collect();
    methods.sort_by(|a, b| a.0.total_cmp(&b.0));
    methods.into_iter().take(STARTS).map(|(_, x)| x).collect()
}

/// Nodes between 0 and 1, positive weights and entries: nothing special.
fn start(family: &Explicit, n: usize) -> Vec<f64> {
    let s = family.stages;
    let unit = spread(n, family.variables());
    let mut x: Vec<f64> = unit.iter().map(|u| 0.1 + 0.8 * u).collect();
    for b in &mut x[s - 1..2 * s - 1] {
        *b *= 2.0 / s as f64;
    }
    let mut at = 2 * s - 1;
    for i in 2..s {
        for a in &mut x[at..at + i - 1] {
            *a *= 1.0 / i as f64;
        }
        at += i - 1;
    }
    x
}

fn local(family: &Explicit, task: Task, x: &[f64], evaluations: usize) -> Option<Local> {
    let mut found: Option<Local> = None;
    let mut x = x.to_vec();
    for round in 0..ROUNDS {
        let next = within_chart(family, task, &x, found.as_ref(), round, evaluations)?;
        let before = found.as_ref().map_or(f64::INFINITY, |f| f.value);
        x.clone_from(&next.x);
        if next.value < before {
            found = Some(next);
        }
        if found.as_ref().is_some_and(|f| before - f.value < 1e-10) {
            break;
        }
    }
    found.filter(|f| f.value.is_finite())
}

fn within_chart(
    family: &Explicit,
    task: Task,
    x: &[f64],
    before: Option<&Local>,
    round: usize,
    evaluations: usize,
) -> Option<Local> {
    let chart = family.chart(x)?;
    let free = family.free(&chart);
    let method = |y: &[f64]| family.method(&chart, &placed(x, &free, y));
    let y: Vec<f64> = free.iter().map(|v| x[*v]).collect();
    let level = match (task, before) {
        (_, Some(before)) => -before.value,
        (Task::Most(_), None) => -missing(family, task, &method(&y)?),
        _ => 0.0,
    };
    let size = 0.1 * 0.1f64.powi(round as i32);
    let (y, value) = optimum(family, task, &method, &y, level, size, evaluations)?;
    Some(Local {
        x: family.point(&method(&y)?),
        value,
    })
}

/// The numbers near some with which a method is best, and what was to be made small.
pub(super) fn optimum(
    family: &Explicit,
    task: Task,
    method: &dyn Fn(&[f64]) -> Option<Coefficients<f64>>,
    y: &[f64],
    level: f64,
    size: f64,
    evaluations: usize,
) -> Option<(Vec<f64>, f64)> {
    let n = y.len();
    let mut y = y.to_vec();
    let m = method(&y)?;
    if matches!(task, Task::Most(_)) {
        y.push(level);
    }
    let objective = |y: &[f64]| match task {
        Task::Most(_) => -y[n],
        _ => method(&y[..n]).map_or(f64::INFINITY, |m| missing(family, task, &m)),
    };
    let width = match task {
        Task::Most(goal) | Task::ErrorAt(goal, _) => goal.slack(&m, family.order, 0.1).len(),
        Task::Error | Task::ErrorBound => 0,
    };
    let slack = |y: &[f64]| {
        let Some(m) = method(&y[..n]) else {
            return vec![f64::NEG_INFINITY; width];
        };
        match task {
            Task::Most(goal) => goal.slack(&m, family.order, y[n]),
            Task::ErrorAt(goal, level) => goal.slack(&m, family.order, level),
            Task::Error | Task::ErrorBound => Vec::new(),
        }
    };
    let problem = Problem {
        objective: &objective,
        slack: &slack,
    };
    let mut y = problem.solve(&y, &vec![size; y.len()], evaluations);
    let value = match problem.violation(&y) < TOUCH {
        true => objective(&y),
        false => f64::INFINITY,
    };
    y.truncate(n);
    Some((y, value))
}

/// What a method is to have as little as possible of.
pub(super) fn missing(family: &Explicit, task: Task, m: &Coefficients<f64>) -> f64 {
    match task {
        Task::Most(goal) => -reached(goal, m, family.order),
        Task::ErrorBound => bound(family, m),
        Task::Error | Task::ErrorAt(..) => family.error(m),
    }
}

/// How much a method has of a goal, in floats.
fn reached(goal: Goal, m: &Coefficients<f64>, order: usize) -> f64 {
    match goal {
        Goal::Area => area(&stability(m)),
        _ => first_missing(m.b.len(), |level| goal.slack(m, order, level)),
    }
}

fn placed<N: Clone>(x: &[N], free: &[usize], y: &[N]) -> Vec<N> {
    let mut x = x.to_vec();
    for (v, y) in free.iter().zip(y) {
        x[*v] = y.clone();
    }
    x
}

/// The method with fractions near a local optimum that loses no more than is allowed.
fn exact(
    family: &Explicit,
    found: &Local,
    r: &Request,
    task: Task,
) -> Option<(Tableau, Option<Level>)> {
    let chart = family.chart(&found.x)?;
    let free = family.free(&chart);
    let near: Vec<f64> = free.iter().map(|v| found.x[*v]).collect();
    let make = |fractions: &[Exact]| {
        let tableau = tableau(family, &chart, &free, fractions)?;
        let m = floats(&tableau);
        let level = r.goal.certified(&tableau);
        let good = match task {
            Task::Most(_) => level.as_ref()?.float() >= -found.value * (1.0 - r.loss),
            Task::ErrorBound => bound(family, &m) <= found.value * (1.0 + r.loss) + LITTLE,
            _ => family.error(&m) <= found.value * (1.0 + r.loss) + LITTLE,
        };
        let mut weights = Weights::new(&tableau)?;
        let mut order = || prove(&mut weights, &mut Trees::new(1), r.order, None).order;
        (good && order() == r.order).then_some((tableau, level))
    };
    rounded(&near, make)
}

fn tableau(family: &Explicit, chart: &Chart, free: &[usize], y: &[Exact]) -> Option<Tableau> {
    let x = placed(&vec![Exact::zero(); family.variables()], free, y);
    let m = family.method(chart, &x)?;
    Some(Tableau::single(m.a, m.b))
}

/// The principal error of exact coefficients.
pub fn error_of(t: &Tableau, order: usize) -> Option<f64> {
    let mut weights = Weights::new(t)?;
    Some(principal_error(&mut weights, &mut Trees::new(1), order)?.1)
}

/// The least errors with less of the goal; of the best error, with more of something else.
fn trade(
    family: &Explicit,
    r: &Request,
    found: &Local,
    wanted: Option<f64>,
    tell: &mut dyn FnMut(&str),
) -> (Goal, Vec<Traded>) {
    let against = match r.goal {
        goal if !goal.is_error() => goal,
        _ if r.stages > r.order => Goal::RealAxis,
        _ => Goal::Ssp,
    };
    let best = match (against, wanted) {
        (_, None) if !r.goal.is_error() && found.value < 0.0 => Some((-found.value, found.clone())),
        (Goal::Ssp, _) if r.order < 4 => best(family, Task::Most(against), tell)
            .ok()
            .map(|l| (-l.value, l)),
        (_, Some(level)) => Some((level, found.clone())),
        (Goal::RealAxis, None) if r.stages > r.order => {
            let level = polynomial(r, against).ok().map(|(_, level)| level);
            level.map(|level| (level, found.clone()))
        }
        _ => None,
    };
    let Some((most, start)) = best else {
        return (against, Vec::new());
    };
    let mut x = start.x;
    let mut traded = Vec::new();
    for share in SHARES {
        tell(&format!("at {:.0}% of the most", share * 100.0));
        let level = share * most;
        if let Some(local) = local(family, Task::ErrorAt(against, level), &x, EVALUATIONS / 3) {
            x = local.x;
            traded.push(Traded {
                level,
                error: local.value,
            });
        }
    }
    (against, traded)
}

/// The level of a stability polynomial in floats.
fn level_of(goal: Goal, polynomial: &[f64], order: usize) -> f64 {
    let slack = |level: f64| goal.bounded(polynomial, order, level);
    first_missing(polynomial.len(), slack)
}

/// The first level where slack is missing, by bisection.
fn first_missing(stages: usize, slack: impl Fn(f64) -> Vec<f64>) -> f64 {
    let holds = |level: f64| slack(level).iter().all(|s| *s >= -TOUCH);
    let most = 2.2 * (stages * stages) as f64;
    let step = |k: usize| most * k as f64 / LEVELS as f64;
    let Some(first) = (1..=LEVELS).find(|k| !holds(step(*k))) else {
        return most;
    };
    let (mut lo, mut hi) = (step(first - 1), step(first));
    for _ in 0..50 {
        let middle = (lo + hi) / 2.0;
        match holds(middle) {
            true => lo = middle,
            false => hi = middle,
        }
    }
    lo
}
