//! Finds where a step program adds a rate of change to a state without `h`: the usual reason for different powers of `h` in one sum.
//!
//! Takes the statements; gives the place of the first such rate. Looks only at kinds of values, and stays silent where it is not sure.

use crate::scheme::scalar::is_function;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind, Step, Stmt};
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Number,
    /// The step size, without its square or a quotient by it.
    H,
    /// A state, or a change of it.
    State,
    /// What a field says.
    Rate,
    Unknown,
}

#[derive(Default)]
struct Reader<'s> {
    names: BTreeMap<&'s str, Kind>,
    found: Option<Span>,
}

/// The first rate that is added to a state.
pub fn without_h(step: &Step) -> Option<Span> {
    let mut r = Reader::default();
    r.names.insert("h", Kind::H);
    r.names.insert(&step.state.name, Kind::State);
    r.statements(&step.body);
    r.found
}

impl<'s> Reader<'s> {
    fn statements(&mut self, body: &'s [Stmt]) {
        for s in body {
            match s {
                Stmt::Assign { name, value, .. } => {
                    let kind = self.kind(value);
                    self.names.insert(&name.name, kind);
                }
                Stmt::Repeat { body, .. } => self.statements(body),
                Stmt::Solve { name, value, .. } => {
                    self.names.insert(&name.name, Kind::State);
                    self.kind(value);
                }
                Stmt::Return { value, .. } => _ = self.kind(value),
            }
        }
    }

    fn kind(&mut self, e: &'s Expr) -> Kind {
        match &e.kind {
            ExprKind::Number(_) | ExprKind::Quantity(..) => Kind::Number,
            ExprKind::Name(name) => *self.names.get(name.as_str()).unwrap_or(&Kind::Number),
            ExprKind::Neg(inner) => self.kind(inner),
            ExprKind::Tuple(items) if items.len() == 1 => self.kind(&items[0]),
            ExprKind::Call(call) if is_function(call) => Kind::Number,
            ExprKind::Call(call) => {
                call.args.iter().for_each(|a| _ = self.kind(&a.value));
                Kind::Rate
            }
            ExprKind::Flow { from, .. } => self.kind(from),
            ExprKind::Binary(op, a, b) => {
                let kinds = (self.kind(a), self.kind(b));
                match op {
                    BinOp::Add | BinOp::Sub => self.sum((a, b), kinds),
                    BinOp::Mul => product(kinds),
                    BinOp::Div if kinds.1 == Kind::Number => kinds.0,
                    BinOp::Pow if kinds == (Kind::Number, Kind::Number) => Kind::Number,
                    BinOp::Div | BinOp::Pow => Kind::Unknown,
                }
            }
            _ => Kind::Unknown,
        }
    }

    fn sum(&mut self, (a, b): (&Expr, &Expr), kinds: (Kind, Kind)) -> Kind {
        let rate = match kinds {
            (Kind::State, Kind::Rate) => b,
            (Kind::Rate, Kind::State) => a,
            (a, b) if a == b => return a,
            _ => return Kind::Unknown,
        };
        self.found.get_or_insert(rate.span);
        Kind::State
    }
}

fn product(kinds: (Kind, Kind)) -> Kind {
    match kinds {
        (Kind::Number, other) | (other, Kind::Number) => other,
        (Kind::H, Kind::Rate) | (Kind::Rate, Kind::H) => Kind::State,
        _ => Kind::Unknown,
    }
}
