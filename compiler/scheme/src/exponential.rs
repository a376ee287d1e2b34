//! Functions of a linear field, applied to a state: `exp(h*L)(x)`, `phi1(h/2*L)(F(x))`.
//!
//! Takes a call whose callee is such a function; gives an instruction of the stage program. `phi0` is `exp`. The field is a number for
//! each column, the layer `decay`: functions of it act column by column. `odec-model` computes their values.

use super::coeff::Coeff;
use super::combination::{Combination, ValueId};
use super::factor::Item;
use super::flow::{Field, FlowArg, FlowArgKind, Leaf};
use super::run::StageTracer;
use super::scalar::name_of;
use super::stage::StageInstr;
use super::value::Names;
use crate::codes;
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

/// The last φ-function.
pub const MAX_INDEX: u32 = 8;

const HELP: &str =
    "write `exp(h*L)(x)`, or `phi1(h/2*L)(F(x))`, where `L` is a linear field of the scheme";

/// What a name says: the index of a function, if there is such a function.
enum Function {
    Index(u32),
    TooHigh,
}

fn function(name: &str) -> Option<Function> {
    if name == "exp" {
        return Some(Function::Index(0));
    }
    let digits = name.strip_prefix("phi")?;
    let whole = !digits.is_empty() && digits.bytes().all(|d| d.is_ascii_digit());
    let index = digits.parse().ok().filter(|k| *k <= MAX_INDEX);
    whole.then(|| index.map_or(Function::TooHigh, Function::Index))
}

/// `φₖ` as it is written.
pub fn called(index: u32) -> String {
    match index {
        0 => "exp".into(),
        k => format!("phi{k}"),
    }
}

