//! Says of a false order whether it is the iterations that are too few: with more of them the claim would be true.
//!
//! Takes a scheme and the order that it claims; gives the place of its number of iterations, in `solve` or `repeat`, and the least number that proves
//! the order. Leaves numbers of the method itself to `fix_suggestion.rs`.

use super::claims::Instance;
use super::fix_suggestion::holds;
use crate::scheme::define::{Body, SchemeDef};
use crate::scheme::scalar::name_of;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Method, RepeatCount, Stmt};
use std::rc::Rc;

/// The highest order that is proved again and again.
const MAX_ORDER: usize = 8;

/// A number of iterations as it is written, and what stands before it.
struct Count {
    span: Span,
    before: String,
}

/// A number of iterations that makes a claim true.
pub struct Enough {
    pub span: Span,
    /// As it would be written: `iterations: 3`.
    pub shown: String,
}

/// The scheme with as many iterations as can matter for an order: each raises the order by one, and the result of one that begins with anything has
/// order 0.
pub fn most(i: &Instance, order: usize) -> Option<Instance> {
    let (all, _) = with(i, order + 1).filter(|_| order <= MAX_ORDER)?;
    Some(all)
}

/// The fewest iterations with which a scheme has an order, all of whose conditions hold within that.
pub fn more(i: &Instance, order: usize, within: Option<&Exact>) -> Option<Enough> {
    let most = order + 1;
    let (all, count) = with(i, most).filter(|_| order <= MAX_ORDER)?;
    if !holds(&all, order, within) {
        return None;
    }
    let enough = |n: &usize| with(i, *n).is_some_and(|(i, _)| holds(&i, order, within));
    let least = (1..most).find(enough).unwrap_or(most);
    Some(Enough {
        span: count.span,
        shown: format!("{} {least}", count.before),
    })
}

/// A scheme that iterates so often, wherever it iterates, and the first of these places.
fn with(i: &Instance, n: usize) -> Option<(Instance, Count)> {
    let mut scheme: SchemeDef = (*i.scheme).clone();
    let (mut first, mut settings) = (None, i.settings.clone());
    // A parameter's number is given where the scheme is applied.
    let mut set = |e: &mut Expr, before: &'static str| {
        let own = name_of(e).and_then(|n| settings.iter_mut().find(|(p, _)| *p == n.name));
        let before = match own {
            Some((name, value)) => {
                *value = Exact::int(n as i64);
                format!("{name}:")
            }
            None => {
                e.kind = ExprKind::Number(n.to_string());
                before.to_string()
            }
        };
        let span = e.span;
        first.get_or_insert(Count { span, before });
    };
    if let Some((method, _)) = &mut scheme.solve {
        solver(method, &mut set);
    }
    if let Body::Step(step) = &mut scheme.body {
        statements(&mut step.body, &mut set);
    }
    scheme.keep = None;
    let i = Instance {
        scheme: Rc::new(scheme),
        settings,
        ..i.clone()
    };
    Some((i, first?))
}

fn statements(body: &mut [Stmt], set: &mut dyn FnMut(&mut Expr, &'static str)) {
    for s in body {
        match s {
            Stmt::Solve { method, .. } => solver(method, set),
            Stmt::Repeat { count, body, .. } => {
                if let RepeatCount::Times(n) = count {
                    set(n, "repeat");
                }
                statements(body, set);
            }
            Stmt::Assign { .. } | Stmt::Return { .. } => {}
        }
    }
}

fn solver(method: &mut Method, set: &mut dyn FnMut(&mut Expr, &'static str)) {
    let ExprKind::Call(call) = &mut method.call.kind else {
        return;
    };
    for arg in &mut call.args {
        if arg.label.as_ref().is_some_and(|l| l.name == "iterations") {
            set(&mut arg.value, "iterations:");
        }
    }
}
