//! Reads expressions that denote fields: names, pipelines, sums, `increment(Φ)`, `map(Φ)`.
//!
//! A pipeline of layers is one leaf. `odec-model`, which knows the sizes, reads its layers.

use super::expression::is_method;
use super::flow::{Field, Leaf};
use super::layer::SIZES;
use super::names::Definition;
use super::resolve::{MAX_DEPTH, Resolver, too_deep};
use super::scalar::{
    self, Scope, arithmetic, is_root, is_sqrt, name_of, named_function, not_supported,
};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{self, Arg, BinOp, Body, Call, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use std::rc::Rc;

impl Resolver<'_, '_> {
    /// A field; `name` is what an unnamed pipeline is called in parameter paths.
    pub fn field(&mut self, e: &Expr, name: &str) -> Option<Rc<Field>> {
        self.nested(e.span, |r| r.field_inside(e, name))
    }

    fn field_inside(&mut self, e: &Expr, name: &str) -> Option<Rc<Field>> {
        match &e.kind {
            ExprKind::Name(n) => {
                let word = Ident {
                    name: n.clone(),
                    span: e.span,
                };
                match self.is_layer(&word) {
                    true => self.expression_leaf(name, e),
                    false => self.named_field(&word),
                }
            }
            ExprKind::Pipe(..) => self.expression_leaf(name, e),
            ExprKind::Call(call) => self.field_call(call, e, name),
            ExprKind::Tuple(items) if items.len() == 1 => self.field(&items[0], name),
            ExprKind::Neg(_) | ExprKind::Binary(..) if is_one(e) => self.expression_leaf(name, e),
            ExprKind::Neg(_) | ExprKind::Binary(..) => self.sum(e, name),
            ExprKind::List(_) => self.fail(not_supported(e.span, "a list of fields")),
            ExprKind::Index(..) => self.fail(not_supported(e.span, "a field from a list")),
            ExprKind::Flow { .. } => {
                let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, "a flow, not a field")
                    .help("make a field of it with `increment(…)` or `map(…)`");
                self.fail(d)
            }
            _ => {
                let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, "this is not a field")
                    .label("a field is expected here");
                self.fail(d)
            }
        }
    }

    pub fn named_field(&mut self, name: &Ident) -> Option<Rc<Field>> {
        if let Some((known, height)) = self.fields.get(&name.name) {
            self.height = self.height.max(*height);
            return known.clone();
        }
        if self.names.is_wrong(name) {
            return None;
        }
        if ["increment", "map"].contains(&name.name.as_str()) {
            let d = Diagnostic::error(
                codes::NOT_A_FLOW,
                name.span,
                format!("`{}` needs a flow", name.name),
            )
            .help(format!("write `{}(lie(att, ffn))`, for example", name.name));
            return self.fail(d);
        }
        let field = match self.definition(name)? {
            Definition::Field(f) => f,
            Definition::Scheme(s) => {
                let d = Diagnostic::error(
                    codes::NOT_A_FIELD,
                    name.span,
                    format!("`{}` is a scheme, not a field", name.name),
                )
                .label("a field is expected here")
                .also(s.name.span, "defined here")
                .help(format!(
                    "a scheme with its fields is a flow: `evolve {0}(…) for 6 steps`; a field is made of it by `increment({0}(…))`",
                    name.name
                ));
                return self.fail(d);
            }
            Definition::Layer(_) => {
                let e = Expr {
                    kind: ExprKind::Name(name.name.clone()),
                    span: name.span,
                };
                return self.expression_leaf(&name.name, &e);
            }
        };
        if self.open.contains(&name.name) {
            let mut round = self.open.clone();
            round.push(name.name.clone());
            let from = round.iter().position(|n| *n == name.name).unwrap_or(0);
            let d = Diagnostic::error(
                codes::CYCLIC_DEFINITION,
                name.span,
                format!("field `{}` is defined by itself", name.name),
            )
            .label(round[from..].join(" → "))
            .also(field.name.span, "defined here");
            return self.fail(d);
        }
        if self.open.len() >= MAX_DEPTH {
            return self.fail(too_deep(name.span));
        }
        let beside = std::mem::take(&mut self.height);
        self.open.push(name.name.clone());
        let resolved = match (&field.params[..], &field.body) {
            ([], Body::Expr(e)) => self.field(e, &field.name.name),
            (params, Body::Expr(_)) => self
                .distinct(params)
                .and_then(|()| self.pipeline(&field.name.name, params.to_vec(), &field.body)),
            (params, Body::Block { .. }) => self.block(&field, params.to_vec()),
        };
        self.open.pop();
        let known = (resolved.clone(), self.height);
        self.fields.insert(name.name.clone(), known);
        self.height = self.height.max(beside);
        resolved
    }

    pub(super) fn distinct(&mut self, params: &[Ident]) -> Option<()> {
        for (i, p) in params.iter().enumerate() {
            if let Some(first) = params[..i].iter().find(|q| q.name == p.name) {
                let message = format!("two parameters are called `{}`", p.name);
                let d = Diagnostic::error(codes::REDEFINITION, p.span, message);
                return self.fail(d.also(first.span, "the first one"));
            }
        }
        Some(())
    }

    fn field_call(&mut self, call: &Call, e: &Expr, name: &str) -> Option<Rc<Field>> {
        if is_method(e) || is_method(&call.callee) {
            let message = "a method is a scheme, not a field";
            let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, message)
                .label("a field is expected here")
                .help("apply it, and make a field of the flow: `increment(adjoint(euler)(layer))`");
            return self.fail(d);
        }
        let Some(callee) = name_of(&call.callee) else {
            let ExprKind::Call(layer) = &call.callee.kind else {
                return self.fail(not_supported(call.callee.span, "a field from a list"));
            };
            return self.fail(called_again(layer, e.span));
        };
        match callee.name.as_str() {
            "increment" | "map" => {
                let [
                    Arg {
                        label: None,
                        value,
                        by: None,
                    },
                ] = &call.args[..]
                else {
                    let d = Diagnostic::error(
                        codes::ARGUMENT_COUNT,
                        e.span,
                        format!("`{}` takes one flow", callee.name),
                    )
                    .help(format!(
                        "write `{}(lie(att, ffn))`, for example",
                        callee.name
                    ));
                    return self.fail(d);
                };
                let flow = self.flow(value)?;
                Some(Rc::new(if callee.name == "map" {
                    Field::Map(flow)
                } else {
                    Field::Increment(flow)
                }))
            }
            _ if self.is_layer(&callee) => self.expression_leaf(name, e),
            _ => {
                let d = match self.definition(&callee)? {
                    Definition::Scheme(_) => {
                        Diagnostic::error(codes::NOT_A_FIELD, e.span, format!("`{}(…)` is a flow, not a field", callee.name))
                            .label("a field is expected here")
                            .help("make a field of it with `increment(…)` (its change of the state) or `map(…)` (the new state)")
                    }
                    Definition::Field(f) if !f.params.is_empty() => {
                        return self.expression_leaf(name, e);
                    }
                    Definition::Field(_) | Definition::Layer(_) => {
                        Diagnostic::error(codes::ARGUMENT_COUNT, callee.span, format!("field `{}` takes no arguments", callee.name))
                            .help(format!("write `{}`", callee.name))
                    }
                };
                self.fail(d)
            }
        }
    }

    /// A pipeline of layers without arguments.
    fn expression_leaf(&mut self, name: &str, e: &Expr) -> Option<Rc<Field>> {
        self.pipeline(name, Vec::new(), &Body::Expr(e.clone()))
    }

    /// A pipeline of layers, which is evaluated as a whole.
    pub fn pipeline(&mut self, name: &str, params: Vec<Ident>, body: &Body) -> Option<Rc<Field>> {
        let own: Vec<&str> = params.iter().map(|p| p.name.as_str()).collect();
        let layers = self.layers_of(body, &own)?;
        let facts = self.names.layers.facts(body, &layers, &own);
        Some(Rc::new(Field::Leaf(Rc::new(Leaf {
            name: name.to_string(),
            params,
            body: Some(body.clone()),
            facts,
            layers,
            span: body.span(),
        }))))
    }

    /// A field with statements.
    fn block(&mut self, field: &ast::Field, params: Vec<Ident>) -> Option<Rc<Field>> {
        let body = self.written_field(field)?;
        self.count_parts(body.parts(), field.body.span())?;
        Some(Rc::new(Field::Leaf(Rc::new(Leaf {
            name: field.name.name.clone(),
            params,
            body: Some(field.body.clone()),
            facts: body.facts,
            layers: body.inside.clone(),
            span: field.name.span,
        }))))
    }

    /// `att + ffn`, `2*att - ffn`.
    fn sum(&mut self, e: &Expr, name: &str) -> Option<Rc<Field>> {
        let mut terms = Vec::new();
        self.terms(e, Exact::one(), &mut terms)?;
        let unnamed = |r: &mut Self, e: &Expr| name_of(e).is_none_or(|n| r.is_layer(&n));
        let several = terms.iter().filter(|(_, e)| unnamed(self, e)).count() > 1;
        let mut number = 0;
        let fields: Vec<Option<(Exact, Rc<Field>, Span)>> = terms
            .into_iter()
            .map(|(c, e)| {
                let unnamed = unnamed(self, &e);
                number += usize::from(unnamed);
                let name = if several && unnamed {
                    format!("{name}.{number}")
                } else {
                    name.to_string()
                };
                Some((c, self.field(&e, &name)?, e.span))
            })
            .collect();
        let terms = fields.into_iter().collect::<Option<_>>()?;
        Some(Rc::new(Field::Sum(Rc::new(terms))))
    }

    fn scaled(&mut self, c: &Exact, by: Result<Exact, Diagnostic>, span: Span) -> Option<Exact> {
        let product = by.and_then(|by| {
            let product = (c * &by).checked();
            product.map_err(|why| arithmetic(why.into(), span))
        });
        self.checked(product)
    }

    fn terms(&mut self, e: &Expr, c: Exact, out: &mut Vec<(Exact, Expr)>) -> Option<()> {
        let number = |e: &Expr| scalar::number(e, &Scope::new());
        match &e.kind {
            ExprKind::Binary(BinOp::Add, a, b) => {
                self.terms(a, c.clone(), out)?;
                self.terms(b, c, out)
            }
            ExprKind::Binary(BinOp::Sub, a, b) => {
                let minus = -&c;
                self.terms(a, c, out)?;
                self.terms(b, minus, out)
            }
            ExprKind::Neg(a) => self.terms(a, -&c, out),
            ExprKind::Binary(BinOp::Mul, a, b) => match (is_number(a), is_number(b)) {
                (true, false) => {
                    let c = self.scaled(&c, number(a), e.span)?;
                    self.terms(b, c, out)
                }
                (false, true) => {
                    let c = self.scaled(&c, number(b), e.span)?;
                    self.terms(a, c, out)
                }
                (true, true) => {
                    let d = Diagnostic::error(codes::NOT_A_FIELD, e.span, "this is a number")
                        .label("a field is expected here");
                    self.fail(d)
                }
                (false, false) => {
                    out.push((c, e.clone()));
                    Some(())
                }
            },
            ExprKind::Binary(BinOp::Div, a, b) if is_number(b) => {
                let inverse = number(b).and_then(|k| {
                    let inverse = k.recip();
                    inverse.map_err(|why| arithmetic(why.into(), b.span))
                });
                let c = self.scaled(&c, inverse, e.span)?;
                self.terms(a, c, out)
            }
            _ => {
                out.push((c, e.clone()));
                Some(())
            }
        }
    }
}

