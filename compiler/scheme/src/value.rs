//! Evaluates expressions of step programs: exact numbers and exact combinations of states.
//!
//! Takes syntax and the names set so far; gives an [`Item`]. A sum is added up term by term; `0..` runs over the history.

use super::coeff::Coeff;
use super::combination::Combination;
use super::exponential::without_state;
use super::factor::Item;
use super::flow::FlowArg;
use super::function::Function;
use super::names::MAX_MESSAGES;
use super::polynomial;
use super::run::{Frame, MAX_EVALUATIONS, StageTracer};
use super::scalar::{
    ROOT_WORK, Scope, applied, argument, arithmetic, is_function, is_root, literal, named_function,
    root_of, rounding, unknown_name, with_values,
};
use super::stage::Moment;
use crate::codes;
use odec_exact::{Exact, ExactError};
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Call, Expr, ExprKind, Ident, Over, Range};
use odec_grammar::diag::Diagnostic;
use std::collections::BTreeMap;

/// Names of a step program; `None`: set, but wrongly.
pub(super) struct Names<'f> {
    pub frame: &'f Frame<'f>,
    pub state: &'f Ident,
    /// The state among them.
    pub set: BTreeMap<String, Option<Item>>,
    /// Entries of a list, in `repeat l in L[..]`.
    pub fields: BTreeMap<String, FlowArg>,
    /// In `start`, before there is a step.
    pub before: bool,
    /// With `start by`: the last value that each name of the history was given.
    pub last: BTreeMap<String, Combination>,
}

