//! Proves claims of orders: `order p` is true, or an error at its line shows the first order condition that fails.
//!
//! Takes a scheme with settings; gives what was found, and pushes messages. The claim of a splitting is about exact sub-flows. An
//! implicit tableau is taken with the iterations that are computed, or with its exact solution where it is solved to a tolerance. A
//! method with `start by` is taken with exact past values, any other history as it is computed from the first step on. The conditions are
//! in `odec-numerics`.

use super::fix_suggestion::expansion;
use super::general::general;
use super::learned::of_any_functions;
use super::opaque_field::{Settings, alone};
use super::pair::pair;
use super::rates::without_h;
use super::start::{Limited, is_started, limited, started, with_start};
use super::{blame, declared_tableau, fix_suggestion, more_iterations};
use crate::codes;
use crate::scheme::define::{Body, OrderClaim, SchemeDef};
use crate::scheme::expansion::{Expanded, MAX_CLAIM, expanded};
use crate::scheme::flow::{Flow, Method};
use crate::scheme::method::{
    DIFFERENT_POWERS, LocatedStep, Unsupported, away, located, times_differ, times_stay,
    to_tolerance,
};
use crate::scheme::per_use::SHARED;
use crate::scheme::scalar::{exact, whole};
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::diag::Diagnostic;

use odec_numerics::multistep::Multistep;
use odec_numerics::order::{Proof, Violation, Weights, prove};
use odec_numerics::{Tableau, Trees};
use odec_program::manifest::{Claim, ClaimStatus};
use std::rc::Rc;

/// Said of an order where `at:` has times that are not known to be those of the arguments.
pub const WITHOUT_TIME: &str = "for fields that do not depend on time";

/// Digits of an f64, to which papers print coefficients at most.
const MOST_DIGITS: u32 = 16;

/// A scheme as it is applied somewhere.
#[derive(Clone, Debug)]
pub struct Instance {
    pub scheme: Rc<SchemeDef>,
    pub settings: Settings,
    /// Fields of its list parameter.
    pub listed: usize,
    pub start_by: Option<Rc<Method>>,
    /// Where a model applies it.
    pub applied: Option<Span>,
}

/// Proves all claims of a scheme. The status is that of this instance.
pub fn claims(i: &Instance, sink: &mut Vec<Diagnostic>) -> Vec<Claim> {
    let all = i.scheme.claims.iter();
    let flow = || alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let mut differ = None;
    let keeps = kept_claim(i, sink);
    let mut all: Vec<Claim> = all
        .filter_map(|c| {
            let (status, note) = claim(i, c, sink)?;
            // Step programs alone have `at:`.
            let may =
                matches!(status, ClaimStatus::Proved) && matches!(i.scheme.body, Body::Step(_));
            let timeless = (may && *differ.get_or_insert_with(|| times_differ(&flow())))
                .then(|| WITHOUT_TIME.to_string());
            let notes = timeless
                .into_iter()
                .chain((!note.is_empty()).then_some(note));
            Some(Claim {
                scheme: i.scheme.name.name.clone(),
                claim: c.text.clone(),
                status,
                note: notes.collect::<Vec<_>>().join("; "),
            })
        })
        .collect();
    all.extend(keeps);
    all.extend(super::properties::claims(i, sink));
    all
}

/// That learned coefficients keep an order.
fn kept_claim(i: &Instance, sink: &mut Vec<Diagnostic>) -> Option<Claim> {
    let kept = super::keep::kept(i)?.map_err(|d| sink.push(d)).ok()?;
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let first = limited(&flow, kept.order, None).ok().flatten();
    let first = first.map(|first| exactly_started(i, &flow, &first));
    let timeless = times_stay(&flow).then(|| WITHOUT_TIME.to_string());
    let notes = [kept.dimension()].into_iter().chain(timeless).chain(first);
    Some(Claim {
        scheme: i.scheme.name.name.clone(),
        claim: format!("keep order {}", kept.order),
        status: ClaimStatus::Proved,
        note: notes.collect::<Vec<_>>().join("; "),
    })
}

