//! Calls in step programs: fields at one or several values, entries of a list of fields, projections.

use super::args::{EPS, bounded};
use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::define::SchemeDef;
use super::exponential::without_state;
use super::factor::Item;
use super::flow::{Field, FlowArg, FlowArgKind};
use super::function::NAMED;
use super::mentions::Mentions;
use super::resolve::{flow_for_field, unknown_argument};
use super::run::StageTracer;
use super::scalar::{name_of, out_of_range, unknown_name};
use super::stage::{Projection, StageInstr, default_eps};
use super::time::{AtLabel, Said};
use super::value::Names;
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Call, Expr, ExprKind, Ident, Range};
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

/// What a step applies to states, beside fields.
const OF_STATES: [&str; 3] = ["normalize", "normal", "nonnegative"];

/// A name that stands for nothing that a step applies.
fn not_called(name: &Ident, scheme: &SchemeDef) -> Diagnostic {
    let fields = scheme.fields.iter().map(|f| f.name.as_str());
    let numbers = NAMED.iter().map(|(name, _)| *name);
    let known = fields.chain(OF_STATES).chain(numbers);
    let d = unknown_name(&name.name, name.span, known)
        .label("a field of this scheme or a function of numbers is expected");
    match d.help {
        Some(_) => d,
        None => d.help(
            "functions of numbers are `exp`, `log`, `sqrt`, `tanh`, `sigmoid` and `softplus`; layers and their functions stand in fields: `field f = linear |> relu`",
        ),
    }
}

