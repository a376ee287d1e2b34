//! Splittings: flows of single fields, one after the other, each over its fraction of the step.
//!
//! A field stands for its own flow, integrated by one Euler step or by the scheme named after `by`. Coefficients may be any exact
//! numbers, also negative ones.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::embedded::Reached;
use super::flow::{Field, FlowArg, FlowArgKind};
use super::run::{Frame, StageTracer};
use super::scalar::name_of;
use super::stage::Steps;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, SubFlow};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The part of `h` in the brackets of a sub-flow. Of anything but one expression the parser makes a call of the sub-flow's name.
fn one_part(sub: &SubFlow) -> Result<&Expr, Diagnostic> {
    match &sub.fraction.kind {
        ExprKind::Call(call) if call.callee.span == sub.name.span => {
            let name = &sub.name.name;
            let message = format!("`{name}` takes one part of `h`");
            let applied = if sub.args.is_some() { "(…)" } else { "" };
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, sub.fraction.span, message)
                .label("one number is expected in the last brackets")
                .help(format!("write `{name}{applied}(1/2)` for half a step"));
            Err(d)
        }
        _ => Ok(&sub.fraction),
    }
}

/// The error for a scheme that is given its fields and no part of `h`.
fn without_part(
    sub: &SubFlow,
    entries: &BTreeMap<String, FlowArg>,
    frame: &Frame,
) -> Option<Diagnostic> {
    let fields = &frame.flow.scheme.fields;
    let is_field = |n: &str| fields.iter().any(|f| f.name == n) || entries.contains_key(n);
    let given: Vec<&Expr> = match &sub.fraction.kind {
        ExprKind::Call(call) => call.args.iter().map(|a| &a.value).collect(),
        _ => vec![&sub.fraction],
    };
    let named: Vec<String> = given
        .into_iter()
        .filter_map(name_of)
        .map(|n| n.name)
        .collect();
    let name = &sub.name.name;
    if is_field(name) || !named.iter().any(|n| is_field(n)) {
        return None;
    }
    let message = format!("`{name}` is given no part of `h`");
    let d = Diagnostic::error(codes::ARGUMENT_COUNT, sub.span, message)
        .label("a scheme stands with its fields, and behind them its part of `h`");
    Some(d.help(format!(
        "write `{name}({})(1)` for a whole step",
        named.join(", ")
    )))
}

impl StageTracer<'_> {
    pub(super) fn splitting(&mut self, flows: &[SubFlow], frame: &Frame) -> Option<Reached> {
        let (start, none) = (Combination::value(frame.start), BTreeMap::new());
        let end = self.sub_flows(flows, start.clone(), &none, frame)?;
        let partner = &frame.flow.scheme.embedded;
        let partner = partner.as_ref().filter(|_| frame.outermost);
        let embedded = match partner {
            Some(flows) => Some(self.sub_flows(flows, start, &none, frame)?),
            None => None,
        };
        Some(Reached {
            end,
            embedded,
            keeps: Vec::new(),
        })
    }

    /// `A(1/2) B(1) A(1/2)` from a state; `entries` are names for what stands in a list.
    pub(super) fn sub_flows(
        &mut self,
        flows: &[SubFlow],
        from: Combination,
        entries: &BTreeMap<String, FlowArg>,
        frame: &Frame,
    ) -> Option<Combination> {
        let mut state = from;
        for sub in flows {
            let arg = self.part(sub, entries, frame)?;
            let part = self.ok(one_part(sub))?;
            let fraction = self.constant(part, &frame.scope)?;
            let h = frame.h.mul(&Coeff::constant(fraction));
            let h = self.exact(h, sub.fraction.span)?;
            let start = self.value(state, sub.span)?;
            state = self.written_at(sub.span, |m| m.sub_flow(&arg, start, &h, sub.span))?;
        }
        Some(state)
    }

    /// The field or the flow that is followed.
    pub(super) fn part(
        &mut self,
        sub: &SubFlow,
        entries: &BTreeMap<String, FlowArg>,
        frame: &Frame,
    ) -> Option<FlowArg> {
        if let Some(args) = &sub.args {
            let flow = self.inner_flow(sub, args, entries, frame)?;
            return Some(FlowArg {
                kind: FlowArgKind::Flow(Rc::new(flow)),
                span: sub.span,
            });
        }
        let name = Expr {
            kind: ExprKind::Name(sub.name.name.clone()),
            span: sub.name.span,
        };
        if let Some(d) = without_part(sub, entries, frame) {
            return self.fail(d);
        }
        self.field_named(&name, entries, frame)
    }

    fn sub_flow(
        &mut self,
        arg: &FlowArg,
        start: ValueId,
        h: &Coeff,
        span: Span,
    ) -> Option<Combination> {
        match &arg.kind {
            FlowArgKind::Flow(flow) => self.flow(flow, start, h),
            FlowArgKind::Field { field, by: None } => {
                if let (Steps::Exact, Field::Leaf(leaf)) = (self.at.inner, &**field) {
                    return self.exact_flow(leaf, start, h, span);
                }
                let at = Combination::value(start);
                let k = self.field(field, at.clone(), span)?;
                self.add_scaled(at, h, &k, span)
            }
            FlowArgKind::Field {
                field,
                by: Some(method),
            } => {
                let inner = method.on(field, arg.span);
                self.flow(&inner, start, h)
            }
        }
    }
}