fn claim(
    i: &Instance,
    c: &OrderClaim,
    sink: &mut Vec<Diagnostic>,
) -> Option<(ClaimStatus, String)> {
    let mut told = |r: Result<_, Diagnostic>| r.map_err(|d| sink.push(d)).ok();
    let scope = declared_tableau::scope(&i.scheme, &i.settings, i.listed)?;
    let order = told(whole(&c.order, &scope, 1, MAX_CLAIM))? as usize;
    let within = match &c.within {
        None => None,
        Some(e) => {
            let within = exact(e, &scope).map_err(|d| sink.push(d)).ok()?;
            if within.is_negative() {
                let message = format!("a residual is never below {within}");
                sink.push(Diagnostic::error(codes::OUT_OF_RANGE, e.span, message));
                return None;
            }
            Some(within)
        }
    };
    let unproved = |beyond: Unsupported, sink: &mut Vec<Diagnostic>| {
        let name = &i.scheme.name.name;
        let message = format!("cannot prove that `{name}` has {}: {}", c.text, beyond.why);
        let d = Diagnostic::warning(codes::UNPROVED_CLAIM, c.span, message).label("claimed here");
        let forgotten = match &i.scheme.body {
            Body::Step(step) if beyond.why == DIFFERENT_POWERS => without_h(step),
            _ => None,
        };
        sink.push(match forgotten {
            Some(rate) => d
                .also(rate, "this rate of change is added to a state")
                .help("a field is a rate of change: multiply it by the step size, `h*…`"),
            None if beyond.span == c.span => d,
            None => d.also(beyond.span, "the proof stops here"),
        });
        Some((ClaimStatus::ClaimedNotProved, beyond.why))
    };
    let flow = alone(&i.scheme, i.start_by.clone(), i.settings.clone(), i.listed);
    let made = located(&flow, Steps::Exact, &SHARED);
    let (line, mut expanded) = match made.and_then(|p| Ok((expanded(&p)?, p))) {
        Ok((e, p)) => (Some(p), e),
        // What a step keeps may depend on itself; then a starting procedure is found for it.
        Err(beyond) => match general(&flow).ok().and_then(|g| g.expanded()) {
            Some(e) => (None, e),
            // Or it keeps a velocity or a momentum.
            None => match (pair(&flow), of_any_functions(i, order)) {
                (Ok(p), _) => (None, p.expanded()),
                (Err(_), Some(note)) => return Some((ClaimStatus::Proved, note)),
                (Err(_), None) => return unproved(beyond, sink),
            },
        },
    };
    let proof = expanded.prove(order, within.as_ref());
    if proof.order < order {
        let Some(violation) = &proof.violation else {
            let why = format!(
                "there are too many trees of order {} with {} colours for a step of this length",
                proof.order + 1,
                expanded.fields.len()
            );
            let span = c.span;
            return unproved(Unsupported { span, why }, sink);
        };
        // A number that cannot be compared makes no condition false.
        if let Err(why) = violation.value.clone().checked() {
            let (span, why) = (c.span, format!("of its coefficients together: {why}"));
            return unproved(Unsupported { span, why }, sink);
        }
        let digits = rounded(&mut expanded, order);
        let found = (order, &proof, violation);
        let mut d = false_claim(
            i,
            c,
            found,
            &expanded,
            (line.as_ref(), within.as_ref(), digits),
        );
        if let (Some(digits), Some(help)) = (digits, &mut d.help) {
            *help += &format!(
                "\nall conditions of order {order} hold within 1e-{digits}: where coefficients are rounded, claim `order {order} within 1e-{digits}`"
            );
        }
        sink.push(d);
        return None;
    }
    if let Some(beyond) = away(&flow) {
        return unproved(beyond, sink);
    }
    let first = match limited(&flow, order, within.as_ref()) {
        Err(Unsupported { span, why }) => {
            let why = format!("what its first steps leave of that order is not known: {why}");
            return unproved(Unsupported { span, why }, sink);
        }
        Ok(first) => first,
    };
    if let Some(first) = first.as_ref().filter(|_| !is_started(&flow)) {
        return too_short(i, c, &flow, (order, first), sink);
    }
    if within.is_some() {
        return Some((
            ClaimStatus::Proved,
            match expanded.highest(order + 1) {
                o if o >= order => format!("order {o} holds exactly"),
                o => format!("exactly, only order {o}"),
            },
        ));
    }
    let found = expanded.highest(MAX_CLAIM as usize);
    let found = match limited(&flow, found, None) {
        Ok(first) => first.map_or(found, |l| l.order),
        Err(_) => order,
    };
    if found > order && i.applied.is_none() {
        let message = format!(
            "`{}` has order {found}, more than it claims",
            i.scheme.name.name
        );
        sink.push(
            Diagnostic::warning(codes::HIGHER_ORDER, c.span, message)
                .label(format!("`order {found}` holds too")),
        );
    }
    let note = match line.is_some_and(|p| p.has_flows()) {
        true => sub_steps(&flow, order).unwrap_or_default(),
        false => {
            let started = first.map(|first| exactly_started(i, &flow, &first));
            let solved = to_tolerance(&flow).map(|tol| format!("of the equation, solved to {tol}"));
            let notes = diverges(i, &flow).into_iter().chain(started).chain(solved);
            notes.collect::<Vec<_>>().join("; ")
        }
    };
    Some((ClaimStatus::Proved, note))
}

