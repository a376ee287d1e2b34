//! Methods that look back, in an evolve whose steps are not equal: the order that they have on its grid.
//!
//! Takes the sizes of the steps; gives the lowest order of any step, with exact past values, and how perturbations grow. Where sizes are learned
//! they are variables, and the conditions polynomials in them. Leaves the coefficients of a grid to `scheme/multistep.rs`.

use super::claims::expanded;
use super::line::{Beyond, Placed, at_start, late, placed, placed_in, placed_on, short_steps};
use super::number::number;
use super::report::{Evolved, Found, found, steps_of};
use super::stand_in::{Settings, opaque, settings};
use super::written;
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::flow::Flow;
use crate::scheme::stage::Steps;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_numerics::Trees;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::multistep::Multistep;
use odec_numerics::order::expected;
use odec_numerics::series::{Number, Series};
use odec_numerics::variable::{Family, bdf2_is_stable, growth, points};
use std::collections::BTreeSet;

/// Most different sequences of sizes that a step may look back at.
const MAX_WINDOWS: usize = 1024;
/// Most steps over which perturbations are followed.
const MAX_FOLLOWED: usize = 512;
/// Highest degree of a condition in the sizes, and most products of terms.
const DEGREE: usize = 64;
const WORK: usize = 2_000_000;

/// The sizes of an evolve's steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    Equal,
    Known(Vec<Exact>),
    /// One for each step.
    Learned,
}

/// What is known of a method that looks back where steps are not equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Unequal {
    /// The order that it has on equal steps.
    pub equal: Option<usize>,
    /// The smallest and the largest step, each over the one before it; `None`: they are learned.
    pub ratios: Option<[Exact; 2]>,
    /// The coefficients are those of the grid.
    pub fitted: bool,
    /// Of a multistep method.
    pub growth: Option<Growth>,
}

/// What becomes of perturbations, where f is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Growth {
    /// How many times larger they get at most; `None`: there are too many steps.
    pub largest: Option<f64>,
    /// Whether a bound of the ratios is known, below which they stay bounded however many steps there are, and these are below it.
    pub bounded: Option<bool>,
}

impl Unequal {
    /// `unequal, each 1/2 to 6/7 of the one before; coefficients of this grid`.
    pub fn sentence(&self) -> String {
        let steps = match &self.ratios {
            Some([least, most]) => format!(
                "unequal, each {} to {} times as long as the one before",
                number(least),
                number(most)
            ),
            None => "learned, so they differ (shown for steps that halve)".to_string(),
        };
        let of = match (self.fitted, self.equal) {
            (true, _) => "coefficients are those of this grid".to_string(),
            (false, Some(p)) => {
                format!("coefficients are those of equal steps, where the order is {p}")
            }
            (false, None) => "coefficients are those of equal steps".to_string(),
        };
        format!("{steps}; {of}")
    }

    /// `on unequal steps`, `on unequal steps, 2 on equal ones`.
    pub fn brief(&self, order: usize) -> String {
        match self.equal {
            Some(equal) if equal != order => format!("on unequal steps, {equal} on equal ones"),
            _ => "on unequal steps".to_string(),
        }
    }
}

impl Growth {
    /// `yes, however many such steps; …`, `not decided; a perturbation grows to 3.1 times its size over these steps`.
    pub fn sentence(&self) -> String {
        let long = match self.bounded {
            Some(true) => "yes, however many steps have such ratios",
            Some(false) => "no",
            None => "not decided for longer evolutions",
        };
        match self.largest {
            Some(g) => format!(
                "{long}; over these steps a perturbation grows to at most {g:.2} times its size"
            ),
            None => long.to_string(),
        }
    }
}

/// What is known of an evolve, and the order that it has there; `None`: steps are equal, or it does not look back.
pub fn unequal(
    e: &Evolved,
    equal: &Result<Found, Beyond>,
) -> Option<(Unequal, Result<Found, Beyond>)> {
    if e.sizes == Sizes::Equal || e.flow.scheme.history.past.is_empty() {
        return None;
    }
    let flow = opaque(&e.flow, e.step);
    let set = settings(&e.flow.settings, e.step);
    let equal = equal.as_ref().map_err(Clone::clone);
    let (order, ratios) = match &e.sizes {
        Sizes::Known(sizes) => (
            equal.clone().and_then(|f| known(e, &flow, sizes, f)),
            Some(ratios(sizes)),
        ),
        _ => (equal.clone().and_then(|f| learned(e, &flow, f)), None),
    };
    let rows = rows(e, &set);
    let family = rows.as_ref().and_then(|(m, _)| m.family());
    let about = Unequal {
        equal: equal.ok().map(|f| f.order),
        fitted: family.is_some() && rows.as_ref().is_some_and(|(_, fits)| *fits),
        growth: rows.map(|(m, fits)| followed(e, &m, family.filter(|_| fits), ratios.as_ref())),
        ratios,
    };
    Some((about, order))
}