/// Whether arithmetic gives one field, not a combination of several: a product, a quotient or a power of fields, or a sum with a number.
fn is_one(e: &Expr) -> bool {
    if is_number(e) {
        return false;
    }
    match &e.kind {
        ExprKind::Binary(BinOp::Mul, a, b) => !is_number(a) && !is_number(b) || adds_number(e),
        ExprKind::Binary(BinOp::Div, _, b) => !is_number(b) || adds_number(e),
        ExprKind::Binary(BinOp::Pow, ..) => true,
        _ => adds_number(e),
    }
}

/// Whether a number is among the terms of a sum; it may name sizes, `1/width`.
fn adds_number(e: &Expr) -> bool {
    let is_number = |e: &Expr| is_number_of(e, &SIZES);
    match &e.kind {
        _ if is_number(e) => true,
        ExprKind::Binary(BinOp::Add | BinOp::Sub, a, b) => adds_number(a) || adds_number(b),
        ExprKind::Neg(a) => adds_number(a),
        ExprKind::Binary(BinOp::Mul, a, b) if is_number(a) => adds_number(b),
        ExprKind::Binary(BinOp::Mul | BinOp::Div, a, b) if is_number(b) => adds_number(a),
        _ => false,
    }
}

/// Whether this is a number wherever it stands.
fn is_number(e: &Expr) -> bool {
    is_number_of(e, &[])
}

