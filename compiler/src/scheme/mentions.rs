//! Which names a step program writes, and which it reads with an index: `k1[-j]`, `beta[2]`.
//!
//! Takes syntax; gives sets of names. Used to know what a step must keep for later ones, and which learned
//! coefficients nobody uses. Leaves meaning to `step.rs`.

use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind, Over, Range, RepeatCount, Stmt};
use std::collections::{BTreeMap, BTreeSet};

/// Names in statements and expressions.
#[derive(Debug, Default)]
pub struct Mentions<'a> {
    /// Read, with or without an index.
    pub read: BTreeSet<&'a str>,
    /// Read with an index, and where first.
    pub indexed: BTreeMap<&'a str, Span>,
    /// Assigned to.
    pub set: BTreeSet<&'a str>,
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
                name, value, from, ..
            } => {
                self.set.insert(&name.name);
                self.expr(value);
                self.expr(from);
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
        let (Over::Numbers(range) | Over::Fields(_, range)) = over;
        self.range(range);
    }

    fn range(&mut self, r: &'a Range) {
        r.start.iter().chain(&r.end).for_each(|e| self.expr(e));
    }

    pub fn expr(&mut self, e: &'a Expr) {
        match &e.kind {
            ExprKind::Number(_) | ExprKind::Quantity(..) | ExprKind::Str(_) => {}
            ExprKind::Name(n) => _ = self.read.insert(n),
            ExprKind::Index(name, at) => {
                self.read.insert(&name.name);
                self.indexed.entry(&name.name).or_insert(e.span);
                self.expr(at);
            }
            ExprKind::Call(call) => {
                self.expr(&call.callee);
                call.args.iter().for_each(|a| self.expr(&a.value));
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
                flows.iter().for_each(|f| self.expr(&f.fraction));
                self.expr(from);
            }
            ExprKind::Range(r) => self.range(r),
        }
    }
}
