//! Bounds of a layer's numbers: `beta: number above 0`, `rank: size to width`.
//!
//! Takes their syntax and the names that they may name; says whether a number is within them, and what they are in words. Leaves reading an
//! argument to `odec-model`.

use super::layer::{Kind, Param};
use super::scalar::{Scope, number, outside, short};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Bound, Bounds, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;

/// "a number above 0", "a whole number from 1 to 64". `shown` writes an end of the bounds.
pub fn in_words(bounds: &Bounds, whole: bool, shown: impl Fn(&Expr) -> String) -> String {
    let shown = |bound: &Bound| (shown(&bound.at), bound.included);
    // A whole number is from 1 where nothing is said.
    let least = match (bounds.least.as_ref().map(shown), whole) {
        (None, true) => Some(("1".to_string(), true)),
        (least, _) => least,
    };
    let ends = match (least, bounds.most.as_ref().map(shown)) {
        (Some((from, true)), Some((to, true))) => format!("from {from} to {to}"),
        (Some((from, true)), Some((to, false))) => format!("from {from} to below {to}"),
        (Some((above, false)), Some((to, true))) => format!("above {above}, to {to}"),
        (Some((above, false)), Some((to, false))) => format!("above {above} and below {to}"),
        (Some((from, true)), None) => format!("from {from}"),
        (Some((above, false)), None) => format!("above {above}"),
        (None, Some((to, true))) => format!("up to {to}"),
        (None, Some((below, false))) => format!("below {below}"),
        (None, None) => String::new(),
    };
    match whole {
        true => format!("a whole number {ends}"),
        false => format!("a number {ends}"),
    }
}

/// The ends of bounds, where names are these.
struct Ends<'p> {
    least: Option<(Exact, &'p Bound)>,
    most: Option<(Exact, &'p Bound)>,
}

impl<'p> Ends<'p> {
    fn of(bounds: &'p Bounds, scope: &Scope) -> Result<Ends<'p>, Diagnostic> {
        let end = |bound: &'p Option<Bound>| match bound {
            Some(bound) => number(&bound.at, scope).map(|x| Some((x, bound))),
            None => Ok(None),
        };
        Ok(Ends {
            least: end(&bounds.least)?,
            most: end(&bounds.most)?,
        })
    }

    fn hold(&self, value: &Exact) -> bool {
        let above = |(x, b): &(Exact, &Bound)| x < value || b.included && x == value;
        let below = |(x, b): &(Exact, &Bound)| value < x || b.included && x == value;
        self.least.as_ref().is_none_or(above) && self.most.as_ref().is_none_or(below)
    }

    /// Whether no number is within them.
    fn are_empty(&self) -> bool {
        let (Some((least, from)), Some((most, to))) = (&self.least, &self.most) else {
            return false;
        };
        most < least || most == least && !(from.included && to.included)
    }

    /// Of a bound, its value; what is written as a number stays as it is written.
    fn shown(&self, e: &Expr) -> String {
        if let ExprKind::Number(text) = &e.kind {
            return text.clone();
        }
        let mut ends = self.least.iter().chain(&self.most);
        let found = ends.find(|(_, bound)| bound.at.span == e.span);
        found.map_or(String::new(), |(x, _)| x.to_string())
    }
}

/// A number of a layer within its bounds. `at`: where it was written; `default`: whether it is what the layer takes where nothing is said.
pub fn bounded(
    value: Exact,
    (layer, p): (&str, &Param),
    scope: &Scope,
    at: Span,
    default: bool,
) -> Result<Exact, Diagnostic> {
    let Some(bounds) = &p.bounds else {
        return Ok(value);
    };
    let ends = Ends::of(bounds, scope)?;
    if ends.hold(&value) {
        return Ok(value);
    }
    let words = in_words(bounds, p.kind == Kind::Size, |e| ends.shown(e));
    let said = format!("`{}` of `{layer}` is {words}", p.label.name);
    let d = outside(&short(&value), at);
    let d = match default {
        true => d.label(format!("{said}; this is its default here")),
        false => d.label(said),
    };
    // A file of the library is not the user's to look at.
    Err(match at.source == bounds.span.source {
        true => d.also(bounds.span, "declared here"),
        false => d,
    })
}

/// What is wrong with bounds wherever the layer is used: `scope` has the names that they may name, with values that mean nothing.
pub fn declared((layer, p): (&str, &Param), scope: &Scope) -> Result<(), Diagnostic> {
    let Some(bounds) = &p.bounds else {
        return Ok(());
    };
    Ends::of(bounds, scope)?;
    // Of names nothing is known.
    let none = Scope::new();
    let Ok(ends) = Ends::of(bounds, &none) else {
        return Ok(());
    };
    if ends.are_empty() {
        let message = format!("no number is within the bounds of `{}`", p.label.name);
        let d = Diagnostic::error(codes::INVALID_VALUE, bounds.span, message);
        return Err(d.help("the lower bound is written first: `from 1/2 to 2`"));
    }
    match &p.default {
        Some(e) => match number(e, &none) {
            Ok(value) => bounded(value, (layer, p), &none, e.span, true).map(|_| ()),
            Err(_) => Ok(()),
        },
        None => Ok(()),
    }
}