/// The rows of a multistep method, and whether they are fitted to the grid.
fn rows(e: &Evolved, set: &Settings) -> Option<(Multistep, bool)> {
    let (alpha, beta) = written::multistep(&e.flow.scheme, set)?;
    let fits = e.flow.scheme.learned.is_none() && matches!(e.sizes, Sizes::Known(_));
    Some((Multistep { alpha, beta }, fits))
}

fn ratios(sizes: &[Exact]) -> [Exact; 2] {
    let each = sizes
        .windows(2)
        .filter_map(|h| Some(&h[1] * &h[0].recip().ok()?));
    let each: Vec<Exact> = each.collect();
    let one = Exact::one();
    let (least, most) = (each.iter().min(), each.iter().max());
    [least.unwrap_or(&one).clone(), most.unwrap_or(&one).clone()]
}

/// The lowest order of all steps that find the history they read.
fn known(e: &Evolved, flow: &Flow, sizes: &[Exact], equal: &Found) -> Result<Found, Beyond> {
    let late = placed_late(e, flow)?;
    let (reach, first) = (late.reach as usize, short_steps(flow));
    let mut seen: BTreeSet<Vec<Exact>> = BTreeSet::new();
    let mut lowest: Option<Found> = None;
    for k in first..sizes.len() {
        let Ok(own) = sizes[k].recip() else {
            continue;
        };
        let window = sizes[k.saturating_sub(reach)..k].iter().rev();
        if !seen.insert(window.map(|h| h * &own).collect()) {
            continue;
        }
        if seen.len() > MAX_WINDOWS {
            return beyond(flow, "its steps have too many different sizes");
        }
        let Some(placed) = placed_in(flow, k, sizes, &e.per_use)? else {
            return beyond(flow, "its first steps find no history on this grid");
        };
        let here = found(&mut expanded(&placed)?, equal.within.as_ref());
        if lowest.as_ref().is_none_or(|l| here.order < l.order) {
            lowest = Some(here);
        }
    }
    Ok(lowest.unwrap_or_else(|| equal.clone()))
}

fn beyond<T>(flow: &Flow, why: &str) -> Result<T, Beyond> {
    let (span, why) = (flow.scheme.name.span, why.to_string());
    Err(Beyond { span, why })
}

/// On equal steps.
fn placed_late(e: &Evolved, flow: &Flow) -> Result<Placed, Beyond> {
    let made = placed(flow, Steps::Euler, &e.per_use);
    made.or_else(|_| {
        beyond(
            flow,
            "what it keeps depends on all earlier steps, whose sizes differ",
        )
    })
}

/// The order for all sizes, as polynomials in the ratios of earlier steps to the one at hand.
fn learned(e: &Evolved, flow: &Flow, equal: &Found) -> Result<Found, Beyond> {
    placed_late(e, flow)?;
    let program = late(flow, Steps::Euler, &e.per_use)?.here;
    let space = Space::new(DEGREE, WORK);
    let start = |c: &Coeff, _| at_start(&program, c).map(|c| Jet::constant(&c));
    let ratio = |ago: i64| match ago {
        0 => Jet::constant(&Exact::one()),
        _ => Jet::variable(ago as u32, &Exact::zero(), &space),
    };
    let line = placed_on(flow, &program, &e.per_use, &start, &ratio)?.line;
    let (mut series, states) = Series::of(&line);
    if states
        .iter()
        .any(|(_, off)| off.is_lost() || !off.is_zero())
    {
        return beyond(
            flow,
            "its steps take a multiple of the old state that depends on their sizes",
        );
    }
    let mut trees = Trees::new(line.fields.len()).for_values(line.steps.len());
    let mut found = Found {
        limit: None,
        ..equal.clone()
    };
    for order in 1..=equal.order {
        if !trees.grow() {
            return beyond(flow, "there are too many trees");
        }
        for t in trees.of_order(order) {
            let off = series
                .value(&trees, t)
                .minus(&Jet::constant(&expected(&trees, t)));
            if off.is_lost() {
                return beyond(
                    flow,
                    "its conditions are too long as polynomials in the sizes of its steps",
                );
            }
            if !off.is_zero() {
                found.order = order - 1;
                found.limit = halving(e, flow)
                    .filter(|f| f.order == found.order)
                    .and_then(|f| f.limit);
                return Ok(found);
            }
        }
    }
    found.limit = equal.limit.clone();
    Ok(found)
}