impl StageTracer<'_> {
    /// The numbers of a range; without an end, all entries of the history from its beginning.
    pub(super) fn bounds(
        &mut self,
        range: &Range,
        names: &mut Names,
    ) -> Option<std::ops::Range<i64>> {
        let scope = names.numbers();
        let Some(start) = &range.start else {
            let d = Diagnostic::error(
                codes::MISSING_ARGUMENT,
                range.span,
                "this range has no beginning",
            );
            return self.fail(d.help("write `0..`, or `1..` to leave the newest entry out"));
        };
        let Some(end) = &range.end else {
            let history = self.history(range.span, names.frame)?;
            if history.past.is_empty() {
                let message = "this range runs over the history, and this scheme has none";
                let d = Diagnostic::error(codes::NO_HISTORY, range.span, message)
                    .label("no step reads a value of an earlier step")
                    .help("give the range an end: `0..n`");
                return self.fail(d);
            }
            let start = self.whole(start, &scope, 0, MAX_EVALUATIONS as u64)? as i64;
            return Some(start..history.entries(self.at.phase) as i64);
        };
        let start = self.whole(start, &scope, 0, MAX_EVALUATIONS as u64)? as i64;
        let end = self.whole(end, &scope, 0, MAX_EVALUATIONS as u64)? as i64;
        Some(start..end + i64::from(range.inclusive))
    }

    pub(super) fn vector(&mut self, e: &Expr, names: &mut Names) -> Option<Combination> {
        match self.item(e, names)? {
            Item::Vector(v) => Some(v),
            Item::Factor { span, .. } => self.fail(
                Diagnostic::error(
                    codes::STATE_ARITHMETIC,
                    span,
                    "a number is added to a state",
                )
                .label("states are added to states and multiplied by numbers")
                .help("such a sum is only allowed as a factor: `(1 - g)*k`"),
            ),
            Item::Number(_) => self.fail(
                Diagnostic::error(codes::NOT_A_STATE, e.span, "this is a number")
                    .label("a state is expected here"),
            ),
        }
    }

    pub(super) fn item(&mut self, e: &Expr, names: &mut Names) -> Option<Item> {
        self.nested(e.span, |m| m.item_inside(e, names))
    }

    fn item_inside(&mut self, e: &Expr, names: &mut Names) -> Option<Item> {
        self.charge(1, e.span)?;
        match &e.kind {
            ExprKind::Number(text) => self.ok(literal(text, e.span)).map(Item::Number),
            ExprKind::Name(name) => self.name(name, e.span, names),
            ExprKind::Neg(a) => {
                let minus = Item::Number(Coeff::one().neg());
                let a = self.item(a, names)?;
                self.arithmetic(BinOp::Mul, minus, a, e.span)
            }
            ExprKind::Binary(op, a, b) => {
                let divisor = b;
                let (a, b) = (self.item(a, names), self.item(b, names));
                let (a, b) = (a?, b?);
                if let (BinOp::Div, Item::Number(by)) = (op, &b)
                    && by.is_zero()
                {
                    let d = arithmetic(ExactError::DivisionByZero.into(), e.span);
                    return self.fail(with_values(d, divisor, &names.numbers()));
                }
                self.arithmetic(*op, a, b, e.span)
            }
            ExprKind::Call(call) if is_function(call) && !self.hides(call, names) => {
                self.function(call, e, names).map(Item::Number)
            }
            ExprKind::Call(call) => self.call(call, e.span, names),
            ExprKind::Index(name, at) => self.indexed(name, at, e.span, names),
            ExprKind::Sum { var, over, body } => self.sum(var, over, body, e.span, names),
            ExprKind::Flow { flows, from } => {
                self.step_size(e.span, names)?;
                let from = self.vector(from, names)?;
                self.sub_flows(flows, from, &names.fields, names.frame)
                    .map(Item::Vector)
            }
            ExprKind::Tuple(items) if items.len() == 1 => self.item(&items[0], names),
            ExprKind::Quantity(..) => self.number(e, &Scope::new()).map(Item::Number),
            _ => self.fail(
                Diagnostic::error(codes::NOT_A_STATE, e.span, "this cannot be used in a step")
                    .label("a state or a number is expected here"),
            ),
        }
    }

    /// Whether a field of the scheme has the name of a function.
    fn hides(&self, call: &Call, names: &Names) -> bool {
        let name = named_function(call).map(|(name, _)| name);
        name.or_else(|| rounding(call)).is_some_and(|n| {
            let n = n.name;
            names.fields.contains_key(&n) || self.argument(&n, names.frame).is_some()
        })
    }

    /// `exp(-a*h)`, `sqrt(3)`, `len(L)`: numbers of numbers.
    fn function(&mut self, call: &Call, e: &Expr, names: &mut Names) -> Option<Coeff> {
        if let Some((name, function)) = named_function(call) {
            return self.function_of_number(call, &name, function, e.span, names);
        }
        let numbers = names.numbers();
        if let Some(named) = polynomial::of(call, &numbers) {
            let name = &named.variable.name;
            if names.set.contains_key(name) || names.frame.lists.contains_key(name) {
                return self.fail(polynomial::bound(&named));
            }
            return self.number(e, &numbers);
        }
        let args = call.args.iter().map(|a| &a.value).filter(|_| is_root(call));
        for arg in args {
            if !matches!(self.item(arg, names)?, Item::Number(_)) {
                return self.fail(not_of_state("root", arg.span));
            }
        }
        self.number(e, &numbers)
    }

    fn function_of_number(
        &mut self,
        call: &Call,
        name: &Ident,
        function: Function,
        span: Span,
        names: &mut Names,
    ) -> Option<Coeff> {
        let arg = self.ok(argument(call, &name.name, span))?;
        if let Some(d) = without_state(name, span).filter(|_| self.names_field(arg, names)) {
            return self.fail(d);
        }
        let Item::Number(of) = self.item(arg, names)? else {
            return self.fail(not_of_state(&name.name, arg.span));
        };
        let constant = of.as_constant();
        let cost = constant.as_ref().map_or(of.weight(), Exact::cost);
        self.charge(ROOT_WORK + cost, span)?;
        match (function, constant) {
            (Function::Sqrt, Some(x)) => self.ok(root_of(&x, 2, span)),
            _ => self.ok(applied(function, &of, span)),
        }
    }

    /// `beta[j]`, an entry of a learned list.
    fn indexed(&mut self, name: &Ident, at: &Expr, span: Span, names: &mut Names) -> Option<Item> {
        let Some(len) = names.frame.lists.get(&name.name) else {
            return self.indexed_state(name, at, span, names);
        };
        let i = self.whole(at, &names.numbers(), 0, *len as u64 - 1)?;
        let symbol = format!("{}[{i}]", name.name);
        Some(Item::Number(Coeff::symbol(&symbol)))
    }

    /// `v[-j]`, what a name was `j` steps ago; `v[0]`, what it is now.
    fn indexed_state(
        &mut self,
        name: &Ident,
        at: &Expr,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        let index = self.constant(at, &names.numbers())?;
        let age = index.as_integer().and_then(|i| usize::try_from(-i).ok());
        match age {
            Some(0) => self.name(&name.name, name.span, names),
            Some(age) => self.entry(name, age, span, names.frame).map(Item::Vector),
            None => self.fail(
                Diagnostic::error(
                    codes::OUT_OF_RANGE,
                    at.span,
                    format!("`{}` has no entry {index}", name.name),
                )
                .label("0, or a negative whole number, is expected")
                .help(format!(
                    "`{0}[0]` is its value now, `{0}[-1]` that of the step before",
                    name.name
                )),
            ),
        }
    }

    pub(super) fn step_size(&mut self, span: Span, names: &Names) -> Option<Coeff> {
        if !names.before {
            return Some(names.frame.h.clone());
        }
        self.fail(
            Diagnostic::error(codes::MISPLACED, span, "there is no step size in `start`")
                .label("it comes before the first step"),
        )
    }

    fn name(&mut self, name: &str, span: Span, names: &mut Names) -> Option<Item> {
        let frame = names.frame;
        if name == "h" {
            return self.step_size(span, names).map(Item::Number);
        }
        if name == "t" {
            return self.time(span, names).map(Item::Number);
        }
        if let Some(item) = names.set.get(name) {
            return item.clone();
        }
        let history = &frame.flow.scheme.history;
        if history.constants.contains(name) && !names.before {
            return Some(Item::Vector(self.past(name, Moment::Start)));
        }
        if let Some(len) = frame.lists.get(name) {
            return self.fail(
                Diagnostic::error(
                    codes::NOT_A_STATE,
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
                    codes::NOT_A_STATE,
                    span,
                    format!("`{name}` is a field, not a state"),
                )
                .help(format!("evaluate it: `{name}({})`", names.state.name)),
            );
        }
        if history.past.contains_key(name) {
            let message = format!("`{name}` is not set yet");
            return self.fail(
                Diagnostic::error(codes::NOT_SET, span, message)
                    .label("not set before this point")
                    .help(format!("`{name}[-1]` is its value in the step before")),
            );
        }
        let heard = self.messages() < MAX_MESSAGES;
        let written = names.set.keys().filter(|n| heard && !n.contains('('));
        let known = written.map(String::as_str).chain(fields);
        let d = unknown_name(name, span, known.chain(["h"])).label("not set before this point");
        self.fail(d)
    }

    fn sum(
        &mut self,
        var: &Ident,
        over: &Over,
        body: &Expr,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        let mut inner = Names {
            frame: names.frame,
            state: names.state,
            set: names.set.clone(),
            fields: names.fields.clone(),
            before: names.before,
            last: BTreeMap::new(),
        };
        let mut terms = Vec::new();
        match over {
            Over::Numbers(range) => {
                self.assignable(var, names)?;
                for j in self.bounds(range, names)? {
                    self.charge(1, span)?;
                    let j = Item::Number(Coeff::constant(Exact::int(j)));
                    inner.set.insert(var.name.clone(), Some(j));
                    self.plus(&mut terms, body, span, &mut inner)?;
                }
            }
            Over::Fields(list, range) => {
                for l in self.part_of(var, list, range, names)? {
                    self.with_field(var, l, &mut inner, |m, inner| {
                        m.plus(&mut terms, body, span, inner)
                    })?;
                }
            }
        }
        Some(terms.pop().unwrap_or(Item::Number(Coeff::zero())))
    }

    /// Adds a term to the sum so far, if there is one.
    fn plus(
        &mut self,
        sum: &mut Vec<Item>,
        term: &Expr,
        span: Span,
        names: &mut Names,
    ) -> Option<()> {
        let item = self.item(term, names)?;
        let item = match sum.pop() {
            None => item,
            Some(so_far) => self.arithmetic(BinOp::Add, so_far, item, span)?,
        };
        sum.push(item);
        Some(())
    }
}