/// Whether this is a number where these names are.
fn is_number_of(e: &Expr, names: &[&str]) -> bool {
    let is_number = |e: &Expr| is_number_of(e, names);
    match &e.kind {
        ExprKind::Number(_) | ExprKind::Quantity(..) => true,
        ExprKind::Name(name) => names.contains(&name.as_str()),
        // `root(x^3 - 2, 1.26)` has a name of its own.
        ExprKind::Call(call) if is_sqrt(call) || named_function(call).is_some() => {
            !call.args.is_empty() && call.args.iter().all(|a| is_number(&a.value))
        }
        ExprKind::Call(call) => is_root(call),
        ExprKind::Tuple(items) if items.len() == 1 => is_number(&items[0]),
        ExprKind::Neg(a) => is_number(a),
        ExprKind::Binary(_, a, b) => is_number(a) && is_number(b),
        _ => false,
    }
}

/// `attention(heads: 4)(rmsnorm)`: in other languages a layer with its arguments is a function.
fn called_again(layer: &Call, span: Span) -> Diagnostic {
    let callee = name_of(&layer.callee);
    let shown = callee.map_or("attention".to_string(), |callee| callee.name);
    let message = format!("`{shown}(…)` is not called: it has its arguments");
    Diagnostic::error(codes::NOT_A_FIELD, span, message)
        .label("two pairs of parentheses")
        .help(format!(
            "what it is applied to stands before it: `x |> {shown}(…)`"
        ))
}
