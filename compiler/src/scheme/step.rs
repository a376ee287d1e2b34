//! Step programs: assignments, `repeat`, `sum`, `flow … from`, executed on exact combinations.
//!
//! Names may be rebound, but not the state, `h`, `t` or a field. `repeat` is unrolled here; its count is checked first.
//! What an evaluation made a value of stays one: `y = x + h*A(x)  return y + h*B(y)` gives `y1 + h*k2`.

use super::coeff::Coeff;
use super::combination::Combination;
use super::embedded::Reached;
use super::flow::FlowArgKind;
use super::resolve::flow_for_field;
use super::run::{Frame, MAX_EVALUATIONS, Machine};
use super::scalar::{
    Scope, binary, is_root, literal, name_of, not_supported, scalar, unknown_name, whole,
};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Call, Expr, ExprKind, Ident, Range, RepeatCount, Step, Stmt};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;

/// What an expression of a step program is.
#[derive(Clone)]
enum Item {
    Number(Coeff),
    /// A vector in state space.
    Vector(Combination),
}

impl Item {
    fn what(&self) -> &'static str {
        match self {
            Item::Number(_) => "a number",
            Item::Vector(_) => "a state",
        }
    }
}

/// Names of a step program; `None`: set, but wrongly.
struct Names<'f> {
    frame: &'f Frame<'f>,
    state: &'f Ident,
    set: BTreeMap<String, Option<Item>>,
}

