//! Optional numbers of a layer: where a body may name them.
//!
//! An optional number is handed on as it is, `attend(…, window: window)`, or stands in the first choice of `when(window, …)`. Leaves what is chosen to
//! `odec-model`.

use super::scalar::name_of;
use super::vocabulary::WHEN;
use crate::codes;
use odec_grammar::ast::{self, Call, Expr, ExprKind};
use odec_grammar::diag::Diagnostic;

/// Says where an optional number stands that must have a value: in the body, and in defaults and bounds of arguments.
pub(super) fn check(layer: &ast::Layer, optional: &[&str], sink: &mut Vec<Diagnostic>) {
    if optional.is_empty() {
        return;
    }
    let mut open: Vec<(&Expr, Vec<&str>)> = layer.body.exprs().map(|e| (e, Vec::new())).collect();
    let defaults = layer.params.iter().filter_map(|p| p.default.as_ref());
    open.extend(defaults.map(|e| (e, Vec::new())));
    let bounds = layer.params.iter().filter_map(|p| p.bounds.as_ref());
    open.extend(bounds.flat_map(|b| b.exprs()).map(|e| (e, Vec::new())));
    while let Some((e, given)) = open.pop() {
        match &e.kind {
            ExprKind::Name(name) if optional.contains(&&**name) && !given.contains(&&**name) => {
                let message = format!("`{name}` is optional, and a number is needed here");
                let d = Diagnostic::error(codes::MISPLACED, e.span, message);
                let d = d.label("it has no value where the layer is not given it");
                sink.push(d.help(format!(
                    "hand it on as it is, `{name}: {name}`, or write `when({name}, …)` around what needs it"
                )));
            }
            ExprKind::Call(call) => open.extend(arguments(call, &given)),
            ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => {
                open.extend([(&**a, given.clone()), (&**b, given)]);
            }
            ExprKind::Neg(a) => open.push((a, given)),
            ExprKind::Tuple(items) | ExprKind::List(items) => {
                open.extend(items.iter().map(|i| (i, given.clone())));
            }
            _ => {}
        }
    }
}

/// The arguments of a call in which names need values, each with the optional numbers that have one there.
fn arguments<'e>(call: &'e Call, given: &[&'e str]) -> Vec<(&'e Expr, Vec<&'e str>)> {
    let is_when = name_of(&call.callee).is_some_and(|n| n.name == WHEN);
    let chosen = match call.args.first().map(|a| &a.value.kind) {
        Some(ExprKind::Name(name)) if is_when => Some(&**name),
        _ => None,
    };
    let each = call.args.iter().enumerate().filter(|(n, a)| {
        let alone = matches!(a.value.kind, ExprKind::Name(_));
        let handed_on = alone && a.label.is_some();
        !(handed_on || *n == 0 && chosen.is_some())
    });
    let each = each.map(|(n, a)| {
        let more = chosen.filter(|_| n == 1);
        (&a.value, given.iter().copied().chain(more).collect())
    });
    each.collect()
}
