//! The value at a place as a file writes it, after `--set` has replaced parts of it.
//!
//! Takes a tree and its sources; gives text. What no setting has touched is given as it stands in the source.

use crate::ast::{Arg, BinOp, Expr, ExprKind};
use crate::span::{Sources, Span};

/// The text of a value.
pub fn written(sources: &Sources, e: &Expr) -> Option<String> {
    text(sources, e, true)
}

/// The same without the labelled arguments of calls, each of which is a value of its own: `adamw` of `adamw(lr: 1e-3)`.
pub fn without_labels(sources: &Sources, e: &Expr) -> Option<String> {
    text(sources, e, false)
}

/// What stands there in the source.
pub fn excerpt(text: &str, span: Span) -> Option<String> {
    let text = text.get(span.start as usize..span.end as usize);
    text.map(String::from)
}

fn text(sources: &Sources, e: &Expr, labels: bool) -> Option<String> {
    if stands(e, e.span.source, labels) {
        return excerpt(sources.text(e.span.source), e.span);
    }
    let of = |e: &Expr| text(sources, e, labels);
    let list = |all: &[Expr]| -> Option<String> {
        let all: Option<Vec<String>> = all.iter().map(of).collect();
        Some(all?.join(", "))
    };
    Some(match &e.kind {
        ExprKind::Call(call) => {
            let args = call.args.iter().filter(|a| labels || a.label.is_none());
            let args: Option<Vec<String>> = args.map(|a| argument(sources, a, labels)).collect();
            let (callee, args) = (of(&call.callee)?, args?);
            match args.is_empty() {
                true => callee,
                false => format!("{callee}({})", args.join(", ")),
            }
        }
        ExprKind::List(all) => format!("[{}]", list(all)?),
        ExprKind::Tuple(all) => format!("({})", list(all)?),
        ExprKind::Neg(inner) => format!("-{}", part(inner, of(inner)?)),
        ExprKind::Binary(op @ (BinOp::Add | BinOp::Sub), a, b) => {
            let term = |e: &Expr| match &e.kind {
                ExprKind::Binary(BinOp::Mul | BinOp::Div | BinOp::Pow, ..) => of(e),
                _ => Some(part(e, of(e)?)),
            };
            let op = if *op == BinOp::Add { " + " } else { " - " };
            [term(a)?, term(b)?].join(op)
        }
        ExprKind::Binary(op, a, b) => {
            let op = match op {
                BinOp::Pow => "^",
                BinOp::Div => "/",
                _ => "*",
            };
            [part(a, of(a)?), part(b, of(b)?)].join(op)
        }
        ExprKind::Pipe(a, b) => [part(a, of(a)?), part(b, of(b)?)].join(" |> "),
        // What a value of `--set` was written as.
        _ => return excerpt(sources.text(e.span.source), e.span),
    })
}

/// A value as a part of a larger one. A tree does not say where parentheses stood: what could come apart gets some.
fn part(e: &Expr, text: String) -> String {
    match &e.kind {
        ExprKind::Binary(..) | ExprKind::Pipe(..) | ExprKind::Neg(_) => format!("({text})"),
        _ => text,
    }
}

fn argument(sources: &Sources, a: &Arg, labels: bool) -> Option<String> {
    let mut out = match &a.label {
        Some(label) => format!("{}: ", label.name),
        None => String::new(),
    };
    out += &text(sources, &a.value, labels)?;
    if let Some(by) = &a.by {
        out += &format!(" by {}", text(sources, by, labels)?);
    }
    Some(out)
}

/// Whether all of a value stands in one source, and nothing of it is to be left out.
fn stands(e: &Expr, source: u32, labels: bool) -> bool {
    let below = |e: &Expr| stands(e, source, labels);
    e.span.source == source
        && match &e.kind {
            ExprKind::Call(call) => {
                let arg = |a: &Arg| {
                    (labels || a.label.is_none())
                        && below(&a.value)
                        && a.by.as_ref().is_none_or(below)
                };
                below(&call.callee) && call.args.iter().all(arg)
            }
            ExprKind::List(all) | ExprKind::Tuple(all) => all.iter().all(below),
            ExprKind::Binary(_, a, b) | ExprKind::Pipe(a, b) => below(a) && below(b),
            ExprKind::Neg(inner) => below(inner),
            _ => true,
        }
}
