//! Applies a scheme to fields, flows and lists of fields, with values for its parameters.
//!
//! Takes a call and the scheme it names; gives a [`Flow`]. Leaves names and kinds of expressions to `resolve.rs`.

use super::coeff::Coeff;
use super::define::SchemeDef;
use super::expression::is_method;
use super::flow::{Applied, Flow, FlowArg, FlowArgKind, Method, Setting};
use super::names::Definition;
use super::resolve::{Resolver, count, flow_for_field, repeated_argument, unknown_argument};
use super::scalar::{Scope, name_of};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

impl Resolver<'_, '_> {
    pub(super) fn apply(
        &mut self,
        scheme: Rc<SchemeDef>,
        call: &Call,
        span: Span,
    ) -> Option<Rc<Flow>> {
        let known = self.used().len();
        let positional: Vec<&Arg> = call.args.iter().filter(|a| a.label.is_none()).collect();
        let settings = self.settings(&scheme, call);
        let fields = scheme.fields.len();
        let few = positional.len() < fields + usize::from(scheme.list.is_some());
        if few || (scheme.list.is_none() && positional.len() > fields) {
            let shown = scheme.fields.iter().map(|f| f.name.clone());
            let list = scheme.list.iter();
            let list = list.map(|l| format!("{0}1, {0}2", l.name.to_lowercase()));
            let names: Vec<String> = shown.chain(list).collect();
            let takes = match scheme.list {
                Some(_) => format!("{} or more", count(fields + 1, "field")),
                None => count(fields, "field"),
            };
            let name = &scheme.name.name;
            let message = format!("scheme `{name}` takes {takes}, not {}", positional.len());
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                .also(scheme.name.span, "defined here")
                .help(format!("apply it as `{name}({})`", names.join(", ")));
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
        let list = match &scheme.list {
            Some(list) => self.list(&positional[fields..], &list.name, &scheme),
            None => Some(Vec::new()),
        };
        let (settings, list) = (settings?, list?);
        let applied = Applied {
            scheme: scheme.clone(),
            settings: settings.clone(),
            listed: list.len(),
            start_by: start_by.clone(),
            span,
        };
        self.uses(known, applied);
        Some(Rc::new(Flow {
            start_by,
            args: args.into_iter().collect::<Option<_>>()?,
            list,
            settings,
            scheme,
            span,
        }))
    }

    /// The arguments behind the single fields, or the one list that stands there: `[linear(2048), linear(512)]`. Fields
    /// without a name of their own are called `L.1`, `L.2`.
    fn list(&mut self, rest: &[&Arg], param: &str, scheme: &SchemeDef) -> Option<Vec<FlowArg>> {
        let bracketed: Vec<Arg> = match rest {
            [
                Arg {
                    value, by: None, ..
                },
            ] if let ExprKind::List(items) = &value.kind => {
                if items.is_empty() {
                    let message = "this list is empty";
                    let d = Diagnostic::error(codes::ARGUMENT_COUNT, value.span, message);
                    return self.fail(d.label(format!("`{param}` stands for one or more fields")));
                }
                let arg = |item: &Expr| Arg {
                    label: None,
                    value: item.clone(),
                    by: None,
                };
                items.iter().map(arg).collect()
            }
            _ => rest.iter().map(|a| (*a).clone()).collect(),
        };
        let named = |i: usize| format!("{param}.{}", i + 1);
        let items = bracketed.iter().enumerate();
        let entries = items.map(|(i, a)| self.flow_arg(a, &named(i), scheme));
        let entries: Vec<_> = entries.collect();
        entries.into_iter().collect()
    }

    fn flow_arg(&mut self, arg: &Arg, param: &str, scheme: &SchemeDef) -> Option<FlowArg> {
        let e = &arg.value;
        let is_scheme = match &e.kind {
            ExprKind::Call(call) => match name_of(&call.callee) {
                Some(n) => matches!(self.names.get(&n, self.sink), Ok(Definition::Scheme(_))),
                None => is_method(&call.callee),
            },
            _ => false,
        };
        let kind = if is_scheme {
            if let Some(by) = &arg.by {
                return self.fail(
                    Diagnostic::error(codes::MISPLACED, by.span, "a flow already has a scheme")
                        .label("`by` belongs to a field")
                        .also(e.span, "this is a flow"),
                );
            }
            let flow = self.flow(e)?;
            if !scheme.body.takes_flows() {
                return self.fail(flow_for_field(e.span, scheme));
            }
            FlowArgKind::Flow(flow)
        } else {
            let by = match &arg.by {
                Some(by) if !scheme.body.takes_flows() => {
                    return self.fail(
                        Diagnostic::error(codes::MISPLACED, by.span, "`by` cannot be used here")
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
            // Each argument is a field of its own, also where one name is given twice: times tell them apart (`time.rs`).
            let field = Rc::new((*self.field(e, param)?).clone());
            FlowArgKind::Field { field, by }
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
        if is_method(e) {
            let scheme = self.expression(e)?;
            self.of_one_field(&scheme, e.span)?;
            return Some(Rc::new(Method {
                settings: Vec::new(),
                scheme,
                span: e.span,
            }));
        }
        let (callee, call) = match &e.kind {
            ExprKind::Call(call) => (name_of(&call.callee), Some(call)),
            _ => (name_of(e), None),
        };
        let Some(name) = callee else {
            let d = Diagnostic::error(codes::NOT_A_SCHEME, e.span, "this is not a scheme")
                .label("a scheme is expected here");
            return self.fail(d);
        };
        let scheme = match self.definition(&name)? {
            Definition::Scheme(scheme) => scheme,
            other => {
                let d = other.not_a_scheme(&name);
                return self.fail(d.label("a scheme is expected after `by`"));
            }
        };
        self.of_one_field(&scheme, e.span)?;
        let none = Call {
            callee: e.clone(),
            args: Vec::new(),
        };
        let call = call.map_or(&none, |c| c);
        if let Some(a) = call.args.iter().find(|a| a.label.is_none()) {
            let d = Diagnostic::error(
                codes::MISPLACED,
                a.value.span,
                "write the field before `by`",
            )
            .label("only named values are allowed here");
            return self.fail(d);
        }
        let settings = self.settings(&scheme, call)?;
        let applied = Applied {
            scheme: scheme.clone(),
            settings: settings.clone(),
            listed: 0,
            start_by: None,
            span: e.span,
        };
        self.uses(self.used().len(), applied);
        Some(Rc::new(Method {
            settings,
            scheme,
            span: e.span,
        }))
    }

    fn of_one_field(&mut self, scheme: &SchemeDef, span: Span) -> Option<()> {
        if scheme.fields.len() == 1 && scheme.list.is_none() {
            return Some(());
        }
        let takes = count(scheme.fields.len(), "field");
        let message = format!("scheme `{}` takes {takes}", scheme.name.name);
        let d = Diagnostic::error(codes::FIELD_COUNT, span, message)
            .label("a scheme of one field is expected after `by`");
        self.fail(match scheme.name.span == span {
            true => d,
            false => d.also(scheme.name.span, "defined here"),
        })
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
                        .map(|i| self.number(i, &Scope::new()))
                        .collect();
                    values.map(|v| Setting::PerStep(v, value.span))
                }
                _ => self.number(value, &Scope::new()).map(Setting::One),
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
                None => Setting::One(self.number(default, &scope)?),
            };
            if let Setting::One(v) = &setting {
                scope.insert(param.name.clone(), Coeff::constant(v.clone()));
            }
            settings.push((param.name.clone(), setting));
        }
        good.then_some(settings)
    }
}
