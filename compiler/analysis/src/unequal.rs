//! Methods with a history on unequal steps: the order that they have on the grid of an evolve.
//!
//! Takes the step sizes; gives the lowest order of any step, with exact past values, and how perturbations grow. Learned sizes are
//! variables, and the conditions polynomials in them. `scheme/multistep.rs` computes the coefficients of a grid.

use super::declared_tableau;
use super::opaque_field::{Settings, opaque, settings};
use super::report::{Evolved, Found, found, steps_of};
use crate::codes;
use crate::scheme::Coeff;
use crate::scheme::expansion::expanded;
use crate::scheme::flow::Flow;
use crate::scheme::method::{
    LocatedStep, Unsupported, at_start, late, located, located_in, located_on, short_steps,
};
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;
use odec_numerics::Trees;
use odec_numerics::jet::{Jet, Space};
use odec_numerics::multistep::Multistep;
use odec_numerics::order::expected;
use odec_numerics::series::{Number, Series};
use odec_numerics::variable::{Family, bdf2_is_stable, growth, points};
use odec_text::number::number;
use std::collections::BTreeSet;
use std::ops::Range;

/// The largest number of different sequences of sizes in a history.
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

/// What is known about a method with a history on unequal steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Unequal {
    /// The order that it has on equal steps.
    pub equal: Option<usize>,
    pub learned: bool,
    /// The smallest and the largest step, each over the one before it; `None`: they are learned, or have no exact quotients.
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
            _ if self.learned => "learned, so they differ (shown for steps that halve)".to_string(),
            Some([least, most]) => format!(
                "unequal, each {} to {} times as long as the one before",
                number(least),
                number(most)
            ),
            None => "unequal".to_string(),
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

    /// `on unequal steps`, `on unequal steps, 2 on equal steps`.
    pub fn brief(&self, order: usize) -> String {
        match self.equal {
            Some(equal) if equal != order => format!("on unequal steps, {equal} on equal steps"),
            _ => "on unequal steps".to_string(),
        }
    }
}

