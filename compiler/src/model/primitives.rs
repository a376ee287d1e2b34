//! Fields read: pipelines of primitives with arguments, checked against the widths they meet.
//!
//! Takes the syntax of a leaf field; gives a [`Layer`] whose widths fit. A part is named by its role (`norm`, `q`,
//! `gate` …); where a role occurs several times in one field, its occurrences are numbered from 1. A field with
//! parameters begins with them: `concat(u, v) |> linear(1)`. Leaves what layers compute to `layer.rs`.

use super::args::{Args, Bounds, real};
use super::layer::{Layer, Map};
use crate::codes;
use crate::scheme::scalar::{Scope, arithmetic, exact, name_of, not_supported, whole};
use crate::scheme::{Coeff, Leaf};
use odec_grammar::Span;
use odec_grammar::ast::{BinOp, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Attention;
use odec_graph::{Exact, nn};

/// Largest width of anything.
pub const MAX_WIDTH: u64 = 1 << 20;

/// What a part of a field is applied to.
#[derive(Clone, Copy)]
enum Input<'a> {
    /// A value of this width.
    One(u64),
    /// The field's parameters, with their widths.
    Named(&'a [(Ident, u64)]),
}

/// Reads layers. One for each field: roles are numbered within it.
pub struct LayerReader<'a> {
    scope: &'a Scope,
    sink: &'a mut Vec<Diagnostic>,
    /// Role of each part read so far, with its number.
    seen: Vec<&'static str>,
    /// Roles that occur several times.
    repeated: Vec<&'static str>,
}

/// Sizes of a model that its fields may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    pub vocab: u64,
    pub context: u64,
    pub width: u64,
}

/// Says what is wrong inside a field. Where the sizes are not known (a file without a model), nothing is said about what
/// depends on them.
pub fn check(leaf: &Leaf, sizes: Option<Sizes>, sink: &mut Vec<Diagnostic>) {
    let some = Sizes {
        vocab: 256,
        context: 256,
        width: 256,
    };
    let known = sizes.unwrap_or(some);
    let widths = vec![known.width; leaf.params.len().max(1)];
    let mut found = Vec::new();
    read(leaf, &widths, known, &mut found);
    found.retain(|d| sizes.is_some() || d.code != codes::SHAPE_MISMATCH);
    sink.extend(found);
}

/// A field's layer, evaluated at values of these widths, and the width of its result.
pub fn read(
    leaf: &Leaf,
    widths: &[u64],
    sizes: Sizes,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Layer, u64)> {
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
    expression(leaf.body.as_ref()?, input, sizes, sink)
}

/// What stands before the logits: from states to states.
pub fn output(e: &Expr, sizes: Sizes, sink: &mut Vec<Diagnostic>) -> Option<Layer> {
    let (layer, out) = expression(e, Input::One(sizes.width), sizes, sink)?;
    if out != sizes.width {
        sink.push(ends_with(e.span, out, sizes.width).help("the logits are read from the state"));
        return None;
    }
    Some(layer)
}

/// "this field ends with width 3".
pub fn ends_with(span: Span, out: u64, width: u64) -> Diagnostic {
    let message = format!("this field ends with width {out}");
    Diagnostic::error(codes::SHAPE_MISMATCH, span, message)
        .label(format!("the state has width {width}"))
}

fn expression(
    e: &Expr,
    input: Input,
    sizes: Sizes,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Layer, u64)> {
    let mut roles = Vec::new();
    count_roles(e, &mut roles);
    let several = |r: &&&str| roles.iter().filter(|s| s == r).count() > 1;
    let repeated = roles.iter().filter(several).copied().collect();
    let scope = sizes.scope();
    let mut reader = LayerReader {
        scope: &scope,
        sink,
        seen: Vec::new(),
        repeated,
    };
    reader.layer(e, input)
}

impl Sizes {
    fn scope(self) -> Scope {
        let number = |n: u64| Coeff::constant(Exact::int(i64::try_from(n).unwrap_or(i64::MAX)));
        let all = [
            ("width", self.width),
            ("vocab", self.vocab),
            ("context", self.context),
        ];
        all.map(|(n, v)| (n.to_string(), number(v))).into()
    }
}

