//! Reads expressions that denote flows: resolves names and checks kinds.
//!
//! Takes syntax and a namespace; gives [`Flow`]s: a scheme applied to fields. Leaves fields to `field.rs`.

use super::define::SchemeDef;
use super::expression::is_method;
use super::flow::{Applied, Field, Flow};
use super::layer::Layer;
use super::names::{Definition, Namespace};
use super::run::MAX_WORK;
use super::scalar::{Scope, constant, measured, name_of};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Longest chain of definitions that name each other.
pub(super) const MAX_DEPTH: usize = 64;
/// Most expressions one inside the other, through all definitions of a chain.
const MAX_NESTING: usize = 300;

pub struct Resolver<'n, 's> {
    pub names: &'n mut Namespace<'s>,
    pub sink: &'n mut Vec<Diagnostic>,
    /// Fields by name, and how deep they are; `None`: wrong, and that has been said.
    pub(super) fields: BTreeMap<String, (Option<Rc<Field>>, usize)>,
    /// Fields being resolved.
    pub(super) open: Vec<String>,
    /// Schemes that were applied, in order.
    used: Vec<Applied>,
    /// Expressions being resolved, one inside the other.
    nesting: usize,
    /// What computing numbers has taken so far.
    work: u64,
    /// Schemes made of others, by the place of their names, and how deep they are; `None`: wrong, and that has been said.
    pub(super) made: BTreeMap<Span, (Option<Rc<SchemeDef>>, usize)>,
    /// Those being resolved.
    pub(super) making: Vec<Ident>,
    /// Written layers, by the place of their names; `None`: wrong, and that has been said.
    pub(super) written: BTreeMap<Span, Option<Rc<Layer>>>,
    /// Those being resolved.
    pub(super) writing: Vec<Ident>,
    /// Parts of the written layers in all fields so far.
    pub(super) written_parts: u64,
    /// How deep the definitions resolved so far inside the current expression are.
    pub(super) height: usize,
}

impl<'n, 's> Resolver<'n, 's> {
    pub fn new(names: &'n mut Namespace<'s>, sink: &'n mut Vec<Diagnostic>) -> Self {
        Resolver {
            names,
            sink,
            fields: BTreeMap::new(),
            open: Vec::new(),
            used: Vec::new(),
            nesting: 0,
            work: 0,
            made: BTreeMap::new(),
            making: Vec::new(),
            written: BTreeMap::new(),
            writing: Vec::new(),
            written_parts: 0,
            height: 0,
        }
    }

    pub(super) fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    pub(super) fn checked<T>(&mut self, r: Result<T, Diagnostic>) -> Option<T> {
        r.map_err(|d| self.sink.push(d)).ok()
    }

    /// A constant as it is written, its work counted.
    pub(super) fn number(&mut self, e: &Expr, scope: &Scope) -> Option<Exact> {
        if self.work > MAX_WORK {
            // That has been said.
            return None;
        }
        let (value, work) = self.checked(measured(e, scope))?;
        self.work = self.work.saturating_add(work as u64);
        if self.work > MAX_WORK {
            let message = "the numbers of this file take too long to compute";
            return self.fail(Diagnostic::error(codes::TOO_LARGE, e.span, message));
        }
        self.checked(constant(value, e.span))
    }

    /// Schemes applied so far, in order; one that is applied again with the same settings is listed once.
    pub fn used(&self) -> &[Applied] {
        &self.used
    }

    /// `at`: how many were known before what it is applied to was looked at.
    pub(super) fn uses(&mut self, at: usize, applied: Applied) {
        let same = |a: &Applied| {
            a.scheme.name == applied.scheme.name
                && a.settings == applied.settings
                && a.listed == applied.listed
        };
        if !self.used.iter().any(same) {
            self.used.insert(at, applied);
        }
    }

    /// Goes one expression deeper, unless that is too deep.
    pub(super) fn nested<T>(
        &mut self,
        span: Span,
        go: impl FnOnce(&mut Self) -> Option<T>,
    ) -> Option<T> {
        if self.nesting >= MAX_NESTING {
            return self.fail(too_deep(span));
        }
        self.nesting += 1;
        let beside = std::mem::take(&mut self.height);
        let result = go(self);
        let height = self.height + 1;
        self.height = beside.max(height);
        self.nesting -= 1;
        if result.is_some() && height > MAX_NESTING {
            return self.fail(too_deep(span));
        }
        result
    }

    /// The definition behind a name, or a message.
    pub fn definition(&mut self, name: &Ident) -> Option<Definition> {
        match self.names.get(name, self.sink) {
            Ok(Definition::Scheme(s)) => self.concrete(s).map(Definition::Scheme),
            Ok(d) => Some(d),
            Err(true) => None,
            Err(false) => {
                let later = self.names.layers.later(name);
                let d = later.unwrap_or_else(|| self.names.unknown(name, self.sink.len()));
                self.fail(d)
            }
        }
    }

