//! Warns about fields, numbers and values of a scheme that are never read.
//!
//! Takes the syntax of a scheme. A name that begins with `_` may stay unread. Leaves the fields of a method made of others to `expression.rs`,
//! where its operands are known, and stages of a tableau to `tableau.rs`.

use super::algebra::{Term, TermKind};
use super::mentions::Mentions;
use crate::codes;
use odec_grammar::ast::{Ident, ParamKind, Scheme, SchemeItem, Stmt};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeSet;

/// Whether a name says that nothing need read it.
pub fn is_deliberate(name: &Ident) -> bool {
    name.name.starts_with('_')
}

/// Warns of all names of a scheme that nothing reads.
pub(super) fn check(scheme: &Scheme, sink: &mut Vec<Diagnostic>) {
    let mut used = Mentions::default();
    scheme.items.iter().for_each(|item| used.item(item));
    let defaults = scheme.params.iter().filter_map(|p| match &p.kind {
        ParamKind::Value(default) => Some(default),
        ParamKind::Field | ParamKind::Fields => None,
    });
    defaults.for_each(|e| used.expr(e));
    let unread = |name: &&Ident| !is_deliberate(name) && !used.read.contains(name.name.as_str());
    // These evaluate their field without naming it.
    let unnamed = |item: &SchemeItem| {
        matches!(
            item,
            SchemeItem::Tableau(_)
                | SchemeItem::Multistep { .. }
                | SchemeItem::LearnFrom(_)
                | SchemeItem::Method { .. }
        )
    };
    let named = !scheme.items.iter().any(unnamed);
    // The method that coefficients start from may read numbers of the same names.
    let inherits = (scheme.items.iter()).any(|item| matches!(item, SchemeItem::LearnFrom(_)));
    for p in scheme.params.iter().filter(|p| unread(&&p.name)) {
        match p.kind {
            ParamKind::Value(_) if !inherits => sink.push(number(&p.name)),
            ParamKind::Value(_) => {}
            ParamKind::Field | ParamKind::Fields if named => sink.push(field(&p.name)),
            ParamKind::Field | ParamKind::Fields => {}
        }
    }
    for item in &scheme.items {
        match item {
            SchemeItem::Let { name, .. } => sink.extend(Some(name).filter(unread).map(number)),
            SchemeItem::Step(step) => {
                let mut set = Vec::new();
                assigned(&step.body, &mut set);
                let mut seen = BTreeSet::new();
                let values = set.into_iter().filter(|n| n.name != step.state.name);
                let values = values.filter(unread).filter(|n| seen.insert(&n.name));
                sink.extend(values.map(value));
            }
            _ => {}
        }
    }
}

/// Warns of the fields that no operand of a method takes.
pub(super) fn operands(fields: &[Ident], term: &Term, sink: &mut Vec<Diagnostic>) {
    let mut taken = BTreeSet::new();
    places(term, &mut taken);
    let left = fields
        .iter()
        .enumerate()
        .filter(|(i, _)| !taken.contains(i));
    let left = left.map(|(_, name)| name).filter(|n| !is_deliberate(n));
    sink.extend(left.map(field));
}

/// The fields that a method's operands take.
fn places(term: &Term, out: &mut BTreeSet<usize>) {
    match &term.kind {
        TermKind::Scheme(operand) => out.extend(&operand.fields),
        TermKind::Adjoint { of, .. } | TermKind::Power(of, _) => places(of, out),
        TermKind::Extrapolate(e) => places(&e.of, out),
        TermKind::Compose(parts) => parts.iter().for_each(|(t, _)| places(t, out)),
        TermKind::Average { of, .. } => of.iter().for_each(|t| places(t, out)),
    }
}

/// The names that statements set, in order.
fn assigned<'a>(body: &'a [Stmt], out: &mut Vec<&'a Ident>) {
    for s in body {
        match s {
            Stmt::Assign { name, .. } | Stmt::Solve { name, .. } => out.push(name),
            Stmt::Repeat { body, .. } => assigned(body, out),
            Stmt::Return { .. } => {}
        }
    }
}

fn field(name: &Ident) -> Diagnostic {
    let message = format!("field `{}` is never evaluated", name.name);
    Diagnostic::warning(codes::UNUSED_NAME, name.span, message)
        .label("no step reads it")
        .help(format!(
            "a field given for it is not part of the model and is not trained; evaluate it, or rename it `_{}` if this is intended",
            name.name
        ))
}

pub(super) fn number(name: &Ident) -> Diagnostic {
    let message = format!("`{}` is never read", name.name);
    Diagnostic::warning(codes::UNUSED_NAME, name.span, message)
        .label("its value changes nothing")
        .help(format!(
            "remove it, or rename it `_{}` if this is intended",
            name.name
        ))
}

/// Of a field or a layer.
pub(super) fn value_of_body(name: &Ident) -> Diagnostic {
    let message = format!("`{}` is never read", name.name);
    Diagnostic::warning(codes::UNUSED_NAME, name.span, message)
        .label("what the body gives does not depend on it")
        .help(format!(
            "nothing is trained through it; read it, remove it, or rename it `_{}` if this is intended",
            name.name
        ))
}

fn value(name: &Ident) -> Diagnostic {
    let message = format!("`{}` is never read", name.name);
    Diagnostic::warning(codes::UNUSED_NAME, name.span, message)
        .label("what the step returns does not depend on it")
        .help(format!(
            "nothing is trained through it; read it, remove it, or rename it `_{}` if this is intended",
            name.name
        ))
}