/// The order where each step is half as long as the one before it.
fn halving(e: &Evolved, flow: &Flow) -> Option<Found> {
    let program = late(flow, Steps::Euler, &e.per_use).ok()?.here;
    let start = |c: &Coeff, _| at_start(&program, c);
    let ratio = |ago: i64| (0..ago).fold(Exact::one(), |h, _| &h + &h);
    let placed = placed_on(flow, &program, &e.per_use, &start, &ratio).ok()?;
    Some(found(&mut expanded(&placed).ok()?, None))
}

/// How perturbations grow; where sizes are learned, rows are the same in all steps.
fn followed(
    e: &Evolved,
    m: &Multistep,
    family: Option<Family>,
    ratios: Option<&[Exact; 2]>,
) -> Growth {
    let (back, steps) = (m.alpha.len() - 1, &e.sizes);
    let Sizes::Known(sizes) = steps else {
        return Growth {
            largest: None,
            bounded: m.zero_stable(),
        };
    };
    let row = |k: usize| {
        let points = || {
            points(
                &sizes[k + 1 - back..=k]
                    .iter()
                    .rev()
                    .cloned()
                    .collect::<Vec<_>>(),
            )
        };
        let fitted = family.and_then(|f| f.on(&points()?));
        fitted.map_or_else(|| scaled(&m.alpha), |m| m.alpha)
    };
    let few = sizes.len() <= MAX_FOLLOWED;
    let alphas: Vec<Vec<Exact>> = match few {
        true => (back - 1..sizes.len()).map(row).collect(),
        false => Vec::new(),
    };
    let bounded = match (family, back) {
        // The roots of ρ are those on equal steps.
        (None | Some(Family::Quadrature { .. }), _) => m.zero_stable(),
        (Some(Family::Differentiation { at: 0 }), 2) => ratios
            .filter(|[least, most]| *least > Exact::zero() && bdf2_is_stable(most))
            .map(|_| true),
        _ => None,
    };
    Growth {
        largest: few.then(|| growth(&alphas)),
        bounded,
    }
}

fn scaled(row: &[Exact]) -> Vec<Exact> {
    match row[0].recip() {
        Ok(over) => row.iter().map(|a| a * &over).collect(),
        Err(_) => row.to_vec(),
    }
}

/// Says that an evolve has a lower order than its scheme claims, because its steps are not equal. `at`: where their sizes are written.
pub fn warning(e: &Evolved, at: Span) -> Option<Diagnostic> {
    let (order, about) = steps_of(e);
    let about = about?;
    let name = &e.flow.scheme.name.name;
    let equal = about.equal?;
    let has = match order {
        Ok(found) if found.order >= equal => return None,
        Ok(found) => format!(
            "`{name}` has order {} on these steps, not {equal} as on equal ones",
            found.order
        ),
        Err(beyond) => format!(
            "what order `{name}` has on these steps is not known: {}",
            beyond.why
        ),
    };
    let label = match &about.ratios {
        Some([least, most]) => {
            format!("a step is {least} to {most} times as long as the one before it")
        }
        None => "training makes the steps different".to_string(),
    };
    let help = match (&about.ratios, &e.flow.scheme.learned) {
        (None, _) => {
            "`learn shared h` keeps steps equal; a method of one step keeps its order with any"
        }
        (_, Some(_)) => {
            "learned rows stay as they are on every grid; take equal steps, or the method that they are learned from"
        }
        _ => {
            "take equal steps or a method of one step; Adams methods and backward differentiation formulas that are written as `multistep { … }` get the coefficients of the grid"
        }
    };
    let d = Diagnostic::warning(codes::UNEQUAL_STEPS, at, has).label(label);
    Some(
        d.also(e.flow.span, "it looks back at earlier steps")
            .help(help),
    )
}