impl Machine<'_> {
    pub(super) fn step_program(&mut self, step: &Step, frame: &Frame) -> Option<Reached> {
        let set = frame
            .scope
            .iter()
            .map(|(n, c)| (n.clone(), Some(Item::Number(c.clone()))))
            .collect();
        let mut names = Names {
            frame,
            state: &step.state,
            set,
        };
        let mut result = None;
        let mut good = true;
        for (i, stmt) in step.body.iter().enumerate() {
            if let Stmt::Return {
                value, embedded, ..
            } = stmt
            {
                if let Some(next) = step.body.get(i + 1) {
                    return self.fail(
                        Diagnostic::error(
                            codes::MISSING_RETURN,
                            span_of(next),
                            "this is never reached",
                        )
                        .label("`return` must be the last statement")
                        .also(span_of(stmt), "the step ends here"),
                    );
                }
                let end = self.vector(value, &mut names);
                let partner = match embedded.as_ref().filter(|_| frame.outermost) {
                    Some(e) => Some(self.vector(e, &mut names)?),
                    None => None,
                };
                result = end.map(|end| Reached {
                    end,
                    embedded: partner,
                });
            } else if self.statement(stmt, &mut names).is_none() {
                good = false;
            }
        }
        if !matches!(step.body.last(), Some(Stmt::Return { .. })) {
            return self.fail(
                Diagnostic::error(
                    codes::MISSING_RETURN,
                    step.span,
                    "this step returns nothing",
                )
                .help("end it with the new state: `return x + h*k1`"),
            );
        }
        result.filter(|_| good)
    }

    fn statement(&mut self, stmt: &Stmt, names: &mut Names) -> Option<()> {
        self.charge(1, span_of(stmt))?;
        match stmt {
            Stmt::Assign { name, value, .. } => {
                self.assignable(name, names)?;
                let item = self.item(value, names);
                let good = item.is_some();
                names.set.insert(name.name.clone(), item);
                good.then_some(())
            }
            Stmt::Repeat { count, body, span } => self.repeat(count, body, *span, names),
            Stmt::Solve { name, span, .. } => {
                names.set.insert(name.name.clone(), None);
                self.fail(not_supported(*span, "`solve`"))
            }
            Stmt::Return { span, .. } => self.fail(
                Diagnostic::error(codes::MISSING_RETURN, *span, "`return` inside `repeat`")
                    .label("`return` must be the last statement of the step"),
            ),
        }
    }

    fn assignable(&mut self, name: &Ident, names: &Names) -> Option<()> {
        let what = match name.name.as_str() {
            n if n == names.state.name => "the state",
            "h" => "the step size",
            "t" => "the time",
            n if names.frame.flow.scheme.fields.iter().any(|f| f.name == n) => "a field",
            n if names.learned(n) => "a learned coefficient",
            _ => return Some(()),
        };
        self.fail(
            Diagnostic::error(
                codes::NOT_ASSIGNABLE,
                name.span,
                format!("`{}` is {what} and keeps its meaning", name.name),
            )
            .label("choose another name"),
        )
    }

    fn repeat(
        &mut self,
        count: &RepeatCount,
        body: &[Stmt],
        span: Span,
        names: &mut Names,
    ) -> Option<()> {
        let (variable, range) = match count {
            RepeatCount::Times(e) => {
                let times = self.ok(whole(e, &names.numbers(), 0, MAX_EVALUATIONS as u64))?;
                (None, 0..times as i64)
            }
            RepeatCount::Over(variable, range) => {
                self.assignable(variable, names)?;
                (Some(variable), self.bounds(range, names)?)
            }
            RepeatCount::Fields(_, list, _) => {
                return self.fail(not_supported(list.span, "a list of fields"));
            }
        };
        for j in range {
            self.charge(1, span)?;
            if let Some(v) = variable {
                names.set.insert(
                    v.name.clone(),
                    Some(Item::Number(Coeff::constant(odec_graph::Exact::int(j)))),
                );
            }
            let done: Vec<Option<()>> = body.iter().map(|s| self.statement(s, names)).collect();
            if done.contains(&None) {
                return None;
            }
        }
        Some(())
    }

    /// A range with both bounds known.
    fn bounds(&mut self, range: &Range, names: &mut Names) -> Option<std::ops::Range<i64>> {
        let (Some(start), Some(end)) = (&range.start, &range.end) else {
            return self.fail(not_supported(range.span, "a range over a history"));
        };
        let scope = names.numbers();
        let start = self.ok(whole(start, &scope, 0, MAX_EVALUATIONS as u64))? as i64;
        let end = self.ok(whole(end, &scope, 0, MAX_EVALUATIONS as u64))? as i64;
        Some(start..end + i64::from(range.inclusive))
    }

    fn vector(&mut self, e: &Expr, names: &mut Names) -> Option<Combination> {
        match self.item(e, names)? {
            Item::Vector(v) => Some(v),
            Item::Number(_) => self.fail(
                Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is a number")
                    .label("a state is expected here"),
            ),
        }
    }

    fn item(&mut self, e: &Expr, names: &mut Names) -> Option<Item> {
        self.nested(e.span, |m| m.item_inside(e, names))
    }

    fn item_inside(&mut self, e: &Expr, names: &mut Names) -> Option<Item> {
        self.charge(1, e.span)?;
        match &e.kind {
            ExprKind::Number(text) => self.ok(literal(text, e.span)).map(Item::Number),
            ExprKind::Name(name) => self.name(name, e.span, names),
            ExprKind::Neg(a) => Some(match self.item(a, names)? {
                Item::Number(c) => Item::Number(c.neg()),
                Item::Vector(v) => Item::Vector(self.add_scaled(
                    Combination::zero(),
                    &Coeff::one().neg(),
                    &v,
                    e.span,
                )?),
            }),
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.item(a, names), self.item(b, names));
                self.arithmetic(*op, a?, b?, e.span)
            }
            ExprKind::Call(call) if is_root(call) => {
                self.ok(scalar(e, &names.numbers())).map(Item::Number)
            }
            ExprKind::Call(call) => self.call(call, e.span, names),
            ExprKind::Index(name, at) => self.indexed(name, at, e.span, names),
            ExprKind::Sum { var, range, body } => self.sum(var, range, body, e.span, names),
            ExprKind::Flow { flows, from } => {
                let from = self.vector(from, names)?;
                self.sub_flows(flows, from, names.frame).map(Item::Vector)
            }
            ExprKind::Tuple(items) if items.len() == 1 => self.item(&items[0], names),
            ExprKind::Quantity(..) => self.ok(scalar(e, &Scope::new())).map(Item::Number),
            _ => self.fail(
                Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    e.span,
                    "this has no meaning in a step",
                )
                .label("a state or a number is expected here"),
            ),
        }
    }

    /// `beta[j]`, an entry of a learned list.
    fn indexed(&mut self, name: &Ident, at: &Expr, span: Span, names: &mut Names) -> Option<Item> {
        let Some(len) = names.frame.lists.get(&name.name) else {
            return self.fail(not_supported(span, "an earlier value of a name (history)"));
        };
        let i = self.ok(whole(at, &names.numbers(), 0, *len as u64 - 1))?;
        let symbol = format!("{}[{i}]", name.name);
        Some(Item::Number(Coeff::symbol(&symbol)))
    }

    fn name(&mut self, name: &str, span: Span, names: &mut Names) -> Option<Item> {
        let frame = names.frame;
        if name == names.state.name {
            return Some(Item::Vector(Combination::value(frame.start)));
        }
        if name == "h" {
            return Some(Item::Number(frame.h.clone()));
        }
        if let Some(item) = names.set.get(name) {
            return item.clone();
        }
        if name == "t" {
            return self.fail(not_supported(span, "the time `t`"));
        }
        if let Some(len) = frame.lists.get(name) {
            return self.fail(
                Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    span,
                    format!("`{name}` is a list of {len}"),
                )
                .label("a state or a number is expected here")
                .help(format!("name an entry: `{name}[0]`")),
            );
        }
        let fields = frame.flow.scheme.fields.iter().map(|f| f.name.as_str());
        if fields.clone().any(|f| f == name) {
            return self.fail(
                Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    span,
                    format!("`{name}` is a field, not a state"),
                )
                .help(format!("evaluate it: `{name}({})`", names.state.name)),
            );
        }
        let known = names
            .set
            .keys()
            .map(String::as_str)
            .chain(fields)
            .chain([names.state.name.as_str(), "h"]);
        let d = unknown_name(name, span, known).label("not set before this point");
        self.fail(d)
    }

    fn arithmetic(&mut self, op: BinOp, a: Item, b: Item, span: Span) -> Option<Item> {
        let d = match (op, a, b) {
            (op, Item::Number(a), Item::Number(b)) => {
                self.charge(a.weight() * b.weight(), span)?;
                return self.ok(binary(op, &a, &b, span)).map(Item::Number);
            }
            (BinOp::Add, Item::Vector(a), Item::Vector(b)) => {
                return self
                    .add_scaled(a, &Coeff::one(), &b, span)
                    .map(Item::Vector);
            }
            (BinOp::Sub, Item::Vector(a), Item::Vector(b)) => {
                return self
                    .add_scaled(a, &Coeff::one().neg(), &b, span)
                    .map(Item::Vector);
            }
            (BinOp::Mul, Item::Number(c), Item::Vector(v))
            | (BinOp::Mul, Item::Vector(v), Item::Number(c)) => {
                return self
                    .add_scaled(Combination::zero(), &c, &v, span)
                    .map(Item::Vector);
            }
            (BinOp::Div, Item::Vector(v), Item::Number(c)) => {
                let inverse = self.ok(binary(BinOp::Div, &Coeff::one(), &c, span))?;
                return self
                    .add_scaled(Combination::zero(), &inverse, &v, span)
                    .map(Item::Vector);
            }
            (BinOp::Mul, Item::Vector(_), Item::Vector(_)) => {
                not_supported(span, "a product of states")
            }
            (op, a, b) => {
                let verb = match op {
                    BinOp::Add => "added to",
                    BinOp::Sub => "subtracted from",
                    BinOp::Mul => "multiplied by",
                    BinOp::Div => "divided by",
                    BinOp::Pow => "raised to",
                };
                let (left, right) = if op == BinOp::Sub {
                    (b.what(), a.what())
                } else {
                    (a.what(), b.what())
                };
                Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    span,
                    format!("{left} cannot be {verb} {right}"),
                )
                .label("states are added to states and multiplied by numbers")
            }
        };
        self.fail(d)
    }

    fn call(&mut self, call: &Call, span: Span, names: &mut Names) -> Option<Item> {
        let Some(callee) = name_of(&call.callee) else {
            return self.fail(not_supported(call.callee.span, "a field from a list"));
        };
        let Some(arg) = self.argument(&callee.name, names.frame) else {
            let d = match callee.name.as_str() {
                "normalize" | "nonnegative" => {
                    not_supported(span, &format!("the projection `{}`", callee.name))
                }
                _ => {
                    let fields = names
                        .frame
                        .flow
                        .scheme
                        .fields
                        .iter()
                        .map(|f| f.name.as_str());
                    unknown_name(&callee.name, callee.span, fields)
                        .label("a field parameter of this scheme is expected")
                }
            };
            return self.fail(d);
        };
        if let Some(label) = call.args.iter().find_map(|a| a.label.as_ref()) {
            return self.fail(match label.name.as_str() {
                "at" => not_supported(label.span, "`at:`"),
                _ => super::resolve::unknown_argument(&callee.name, label, &["at"]),
            });
        }
        let value = match &call.args[..] {
            [value] => value,
            [] => {
                let message = format!("field `{}` is evaluated at nothing", callee.name);
                let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                    .help(format!("write `{}({})`", callee.name, names.state.name));
                return self.fail(d);
            }
            [_, second, ..] => {
                return self.fail(not_supported(
                    second.value.span,
                    "a field of several arguments",
                ));
            }
        };
        let at = self.vector(&value.value, names)?;
        match &arg.kind {
            FlowArgKind::Field { field, by: None } => {
                let at = Combination::value(self.value(at, span)?);
                // A name that a field was evaluated at is a value of its own from here on, not a sum copied everywhere.
                if let ExprKind::Name(name) = &value.value.kind
                    && let Some(item) = names.set.get_mut(name)
                {
                    *item = Some(Item::Vector(at.clone()));
                }
                self.field_at(field, at, span).map(Item::Vector)
            }
            FlowArgKind::Field { by: Some(by), .. } => self.fail(
                Diagnostic::error(codes::TYPE_MISMATCH, by.span, "`by` has no meaning here")
                    .label("only a flow has an inner scheme")
                    .also(span, "the field is evaluated here"),
            ),
            FlowArgKind::Flow(_) => {
                let d = flow_for_field(arg.span, &names.frame.flow.scheme)
                    .also(span, "it is evaluated here");
                self.fail(d)
            }
        }
    }

    fn sum(
        &mut self,
        var: &Ident,
        range: &Range,
        body: &Expr,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        self.assignable(var, names)?;
        let bounds = self.bounds(range, names)?;
        let mut inner = Names {
            frame: names.frame,
            state: names.state,
            set: names.set.clone(),
        };
        let mut sum: Option<Item> = None;
        for j in bounds {
            self.charge(1, span)?;
            inner.set.insert(
                var.name.clone(),
                Some(Item::Number(Coeff::constant(odec_graph::Exact::int(j)))),
            );
            let item = self.item(body, &mut inner)?;
            sum = Some(match sum {
                None => item,
                Some(so_far) => self.arithmetic(BinOp::Add, so_far, item, span)?,
            });
        }
        Some(sum.unwrap_or(Item::Number(Coeff::zero())))
    }
}

impl Names<'_> {
    fn learned(&self, name: &str) -> bool {
        let learns = &self.frame.flow.scheme.learns;
        learns.iter().any(|l| l.name.name == name)
    }

    /// The names that are numbers.
    fn numbers(&self) -> Scope {
        let number = |(n, item): (&String, &Option<Item>)| match item {
            Some(Item::Number(c)) => Some((n.clone(), c.clone())),
            _ => None,
        };
        let mut scope: Scope = self.set.iter().filter_map(number).collect();
        scope.insert("h".into(), self.frame.h.clone());
        scope
    }
}

fn span_of(stmt: &Stmt) -> Span {
    match stmt {
        Stmt::Assign { span, .. }
        | Stmt::Repeat { span, .. }
        | Stmt::Solve { span, .. }
        | Stmt::Return { span, .. } => *span,
    }
}