impl StageTracer<'_> {
    pub(super) fn call(&mut self, call: &Call, span: Span, names: &mut Names) -> Option<Item> {
        if let ExprKind::Index(list, at) = &call.callee.kind {
            let entries = self.entries_of(list, names)?;
            let at = self.position(at, entries.len(), entries.len() as i64 - 1, names)?;
            return self.argument_called(&entries[at], &list.name, call, span, names);
        }
        if let ExprKind::Call(of) = &call.callee.kind {
            return self.function_applied(of, call, span, names);
        }
        let Some(callee) = name_of(&call.callee) else {
            let d = Diagnostic::error(codes::NOT_A_FIELD, call.callee.span, "this is not a field");
            return self.fail(d.label("a field parameter of this scheme is expected"));
        };
        if let Some(entry) = names.fields.get(&callee.name).cloned() {
            return self.argument_called(&entry, &callee.name, call, span, names);
        }
        let Some(arg) = self.argument(&callee.name, names.frame) else {
            return match callee.name.as_str() {
                "normalize" => self.normalize(call, span, names),
                "normal" => self.normal(call, span, names),
                "nonnegative" => {
                    let at = self.projected(call, &[], span, names)?;
                    let onto = Projection::Nonnegative;
                    self.project(StageInstr::Project { at, onto }, span)
                }
                _ => {
                    if let Some(d) = without_state(&callee, span) {
                        return self.fail(d);
                    }
                    let d = not_called(&callee, &names.frame.flow.scheme);
                    self.fail(d)
                }
            };
        };
        self.argument_called(&arg, &callee.name, call, span, names)
    }

    /// `F(x)`, for what stands for `F`.
    fn argument_called(
        &mut self,
        arg: &FlowArg,
        name: &str,
        call: &Call,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        match &arg.kind {
            FlowArgKind::Field { field, by: None } => {
                self.field_called(field, name, call, span, names)
            }
            FlowArgKind::Field { by: Some(by), .. } => self.fail(
                Diagnostic::error(codes::MISPLACED, by.span, "`by` cannot be used here")
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

    /// Makes values of names that an expression both evaluates a field at and reads otherwise: in a recursion such as
    /// `z = m*y + h*F(y)` y is one value, wherever it stands, not a sum of all that it was made of.
    pub(super) fn make_evaluated(&mut self, e: &Expr, names: &mut Names) -> Option<()> {
        let mut found = Mentions::default();
        found.expr(e);
        for name in found.given.intersection(&found.beside) {
            if let Some(Some(Item::Vector(v))) = names.set.get_mut(*name) {
                *v = Combination::value(self.value(v.clone(), e.span)?);
            }
        }
        Some(())
    }

    fn field_called(
        &mut self,
        field: &Rc<Field>,
        name: &str,
        call: &Call,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        // First what the field is evaluated at: `at:` says nothing about the evaluations in there.
        let states = self.states_of(name, call, span, names)?;
        let outer = match call.args.iter().any(|a| a.label.is_some()) {
            true => self.said_at(name, call, names)?,
            false => None,
        };
        let found = self.evaluated_at(field, name, states, span);
        outer.into_iter().for_each(|said| self.unsay(said));
        found
    }

    /// `at: 1/2`. A function of its own: what it needs is not kept on the stack of everything below.
    #[inline(never)]
    fn said_at(&mut self, name: &str, call: &Call, names: &Names) -> Option<Option<Said>> {
        let mut moment: Option<(&Ident, &Expr)> = None;
        let labelled = call.args.iter();
        for (label, e) in labelled.filter_map(|a| Some((a.label.as_ref()?, &a.value))) {
            if label.name != "at" {
                return self.fail(unknown_argument(name, label, &["at"]));
            }
            if let Some((first, _)) = moment.replace((label, e)) {
                return self.fail(super::resolve::repeated_argument(label, first.span));
            }
        }
        let Some((_, e)) = moment else {
            return Some(None);
        };
        let part = self.constant(e, &names.numbers())?;
        let h = self.step_size(e.span, names)?;
        let ahead = self.exact(h.mul(&Coeff::constant(part)), e.span)?;
        let label = AtLabel {
            place: e.span,
            claims: !names.frame.flow.scheme.claims.is_empty(),
        };
        Some(Some(self.say(names.frame.start, ahead, Some(label))))
    }

    /// The states that a field is evaluated at.
    #[inline(always)]
    fn states_of(
        &mut self,
        name: &str,
        call: &Call,
        span: Span,
        names: &mut Names,
    ) -> Option<Vec<ValueId>> {
        let states = call.args.iter().filter(|a| a.label.is_none());
        let states: Vec<&Arg> = states.collect();
        if states.is_empty() {
            let message = format!("field `{name}` is evaluated without a state");
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                .help(format!("write `{name}({})`", names.state.name));
            return self.fail(d);
        }
        let mut at = Vec::new();
        for a in states {
            let v = self.vector(&a.value, names)?;
            let v = self.value(v, span)?;
            // A name that a field was evaluated at is a value of its own from here on, not a sum copied everywhere.
            if let ExprKind::Name(name) = &a.value.kind
                && let Some(item) = names.set.get_mut(name)
            {
                *item = Some(Item::Vector(Combination::value(v)));
            }
            at.push(v);
        }
        Some(at)
    }

    /// `F(x)`, at a time that is known.
    #[inline(never)]
    fn evaluated_at(
        &mut self,
        field: &Rc<Field>,
        name: &str,
        at: Vec<ValueId>,
        span: Span,
    ) -> Option<Item> {
        if let [at] = at[..] {
            let at = Combination::value(at);
            return self.field_at(field, at, span).map(Item::Vector);
        }
        let Field::Leaf(leaf) = &**field else {
            let message = format!("`{name}` is evaluated at one state, not at {}", at.len());
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            return self.fail(d.help(
                "a field of several is a pipeline: `field gate(u, v) = concat(u, v) |> linear(1)`",
            ));
        };
        let outer = self.operand;
        self.operand = outer.or(Some(&**field));
        let k = self.written_at(span, |m| m.evaluate(leaf, at, span));
        self.operand = outer;
        k.map(Item::Vector)
    }

    /// `normal(std: 0.4)`: new numbers wherever it is written, and in each turn of a `repeat`.
    fn normal(&mut self, call: &Call, span: Span, names: &mut Names) -> Option<Item> {
        const HELP: &str =
            "write `start { x = normal(std: 0.4) }`, or `x + sqrt(h)*normal(std: 0.1)` in a step";
        let labelled = |a: &Arg| a.label.as_ref().is_some_and(|l| l.name == "std");
        let [arg] = &call.args[..] else {
            let message = "`normal` takes one argument, the standard deviation `std`";
            return self.fail(Diagnostic::error(codes::ARGUMENT_COUNT, span, message).help(HELP));
        };
        if !labelled(arg) {
            let message = "`normal` needs `std`";
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, arg.value.span, message);
            return self.fail(d.help(HELP));
        }
        // A proof says nothing of random numbers, however large they are; the number of its step is a symbol.
        let std = match self.at.analysed {
            true => Exact::one(),
            false => self.constant(&arg.value, &names.numbers())?,
        };
        let size = std.to_f64();
        if !(1e-30..=1e30).contains(&size) {
            let d = out_of_range(&std, &arg.value);
            return self.fail(d.label("a positive number is expected"));
        }
        let drawn = |i: &&StageInstr| matches!(i, StageInstr::Normal { .. });
        self.charge(self.instrs.len() / 64 + 1, span)?;
        let number = self.instrs.iter().filter(drawn).count();
        let like = self.value(Combination::value(super::ValueId(0)), span)?;
        let made = self.push(StageInstr::Normal { like, std, number });
        Some(Item::Vector(Combination::value(made)))
    }

    /// `normalize(u, mean: m, std: s)`.
    fn normalize(&mut self, call: &Call, span: Span, names: &mut Names) -> Option<Item> {
        const LABELS: [&str; 3] = ["mean", "std", "eps"];
        let at = self.projected(call, &LABELS, span, names)?;
        let given = |label: &str| {
            let has = |a: &&Arg| a.label.as_ref().is_some_and(|l| l.name == label);
            call.args.iter().find(has).map(|a| &a.value)
        };
        let mut moment = |label: &str| {
            let Some(e) = given(label) else {
                let message = format!("`normalize` needs `{label}`");
                let d = Diagnostic::error(codes::MISSING_ARGUMENT, span, message);
                return self.fail(d.help("write `normalize(u, mean: 0, std: 1)`"));
            };
            match self.item(e, names)? {
                Item::Number(c) => Some(c),
                _ => {
                    let d = Diagnostic::error(codes::NOT_A_NUMBER, e.span, "this is a state");
                    self.fail(d.label("a number, or one number for each channel, is expected here"))
                }
            }
        };
        let (mean, std) = (moment("mean"), moment("std"));
        let eps = match given("eps") {
            None => default_eps(),
            Some(e) => {
                let eps = self.constant(e, &names.numbers())?;
                match bounded(eps, EPS, e) {
                    Ok(eps) => eps,
                    Err(d) => return self.fail(d),
                }
            }
        };
        let (mean, std) = (mean?, std?);
        let onto = Projection::Moments { mean, std, eps };
        self.project(StageInstr::Project { at, onto }, span)
    }

    /// The state that a projection is given, its labels checked.
    fn projected(
        &mut self,
        call: &Call,
        labels: &[&str],
        span: Span,
        names: &mut Names,
    ) -> Option<super::ValueId> {
        let name = name_of(&call.callee)?.name;
        let given = call.args.iter().filter_map(|a| a.label.as_ref());
        if let Some(label) = given.clone().find(|l| !labels.contains(&l.name.as_str())) {
            return self.fail(unknown_argument(&name, label, labels));
        }
        let mut seen: Vec<&Ident> = Vec::new();
        for label in given {
            if let Some(first) = seen.iter().find(|l| l.name == label.name) {
                return self.fail(super::resolve::repeated_argument(label, first.span));
            }
            seen.push(label);
        }
        let states: Vec<&Arg> = call.args.iter().filter(|a| a.label.is_none()).collect();
        let [state] = states[..] else {
            let message = format!("`{name}` takes one state, not {}", states.len());
            return self.fail(Diagnostic::error(codes::ARGUMENT_COUNT, span, message));
        };
        let at = self.vector(&state.value, names)?;
        self.charge(1, span)?;
        self.value(at, span)
    }

    fn project(&mut self, instr: StageInstr, span: Span) -> Option<Item> {
        let made = self.once(instr, span)?;
        Some(Item::Vector(Combination::value(made)))
    }

    /// The entries of `l in L[..-1]`.
    pub(super) fn part_of(
        &mut self,
        variable: &Ident,
        list: &Ident,
        range: &Range,
        names: &mut Names,
    ) -> Option<Vec<FlowArg>> {
        self.assignable(variable, names)?;
        let entries = self.entries_of(list, names)?;
        let n = entries.len();
        self.charge(n, list.span)?;
        let start = match &range.start {
            Some(e) => self.position(e, n, n as i64, names)?,
            None => 0,
        };
        let end = match &range.end {
            Some(e) => self.position(e, n, n as i64, names)? + usize::from(range.inclusive),
            None => n,
        };
        let part = entries.into_iter().take(end.min(n)).skip(start);
        Some(part.collect())
    }

    /// What a name for an entry of a list makes of a text; each entry is an occurrence of its own, written in the list.
    pub(super) fn with_field<T>(
        &mut self,
        variable: &Ident,
        entry: FlowArg,
        names: &mut Names,
        go: impl FnOnce(&mut Self, &mut Names) -> Option<T>,
    ) -> Option<T> {
        let written = entry.span;
        names.fields.insert(variable.name.clone(), entry);
        let result = self.written_at(written, |m| go(m, names));
        names.fields.remove(&variable.name);
        result
    }

    fn entries_of(&mut self, list: &Ident, names: &Names) -> Option<Vec<FlowArg>> {
        if names.list().is_some_and(|l| l.name == list.name) {
            return Some(names.frame.flow.list.clone());
        }
        let known = names.list().into_iter().map(|l| l.name.as_str());
        let d = unknown_name(&list.name, list.span, known);
        self.fail(d.label("a list of fields is expected, such as `L` in `scheme name(A, L[..])`"))
    }

    /// A place in a list of `n`, from 0 to `last`; negative ones count from the end.
    fn position(&mut self, e: &Expr, n: usize, last: i64, names: &Names) -> Option<usize> {
        let value = self.constant(e, &names.numbers())?;
        let i = value.as_integer().and_then(|i| i64::try_from(i).ok());
        let i = i.map(|i| if i < 0 { i + n as i64 } else { i });
        match i.filter(|i| (0..=last).contains(i)) {
            Some(i) => Some(i as usize),
            None => {
                let message = format!("{value} is not an index of a list of {n}");
                self.fail(Diagnostic::error(codes::OUT_OF_RANGE, e.span, message))
            }
        }
    }
}
