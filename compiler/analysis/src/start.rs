//! How first steps without a full history are taken, and how they limit the order.
//!
//! A step of order q has a local error of order q + 1, so a fixed number of them leaves an error of that order at the end
//! (Hairer, Nørsett & Wanner 1993, III.4). The first steps are expanded as they are computed, with zeros, entries of `start`, or another
//! scheme where values are not there yet, and compared with what an exact starting procedure gives. Takes a flow; gives the order
//! that is left, and why, in words. Leaves the comparison to `odec-numerics`.

use super::claims::Instance;
use super::general::{General, general, of_program};
use super::opaque_field::{alone, settings};
use super::pair::pair;
use super::pair_start;
use crate::scheme::define::{Body, SchemeDef};
use crate::scheme::expansion::{MAX_CLAIM, expanded};
use crate::scheme::flow::{Flow, Method};
use crate::scheme::method::{Unsupported, first_programs, first_steps, located, short_steps};
use crate::scheme::multistep::starter;
use crate::scheme::per_use::SHARED;
use crate::scheme::resolve::count;
use crate::scheme::stage::Steps;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Stmt};
use odec_grammar::diag::Diagnostic;
use odec_numerics::Trees;
use odec_numerics::draw;
use odec_numerics::glm::first::{Missed, Why, missed};
use std::rc::Rc;

/// What `start by` does.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub by: String,
    pub order: usize,
    /// How many steps it takes.
    pub steps: usize,
}

/// The start of a scheme, on a flow of it; `None`: it has none, no step is left to it, or nothing is known of its order.
pub fn started(i: &Instance, flow: &Flow) -> Option<Started> {
    let method = i.start_by.as_ref()?;
    let steps = short_steps(flow);
    if steps == 0 {
        return None;
    }
    Some(Started {
        by: method.scheme.name.name.clone(),
        order: order_of(method).ok()?,
        steps,
    })
}

/// Whether another scheme takes first steps of a flow.
pub fn is_started(flow: &Flow) -> bool {
    flow.start_by.is_some() && short_steps(flow) > 0
}

impl Started {
    /// `rk4, of order 4, for 3 steps`.
    pub fn sentence(&self) -> String {
        let steps = count(self.steps, "step");
        format!("{}, of order {}, for {steps}", self.by, self.order)
    }
}

/// What the first steps leave of an order.
#[derive(Clone, Debug, PartialEq)]
pub struct Limited {
    pub order: usize,
    /// Whether the order is not higher.
    pub exactly: bool,
    /// How many steps are computed otherwise than later ones.
    pub steps: usize,
    /// What is wrong after them: "`x` has 3/2 of F, exact 1".
    pub what: String,
}

impl Limited {
    /// `the first step limits the global order to 1: after it, x has 3/2 of F, exact 1`.
    pub fn sentence(&self) -> String {
        let (first, after) = match self.steps {
            0 => ("the start limits".to_string(), "it"),
            1 => ("the first step limits".to_string(), "it"),
            n => (format!("the first {n} steps limit"), "them"),
        };
        let (order, what) = (self.order, &self.what);
        format!("{first} the global order to {order}: after {after}, {what}")
    }
}

/// What the first steps leave of an order, where that is less; `Err`: nothing is known. `within`: what a coefficient may be off.
pub fn limited(
    flow: &Flow,
    order: usize,
    within: Option<&Exact>,
) -> Result<Option<Limited>, Unsupported> {
    if !flow.scheme.looks_back() {
        return Ok(None);
    }
    if let Some(found) = pair_start::of_flow(flow, order) {
        return found;
    }
    let found = expanded_from_the_start(flow, order, within);
    // A multistep method keeps states and rates at states: they are as good as the scheme that takes the first steps.
    match (&flow.scheme.body, &flow.start_by) {
        (Body::Multistep(m), Some(method)) if found.is_err() => {
            let (order_of, steps) = (order_of(method)?, m.steps().saturating_sub(1));
            Ok((order_of + 1 < order).then(|| Limited {
                order: order_of + 1,
                exactly: false,
                steps,
                what: format!("x comes from a method of order {order_of}"),
            }))
        }
        _ => found,
    }
}

/// The order of a scheme that takes first steps.
fn order_of(method: &Method) -> Result<usize, Unsupported> {
    let starter = alone(&method.scheme, None, settings(&method.settings, 0), 0);
    let line = located(&starter, Steps::Exact, &SHARED)?;
    Ok(expanded(&line)?.prove(MAX_CLAIM as usize, None).order)
}