    /// A scheme applied to fields.
    pub fn flow(&mut self, e: &Expr) -> Option<Rc<Flow>> {
        self.nested(e.span, |r| r.flow_inside(e))
    }

    fn flow_inside(&mut self, e: &Expr) -> Option<Rc<Flow>> {
        if is_method(e) {
            let shown = self.names.quote(e.span).to_string();
            let message = format!("`{shown}` is a scheme without its fields");
            let d = Diagnostic::error(codes::NOT_A_FLOW, e.span, message);
            return self.fail(d.help(format!("apply it: `{shown}(…)`")));
        }
        let ExprKind::Call(call) = &e.kind else {
            let name = name_of(e);
            let shown = name
                .as_ref()
                .map_or("this".into(), |n| format!("`{}`", n.name));
            let d = match name.as_ref().map(|n| self.names.get(n, self.sink)) {
                Some(Ok(Definition::Scheme(_))) => Diagnostic::error(
                    codes::NOT_A_FLOW,
                    e.span,
                    format!("{shown} is a scheme without its fields"),
                )
                .help(format!(
                    "apply it: `{}(…)`",
                    name.map_or(String::new(), |n| n.name)
                )),
                Some(Ok(other @ (Definition::Field(_) | Definition::Layer(_)))) => {
                    Diagnostic::error(
                        codes::NOT_A_FLOW,
                        e.span,
                        format!("{shown} is {}, not a flow", other.kind()),
                    )
                    .label("a scheme applied to fields is expected here")
                    .help(format!(
                        "apply a scheme to it: `euler({})`",
                        name.map_or(String::new(), |n| n.name)
                    ))
                }
                Some(Err(true)) => return None,
                Some(Err(false)) => self.names.unknown(&name?, self.sink.len()),
                None => Diagnostic::error(codes::NOT_A_FLOW, e.span, "this is not a flow")
                    .label("a scheme applied to fields is expected here, such as `lie(att, ffn)`"),
            };
            return self.fail(d);
        };
        if is_method(&call.callee) {
            let scheme = self.expression(&call.callee)?;
            return self.apply(scheme, call, e.span);
        }
        let Some(name) = name_of(&call.callee) else {
            let message = "this is not a scheme";
            let d = Diagnostic::error(codes::NOT_A_SCHEME, call.callee.span, message);
            return self
                .fail(d.label("a scheme, or a method such as `adjoint(heun)`, is expected"));
        };
        if self.names.is_wrong(&name) {
            return None;
        }
        if ["increment", "map"].contains(&name.name.as_str()) || self.is_layer(&name) {
            let d = Diagnostic::error(
                codes::NOT_A_FLOW,
                e.span,
                format!("`{}(…)` is a field, not a flow", name.name),
            )
            .label("a scheme applied to fields is expected here")
            .help("apply a scheme to it: `euler(…)`");
            return self.fail(d);
        }
        match self.definition(&name)? {
            Definition::Scheme(scheme) => self.apply(scheme, call, e.span),
            other => {
                let d = other.not_a_scheme(&name).label("a scheme is expected here");
                self.fail(d)
            }
        }
    }
}

/// A flow given where a field is integrated.
pub fn flow_for_field(span: Span, scheme: &SchemeDef) -> Diagnostic {
    Diagnostic::error(codes::NOT_A_FIELD, span, format!("`{}` integrates a field, and this is a flow", scheme.name.name))
        .label("a field is expected here")
        .also(scheme.name.span, "defined here")
        .help("make a field of it with `increment(…)` (its change of the state) or `map(…)` (the new state)")
}

pub fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_LARGE, span, "this is nested too deeply")
}

pub use odec_text::number::count;

pub fn unknown_argument(callee: &str, label: &Ident, known: &[&str]) -> Diagnostic {
    let d = Diagnostic::error(
        codes::UNKNOWN_ARGUMENT,
        label.span,
        format!("`{callee}` has no argument `{}`", label.name),
    );
    match known {
        [] => d.help(format!("`{callee}` has no named arguments")),
        _ => d.help(format!(
            "it has {}",
            known
                .iter()
                .map(|k| format!("`{k}`"))
                .collect::<Vec<_>>()
                .join(", ")
        )),
    }
}

pub fn repeated_argument(label: &Ident, first: Span) -> Diagnostic {
    Diagnostic::error(
        codes::REPEATED_ARGUMENT,
        label.span,
        format!("argument `{}` is given twice", label.name),
    )
    .also(first, "first given here")
}