/// The least power of ten within which all conditions of an order hold, as its number of digits, where that is what coefficients rounded to some
/// digits leave: at most a hundredth of 1/p!, the least coefficient of the exact solution.
fn rounded(expanded: &mut Expanded, order: usize) -> Option<u32> {
    let inverse = (1..=order as u64).try_fold(1, u64::checked_mul)?;
    let fewest = 3 + inverse.ilog10();
    let mut holds = |digits: &u32| {
        let within = Exact::ratio(1, 10_i64.pow(*digits));
        expanded.prove(order, Some(&within)).order == order
    };
    let all = (fewest..=MOST_DIGITS).take_while(|digits| holds(digits));
    all.last()
}

/// A claim that needs a better start than `start by` names.
fn exactly_started(i: &Instance, flow: &Flow, first: &Limited) -> String {
    let by = started(i, flow).map(|s| format!("started by {}: ", s.sentence()));
    format!(
        "with exact starting values; order {} as computed: {}{}",
        first.order,
        by.unwrap_or_default(),
        first.sentence()
    )
}

/// A claim that does not hold for the steps as they are computed, because the first ones read what is not there.
fn too_short(
    i: &Instance,
    c: &OrderClaim,
    flow: &Flow,
    (order, first): (usize, &Limited),
    sink: &mut Vec<Diagnostic>,
) -> Option<(ClaimStatus, String)> {
    let name = &i.scheme.name.name;
    let place = i.applied.unwrap_or(c.span);
    if !first.exactly {
        let why = first.sentence();
        let message = format!("cannot prove that `{name}` has {}: {why}", c.text);
        let d = Diagnostic::warning(codes::UNPROVED_CLAIM, c.span, message).label("claimed here");
        sink.push(with_start(d, flow, first, order));
        return Some((ClaimStatus::ClaimedNotProved, why));
    }
    let message = format!(
        "`{name}` has order {} as it is computed, not {order}",
        first.order
    );
    let d = Diagnostic::error(codes::FALSE_ORDER, place, message);
    let d = match i.applied {
        None => d.label("this claim is false"),
        Some(_) => d
            .label("applied here")
            .also(c.span, "this claim does not hold"),
    };
    sink.push(match diverges(i, flow) {
        Some(_) => d.help(format!(
            "with exact starting values it has order {order}, but it is not zero-stable: it converges from no start"
        )),
        None => with_start(d, flow, first, order),
    });
    None
}

/// A method of any order whose errors grow from step to step (Dahlquist 1956).
fn diverges(i: &Instance, flow: &Flow) -> Option<String> {
    let stable = match declared_tableau::multistep(&i.scheme, &i.settings) {
        Some((alpha, beta)) => Multistep { alpha, beta }.zero_stable()?,
        None if i.scheme.history.past.is_empty() => return None,
        None => general(flow).ok()?.glm.zero_stable()?.0,
    };
    (!stable).then(|| "but not zero-stable: it does not converge".to_string())
}

/// What Euler sub-steps make of a splitting's order.
fn sub_steps(flow: &Flow, order: usize) -> Option<String> {
    let p = located(flow, Steps::Euler, &SHARED).ok()?;
    let mut e = expanded(&p).ok()?;
    let proof = e.prove(order, None);
    let violation = proof.violation.as_ref()?;
    Some(format!(
        "with Euler sub-steps order {}: {}",
        proof.order,
        e.brief(violation)
    ))
}