impl StageTracer<'_> {
    /// `exp(h*L)(x)`, whose callee is a call.
    #[inline(never)]
    pub(super) fn function_applied(
        &mut self,
        of: &Call,
        call: &Call,
        span: Span,
        names: &mut Names,
    ) -> Option<Item> {
        let (index, over, leaf) = self.function_of(of, call, span, names)?;
        let at = self.vector(&call.args[0].value, names)?;
        let at = self.value(at, span)?;
        self.charge(1, span)?;
        let field = self.leaf(&leaf);
        let place = self.first_place(field, index, &over, at);
        let phi = StageInstr::Phi {
            field,
            index,
            over,
            at,
            span: place.unwrap_or(span),
        };
        let made = self.once(phi, span)?;
        Some(Item::Vector(Combination::value(made)))
    }

    /// Where a function of a field was applied to a value first: it has that place wherever it is written.
    fn first_place(&self, of: usize, k: u32, h: &Coeff, v: ValueId) -> Option<Span> {
        let mut made = self.made.get(&v)?.iter();
        made.find_map(|made| match &self.instrs[made.0 as usize - 1] {
            StageInstr::Phi {
                field,
                index,
                over,
                span,
                ..
            } if (*field, *index, over) == (of, k, h) => Some(*span),
            _ => None,
        })
    }

    /// The function, the number before the field, and the field. Of its own, so that what it needs is not kept on the stack of what the
    /// function is applied to.
    #[inline(never)]
    fn function_of(
        &mut self,
        of: &Call,
        call: &Call,
        span: Span,
        names: &mut Names,
    ) -> Option<(u32, Coeff, Rc<Leaf>)> {
        let index = self.function_named(of)?;
        let ([argument], [at]) = (&of.args[..], &call.args[..]) else {
            return self.fail(one_argument(span, &of.callee));
        };
        if let Some(label) = argument.label.iter().chain(&at.label).next() {
            let name = called(index);
            return self.fail(super::resolve::unknown_argument(&name, label, &[]));
        }
        let Some((over, field)) = self.multiple(&argument.value, names)? else {
            let d = Diagnostic::error(
                codes::LINEAR_FIELD,
                argument.value.span,
                "this is not a multiple of a linear field",
            );
            return self.fail(d.label("`h*L`, or a part of it, is expected").help(HELP));
        };
        Some((index, over, self.linear(&field, names)?))
    }

    fn function_named(&mut self, of: &Call) -> Option<u32> {
        let name = name_of(&of.callee);
        match name.as_ref().and_then(|n| function(&n.name)) {
            Some(Function::Index(k)) => Some(k),
            Some(Function::TooHigh) => {
                let message = format!("there is no function beyond `phi{MAX_INDEX}`");
                self.fail(Diagnostic::error(
                    codes::OUT_OF_RANGE,
                    of.callee.span,
                    message,
                ))
            }
            None => {
                let d = Diagnostic::error(
                    codes::LINEAR_FIELD,
                    of.callee.span,
                    "this is not a function of a linear field",
                );
                let d = d.label(format!("`exp`, or `phi1` to `phi{MAX_INDEX}`, is expected"));
                self.fail(d.help(HELP))
            }
        }
    }

    /// A number times a field: the number, and the field's name. `Some(None)`: it is something else.
    fn multiple(&mut self, e: &Expr, names: &mut Names) -> Option<Option<(Coeff, Ident)>> {
        let fields = &names.frame.flow.scheme.fields;
        match &e.kind {
            ExprKind::Name(n)
                if names.fields.contains_key(n) || fields.iter().any(|f| f.name == *n) =>
            {
                let name = Ident {
                    name: n.clone(),
                    span: e.span,
                };
                Some(Some((Coeff::one(), name)))
            }
            ExprKind::Tuple(items) if items.len() == 1 => self.multiple(&items[0], names),
            ExprKind::Neg(of) => self.times(BinOp::Mul, of, Coeff::one().neg(), e.span, names),
            ExprKind::Binary(op @ (BinOp::Mul | BinOp::Div), a, b) => {
                let (of, by) = match op {
                    BinOp::Mul if self.names_field(b, names) => (b, a),
                    _ => (a, b),
                };
                if !self.names_field(of, names) || self.names_field(by, names) {
                    return Some(None);
                }
                match self.item(by, names)? {
                    Item::Number(by) => self.times(*op, of, by, e.span, names),
                    _ => Some(None),
                }
            }
            _ => Some(None),
        }
    }

    fn times(
        &mut self,
        op: BinOp,
        of: &Expr,
        by: Coeff,
        span: Span,
        names: &mut Names,
    ) -> Option<Option<(Coeff, Ident)>> {
        let Some((c, field)) = self.multiple(of, names)? else {
            return Some(None);
        };
        let product = self.arithmetic(op, Item::Number(c), Item::Number(by), span)?;
        Some(match product {
            Item::Number(c) => Some((c, field)),
            _ => None,
        })
    }

    /// Whether a field stands somewhere in an expression.
    pub(super) fn names_field(&self, e: &Expr, names: &Names) -> bool {
        let fields = &names.frame.flow.scheme.fields;
        let mut open = vec![e];
        while let Some(e) = open.pop() {
            match &e.kind {
                ExprKind::Name(n)
                    if names.fields.contains_key(n) || fields.iter().any(|f| f.name == *n) =>
                {
                    return true;
                }
                ExprKind::Tuple(items) => open.extend(items),
                ExprKind::Neg(a) => open.push(a),
                ExprKind::Binary(_, a, b) => open.extend([&**a, &**b]),
                _ => {}
            }
        }
        false
    }

    /// The linear field given for a parameter.
    fn linear(&mut self, field: &Ident, names: &Names) -> Option<Rc<Leaf>> {
        let entry = names.fields.get(&field.name).cloned();
        let arg = entry.or_else(|| self.argument(&field.name, names.frame))?;
        if let FlowArg {
            kind:
                FlowArgKind::Field {
                    field: of,
                    by: None,
                },
            ..
        } = &arg
            && let Field::Leaf(leaf) = &**of
            && leaf.facts.diagonal
        {
            return Some(leaf.clone());
        }
        let message = format!(
            "the exponential of the field given for `{}` is not known: it has more than a rate for each column",
            field.name
        );
        let d = Diagnostic::error(codes::LINEAR_FIELD, arg.span, message)
            .label("a field that is `decay` alone is expected")
            .also(field.span, "a function of it is applied here")
            .help("name a field for it: `field leak = decay`");
        self.fail(d)
    }
}

fn one_argument(span: Span, callee: &Expr) -> Diagnostic {
    let name = name_of(callee).map_or_else(|| "exp".into(), |n| n.name);
    let message = format!("`{name}` takes a multiple of a field, and then a state");
    Diagnostic::error(codes::ARGUMENT_COUNT, span, message).help(HELP)
}

/// The error for `exp(h*L)` without a state; `None`: the name is not a function of fields.
pub(super) fn without_state(name: &Ident, span: Span) -> Option<Diagnostic> {
    function(&name.name)?;
    let message = format!("`{}(…)` is not applied to a state", name.name);
    let d = Diagnostic::error(codes::LINEAR_FIELD, span, message);
    Some(
        d.label("a function of a field acts on states and is no number")
            .help(HELP),
    )
}
