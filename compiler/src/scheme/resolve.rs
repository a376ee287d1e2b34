//! Expressions that stand for flows, resolved by name and checked for their kinds.
//!
//! Takes syntax and a namespace; gives [`Flow`]s: a scheme applied to fields. Leaves fields to `field.rs`.

use super::coeff::Coeff;
use super::define::{Body, SchemeDef};
use super::flow::{Field, Flow, FlowArg, FlowArgKind, Method, Setting};
use super::names::{Definition, LATER_PRIMITIVES, Namespace, PRIMITIVES};
use super::scalar::{Scope, exact, name_of, not_supported};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Schemes that were applied, in order, and their names.
    used: (Vec<Rc<SchemeDef>>, BTreeSet<String>),
    /// Expressions being resolved, one inside the other.
    nesting: usize,
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
            used: Default::default(),
            nesting: 0,
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

    /// Schemes applied so far, each once, in order.
    pub fn used(&self) -> Vec<Rc<SchemeDef>> {
        self.used.0.clone()
    }

    fn uses(&mut self, scheme: &Rc<SchemeDef>) {
        if self.used.1.insert(scheme.name.name.clone()) {
            self.used.0.push(scheme.clone());
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
        match self.names.get(&name.name, self.sink) {
            Ok(Definition::Scheme(s)) => self.concrete(s).map(Definition::Scheme),
            Ok(d) => Some(d),
            Err(true) => None,
            Err(false) if LATER_PRIMITIVES.contains(&name.name.as_str()) => {
                self.fail(not_supported(name.span, &format!("`{}`", name.name)))
            }
            Err(false) => {
                let d = self.names.unknown(name);
                self.fail(d)
            }
        }
    }

    /// The scheme with the tableau that it learns from another one.
    pub fn concrete(&mut self, scheme: Rc<SchemeDef>) -> Option<Rc<SchemeDef>> {
        let Body::LearnedTableau(from) = &scheme.body else {
            return Some(scheme);
        };
        let source = match self.names.get(&from.name, self.sink) {
            Ok(Definition::Scheme(source)) => source,
            Err(true) => return None,
            Err(false) => {
                let d = self.names.unknown(from);
                return self.fail(d);
            }
            Ok(Definition::Field(_)) => {
                let message = format!("`{}` is a field, not a scheme", from.name);
                return self.fail(Diagnostic::error(codes::TYPE_MISMATCH, from.span, message));
            }
        };
        if !matches!(source.body, Body::Tableau(_)) {
            let message = format!("`{}` has no tableau to start from", from.name);
            return self.fail(
                Diagnostic::error(codes::TYPE_MISMATCH, from.span, message)
                    .label("a scheme that is written as a tableau is expected")
                    .also(source.name.span, "defined here"),
            );
        }
        let own = scheme.values.iter().chain(&scheme.lets).next();
        if let Some((name, _)) = own {
            let message = format!("`{}` is not used", name.name);
            return self.fail(
                Diagnostic::error(codes::UNUSED_NAME, name.span, message)
                    .also(from.span, "the tableau and its names come from here"),
            );
        }
        Some(Rc::new(SchemeDef {
            values: source.values.clone(),
            lets: source.lets.clone(),
            body: source.body.clone(),
            learned: true,
            ..(*scheme).clone()
        }))
    }

    /// A scheme applied to fields.
    pub fn flow(&mut self, e: &Expr) -> Option<Rc<Flow>> {
        self.nested(e.span, |r| r.flow_inside(e))
    }

    fn flow_inside(&mut self, e: &Expr) -> Option<Rc<Flow>> {
        let ExprKind::Call(call) = &e.kind else {
            let name = name_of(e);
            let shown = name
                .as_ref()
                .map_or("this".into(), |n| format!("`{}`", n.name));
            let d = match name.as_ref().map(|n| self.names.get(&n.name, self.sink)) {
                Some(Ok(Definition::Scheme(_))) => Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    e.span,
                    format!("{shown} is a scheme without its fields"),
                )
                .help(format!(
                    "apply it: `{}(…)`",
                    name.map_or(String::new(), |n| n.name)
                )),
                Some(Ok(Definition::Field(_))) => Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    e.span,
                    format!("{shown} is a field, not a flow"),
                )
                .label("a scheme applied to fields is expected here")
                .help(format!(
                    "say how it is integrated: `euler({})`",
                    name.map_or(String::new(), |n| n.name)
                )),
                Some(Err(true)) => return None,
                Some(Err(false)) => self.names.unknown(&name?),
                None => Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is not a flow")
                    .label("a scheme applied to fields is expected here, such as `lie(att, ffn)`"),
            };
            return self.fail(d);
        };
        let Some(name) = name_of(&call.callee) else {
            return self.fail(not_supported(call.callee.span, "a field from a list"));
        };
        if ["increment", "map"].contains(&name.name.as_str())
            || PRIMITIVES.contains(&name.name.as_str())
        {
            let d = Diagnostic::error(
                codes::TYPE_MISMATCH,
                e.span,
                format!("`{}(…)` is a field, not a flow", name.name),
            )
            .label("a scheme applied to fields is expected here")
            .help("say how it is integrated: `euler(…)`");
            return self.fail(d);
        }
        match self.definition(&name)? {
            Definition::Scheme(scheme) => self.apply(scheme, call, e.span),
            Definition::Field(_) => {
                let d = Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    name.span,
                    format!("`{}` is a field, not a scheme", name.name),
                )
                .label("a scheme is expected here");
                self.fail(d)
            }
        }
    }

    fn apply(&mut self, scheme: Rc<SchemeDef>, call: &Call, span: Span) -> Option<Rc<Flow>> {
        self.uses(&scheme);
        let positional: Vec<&Arg> = call.args.iter().filter(|a| a.label.is_none()).collect();
        let settings = self.settings(&scheme, call);
        let want = scheme.fields.len() + usize::from(scheme.list.is_some());
        if positional.len() != want {
            let fields = scheme.fields.iter().map(|f| f.name.clone());
            let list = scheme
                .list
                .iter()
                .map(|l| format!("[{0}1, {0}2]", l.name.to_lowercase()));
            let names: Vec<String> = fields.chain(list).collect();
            let d = Diagnostic::error(
                codes::ARGUMENT_COUNT,
                span,
                format!(
                    "scheme `{}` takes {}, not {}",
                    scheme.name.name,
                    count(want, "field"),
                    positional.len()
                ),
            )
            .also(scheme.name.span, "defined here")
            .help(format!(
                "apply it as `{}({})`",
                scheme.name.name,
                names.join(", ")
            ));
            return self.fail(d);
        }
        let args: Vec<Option<FlowArg>> = positional
            .iter()
            .zip(&scheme.fields)
            .map(|(a, p)| self.flow_arg(a, &p.name, &scheme))
            .collect();
        let start_by = match &scheme.start_by {
            Some(by) => Some(self.start_by(by)?),
            None => None,
        };
        let list = match (&scheme.list, positional.last()) {
            (Some(list), Some(arg)) => self.field_list(&arg.value, &list.name),
            _ => Some(Vec::new()),
        };
        Some(Rc::new(Flow {
            start_by,
            args: args.into_iter().collect::<Option<_>>()?,
            list: list?,
            settings: settings?,
            scheme,
            span,
        }))
    }

    /// `[linear(2048), linear(512)]`; fields without a name of their own are called `L.1`, `L.2`.
    fn field_list(&mut self, e: &Expr, param: &str) -> Option<Vec<Rc<Field>>> {
        let items = match &e.kind {
            ExprKind::List(items) if !items.is_empty() => items,
            _ => {
                let d =
                    Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is no list of fields")
                        .label(format!("`{param}` stands for one or more fields"))
                        .help("write `[linear(4*width), linear(width)]`, for example");
                return self.fail(d);
            }
        };
        let named = |i: usize| format!("{param}.{}", i + 1);
        let items = items.iter().enumerate();
        let fields: Vec<_> = items.map(|(i, e)| self.field(e, &named(i))).collect();
        fields.into_iter().collect()
    }

    fn flow_arg(&mut self, arg: &Arg, param: &str, scheme: &SchemeDef) -> Option<FlowArg> {
        let e = &arg.value;
        let is_scheme = match &e.kind {
            ExprKind::Call(call) => match name_of(&call.callee) {
                Some(n) => matches!(
                    self.names.get(&n.name, self.sink),
                    Ok(Definition::Scheme(_))
                ),
                None => false,
            },
            _ => false,
        };
        let kind = if is_scheme {
            if let Some(by) = &arg.by {
                return self.fail(
                    Diagnostic::error(
                        codes::TYPE_MISMATCH,
                        by.span,
                        "a flow already says how it is integrated",
                    )
                    .label("`by` belongs to a field")
                    .also(e.span, "this is a flow"),
                );
            }
            let flow = self.flow(e)?;
            if let Body::Tableau(_) | Body::Multistep(_) = scheme.body {
                return self.fail(flow_for_field(e.span, scheme));
            }
            FlowArgKind::Flow(flow)
        } else {
            let by = match &arg.by {
                Some(by) if !matches!(scheme.body, Body::Splitting(_) | Body::Step(_)) => {
                    return self.fail(
                        Diagnostic::error(
                            codes::TYPE_MISMATCH,
                            by.span,
                            "`by` has no meaning here",
                        )
                        .label("only a flow of a splitting has an inner scheme")
                        .also(
                            scheme.name.span,
                            format!("`{}` integrates its field itself", scheme.name.name),
                        ),
                    );
                }
                Some(by) => Some(self.method(by)?),
                None => None,
            };
            FlowArgKind::Field {
                field: self.field(e, param)?,
                by,
            }
        };
        Some(FlowArg { kind, span: e.span })
    }

    /// The scheme after `start by`.
    pub fn start_by(&mut self, name: &Ident) -> Option<Rc<Method>> {
        self.method(&Expr {
            kind: ExprKind::Name(name.name.clone()),
            span: name.span,
        })
    }

    /// `heun`, `iie(r: 2)`: a scheme of one field without its field.
    fn method(&mut self, e: &Expr) -> Option<Rc<Method>> {
        let (callee, call) = match &e.kind {
            ExprKind::Call(call) => (name_of(&call.callee), Some(call)),
            _ => (name_of(e), None),
        };
        let Some(name) = callee else {
            let d = Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is not a scheme")
                .label("a scheme is expected here");
            return self.fail(d);
        };
        let Definition::Scheme(scheme) = self.definition(&name)? else {
            let d = Diagnostic::error(
                codes::TYPE_MISMATCH,
                name.span,
                format!("`{}` is a field, not a scheme", name.name),
            )
            .label("a scheme is expected after `by`");
            return self.fail(d);
        };
        if scheme.fields.len() != 1 || scheme.list.is_some() {
            let d = Diagnostic::error(
                codes::ARGUMENT_COUNT,
                e.span,
                format!(
                    "scheme `{}` takes {}",
                    name.name,
                    count(scheme.fields.len(), "field")
                ),
            )
            .label("a scheme of one field is expected after `by`")
            .also(scheme.name.span, "defined here");
            return self.fail(d);
        }
        self.uses(&scheme);
        let none = Call {
            callee: e.clone(),
            args: Vec::new(),
        };
        let call = call.map_or(&none, |c| c);
        if let Some(a) = call.args.iter().find(|a| a.label.is_none()) {
            let d = Diagnostic::error(
                codes::ARGUMENT_COUNT,
                a.value.span,
                "the field stands before `by`",
            )
            .label("only named values belong here");
            return self.fail(d);
        }
        Some(Rc::new(Method {
            settings: self.settings(&scheme, call)?,
            scheme,
            span: e.span,
        }))
    }

    /// Values of a scheme's parameters: what the call says, else the defaults.
    fn settings(&mut self, scheme: &SchemeDef, call: &Call) -> Option<Vec<(String, Setting)>> {
        let mut given: BTreeMap<&str, (Setting, Span)> = BTreeMap::new();
        let mut good = true;
        for (label, value) in call
            .args
            .iter()
            .filter_map(|a| Some((a.label.as_ref()?, &a.value)))
        {
            let Some((param, _)) = scheme.values.iter().find(|(p, _)| p.name == label.name) else {
                let known: Vec<&str> = scheme.values.iter().map(|(p, _)| p.name.as_str()).collect();
                self.sink
                    .push(unknown_argument(&scheme.name.name, label, &known));
                good = false;
                continue;
            };
            let setting = match &value.kind {
                ExprKind::List(items) => {
                    let values: Option<Vec<Exact>> = items
                        .iter()
                        .map(|i| self.checked(exact(i, &Scope::new())))
                        .collect();
                    values.map(|v| Setting::PerStep(v, value.span))
                }
                _ => self.checked(exact(value, &Scope::new())).map(Setting::One),
            };
            match (setting, given.get(param.name.as_str())) {
                (Some(s), None) => _ = given.insert(&param.name, (s, label.span)),
                (_, Some((_, first))) => {
                    self.sink.push(repeated_argument(label, *first));
                    good = false;
                }
                (None, _) => good = false,
            }
        }
        let mut scope = Scope::new();
        let mut settings = Vec::new();
        for (param, default) in &scheme.values {
            let setting = match given.remove(param.name.as_str()) {
                Some((s, _)) => s,
                None => Setting::One(self.checked(exact(default, &scope))?),
            };
            if let Setting::One(v) = &setting {
                scope.insert(param.name.clone(), Coeff::constant(v.clone()));
            }
            settings.push((param.name.clone(), setting));
        }
        good.then_some(settings)
    }
}

/// A flow given where a field is integrated.
pub fn flow_for_field(span: Span, scheme: &SchemeDef) -> Diagnostic {
    Diagnostic::error(codes::TYPE_MISMATCH, span, format!("`{}` integrates a field, and this is a flow", scheme.name.name))
        .label("a field is expected here")
        .also(scheme.name.span, "defined here")
        .help("make a field of it with `increment(…)` (its change of the state) or `map(…)` (the new state)")
}

pub fn too_deep(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_LARGE, span, "this is nested too deeply")
}

/// `1 field`, `2 fields`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

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
    .also(first, "the first time")
}