fn false_claim(
    i: &Instance,
    c: &OrderClaim,
    (order, proof, violation): (usize, &Proof, &Violation),
    expanded: &Expanded,
    (line, within, digits): (Option<&LocatedStep>, Option<&Exact>, Option<u32>),
) -> Diagnostic {
    let name = &i.scheme.name.name;
    let shown: Vec<String> = i
        .settings
        .iter()
        .map(|(n, v)| format!("{n}: {v}"))
        .collect();
    let with = match shown.is_empty() {
        true => String::new(),
        false => format!(" with {}", shown.join(", ")),
    };
    let message = format!("`{name}`{with} has order {}, not {order}", proof.order);
    let mut d = match i.applied {
        None => Diagnostic::error(codes::FALSE_ORDER, c.span, message).label("this claim is false"),
        Some(applied) => Diagnostic::error(codes::FALSE_ORDER, applied, message)
            .label("applied here")
            .also(c.span, "this claim does not hold"),
    };
    let mut help = expanded.shown(violation);
    let iterated = iterated_more(i, order, within, digits.is_some());
    let mended = match (&i.scheme.body, line) {
        _ if iterated.is_some() => iterated,
        (_, None) => None,
        (Body::Tableau(t), Some(line)) => {
            let row = |stage: Option<usize>| {
                let mut rows = t.rows.iter();
                let row = match stage {
                    Some(n) => rows.filter(|r| r.c.is_some()).nth(n),
                    None => rows.find(|r| r.c.is_none()),
                };
                row.map_or(t.span, |r| r.span)
            };
            let written =
                declared_tableau::tableau(&i.scheme, &i.settings).filter(|t| !t.is_explicit());
            if written
                .as_ref()
                .is_some_and(|t| exact_order(t, order) == order)
            {
                help +=
                    "\nwith stages solved exactly the scheme has this order: take more iterations";
                None
            } else {
                let found = written.or_else(|| line.tableau().ok());
                let found = found.and_then(|t| blame::row(&t, order, false));
                found.map(|f| (row(f.stage), "check this row", f.sentence()))
            }
        }
        (Body::Step(step), Some(line)) => {
            let evaluation = || {
                let found = blame::row(&line.tableau().ok()?, order, true)?;
                let place = found.stage.and_then(|n| line.stages().get(n).copied());
                let place = place.unwrap_or(step.span);
                Some((place, "check this evaluation", found.of_evaluations()))
            };
            let here = |m: fix_suggestion::Fix| (m.span, "check this", m.sentence);
            let mut trees = Trees::new(expanded.fields.len()).linear(line.line.linear());
            while trees.orders() <= proof.order && trees.grow() {}
            fix_suggestion::step(i, step, order, (trees.len(), line))
                .map(here)
                .or_else(evaluation)
        }
        (Body::Splitting(_), Some(line)) => {
            let here = |m: fix_suggestion::Fix| (m.span, "check this", m.sentence);
            fix_suggestion::splitting(line, order, expanded.trees.len()).map(here)
        }
        (Body::Multistep(_) | Body::LearnedFrom(_) | Body::Method(_) | Body::Algebra(_), _) => None,
    };
    if let Some((place, label, sentence)) = mended {
        d = d.also(place, label);
        help += &format!("\n{sentence}");
    }
    d.help(help)
}

/// The place of a number of iterations, and what would be true with more of them. `is_rounded`: the order is known to hold but for rounding.
fn iterated_more(
    i: &Instance,
    order: usize,
    within: Option<&Exact>,
    is_rounded: bool,
) -> Option<(Span, &'static str, String)> {
    let said = |found: more_iterations::Enough, what: &str| {
        let sentence = format!("with `{}` {what}", found.shown);
        Some((found.span, "iterated so often", sentence))
    };
    if let Some(found) = more_iterations::more(i, order, within) {
        return said(found, "the scheme has this order: take more iterations");
    }
    if is_rounded {
        return None;
    }
    // Coefficients may be rounded, too.
    let mut most = expansion(&more_iterations::most(i, order)?)?;
    let digits = rounded(&mut most, order)?;
    let within = Exact::ratio(1, 10_i64.pow(digits));
    let found = more_iterations::more(i, order, Some(&within))?;
    let claim = format!(
        "all conditions of order {order} hold within 1e-{digits}: take more iterations, and claim `order {order} within 1e-{digits}`"
    );
    said(found, &claim)
}

/// The order of a tableau, up to some order.
fn exact_order(t: &Tableau, up_to: usize) -> usize {
    let mut trees = Trees::new(t.fields.len());
    let weights = Weights::new(t);
    weights.map_or(0, |mut w| prove(&mut w, &mut trees, up_to, None).order)
}