impl Growth {
    /// `yes, however many such steps; …`, `not decided; a perturbation grows to 3.1 times its size over these steps`.
    pub fn sentence(&self) -> String {
        let long = match self.bounded {
            Some(true) => "yes, for any number of steps with such ratios",
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

/// What is known of an evolve, and the order that it has there; `None`: steps are equal, or it has no history.
pub fn unequal(
    e: &Evolved,
    equal: &Result<Found, Unsupported>,
) -> Option<(Unequal, Result<Found, Unsupported>)> {
    if e.sizes == Sizes::Equal || e.flow.scheme.history.past.is_empty() {
        return None;
    }
    let flow = opaque(&e.flow, e.step);
    let set = settings(&e.flow.settings, e.step);
    let equal = equal.as_ref().map_err(Clone::clone);
    let order = equal.clone().and_then(|f| match &e.sizes {
        Sizes::Known(sizes) => known(e, &flow, sizes, f),
        _ => learned(e, &flow, f),
    });
    let grid: &[Exact] = match &e.sizes {
        Sizes::Known(sizes) => sizes,
        _ => &[],
    };
    let ratios = ratios(grid);
    let rows = rows(e, &set);
    let family = rows.as_ref().and_then(|m| m.family());
    let family = family.filter(|_| e.flow.scheme.learned.is_none() && !grid.is_empty());
    let about = Unequal {
        equal: equal.ok().map(|f| f.order),
        learned: e.sizes == Sizes::Learned,
        fitted: family
            .zip(rows.as_ref())
            .is_some_and(|(f, m)| late_steps(m, grid).all(|k| on_grid(f, m, grid, k).is_some())),
        growth: rows.map(|m| followed(&m, family, grid, ratios.as_ref())),
        ratios,
    };
    Some((about, order))
}

/// The rows of a multistep method.
fn rows(e: &Evolved, set: &Settings) -> Option<Multistep> {
    let (alpha, beta) = declared_tableau::multistep(&e.flow.scheme, set)?;
    Some(Multistep { alpha, beta })
}

/// The steps that such a method takes itself.
fn late_steps(m: &Multistep, sizes: &[Exact]) -> Range<usize> {
    m.alpha.len() - 2..sizes.len()
}

/// The rows of one of them.
fn on_grid(family: Family, m: &Multistep, sizes: &[Exact], k: usize) -> Option<Multistep> {
    let back = m.alpha.len() - 1;
    let sizes: Vec<Exact> = sizes[k + 1 - back..=k].iter().rev().cloned().collect();
    family.on(&points(&sizes)?)
}

fn ratios(sizes: &[Exact]) -> Option<[Exact; 2]> {
    let each = sizes.windows(2).map(|h| Some(&h[1] * &h[0].recip().ok()?));
    let each: Vec<Exact> = each.collect::<Option<_>>()?;
    Some([each.iter().min()?.clone(), each.iter().max()?.clone()])
}

/// The lowest order of all steps that find the history they read.
fn known(e: &Evolved, flow: &Flow, sizes: &[Exact], equal: &Found) -> Result<Found, Unsupported> {
    let late = placed_late(e, flow)?;
    let (reach, first) = (late.reach as usize, short_steps(flow));
    let mut seen: BTreeSet<Vec<Exact>> = BTreeSet::new();
    let mut lowest: Option<Found> = None;
    for k in first..sizes.len() {
        let Ok(own) = sizes[k].recip() else {
            return beyond(flow, "its steps have sizes without exact quotients");
        };
        let window = sizes[k.saturating_sub(reach)..k].iter().rev();
        if !seen.insert(window.map(|h| h * &own).collect()) {
            continue;
        }
        if seen.len() > MAX_WINDOWS {
            return beyond(flow, "its steps have too many different sizes");
        }
        let Some(located) = located_in(flow, k, sizes, &e.per_use)? else {
            return beyond(flow, "its first steps have no history on this grid");
        };
        let here = found(&mut expanded(&located)?, equal.within.as_ref());
        if lowest.as_ref().is_none_or(|l| here.order < l.order) {
            lowest = Some(here);
        }
    }
    Ok(lowest.unwrap_or_else(|| equal.clone()))
}

fn beyond<T>(flow: &Flow, why: &str) -> Result<T, Unsupported> {
    Err(Unsupported::at(flow.scheme.name.span, why))
}

/// On equal steps.
fn placed_late(e: &Evolved, flow: &Flow) -> Result<LocatedStep, Unsupported> {
    let made = located(flow, Steps::Euler, &e.per_use);
    made.or_else(|_| {
        beyond(
            flow,
            "what it keeps depends on all earlier steps, whose sizes differ",
        )
    })
}

/// The order for all sizes, as polynomials in the ratios of earlier steps to the one at hand.
fn learned(e: &Evolved, flow: &Flow, equal: &Found) -> Result<Found, Unsupported> {
    placed_late(e, flow)?;
    let program = late(flow, Steps::Euler, &e.per_use)?.here;
    let space = Space::new(DEGREE, WORK);
    let start = |c: &Coeff, _| at_start(&program, c).map(|c| Jet::constant(&c));
    let ratio = |ago: i64| match ago {
        0 => Jet::constant(&Exact::one()),
        _ => Jet::variable(ago as u32, &Exact::zero(), &space),
    };
    let line = located_on(flow, &program, &e.per_use, &start, &ratio)?.line;
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
    let mut trees = Trees::new(line.fields.len())
        .linear(line.linear())
        .for_values(line.steps.len());
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
    // A condition of the next order, where the steps do differ.
    found.limit = halving(e, flow)
        .filter(|f| f.order == found.order)
        .and_then(|f| f.limit);
    Ok(found)
}

/// The order where each step is half as long as the one before it.
fn halving(e: &Evolved, flow: &Flow) -> Option<Found> {
    let program = late(flow, Steps::Euler, &e.per_use).ok()?.here;
    let start = |c: &Coeff, _| at_start(&program, c);
    let ratio = |ago: i64| (0..ago).fold(Exact::one(), |h, _| &h + &h);
    let located = located_on(flow, &program, &e.per_use, &start, &ratio).ok()?;
    Some(found(&mut expanded(&located).ok()?, None))
}

/// How perturbations grow; where sizes are learned, rows are the same in all steps.
fn followed(
    m: &Multistep,
    family: Option<Family>,
    sizes: &[Exact],
    ratios: Option<&[Exact; 2]>,
) -> Growth {
    let row = |k: usize| {
        let fitted = family.and_then(|f| on_grid(f, m, sizes, k));
        fitted.map_or_else(|| scaled(&m.alpha), |m| m.alpha)
    };
    let few = (1..=MAX_FOLLOWED).contains(&sizes.len());
    let bounded = match (family, m.alpha.len()) {
        // The roots of ρ are those on equal steps.
        (None | Some(Family::Quadrature { .. }), _) => m.zero_stable(),
        (Some(Family::Differentiation { at: 0 }), 3) => ratios
            .filter(|[least, most]| *least > Exact::zero() && bdf2_is_stable(most))
            .map(|_| true),
        _ => None,
    };
    Growth {
        largest: few.then(|| growth(&late_steps(m, sizes).map(row).collect::<Vec<_>>())),
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
            "the order of `{name}` on these steps is not known: {}",
            beyond.why
        ),
    };
    let label = match &about.ratios {
        _ if about.learned => "each step size is trained, so the steps differ".to_string(),
        Some([least, most]) => {
            let [least, most] = [least, most].map(number);
            format!("a step is {least} to {most} times as long as the one before it")
        }
        None => "steps are not equal".to_string(),
    };
    let help = match (about.learned, &e.flow.scheme.learned) {
        (true, _) => {
            "`learn shared h` keeps the steps equal; one-step methods keep their order on unequal steps"
        }
        _ if about.fitted => {
            "its coefficients are adapted to this grid; only equal steps give the higher order"
        }
        (_, Some(_)) => {
            "learned rows are not adapted to the grid: take equal steps, or the method that they start from"
        }
        _ => {
            "take equal steps or a one-step method; odec adapts Adams methods and backward differentiation formulas to the grid where they are written as `multistep { … }`"
        }
    };
    let d = Diagnostic::warning(codes::UNEQUAL_STEPS, at, has).label(label);
    Some(
        d.also(e.flow.span, "this scheme reads values of earlier steps")
            .help(help),
    )
}
