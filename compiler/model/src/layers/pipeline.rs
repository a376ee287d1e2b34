//! Reads the fields of a model: pipelines of layers and their sums, with checked widths.
//!
//! Takes the syntax of a leaf field; gives a [`Network`] whose widths fit. A field with
//! parameters begins with them: `concat(u, v) |> linear(1)`. Leaves layers and their arguments to `reading.rs` and their files.

use super::network::Network;
use super::reading::{self, role, takes_fields};
use crate::codes;
use crate::scheme::args::{Args, report};
use crate::scheme::scalar::{Scope, arithmetic, exact, is_root, name_of, not_supported};
use crate::scheme::{Coeff, Layers, Leaf};
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;

/// What a part of a field is applied to.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// A value of this width.
    One(u64),
    /// The field's parameters, with their widths.
    Named(&'a [(Ident, u64)]),
}

impl Input<'_> {
    /// The width of the value that it is applied to.
    pub(super) fn width(self) -> Option<u64> {
        match self {
            Input::One(width) => Some(width),
            Input::Named(_) => None,
        }
    }
}

/// Reads layers. One for each field: roles are numbered within it, and in the layers written in the language that it names.
pub struct LayerReader<'a> {
    pub(super) scope: &'a Scope,
    /// The layers written in the language.
    pub(super) layers: &'a Layers,
    /// Words among the arguments of layers that mean nothing: flags that are off.
    pub(super) off: &'a [String],
    /// Of the state.
    pub(super) width: u64,
    pub(super) sink: &'a mut Vec<Diagnostic>,
    /// Role of each part read so far, with its number.
    pub(super) seen: Vec<&'static str>,
    /// Roles that occur several times.
    pub(super) repeated: Vec<&'static str>,
}

/// Sizes of a model that its fields may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Kinds of tokens, where a model reads tokens.
    pub vocab: Option<u64>,
    pub context: u64,
    pub width: u64,
}

/// Says what is wrong inside a field. Where the sizes are not known (a file without a model), nothing is said about what
/// depends on them.
pub fn check(leaf: &Leaf, sizes: Option<Sizes>, sink: &mut Vec<Diagnostic>) {
    let some = Sizes {
        vocab: Some(256),
        context: 256,
        width: 256,
    };
    let known = sizes.unwrap_or(some);
    let widths = vec![known.width; leaf.params.len().max(1)];
    let mut found = Vec::new();
    read(leaf, &widths, known, &mut found);
    let of_sizes = [codes::WIDTH_MISMATCH, codes::HEAD_COUNT];
    found.retain(|d| sizes.is_some() || !of_sizes.contains(&d.code));
    sink.extend(found);
}

/// What a field computes, evaluated at values of these widths, and the width of its result.
pub fn read(
    leaf: &Leaf,
    widths: &[u64],
    sizes: Sizes,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Network, u64)> {
    let named: Vec<(Ident, u64)> = leaf
        .params
        .iter()
        .cloned()
        .zip(widths.iter().copied())
        .collect();
    let input = match widths {
        [width] if named.is_empty() => Input::One(*width),
        _ => Input::Named(&named),
    };
    expression(leaf.body.as_ref()?, &leaf.layers, input, sizes, sink)
}

/// What stands before the logits: from states to states.
pub fn output(
    e: &Expr,
    layers: &Layers,
    sizes: Sizes,
    sink: &mut Vec<Diagnostic>,
) -> Option<Network> {
    let (layer, out) = expression(e, layers, Input::One(sizes.width), sizes, sink)?;
    if out != sizes.width {
        sink.push(ends_with(e.span, out, sizes.width).help("the logits are read from the state"));
        return None;
    }
    Some(layer)
}

/// "this field ends with width 3".
pub fn ends_with(span: Span, out: u64, width: u64) -> Diagnostic {
    let message = format!("this field ends with width {out}");
    Diagnostic::error(codes::WIDTH_MISMATCH, span, message)
        .label(format!("the state has width {width}"))
}

