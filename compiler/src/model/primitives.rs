//! The primitives of fields, with their arguments.
//!
//! Takes one part of a pipeline and the width that it meets; gives its [`Layer`] and the width of its result. Leaves what
//! stands around it to `pipeline.rs`.

use super::args::{Args, Bounds, real, report};
use super::layer::{Layer, Map};
use super::pipeline::{Input, LayerReader};
use crate::codes;
use crate::scheme::scalar::{Scope, exact, not_supported, whole};
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_graph::nn;
use odec_graph::ops::Attention;

/// Largest width of anything.
pub const MAX_WIDTH: u64 = 1 << 20;

/// What parameters are named after; `None` for a primitive without any.
pub(super) fn role(primitive: &str) -> Option<&'static str> {
    Some(match primitive {
        "rmsnorm" | "layernorm" => "norm",
        "attention" => "attention",
        "swiglu" | "gelu" | "relu" => "mlp",
        "linear" => "linear",
        _ => return None,
    })
}
impl LayerReader<'_> {
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

    pub(super) fn primitive(&mut self, e: &Expr, width: u64) -> Option<(Layer, u64)> {
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
            "time" => {
                let features = args.size("embed", self.scope, MAX_WIDTH, self.sink);
                features.map(|width| (Layer::Time { width }, width))
            }
            "positions" => {
                if args.flag("learned") {
                    let what = "`positions(learned)` inside a field";
                    let d = not_supported(args.span, what);
                    return self.fail(d.help(
                        "write `positions(sinusoidal)`, or `embed learned(width: …), positions(learned)`",
                    ));
                }
                if !args.flag("sinusoidal") {
                    let message = "`positions` takes one word";
                    let d = Diagnostic::error(codes::ARGUMENT_COUNT, args.span, message);
                    return self.fail(d.help("write `positions(sinusoidal)`"));
                }
                let width = self.width;
                Some((Layer::Positions { width }, width))
            }
            "concat" => return self.concat(args, Input::One(width)),
            "gelu" => self.mlp(&mut args, nn::Activation::Gelu, width),
            "relu" => self.mlp(&mut args, nn::Activation::Relu, width),
            "linear" => {
                let bias = args.flag("bias");
                let output = match args.positional() {
                    Some(n) => report(whole(n, self.scope, 1, MAX_WIDTH), self.sink),
                    None => Some(self.width),
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
        report(real(rate, Bounds::BelowOne), self.sink)?;
        let rate = report(exact(rate, &Scope::new()), self.sink)?;
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
        let heads = report(whole(heads_expr, self.scope, 1, MAX_WIDTH), self.sink)?;
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
                let n = report(whole(e, self.scope, 1, heads), self.sink)?;
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
                Some(report(whole(e, self.scope, 1, most), self.sink)?)
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
