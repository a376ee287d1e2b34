//! Arithmetic of step programs: sums and products of numbers and states.
//!
//! A state may be multiplied, column by column, by another state or by a sum such as `1 - g`: `(1 - g)*k`. Products are multiplied out,
//! so that the result is a linear combination of values, some of which are products.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::run::StageTracer;
use super::scalar::{binary, cost};
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::BinOp;
use odec_grammar::diag::Diagnostic;

/// What an expression of a step program is.
#[derive(Clone)]
pub(super) enum Item {
    Number(Coeff),
    /// A vector in state space, or narrower.
    Vector(Combination),
    /// A number added to every column of a state: only a factor.
    Factor {
        number: Coeff,
        vector: Combination,
        span: Span,
    },
}

impl Item {
    fn what(&self) -> &'static str {
        match self {
            Item::Number(_) => "a number",
            Item::Vector(_) => "a state",
            Item::Factor { .. } => "a sum of a number and a state",
        }
    }

    /// As a number and a state that are added.
    fn parts(self) -> (Coeff, Combination) {
        match self {
            Item::Number(c) => (c, Combination::zero()),
            Item::Vector(v) => (Coeff::zero(), v),
            Item::Factor { number, vector, .. } => (number, vector),
        }
    }
}

impl StageTracer<'_> {
    pub(super) fn arithmetic(&mut self, op: BinOp, a: Item, b: Item, span: Span) -> Option<Item> {
        let (a, b) = match (a, b) {
            (Item::Number(a), Item::Number(b)) => {
                self.charge(1, span)?;
                let value = self.ok(binary(op, &a, &b, span))?;
                self.charge(cost(op, &a, &b, &value), span)?;
                return Some(Item::Number(value));
            }
            (a, b) => (a, b),
        };
        let one = Coeff::one();
        match (op, &b) {
            (BinOp::Add, _) => self.sum_of(a, &one, b, span),
            (BinOp::Sub, _) => self.sum_of(a, &one.neg(), b, span),
            (BinOp::Mul, _) => self.multiplied(a, b, span),
            (BinOp::Div, Item::Number(c)) => {
                let inverse = self.ok(binary(BinOp::Div, &one, c, span))?;
                self.charge(cost(op, &one, c, &inverse), span)?;
                self.multiplied(a, Item::Number(inverse), span)
            }
            _ => {
                let verb = match op {
                    BinOp::Pow => "raised to",
                    _ => "divided by",
                };
                let message = format!("{} cannot be {verb} {}", a.what(), b.what());
                self.fail(
                    Diagnostic::error(codes::STATE_ARITHMETIC, span, message)
                        .label("states are added to states and multiplied by numbers"),
                )
            }
        }
    }

    fn sum_of(&mut self, a: Item, c: &Coeff, b: Item, span: Span) -> Option<Item> {
        let ((m, v), (n, w)) = (a.parts(), b.parts());
        let vector = self.add_scaled(v, c, &w, span)?;
        let scaled = self.exact(n.mul(c), span)?;
        let number = self.exact(m.add(&scaled), span)?;
        Some(joined(number, vector, span))
    }

    /// `(m + v)(n + w) = mn + (m w + n v + v w)`.
    fn multiplied(&mut self, a: Item, b: Item, span: Span) -> Option<Item> {
        let ((m, v), (n, w)) = (a.parts(), b.parts());
        let mut vector = self.add_scaled(Combination::zero(), &m, &w, span)?;
        vector = self.add_scaled(vector, &n, &v, span)?;
        if !v.is_empty() && !w.is_empty() {
            let ((c, v), (d, w)) = (self.single(v, span)?, self.single(w, span)?);
            let coeff = self.exact(c.mul(&d), span)?;
            self.charge(1, span)?;
            let product = Combination::value(self.product_of(v, w));
            vector = self.add_scaled(vector, &coeff, &product, span)?;
        }
        let number = self.exact(m.mul(&n), span)?;
        Some(joined(number, vector, span))
    }

    /// A combination as a number times a value.
    fn single(&mut self, c: Combination, span: Span) -> Option<(Coeff, ValueId)> {
        let only = c.terms().next().filter(|_| c.len() == 1);
        if let Some((v, coeff)) = only {
            return Some((coeff.clone(), v));
        }
        Some((Coeff::one(), self.value(c, span)?))
    }
}

fn joined(number: Coeff, vector: Combination, span: Span) -> Item {
    match (number.is_zero(), vector.is_empty()) {
        (true, _) => Item::Vector(vector),
        (false, true) => Item::Number(number),
        (false, false) => Item::Factor {
            number,
            vector,
            span,
        },
    }
}
