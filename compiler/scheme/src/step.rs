//! Step programs: assignments, `repeat`, `return`, executed on exact combinations; and `start`, which precedes them.
//!
//! Names may be rebound, but not the state, `h`, `t` or a field. `repeat` is unrolled here; its count is checked first.
//! What an evaluation makes a value of is one in its whole statement and after it: `y = x + h*A(x)  return y + h*B(y)`
//! gives `y1 + h*k2`.
//! Leaves expressions to `value.rs`, what is kept for later steps to `history.rs`.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::embedded::Reached;
use super::factor::Item;
use super::mentions::Mentions;
use super::run::{Frame, MAX_EVALUATIONS, StageTracer};
use super::value::Names;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident, Over, RepeatCount, Step, Stmt};
use odec_grammar::diag::{Diagnostic, Severity};
use std::collections::BTreeMap;

impl StageTracer<'_> {
    pub(super) fn step_program(&mut self, step: &Step, frame: &Frame) -> Option<Reached> {
        let mut names = Names::new(step, frame, false);
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
                            "this statement is never reached",
                        )
                        .label("`return` must be the last statement")
                        .also(span_of(stmt), "the step ends here"),
                    );
                }
                let mark = self.mark();
                self.make_evaluated(value, &mut names)?;
                let end = self.vector(value, &mut names);
                if self.is_started(frame) {
                    if end.is_none() && !self.misses(frame, &mark) {
                        return None;
                    }
                    self.take_back(&mark);
                    result = self.started(frame).map(|end| Reached {
                        end,
                        embedded: None,
                        keeps: Vec::new(),
                    });
                    continue;
                }
                let partner = match embedded.as_ref().filter(|_| frame.outermost) {
                    Some(e) => Some(self.vector(e, &mut names)?),
                    None => None,
                };
                result = end.map(|end| Reached {
                    end,
                    embedded: partner,
                    keeps: Vec::new(),
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
        let mut result = result.filter(|_| good)?;
        if frame.outermost {
            for (name, read) in &frame.flow.scheme.history.past {
                let kept = self.kept(name, *read, &names)?;
                result.keeps.push((name.clone(), kept));
            }
        }
        Some(result)
    }

    /// What happens before the first step; gives the state it begins with.
    pub(super) fn start_program(&mut self, step: &Step, frame: &Frame) -> Option<Reached> {
        let (body, span) = frame.flow.scheme.start.as_ref()?;
        let mut names = Names::new(step, frame, true);
        for stmt in body {
            if let Stmt::Return { span, .. } = stmt {
                let d = Diagnostic::error(codes::MISSING_RETURN, *span, "`start` returns nothing");
                let set = format!("set the state: `{} = …`", step.state.name);
                return self.fail(d.help(set));
            }
            self.statement(stmt, &mut names)?;
        }
        let history = &frame.flow.scheme.history;
        let mut keeps = Vec::new();
        for name in history.started.iter().chain(&history.constants) {
            keeps.push((name.clone(), self.kept(name, *span, &names)?));
        }
        let Some(Some(Item::Vector(end))) = names.set.get(&step.state.name) else {
            let d = Diagnostic::error(codes::NOT_A_STATE, *span, "the state is set to a number");
            return self.fail(d);
        };
        Some(Reached {
            end: end.clone(),
            embedded: None,
            keeps,
        })
    }

    /// A name's final value, which later steps read at `span`.
    fn kept(&mut self, name: &str, span: Span, names: &Names) -> Option<ValueId> {
        if self.is_started(names.frame) && matches!(names.set.get(name), Some(None)) {
            let Some(last) = names.last.get(name) else {
                let message = format!("`{name}` has no value in the first steps");
                return self.fail(
                    Diagnostic::error(codes::BEFORE_FIRST_STEP, span, message)
                        .label("later steps read it here")
                        .help(format!(
                            "steps without a full history are taken by `start by`, and then `{name}` keeps its last value that reads no history: set such a value first, `{name} = …`"
                        )),
                );
            };
            return self.value(last.clone(), span);
        }
        let d = match names.set.get(name)? {
            None => return None,
            Some(Item::Vector(v)) => return self.value(v.clone(), span),
            Some(Item::Number(_) | Item::Factor { .. }) => {
                let message = format!("`{name}` is a number, and only states are kept");
                Diagnostic::error(codes::NOT_A_STATE, span, message)
                    .help("name a constant of the scheme: `let name = …`")
            }
        };
        self.fail(d)
    }

    pub(super) fn statement(&mut self, stmt: &Stmt, names: &mut Names) -> Option<()> {
        self.charge(1, span_of(stmt))?;
        match stmt {
            Stmt::Assign { name, value, .. } => {
                self.assignable(name, names)?;
                self.tried(name, value.span, names, |m, names| {
                    m.make_evaluated(value, names)?;
                    m.item(value, names)
                })
            }
            Stmt::Repeat { count, body, span } => self.repeat(count, body, *span, names),
            Stmt::Solve {
                name,
                value,
                from,
                method,
                ..
            } => self.tried(name, value.span, names, |m, names| {
                m.draws_nothing(value, names)?;
                let solved = m.solve(name, value, from, method, names);
                solved.map(Item::Vector)
            }),
            Stmt::Return { span, .. } => self.fail(
                Diagnostic::error(codes::MISSING_RETURN, *span, "`return` inside `repeat`")
                    .label("`return` must be the last statement of the step"),
            ),
        }
    }

    /// An equation is evaluated many times, and noise is drawn once.
    fn draws_nothing(&mut self, equation: &Expr, names: &Names) -> Option<()> {
        let mut found = Mentions::default();
        found.expr(equation);
        let own = self.argument("normal", names.frame).is_some();
        if own || !found.read.contains("normal") {
            return Some(());
        }
        let message = "`normal` inside an equation";
        let d = Diagnostic::error(codes::MISPLACED, equation.span, message)
            .label("each evaluation of the equation would draw other numbers");
        self.fail(d.help("draw them before it: `noise = normal(std: 0.1)`"))
    }

    /// Whether another scheme takes this step.
    fn is_started(&self, frame: &Frame) -> bool {
        self.short && frame.outermost && frame.flow.start_by.is_some()
    }

    /// Gives a name its value; none, without a word, where that needs a past value that is not there yet.
    fn tried(
        &mut self,
        name: &Ident,
        span: Span,
        names: &mut Names,
        value: impl FnOnce(&mut Self, &mut Names) -> Option<Item>,
    ) -> Option<()> {
        let mark = self.mark();
        let item = value(self, names);
        if item.is_none() && self.misses(names.frame, &mark) {
            self.take_back(&mark);
            names.set.insert(name.name.clone(), None);
            return Some(());
        }
        self.set(name, item, span, names)
    }

    /// Whether nothing was wrong since, so that a value that is none needs one that is not there yet.
    fn misses(&self, frame: &Frame, mark: &Mark) -> bool {
        self.is_started(frame) && !self.failed_since(mark.messages)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark {
            messages: self.messages(),
            instrs: self.instrs.len(),
            usages: self.leaves.iter().map(|l| l.usages.len()).collect(),
        }
    }

    /// Takes back what was made since, and what was warned of.
    fn take_back(&mut self, mark: &Mark) {
        let since = self.sink().split_off(mark.messages);
        let errors = since.into_iter().filter(|d| d.severity == Severity::Error);
        self.sink().extend(errors);
        self.back_to(mark);
    }

    /// Takes back what was made since.
    pub(super) fn back_to(&mut self, mark: &Mark) {
        let made = |v: &ValueId| v.0 as usize <= mark.instrs;
        self.instrs.truncate(mark.instrs);
        self.known.retain(|_, v| made(v));
        self.pasts.retain(|_, v| made(v));
        self.products.retain(|_, v| made(v));
        self.evaluated.retain(|_, v| made(v));
        self.named.retain(|c, _| c.terms().all(|(v, _)| made(&v)));
        self.sums
            .retain(|_, (_, sum)| sum.terms().all(|(v, _)| made(&v)));
        self.made.values_mut().for_each(|all| all.retain(made));
        self.clocks.back_to(mark.instrs, mark.usages.len());
        self.leaves.truncate(mark.usages.len());
        self.leaf_of.retain(|_, leaf| *leaf < mark.usages.len());
        for (leaf, usages) in self.leaves.iter_mut().zip(&mark.usages) {
            leaf.usages.retain(|_, usage| *usage < *usages);
        }
    }

    /// Gives a name its value, if there is one.
    fn set(
        &mut self,
        name: &Ident,
        mut item: Option<Item>,
        span: Span,
        names: &mut Names,
    ) -> Option<()> {
        // What later steps read is a value of its own, and this step reads it as one too.
        let frame = names.frame;
        let kept = frame.outermost && frame.flow.scheme.history.past.contains_key(&name.name);
        if let Some(Item::Vector(v)) = &mut item
            && kept
        {
            *v = Combination::value(self.value(v.clone(), span)?);
        }
        let good = item.is_some();
        if let Some(Item::Vector(v)) = &item
            && !self.named.contains_key(v)
        {
            self.charge(v.weight(), span)?;
            self.named.insert(v.clone(), name.name.clone());
        }
        if let Some(Item::Vector(v)) = &item
            && kept
        {
            names.last.insert(name.name.clone(), v.clone());
        }
        names.set.insert(name.name.clone(), item);
        good.then_some(())
    }

    pub(super) fn assignable(&mut self, name: &Ident, names: &Names) -> Option<()> {
        let what = match name.name.as_str() {
            n if n == names.state.name && !names.before => "the state",
            "h" => "the step size",
            "t" => "the time",
            n if names.frame.flow.scheme.fields.iter().any(|f| f.name == n) => "a field",
            n if names.fields.contains_key(n) => "a field",
            n if names.list().is_some_and(|l| l.name == n) => "a list of fields",
            n if names.learned(n) => "a learned coefficient",
            _ => return Some(()),
        };
        self.fail(
            Diagnostic::error(
                codes::NOT_ASSIGNABLE,
                name.span,
                format!("`{}` is {what} and cannot be redefined", name.name),
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
                let times = self.whole(e, &names.numbers(), 0, MAX_EVALUATIONS as u64)?;
                (None, 0..times as i64)
            }
            RepeatCount::Over(variable, Over::Numbers(range)) => {
                self.assignable(variable, names)?;
                (Some(variable), self.bounds(range, names)?)
            }
            RepeatCount::Over(variable, Over::Fields(list, range)) => {
                for l in self.part_of(variable, list, range, names)? {
                    self.with_field(variable, l, names, |m, names| {
                        let done: Vec<_> = body.iter().map(|s| m.statement(s, names)).collect();
                        (!done.contains(&None)).then_some(())
                    })?;
                }
                return Some(());
            }
        };
        for j in range {
            self.charge(1, span)?;
            if let Some(v) = variable {
                names.set.insert(
                    v.name.clone(),
                    Some(Item::Number(Coeff::constant(odec_exact::Exact::int(j)))),
                );
            }
            let done: Vec<Option<()>> = body.iter().map(|s| self.statement(s, names)).collect();
            if done.contains(&None) {
                return None;
            }
        }
        Some(())
    }
}

impl<'f> Names<'f> {
    fn new(step: &'f Step, frame: &'f Frame<'f>, before: bool) -> Self {
        let numbers = frame.scope.iter();
        let numbers = numbers.map(|(n, c)| (n.clone(), Some(Item::Number(c.clone()))));
        let state = Item::Vector(Combination::value(frame.start));
        let state = (step.state.name.clone(), Some(state));
        Names {
            frame,
            state: &step.state,
            set: numbers.chain([state]).collect(),
            fields: BTreeMap::new(),
            before,
            last: BTreeMap::new(),
        }
    }
}

/// What there was at some moment.
pub(super) struct Mark {
    messages: usize,
    instrs: usize,
    /// Of each leaf.
    usages: Vec<usize>,
}

fn span_of(stmt: &Stmt) -> Span {
    match stmt {
        Stmt::Assign { span, .. }
        | Stmt::Repeat { span, .. }
        | Stmt::Solve { span, .. }
        | Stmt::Return { span, .. } => *span,
    }
}
