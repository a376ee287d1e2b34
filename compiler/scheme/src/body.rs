//! The statements of a field's or a layer's body: what they name, in which order, and to what end.
//!
//! Takes their syntax; says what is wrong with it whatever the widths are. Leaves what the statements compute to `odec-model`. Where optional
//! numbers may stand is said by `optional.rs`.

use super::layer::{Param, SIZES};
use super::mentions::Mentions;
use super::unused::{self, is_deliberate};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{self, Body, BodyStmt, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;

/// Most statements of a body.
const MAX_STATEMENTS: usize = 1024;

/// The names that mean numbers and values in a body, wherever they are set.
pub(super) fn names<'a>(body: &'a Body, params: &'a [Param]) -> Vec<&'a str> {
    let params = params.iter().map(|p| p.name.name.as_str());
    let set = statements(body).iter().filter_map(BodyStmt::name);
    let set = set.map(|n| n.name.as_str());
    params.chain(set).chain(SIZES).collect()
}

fn statements(body: &Body) -> &[BodyStmt] {
    match body {
        Body::Expr(_) => &[],
        Body::Block { statements, .. } => statements,
    }
}

/// Says what is wrong with a body, and warns of what nothing reads.
pub(super) fn check(layer: &ast::Layer, is_field: bool, sink: &mut Vec<Diagnostic>) {
    if let Body::Block { statements, span } = &layer.body {
        order(layer, statements, *span, sink);
    }
    // The values of a field without statements are its arguments: it may leave them out.
    if !is_field || matches!(layer.body, Body::Block { .. }) {
        unread(layer, sink);
    }
}

/// Names that are set twice or read before they are set, and the end.
fn order(layer: &ast::Layer, statements: &[BodyStmt], span: Span, sink: &mut Vec<Diagnostic>) {
    if statements.len() > MAX_STATEMENTS {
        let message = format!("this body has more than {MAX_STATEMENTS} statements");
        sink.push(
            Diagnostic::error(codes::TOO_LARGE, span, message).help("name parts of it as layers"),
        );
        return;
    }
    let params = layer.params.iter().map(|p| (p.name.name.as_str(), &p.name));
    let mut set: BTreeMap<&str, &Ident> = params.collect();
    let later = statements.iter().filter_map(BodyStmt::name);
    let later: BTreeMap<&str, &Ident> = later.map(|n| (n.name.as_str(), n)).collect();
    let mut end: Option<Span> = None;
    for s in statements {
        if let Some(end) = end {
            let d = Diagnostic::error(codes::MISPLACED, s.span(), "a statement after `return`");
            let d = d.label("it computes nothing");
            sink.push(
                d.also(end, "the body ends here")
                    .help("put it before `return`"),
            );
            break;
        }
        for (name, place) in mentions(s) {
            if let (None, Some(first)) = (set.get(name), later.get(name)) {
                sink.push(too_early(s, first, place));
            }
        }
        match s {
            BodyStmt::Return { span, .. } => end = Some(*span),
            BodyStmt::Set { name, .. } | BodyStmt::Learn { name, .. } => {
                if let Some(first) = set.get(name.name.as_str()) {
                    let message = format!("`{}` is set twice", name.name);
                    let d = Diagnostic::error(codes::REDEFINITION, name.span, message);
                    let d = d.also(first.span, "first set here");
                    sink.push(d.help("a value has one meaning in a body: choose another name"));
                }
                if SIZES.contains(&name.name.as_str()) {
                    let message = format!("`{}` already means something to odec", name.name);
                    let d = Diagnostic::error(codes::REDEFINITION, name.span, message);
                    sink.push(d.help("choose another name"));
                }
                set.insert(&name.name, name);
            }
        }
    }
    if end.is_none() {
        let name = &layer.name.name;
        let message = format!("the body of `{name}` has no `return`");
        let last = statements.iter().rev().find_map(BodyStmt::name);
        let shown = last.map_or("…", |n| n.name.as_str());
        let d = Diagnostic::error(codes::MISSING_RETURN, span, message);
        let d = d.label("nothing says what it gives");
        sink.push(d.help(format!("end it with `return {shown}`")));
    }
}

/// A value that this statement or a later one sets.
fn too_early(s: &BodyStmt, first: &Ident, place: Span) -> Diagnostic {
    let own = s.name().is_some_and(|n| n.span == first.span);
    let message = match own {
        true => format!("`{}` is read where it is set", first.name),
        false => format!("`{}` is read before it is set", first.name),
    };
    let d = Diagnostic::error(codes::NOT_SET, place, message);
    let d = d.label("it has no value here").also(first.span, "set here");
    match own {
        true => d.help("give the new value another name"),
        false => d.help("statements are computed in their order: set it before it is read"),
    }
}

/// The names that stand as values in a statement: by themselves, not as what is called.
fn mentions(s: &BodyStmt) -> BTreeMap<&str, Span> {
    let mut open: Vec<&Expr> = s.exprs().collect();
    let mut found = BTreeMap::new();
    while let Some(e) = open.pop() {
        match &e.kind {
            ExprKind::Name(n) => _ = found.insert(n.as_str(), e.span),
            ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => open.extend([&**a, &**b]),
            ExprKind::Neg(a) => open.push(a),
            ExprKind::Tuple(items) => open.extend(items),
            ExprKind::Call(call) => {
                let given = call.args.iter().filter(|a| a.label.is_none());
                open.extend(given.map(|a| &a.value));
            }
            _ => {}
        }
    }
    found
}

/// Warns of arguments and values that nothing reads.
fn unread(layer: &ast::Layer, sink: &mut Vec<Diagnostic>) {
    let mut used = Mentions::default();
    layer.body.exprs().for_each(|e| used.expr(e));
    let defaults = layer.params.iter().filter_map(|p| p.default.as_ref());
    defaults.for_each(|e| used.expr(e));
    let bounds = layer.params.iter().filter_map(|p| p.bounds.as_ref());
    bounds.for_each(|b| b.exprs().for_each(|e| used.expr(e)));
    let unread = |n: &&Ident| !is_deliberate(n) && !used.read.contains(n.name.as_str());
    let is_value = |p: &ast::LayerParam| p.kind.as_ref().is_some_and(|k| k.name == "value");
    for p in layer.params.iter().filter(|p| unread(&&p.name)) {
        sink.push(match is_value(p) {
            true => unused::value_of_body(&p.name),
            false => unused::number(&p.name),
        });
    }
    let set = statements(&layer.body).iter().filter_map(BodyStmt::name);
    sink.extend(set.filter(unread).map(unused::value_of_body));
}