fn expression(
    e: &Expr,
    layers: &Layers,
    input: Input,
    sizes: Sizes,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Network, u64)> {
    let mut roles = Vec::new();
    count_roles(e, layers, &mut roles);
    let several = |r: &&&str| roles.iter().filter(|s| s == r).count() > 1;
    let repeated = roles.iter().filter(several).copied().collect();
    let scope = sizes.scope();
    let mut reader = LayerReader {
        scope: &scope,
        layers,
        off: &[],
        width: sizes.width,
        sink,
        seen: Vec::new(),
        repeated,
    };
    reader.layer(e, input)
}

impl Sizes {
    pub(super) fn scope(self) -> Scope {
        let number = |n: u64| Coeff::constant(Exact::int(i64::try_from(n).unwrap_or(i64::MAX)));
        let all = [("width", self.width), ("context", self.context)];
        let vocab = self.vocab.map(|vocab| ("vocab", vocab));
        let all = all.into_iter().chain(vocab);
        all.map(|(n, v)| (n.to_string(), number(v))).collect()
    }
}

/// The roles of layers with parameters, in reading order; a layer written in the language has those of its body.
fn count_roles(e: &Expr, layers: &Layers, out: &mut Vec<&'static str>) {
    match &e.kind {
        ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => {
            count_roles(a, layers, out);
            count_roles(b, layers, out);
        }
        ExprKind::Neg(a) => count_roles(a, layers, out),
        ExprKind::Tuple(items) => items.iter().for_each(|i| count_roles(i, layers, out)),
        ExprKind::Call(call) if name_of(&call.callee).is_some_and(|n| takes_fields(&n.name)) => {
            out.extend(name_of(&call.callee).and_then(|n| role(&n.name)));
            let fields = call.args.iter().map(|a| &a.value);
            fields.for_each(|e| count_roles(e, layers, out));
            out.extend(name_of(&call.callee).and_then(|n| role(&n.name)));
        }
        _ => {
            let Some(args) = Args::of(e) else { return };
            match layers.get(&args.callee.name) {
                Some(Some(layer)) => count_roles(&layer.body, &layer.inside, out),
                _ => out.extend(role(&args.callee.name)),
            }
        }
    }
}

