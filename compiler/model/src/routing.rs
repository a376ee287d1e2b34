//! Who decides which tokens take a routed step: `choice: token`, or `choice: expert, capacity: [1, 2/3, 1/3]`.
//!
//! Takes the syntax; gives a [`Routing`] with exact shares, and the threshold of tokens that choose where no model is trained. Leaves the router, and what its scores mean, to `routed.rs`.

use super::args::{Bounds, bounded, report};
use crate::codes;
use crate::scheme::scalar::{Scope, exact, name_of};
use crate::scheme::work::Routing;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::kernel::Share;

/// Thresholds below the first all tokens would pass, above the second none.
const THRESHOLDS: [f64; 2] = [0.001, 0.999];
const EXAMPLE: &str =
    "write, for example, `routed(linear(3), max: 3, choice: expert, capacity: [1, 2/3, 1/3])`";

/// Reads both arguments; tokens choose unless they say otherwise.
pub fn read(
    choice: Option<&Expr>,
    capacity: Option<&Expr>,
    steps: u64,
    sink: &mut Vec<Diagnostic>,
) -> Option<Routing> {
    let word = choice.map(|e| (e.span, name_of(e).map(|n| n.name)));
    let word = word.as_ref().map(|(span, word)| (*span, word.as_deref()));
    match (word, capacity) {
        (None | Some((_, Some("token"))), None) => Some(Routing::Tokens),
        // Where tokens choose there is no capacity, so it says who does.
        (None | Some((_, Some("expert"))), Some(capacity)) => {
            report(capacities(capacity, steps), sink).map(Routing::Steps)
        }
        (Some((span, Some("expert"))), None) => {
            let message = "steps that choose their tokens need a `capacity`: the share of a text's tokens that each takes";
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
            sink.push(d.help(EXAMPLE));
            None
        }
        (Some((span, Some("token"))), Some(capacity)) => {
            let message = "where tokens choose, a step takes all that choose it";
            let d = Diagnostic::error(codes::INCOMPATIBLE, capacity.span, message);
            sink.push(
                d.also(span, "tokens choose")
                    .help("leave `capacity` out, or write `choice: expert`"),
            );
            None
        }
        (Some((span, _)), _) => {
            let message = "this is no choice of `routed`";
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, span, message);
            sink.push(d.help("write `choice: token`, or `choice: expert` with a `capacity`"));
            None
        }
    }
}

/// The gate above which a token takes a step that chooses while the model is trained.
pub fn threshold(e: &Expr, choice: &Routing, sink: &mut Vec<Diagnostic>) -> Option<(Exact, Span)> {
    let wrong = match choice {
        Routing::Tokens => Some("a threshold is for steps that choose their tokens"),
        Routing::Steps(shares) if shares.iter().all(|s| s.is_all()) => {
            Some("these steps take all tokens, so none is compared with a threshold")
        }
        Routing::Steps(_) => None,
    };
    if let Some(message) = wrong {
        let d = Diagnostic::error(codes::INCOMPATIBLE, e.span, message);
        sink.push(d.help("leave `threshold` out, or write capacities below 1, such as `choice: expert, capacity: [1, 2/3, 1/3]`"));
        return None;
    }
    let value = exact(e, &Scope::new())
        .and_then(|v| bounded(v, Bounds::Within(THRESHOLDS[0], THRESHOLDS[1]), e));
    Some((report(value, sink)?, e.span))
}

/// A share for each step, none larger than the one before it.
fn capacities(e: &Expr, steps: u64) -> Result<Vec<Share>, Diagnostic> {
    let ExprKind::List(items) = &e.kind else {
        let message = "a list of capacities, one for each step, is expected";
        return Err(Diagnostic::error(codes::LIST_LENGTH, e.span, message).help(EXAMPLE));
    };
    if items.len() as u64 != steps {
        let message = format!("a list of {} for {steps} steps", items.len());
        return Err(Diagnostic::error(codes::LIST_LENGTH, e.span, message)
            .label("one capacity for each step is expected"));
    }
    let mut before: Option<(Exact, Span)> = None;
    let mut shares = Vec::new();
    for item in items {
        let value = exact(item, &Scope::new())?;
        let value = bounded(value, Bounds::PositiveShare, item)?;
        if let Some((most, span)) = before.filter(|(most, _)| value > *most) {
            let message = format!("the capacity grows from {most} to {value}");
            return Err(Diagnostic::error(codes::OUT_OF_RANGE, item.span, message)
                .also(
                    span,
                    "only tokens that take this step may take the next one",
                )
                .help("write shares that do not grow, such as `[1, 2/3, 1/3]`"));
        }
        shares.push(share(&value, item.span)?);
        before = Some((value, item.span));
    }
    Ok(shares)
}

/// As a fraction that kernels count with.
fn share(value: &Exact, span: Span) -> Result<Share, Diagnostic> {
    let fraction = value.as_rational().and_then(|r| {
        let of = r.numer().try_into().ok()?;
        let from = r.denom().try_into().ok()?;
        Some(Share { of, from })
    });
    fraction.filter(|s| s.is_valid()).ok_or_else(|| {
        let message = format!("{value} of the tokens cannot be counted");
        let most = Share::MOST;
        Diagnostic::error(codes::OUT_OF_RANGE, span, message).label(format!(
            "a fraction of whole numbers up to {most} is expected"
        ))
    })
}