/// The primitives with parameters, in reading order.
fn count_roles(e: &Expr, out: &mut Vec<&'static str>) {
    match &e.kind {
        ExprKind::Pipe(a, b) | ExprKind::Binary(_, a, b) => {
            count_roles(a, out);
            count_roles(b, out);
        }
        ExprKind::Neg(a) => count_roles(a, out),
        ExprKind::Tuple(items) => items.iter().for_each(|i| count_roles(i, out)),
        ExprKind::Call(call) if name_of(&call.callee).is_some_and(|n| n.name == "concat") => {
            call.args.iter().for_each(|a| count_roles(&a.value, out))
        }
        _ => out.extend(Args::of(e).and_then(|a| role(&a.callee.name))),
    }
}

fn role(primitive: &str) -> Option<&'static str> {
    Some(match primitive {
        "rmsnorm" | "layernorm" => "norm",
        "attention" => "attention",
        "swiglu" | "gelu" | "relu" => "mlp",
        "linear" => "linear",
        _ => return None,
    })
}

impl LayerReader<'_> {
    fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    fn layer(&mut self, e: &Expr, input: Input) -> Option<(Layer, u64)> {
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
                Some((Layer::Pipe(layers), out))
            }
            ExprKind::Tuple(items) if items.len() == 1 => self.layer(&items[0], input),
            ExprKind::Binary(..) | ExprKind::Neg(_) => self.sum(e, input),
            _ => match input {
                Input::One(width) => self.primitive(e, width),
                Input::Named(params) => self.beginning(e, params),
            },
        }
    }

    /// How a field with parameters begins: one of them, or several side by side.
    fn beginning(&mut self, e: &Expr, params: &[(Ident, u64)]) -> Option<(Layer, u64)> {
        let args = Args::of(e);
        let name = args.as_ref().map_or("", |a| a.callee.name.as_str());
        if name == "concat" {
            return self.concat(args?, Input::Named(params));
        }
        let at = params.iter().position(|(p, _)| p.name == name);
        if let Some(i) = at.filter(|_| matches!(e.kind, ExprKind::Name(_))) {
            return Some((Layer::Argument(i), params[i].1));
        }
        let known: Vec<&str> = params.iter().map(|(p, _)| p.name.as_str()).collect();
        self.fail(
            Diagnostic::error(
                codes::TYPE_MISMATCH,
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

    /// `concat(u, v)`, `concat(id, rmsnorm |> linear(4))`.
    fn concat(&mut self, mut args: Args, input: Input) -> Option<(Layer, u64)> {
        let (mut layers, mut width) = (Vec::new(), 0u64);
        while let Some(part) = args.positional() {
            let (layer, w) = self.layer(part, input)?;
            layers.push(layer);
            width += w;
        }
        let span = args.span;
        args.finish(&[], self.sink);
        if layers.is_empty() {
            let d = Diagnostic::error(
                codes::ARGUMENT_COUNT,
                span,
                "`concat` puts nothing side by side",
            );
            return self.fail(d.help("name its parts: `concat(u, v)`"));
        }
        if width > MAX_WIDTH {
            let d = Diagnostic::error(
                codes::TOO_LARGE,
                span,
                format!("{width} columns are too many"),
            );
            return self.fail(d.label(format!("at most {MAX_WIDTH}")));
        }
        Some((Layer::Concat(layers), width))
    }

    fn sum(&mut self, e: &Expr, input: Input) -> Option<(Layer, u64)> {
        let mut terms = Vec::new();
        self.terms(e, Exact::one(), input, &mut terms)?;
        let out = terms[0].1.1;
        if let Some((_, (_, other), span)) = terms.iter().find(|(_, (_, w), _)| *w != out) {
            return self.fail(
                Diagnostic::error(
                    codes::SHAPE_MISMATCH,
                    *span,
                    format!("terms of width {out} and {other} cannot be added"),
                )
                .also(terms[0].2, format!("this has width {out}")),
            );
        }
        Some((
            Layer::Sum(terms.into_iter().map(|(c, (l, _), _)| (c, l)).collect()),
            out,
        ))
    }

    #[allow(clippy::type_complexity)]
    fn terms(
        &mut self,
        e: &Expr,
        c: Exact,
        input: Input,
        out: &mut Vec<(Exact, (Layer, u64), Span)>,
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
            ExprKind::Binary(BinOp::Mul, a, b) => {
                let k = super::args::report(exact(a, &Scope::new()), self.sink)?;
                let c = (&c * &k)
                    .checked()
                    .map_err(|why| arithmetic(why.into(), e.span));
                let c = super::args::report(c, self.sink)?;
                self.terms(b, c, input, out)
            }
            ExprKind::Binary(..) => self.fail(not_supported(e.span, "this product of fields")),
            _ => {
                let layer = self.layer(e, input)?;
                out.push((c, layer, e.span));
                Some(())
            }
        }
    }

    /// `q` or, if there are several, `q.2`.
    fn namer(&mut self, role: &'static str) -> impl Fn(&str, &str) -> String + use<> {
        self.seen.push(role);
        let number = self.seen.iter().filter(|r| **r == role).count();
        let repeated = self.repeated.contains(&role);
        move |part: &str, kind: &str| {
            if repeated {
                format!("{part}.{number}.{kind}")
            } else {
                format!("{part}.{kind}")
            }
        }
    }

    fn primitive(&mut self, e: &Expr, width: u64) -> Option<(Layer, u64)> {
        let Some(mut args) = Args::of(e) else {
            return self.fail(
                Diagnostic::error(codes::TYPE_MISMATCH, e.span, "this is no part of a field")
                    .label("a primitive such as `rmsnorm` or `attention(heads: 8, causal)` is expected here"),
            );
        };
        let before = self.sink.len();
        let made = match args.callee.name.as_str() {
            "rmsnorm" => {
                let name = self.namer("norm");
                Some((
                    Layer::RmsNorm {
                        gain: name("norm", "gain"),
                        width,
                    },
                    width,
                ))
            }
            "layernorm" => {
                let name = self.namer("norm");
                let (gain, bias) = (name("norm", "gain"), name("norm", "bias"));
                Some((Layer::LayerNorm { gain, bias, width }, width))
            }
            "attention" => self.attention(&mut args, width),
            "swiglu" => {
                let hidden = args.size("hidden", self.scope, MAX_WIDTH, self.sink);
                let name = self.namer("mlp");
                let (gate, up, down) = (
                    name("gate", "weight"),
                    name("up", "weight"),
                    name("down", "weight"),
                );
                hidden.map(|hidden| {
                    (
                        Layer::SwiGlu {
                            gate,
                            up,
                            down,
                            hidden,
                            width,
                        },
                        width,
                    )
                })
            }
            "sigmoid" => Some((Layer::Sigmoid, width)),
            "id" => Some((Layer::Identity, width)),
            "dropout" => self.dropout(&mut args, width),
            "concat" => return self.concat(args, Input::One(width)),
            "gelu" => self.mlp(&mut args, nn::Activation::Gelu, width),
            "relu" => self.mlp(&mut args, nn::Activation::Relu, width),
            "linear" => {
                let bias = args.flag("bias");
                let output = match args.positional() {
                    Some(n) => super::args::report(whole(n, self.scope, 1, MAX_WIDTH), self.sink),
                    None => Some(width),
                };
                let map = map(self.namer("linear"), "linear", bias);
                output.map(|output| {
                    let input = width;
                    (Layer::Linear { map, input, output }, output)
                })
            }
            other if crate::scheme::names::LATER_PRIMITIVES.contains(&other) => {
                let what = format!("`{other}`");
                return self.fail(not_supported(args.callee.span, &what));
            }
            "logits" => {
                return self.fail(
                    Diagnostic::error(
                        codes::TYPE_MISMATCH,
                        e.span,
                        "`logits` ends the output of a model",
                    )
                    .label("not part of a field"),
                );
            }
            other => {
                let known = crate::scheme::names::PRIMITIVES.iter().copied();
                let near =
                    odec_grammar::nearest(other, known).map(|n| format!("did you mean `{n}`?"));
                let d = Diagnostic::error(
                    codes::UNKNOWN_NAME,
                    args.callee.span,
                    format!("`{other}` is not a primitive"),
                )
                .label("a pipeline is made of primitives")
                .help(near.unwrap_or_else(|| {
                    "named fields and flows inside a pipeline are not supported yet".into()
                }));
                return self.fail(d);
            }
        };
        args.finish(&["qkv", "kv_stride", "eps"], self.sink);
        made.filter(|_| self.sink.len() == before)
    }

    /// `dropout(10%)`.
    fn dropout(&mut self, args: &mut Args, width: u64) -> Option<(Layer, u64)> {
        let labelled = args.labelled("rate", self.sink);
        let Some(rate) = labelled.or_else(|| args.positional()) else {
            let d = Diagnostic::error(
                codes::MISSING_ARGUMENT,
                args.span,
                "`dropout` needs its rate",
            );
            return self.fail(d.help("write, for example, `dropout(10%)`"));
        };
        super::args::report(real(rate, Bounds::BelowOne), self.sink)?;
        let rate = super::args::report(exact(rate, &Scope::new()), self.sink)?;
        self.seen.push("dropout");
        let number = self.seen.iter().filter(|r| **r == "dropout").count();
        let number = u32::try_from(number).ok()?;
        Some((Layer::Dropout { rate, number }, width))
    }

    /// `gelu(hidden: 4*width, bias)`.
    fn mlp(
        &mut self,
        args: &mut Args,
        activation: nn::Activation,
        width: u64,
    ) -> Option<(Layer, u64)> {
        let bias = args.flag("bias");
        let hidden = args.size("hidden", self.scope, MAX_WIDTH, self.sink);
        let name = self.namer("mlp");
        let (up, down) = (map(&name, "up", bias), map(&name, "down", bias));
        hidden.map(|hidden| {
            let layer = Layer::Mlp {
                up,
                down,
                activation,
                hidden,
                width,
            };
            (layer, width)
        })
    }

    fn attention(&mut self, args: &mut Args, width: u64) -> Option<(Layer, u64)> {
        let (causal, rope) = (args.flag("causal"), args.flag("rope"));
        let bias = args.flag("bias");
        let heads_expr = args.required("heads", self.sink);
        // All taken before anything can be wrong: what is left is called unknown.
        let kv_heads = args.labelled("kv_heads", self.sink);
        let window = args.labelled("window", self.sink);
        let name = self.namer("attention");
        let heads_expr = heads_expr?;
        let heads = super::args::report(whole(heads_expr, self.scope, 1, MAX_WIDTH), self.sink)?;
        if !width.is_multiple_of(heads) {
            let near = (1..=heads)
                .rev()
                .find(|n| width.is_multiple_of(*n))
                .unwrap_or(1);
            return self.fail(
                Diagnostic::error(
                    codes::SHAPE_MISMATCH,
                    heads_expr.span,
                    format!("{heads} heads do not divide the width {width}"),
                )
                .label(format!("{width} / {heads} is not whole"))
                .help(format!(
                    "{near} heads would have {} columns each",
                    width / near
                )),
            );
        }
        if rope && !(width / heads).is_multiple_of(2) {
            return self.fail(
                Diagnostic::error(
                    codes::SHAPE_MISMATCH,
                    heads_expr.span,
                    format!("heads of {} columns cannot be rotated", width / heads),
                )
                .label("`rope` turns pairs of columns: their number must be even"),
            );
        }
        if !causal && args.misspelt("causal") {
            return None;
        }
        let kv_heads = match kv_heads {
            Some(e) => {
                let n = super::args::report(whole(e, self.scope, 1, heads), self.sink)?;
                if !heads.is_multiple_of(n) {
                    let message =
                        format!("{heads} heads cannot share {n} heads of keys and values");
                    let d = Diagnostic::error(codes::SHAPE_MISMATCH, e.span, message);
                    return self.fail(d.label(format!("{heads} / {n} is not whole")));
                }
                n
            }
            None => heads,
        };
        let window = match window {
            Some(e) if causal => {
                let most = 1 << 32;
                Some(super::args::report(
                    whole(e, self.scope, 1, most),
                    self.sink,
                )?)
            }
            Some(e) => {
                let message = "a window of attention that sees all tokens";
                let d = Diagnostic::error(codes::MISSING_ARGUMENT, e.span, message)
                    .label("it counts the tokens up to the one that looks")
                    .help("write `attention(heads: …, causal, window: …)`");
                return self.fail(d);
            }
            None => None,
        };
        let attention = Attention {
            heads,
            kv_heads,
            causal,
            window,
        };
        let [q, k, v, o] = ["q", "k", "v", "o"].map(|p| map(&name, p, bias));
        Some((
            Layer::Attention {
                q,
                k,
                v,
                o,
                attention,
                width,
                rope,
            },
            width,
        ))
    }
}

/// The paths of a linear map.
fn map(name: impl Fn(&str, &str) -> String, part: &str, bias: bool) -> Map {
    Map {
        weight: name(part, "weight"),
        bias: bias.then(|| name(part, "bias")),
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