fn expanded_from_the_start(
    flow: &Flow,
    order: usize,
    within: Option<&Exact>,
) -> Result<Option<Limited>, Unsupported> {
    let usual = general(flow)?;
    let programs = first_programs(flow, &|p| of_program(flow, p).is_ok_and(|g| g == usual))?;
    let steps = programs.len() - usize::from(flow.scheme.start.is_some());
    if programs.is_empty() {
        return Ok(None);
    }
    let beyond = |why: &str| Unsupported::at(flow.scheme.name.span, why);
    let (mut method, mut trees) = usual
        .glm
        .expansion()
        .ok_or_else(|| beyond("no starting procedure is exact for it"))?;
    let first = first_steps(flow, &programs, &usual.glm.fields, &usual.asked)?;
    let both = (&mut method, &mut trees);
    let found = missed(&first.line, &first.ends, both, steps, (order, within));
    let found = found.map_err(|_| beyond("there are too many trees for its first steps"))?;
    Ok(found.map(|m| Limited {
        order: m.order,
        exactly: m.lasts,
        steps,
        what: what(&m, &usual, &trees),
    }))
}

fn what(m: &Missed, usual: &General, trees: &Trees) -> String {
    let name = &usual.names[m.value];
    match &m.why {
        Why::State { has, expected } => format!("{name} is {has} of the state, exact {expected}"),
        Why::Tree {
            tree,
            has,
            expected,
        } => {
            let differential = draw::differential(trees, *tree, &usual.glm.fields);
            format!("{name} has {has} of {differential}, exact {expected}")
        }
        Why::NoSeries => {
            format!("{name} holds an evaluation at a multiple of the state other than 1")
        }
    }
}

/// How the first steps could be taken, such that an order is left.
pub fn how_to_start(flow: &Flow, order: usize) -> String {
    if let Ok(own) = pair(flow) {
        return pair_start::how_to_start(&own);
    }
    let entries = match flow.scheme.start {
        None => "set the values before the first step: `start { … }`",
        Some(_) => "give them better values before the first step, in `start { … }`",
    };
    match starter(order) {
        Some(name) if can_be_started(flow) => {
            format!("take the first steps with another scheme: `start by {name}`")
        }
        _ => entries.to_string(),
    }
}

/// Whether `start by` would have steps to take, and would leave a value for each name that later steps read.
fn can_be_started(flow: &Flow) -> bool {
    if flow.scheme.fields.len() != 1 || flow.scheme.list.is_some() {
        return false;
    }
    let Body::Step(step) = &flow.scheme.body else {
        return true;
    };
    // Any scheme will do: which steps it takes does not depend on it.
    let mut idle = step.clone();
    idle.body = vec![Stmt::Return {
        value: Expr {
            kind: ExprKind::Name(step.state.name.clone()),
            span: step.span,
        },
        embedded: None,
        span: step.span,
    }];
    let mut scheme = SchemeDef::new(flow.scheme.name.clone(), Body::Step(idle));
    scheme.fields = flow.scheme.fields.clone();
    let by = Method {
        scheme: Rc::new(scheme),
        settings: Vec::new(),
        span: flow.span,
    };
    let started = Flow {
        start_by: Some(Rc::new(by)),
        ..flow.clone()
    };
    is_started(&started)
}

/// Where a scheme reads values from before its first step.
pub fn read_before(flow: &Flow) -> Option<(&str, Span)> {
    let history = &flow.scheme.history;
    let mut past = history.past.iter();
    let none = past.find(|(name, _)| !history.started.contains(*name));
    none.map(|(name, span)| (name.as_str(), *span))
}

/// Says in a message what is read before there is anything, and how to start.
pub fn with_start(d: Diagnostic, flow: &Flow, limited: &Limited, order: usize) -> Diagnostic {
    let exactly = format!(
        "with exact starting values it has order {order}; {}\n{}",
        limited.sentence(),
        how_to_start(flow, order)
    );
    let d = match (read_before(flow), &flow.scheme.start_by) {
        (_, Some(by)) => d.also(
            by.span,
            "this takes no step: every value that is read has an entry before the first one",
        ),
        (Some((name, span)), None) => d.also(
            span,
            format!("`{name}` has no value before the first step and counts as 0"),
        ),
        (None, None) => d,
    };
    d.help(exactly)
}
