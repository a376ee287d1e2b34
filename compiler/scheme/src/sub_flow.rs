//! Schemes that a step or a splitting applies to its own fields: `flow strang(A, B)(1/2) from x`.
//!
//! Their names are looked up where the scheme around them is applied. Their steps are inlined as those of any nested flow, so proofs see
//! through them. One that is named twice uses the same parameters and learned coefficients. Leaves the steps to `splitting.rs`.

use super::coeff::Coeff;
use super::define::{Body, SchemeDef};
use super::flow::{Flow, FlowArg, Setting};
use super::mentions::Mentions;
use super::names::Definition;
use super::resolve::{Resolver, count, repeated_argument, unknown_argument};
use super::run::{Frame, StageTracer};
use super::scalar::{Scope, name_of, unknown_name};
use crate::codes;
use odec_grammar::ast::{Arg, Expr, Ident, SubFlow};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The sub-flows of a scheme that are schemes themselves.
fn applied(def: &SchemeDef) -> Vec<&SubFlow> {
    let mut found = Mentions::default();
    match &def.body {
        Body::Step(step) => found.statements(&step.body),
        Body::Splitting(flows) => found.flows(flows),
        _ => {}
    }
    def.embedded.iter().for_each(|flows| found.flows(flows));
    def.start
        .iter()
        .for_each(|(body, _)| found.statements(body));
    found.applied
}

/// The values that a sub-flow gives to its scheme's parameters.
fn labelled(args: &[Arg]) -> impl Iterator<Item = (&Ident, &Expr)> {
    args.iter()
        .filter_map(|a| Some((a.label.as_ref()?, &a.value)))
}

/// The fields that it gives.
fn given(args: &[Arg]) -> impl Iterator<Item = &Expr> {
    let fields = args.iter().filter(|a| a.label.is_none());
    fields.map(|a| &a.value)
}

impl Resolver<'_, '_> {
    /// A scheme with those that its sub-flows name, looked up once.
    pub(super) fn with_inner(&mut self, scheme: Rc<SchemeDef>) -> Option<Rc<SchemeDef>> {
        let applied = applied(&scheme);
        let Some(first) = applied.first() else {
            return Some(scheme);
        };
        self.made_once(&scheme, first.span, |r| {
            let mut inner = BTreeMap::new();
            for sub in &applied {
                let found = r.inner(&scheme, sub)?;
                inner.insert(sub.name.name.clone(), found);
            }
            Some(Rc::new(SchemeDef {
                inner,
                ..(*scheme).clone()
            }))
        })
    }

    /// The scheme of one sub-flow, its arguments checked.
    fn inner(&mut self, around: &SchemeDef, sub: &SubFlow) -> Option<Rc<SchemeDef>> {
        let (name, args) = (&sub.name, sub.args.as_deref().unwrap_or_default());
        if let Some(field) = around.fields.iter().find(|f| f.name == name.name) {
            let message = format!("`{}` is a field, and takes none", name.name);
            let d = Diagnostic::error(codes::NOT_A_SCHEME, name.span, message);
            let d = d.also(field.span, "declared here");
            return self.fail(d.help(format!("its flow is `{}(1/2)`", name.name)));
        }
        let scheme = match self.definition(name)? {
            Definition::Scheme(scheme) => scheme,
            other => {
                let d = other.not_a_scheme(name);
                return self.fail(d.label("a scheme is expected here"));
            }
        };
        self.is_one_step(&scheme, name)?;
        if let Some(by) = args.iter().find_map(|a| a.by.as_ref()) {
            let d = Diagnostic::error(codes::MISPLACED, by.span, "`by` cannot be used here")
                .label("a scheme inside of another follows its fields as they are given")
                .help(format!(
                    "inner schemes are named where the scheme around it is applied: `{}(att by heun, ffn)`",
                    around.name.name
                ));
            return self.fail(d);
        }
        let mut seen: Vec<&Ident> = Vec::new();
        for (label, _) in labelled(args) {
            if !scheme.values.iter().any(|(p, _)| p.name == label.name) {
                let known = scheme.values.iter().map(|(p, _)| p.name.as_str());
                let known: Vec<&str> = known.collect();
                return self.fail(unknown_argument(&name.name, label, &known));
            }
            if let Some(first) = seen.iter().find(|l| l.name == label.name) {
                return self.fail(repeated_argument(label, first.span));
            }
            seen.push(label);
        }
        let fields = given(args).count();
        if fields == scheme.fields.len() {
            return Some(scheme);
        }
        let takes = count(scheme.fields.len(), "field");
        let message = format!("scheme `{}` takes {takes}, not {fields}", name.name);
        let own = scheme.fields.iter().map(|f| f.name.as_str());
        let own: Vec<&str> = own.collect();
        let d = Diagnostic::error(codes::ARGUMENT_COUNT, sub.span, message)
            .also(scheme.name.span, "defined here")
            .help(format!(
                "name its fields, and behind them its part of `h`: `{}({})(1/2)`",
                name.name,
                own.join(", ")
            ));
        self.fail(d)
    }
}

impl StageTracer<'_> {
    /// The scheme of a sub-flow on the fields around it; `entries` are names for what stands in a list.
    pub(super) fn inner_flow(
        &mut self,
        sub: &SubFlow,
        args: &[Arg],
        entries: &BTreeMap<String, FlowArg>,
        frame: &Frame,
    ) -> Option<Flow> {
        // Whoever applies a scheme has looked this up.
        let scheme = frame.flow.scheme.inner.get(&sub.name.name)?.clone();
        let mut settings = Vec::new();
        let mut scope = Scope::new();
        for (param, default) in &scheme.values {
            let given = labelled(args).find(|(l, _)| l.name == param.name);
            let value = match given {
                Some((_, e)) => self.constant(e, &frame.scope)?,
                None => self.constant(default, &scope)?,
            };
            scope.insert(param.name.clone(), Coeff::constant(value.clone()));
            settings.push((param.name.clone(), Setting::One(value)));
        }
        let fields = given(args).map(|e| self.field_named(e, entries, frame));
        let fields: Vec<FlowArg> = fields.collect::<Option<_>>()?;
        Some(Flow {
            scheme,
            args: fields,
            list: Vec::new(),
            settings,
            start_by: None,
            span: frame.flow.span,
        })
    }

    /// What stands for a field that an expression names.
    pub(super) fn field_named(
        &mut self,
        e: &Expr,
        entries: &BTreeMap<String, FlowArg>,
        frame: &Frame,
    ) -> Option<FlowArg> {
        let Some(name) = name_of(e) else {
            let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, "this is not a field");
            return self.fail(d.label("a field parameter of this scheme is expected"));
        };
        let entry = entries.get(&name.name).cloned();
        entry
            .or_else(|| self.argument(&name.name, frame))
            .or_else(|| {
                let fields = frame.flow.scheme.fields.iter().map(|f| f.name.as_str());
                let known = fields.chain(entries.keys().map(String::as_str));
                let d = unknown_name(&name.name, name.span, known);
                self.fail(d.label("a field parameter of this scheme is expected"))
            })
    }
}