impl LayerReader<'_> {
    pub(super) fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    /// A part of a field: layers one after the other, a sum of them, or one alone.
    pub(super) fn layer(&mut self, e: &Expr, input: Input) -> Option<(Network, u64)> {
        match &e.kind {
            ExprKind::Pipe(..) => {
                let mut parts = Vec::new();
                pipeline(e, &mut parts);
                let (mut layers, mut at, mut out) = (Vec::new(), input, 0);
                for p in parts {
                    let (layer, next) = self.layer(p, at)?;
                    layers.push(layer);
                    (at, out) = (Input::One(next), next);
                }
                Some((Network::Pipe(layers), out))
            }
            ExprKind::Tuple(items) if items.len() == 1 => self.layer(&items[0], input),
            ExprKind::Binary(..) | ExprKind::Neg(_) => self.sum(e, input),
            _ => match input {
                Input::One(_) => reading::read(self, e, input),
                Input::Named(params) => self.beginning(e, params),
            },
        }
    }

    /// How a field with parameters begins: one of them, or several side by side.
    fn beginning(&mut self, e: &Expr, params: &[(Ident, u64)]) -> Option<(Network, u64)> {
        let args = Args::of(e);
        let name = args.as_ref().map_or("", |a| a.callee.name.as_str());
        if takes_fields(name) {
            return reading::read(self, e, Input::Named(params));
        }
        let at = params.iter().position(|(p, _)| p.name == name);
        if let Some(i) = at.filter(|_| matches!(e.kind, ExprKind::Name(_))) {
            return Some((Network::Argument(i), params[i].1));
        }
        let known: Vec<&str> = params.iter().map(|(p, _)| p.name.as_str()).collect();
        self.fail(
            Diagnostic::error(
                codes::PIPELINE_START,
                e.span,
                "this field has parameters, and does not begin with them",
            )
            .label(format!(
                "`{}` or `concat(…)` is expected here",
                known.join("`, `")
            ))
            .help(format!(
                "write, for example, `concat({}) |> linear(width)`",
                known.join(", ")
            )),
        )
    }

    fn sum(&mut self, e: &Expr, input: Input) -> Option<(Network, u64)> {
        let mut terms = Vec::new();
        self.terms(e, Exact::one(), input, &mut terms)?;
        let out = terms[0].1.1;
        if let Some((_, (_, other), span)) = terms.iter().find(|(_, (_, w), _)| *w != out) {
            return self.fail(
                Diagnostic::error(
                    codes::WIDTH_MISMATCH,
                    *span,
                    format!("terms of width {out} and {other} cannot be added"),
                )
                .also(terms[0].2, format!("this has width {out}")),
            );
        }
        Some((
            Network::Sum(terms.into_iter().map(|(c, (l, _), _)| (c, l)).collect()),
            out,
        ))
    }

    /// Whether this is arithmetic of numbers, with names that are in scope.
    fn is_number(&self, e: &Expr) -> bool {
        match &e.kind {
            ExprKind::Number(_) | ExprKind::Quantity(..) => true,
            ExprKind::Name(name) => self.scope.contains_key(name),
            ExprKind::Call(call) => is_root(call),
            ExprKind::Tuple(items) => matches!(&items[..], [one] if self.is_number(one)),
            ExprKind::Neg(a) => self.is_number(a),
            ExprKind::Binary(_, a, b) => self.is_number(a) && self.is_number(b),
            _ => false,
        }
    }

    /// A coefficient times a number, or divided by it.
    fn scaled(&mut self, c: &Exact, by: &Expr, divide: bool, span: Span) -> Option<Exact> {
        let by = report(exact(by, self.scope), self.sink)?;
        let scaled = match divide {
            true => by.recip().map(|by| c * &by),
            false => Ok(c * &by),
        };
        let scaled = scaled.and_then(Exact::checked);
        let scaled = scaled.map_err(|why| arithmetic(why.into(), span));
        report(scaled, self.sink)
    }

    #[allow(clippy::type_complexity)]
    fn terms(
        &mut self,
        e: &Expr,
        c: Exact,
        input: Input,
        out: &mut Vec<(Exact, (Network, u64), Span)>,
    ) -> Option<()> {
        let minus = -&c;
        match &e.kind {
            ExprKind::Binary(BinOp::Add, a, b) => {
                self.terms(a, c.clone(), input, out)?;
                self.terms(b, c, input, out)
            }
            ExprKind::Binary(BinOp::Sub, a, b) => {
                self.terms(a, c, input, out)?;
                self.terms(b, minus, input, out)
            }
            ExprKind::Neg(a) => self.terms(a, minus, input, out),
            ExprKind::Binary(BinOp::Mul, a, b) if self.is_number(a) => {
                let c = self.scaled(&c, a, false, e.span)?;
                self.terms(b, c, input, out)
            }
            ExprKind::Binary(BinOp::Mul, a, b) if self.is_number(b) => {
                let c = self.scaled(&c, b, false, e.span)?;
                self.terms(a, c, input, out)
            }
            ExprKind::Binary(BinOp::Div, a, b) if self.is_number(b) => {
                let c = self.scaled(&c, b, true, e.span)?;
                self.terms(a, c, input, out)
            }
            ExprKind::Binary(..) => self.fail(not_supported(e.span, "this product of fields")),
            _ => {
                let layer = self.layer(e, input)?;
                out.push((c, layer, e.span));
                Some(())
            }
        }
    }
}

/// The parts of `a |> b |> c`, in order.
pub fn pipeline<'e>(e: &'e Expr, out: &mut Vec<&'e Expr>) {
    match &e.kind {
        ExprKind::Pipe(a, b) => {
            pipeline(a, out);
            pipeline(b, out);
        }
        _ => out.push(e),
    }
}