fn not_of_state(function: &str, span: Span) -> Diagnostic {
    let message = format!("`{function}` of a state");
    Diagnostic::error(codes::STATE_ARITHMETIC, span, message)
        .label("a number is expected: a constant, a learned coefficient, `h`, `t`")
        .help(
            "states are added, multiplied, given to fields and projected; functions of their columns are layers of a field, \
             and `normalize(u, mean: 0, std: 1)` divides by a deviation, which is a root",
        )
}

impl Names<'_> {
    /// The list parameter.
    pub fn list(&self) -> Option<&Ident> {
        self.frame.flow.scheme.list.as_ref()
    }

    pub fn learned(&self, name: &str) -> bool {
        let learns = &self.frame.flow.scheme.learns;
        learns.iter().any(|l| l.name.name == name)
    }

    /// The names that are numbers.
    pub fn numbers(&self) -> Scope {
        let number = |(n, item): (&String, &Option<Item>)| match item {
            Some(Item::Number(c)) => Some((n.clone(), c.clone())),
            _ => None,
        };
        let mut scope: Scope = self.set.iter().filter_map(number).collect();
        if !self.before {
            scope.insert("h".into(), self.frame.h.clone());
        }
        if !self.before && self.frame.outermost {
            scope.insert("t".into(), Coeff::symbol("t"));
        }
        scope
    }
}
