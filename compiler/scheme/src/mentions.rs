//! Which names a step program sets, and which it reads with an index: `k1[-j]`, `beta[2]`.
//!
//! Takes syntax; gives sets of names. They tell what a step must keep for later steps, and which learned coefficients, fields and values
//! are unused.

use odec_grammar::Span;
use odec_grammar::ast::{
    Expr, ExprKind, LearnLen, Method, Over, Range, RepeatCount, SchemeItem, Stmt, SubFlow,
};
use std::collections::{BTreeMap, BTreeSet};

/// Names in statements and expressions.
#[derive(Debug, Default)]
pub struct Mentions<'a> {
    /// Read, with or without an index.
    pub read: BTreeSet<&'a str>,
    /// Read with an index, and where first.
    pub indexed: BTreeMap<&'a str, Span>,
    /// Given to calls by themselves: `y` in `F(y)`.
    pub given: BTreeSet<&'a str>,
    /// Read in another way, without an index.
    pub beside: BTreeSet<&'a str>,
    /// Called, with arguments or without: `y` in `y(x)`.
    pub called: BTreeSet<&'a str>,
    /// Assigned to.
    pub set: BTreeSet<&'a str>,
    /// How many entries a list has at least where some are read by number: 3 for `L[2]` and `L[-3]`.
    pub entries: BTreeMap<&'a str, usize>,
    /// Sub-flows that are schemes: `strang(A, B)(1/2)`.
    pub applied: Vec<&'a SubFlow>,
}

/// Longest list that an entry read by number asks for.
const MOST_ENTRIES: usize = 64;

/// How many entries there are at least where this one is.
fn least(at: &Expr) -> Option<usize> {
    let number = |e: &Expr| match &e.kind {
        ExprKind::Number(text) => text.parse::<usize>().ok(),
        _ => None,
    };
    let least = match &at.kind {
        ExprKind::Neg(from_the_end) => number(from_the_end),
        _ => number(at).and_then(|n| n.checked_add(1)),
    };
    least.filter(|n| *n <= MOST_ENTRIES)
}

impl<'a> Mentions<'a> {
    pub fn statements(&mut self, body: &'a [Stmt]) {
        body.iter().for_each(|s| self.statement(s));
    }

    fn statement(&mut self, s: &'a Stmt) {
        match s {
            Stmt::Assign { name, value, .. } => {
                self.set.insert(&name.name);
                self.expr(value);
            }
            Stmt::Repeat { count, body, .. } => {
                match count {
                    RepeatCount::Times(n) => self.expr(n),
                    RepeatCount::Over(_, over) => self.over(over),
                }
                self.statements(body);
            }
            Stmt::Solve {
                name,
                value,
                from,
                method,
                ..
            } => {
                self.set.insert(&name.name);
                self.expr(value);
                self.expr(from);
                self.method(method);
            }
            Stmt::Return {
                value, embedded, ..
            } => {
                self.expr(value);
                embedded.iter().for_each(|e| self.expr(e));
            }
        }
    }

    fn over(&mut self, over: &'a Over) {
        match over {
            Over::Numbers(range) => self.range(range),
            Over::Fields(list, range) => {
                self.read.insert(&list.name);
                self.range(range);
            }
        }
    }

    fn method(&mut self, m: &'a Method) {
        self.expr(&m.call);
        m.gradient.iter().for_each(|e| self.expr(e));
    }

    pub fn flows(&mut self, flows: &'a [SubFlow]) {
        for f in flows {
            match &f.args {
                None => _ = self.read.insert(&f.name.name),
                Some(args) => {
                    self.applied.push(f);
                    args.iter().for_each(|a| self.expr(&a.value));
                }
            }
            self.expr(&f.fraction);
        }
    }

    /// Everything that a part of a scheme mentions.
    pub fn item(&mut self, item: &'a SchemeItem) {
        match item {
            SchemeItem::Cite { .. } | SchemeItem::LearnFrom(_) | SchemeItem::StartBy { .. } => {}
            SchemeItem::Order { order, within, .. } => {
                self.expr(order);
                within.iter().for_each(|e| self.expr(e));
            }
            SchemeItem::Property { value, .. } => value.iter().for_each(|e| self.expr(e)),
            SchemeItem::Keep { order, .. } => self.expr(order),
            SchemeItem::Let { value, .. } | SchemeItem::Method { value, .. } => self.expr(value),
            SchemeItem::Learn(l) => {
                self.expr(&l.init);
                if let LearnLen::Count(n) = &l.len {
                    self.expr(n);
                }
            }
            SchemeItem::Tableau(t) => {
                let entries = t.rows.iter().flat_map(|r| r.c.iter().chain(&r.entries));
                entries.for_each(|e| self.expr(e));
            }
            SchemeItem::Multistep { rows, .. } => rows
                .iter()
                .flat_map(|(_, row)| row)
                .for_each(|e| self.expr(e)),
            SchemeItem::SolveBy { method, .. } => self.method(method),
            SchemeItem::Start { body, .. } => self.statements(body),
            SchemeItem::Step(step) => self.statements(&step.body),
            SchemeItem::Splitting(flows) | SchemeItem::Embedded { flows, .. } => self.flows(flows),
        }
    }

    fn range(&mut self, r: &'a Range) {
        r.start.iter().chain(&r.end).for_each(|e| self.expr(e));
    }

    pub fn expr(&mut self, e: &'a Expr) {
        match &e.kind {
            ExprKind::Number(_) | ExprKind::Quantity(..) | ExprKind::Str(_) => {}
            ExprKind::Name(n) => {
                self.read.insert(n);
                self.beside.insert(n);
            }
            ExprKind::Index(name, at) => {
                self.read.insert(&name.name);
                self.indexed.entry(&name.name).or_insert(e.span);
                let entries = self.entries.entry(&name.name).or_default();
                *entries = least(at).unwrap_or(0).max(*entries);
                self.expr(at);
            }
            ExprKind::Call(call) => {
                if let ExprKind::Name(n) = &call.callee.kind {
                    self.called.insert(n);
                }
                self.expr(&call.callee);
                for a in &call.args {
                    a.by.iter().for_each(|e| self.expr(e));
                    match &a.value.kind {
                        ExprKind::Name(n) => {
                            self.read.insert(n);
                            self.given.insert(n);
                        }
                        _ => self.expr(&a.value),
                    }
                }
            }
            ExprKind::List(items) | ExprKind::Tuple(items) => {
                items.iter().for_each(|e| self.expr(e))
            }
            ExprKind::Neg(a) => self.expr(a),
            ExprKind::Binary(_, a, b) | ExprKind::Pipe(a, b) => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Sum { over, body, .. } => {
                self.over(over);
                self.expr(body);
            }
            ExprKind::Flow { flows, from } => {
                self.flows(flows);
                self.expr(from);
            }
            ExprKind::Range(r) => self.range(r),
        }
    }
}
