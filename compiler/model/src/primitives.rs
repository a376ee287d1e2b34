//! The primitives of fields, with their arguments.
//!
//! Takes one part of a pipeline and the width that it meets; gives its [`Layer`] and the width of its result. Leaves what
//! stands around it to `pipeline.rs`.

use super::args::{Args, Bounds, EPS, bounded, real, report};
use super::layer::{Angles, Decay, Layer, Map};
use super::pipeline::{Input, LayerReader};
use crate::codes;
use crate::scheme::resolve::later;
use crate::scheme::scalar::{Scope, arithmetic, exact, name_of, not_supported, whole};
use crate::scheme::stage::default_eps;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::ops::Attention;
use odec_graph::{Exact, nn};

/// Largest width of anything.
pub const MAX_WIDTH: u64 = 1 << 20;
/// Of rotary angles.
const BASE: Bounds = Bounds::Within(1.0, 1e12);
/// Of decay, where training starts.
const RATE: Bounds = Bounds::Within(1e-6, 1e6);
/// Of attention's scores.
const SCALE: Bounds = Bounds::Within(1e-6, 1e6);

/// The base of rotary angles where none is said (Su et al. 2021).
fn default_base() -> Exact {
    Exact::int(10_000)
}

/// What parameters are named after; `None` for a primitive without any.
pub(super) fn role(primitive: &str) -> Option<&'static str> {
    Some(match primitive {
        "rmsnorm" | "layernorm" => "norm",
        "attention" => "attention",
        "swiglu" | "gelu" | "relu" => "mlp",
        "linear" => "linear",
        "decay" => "decay",
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
                let eps = self.number(&mut args, "eps", EPS, default_eps);
                let gain = self.namer("norm")("norm", "gain");
                eps.map(|eps| (Layer::RmsNorm { gain, width, eps }, width))
            }
            "layernorm" => {
                let eps = self.number(&mut args, "eps", EPS, default_eps);
                let name = self.namer("norm");
                let (gain, bias) = (name("norm", "gain"), name("norm", "bias"));
                let norm = |eps| Layer::LayerNorm {
                    gain,
                    bias,
                    width,
                    eps,
                };
                eps.map(|eps| (norm(eps), width))
            }
            "attention" => self.attention(&mut args, width),
            "swiglu" => {
                let bias = args.flag("bias");
                let hidden = args.size("hidden", self.scope, MAX_WIDTH, self.sink);
                let name = self.namer("mlp");
                let [gate, up, down] = ["gate", "up", "down"].map(|part| map(&name, part, bias));
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
            "decay" => {
                let rate = self.number(&mut args, "rate", RATE, Exact::one);
                let log_rate = self.namer("decay")("decay", "log_rate");
                let decay = |rate| Decay {
                    log_rate,
                    rate,
                    width,
                };
                rate.map(|rate| (Layer::Decay(decay(rate)), width))
            }
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
            "gelu" => {
                let activation = self.gelu(&mut args);
                self.mlp(&mut args, activation, width)
            }
            "relu" => self.mlp(&mut args, Some(nn::Activation::Relu), width),
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
                return self.fail(later(&args.callee));
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
        args.finish(&["qkv", "kv_stride"], self.sink);
        made.filter(|_| self.sink.len() == before)
    }

    /// An exact number within bounds, or what it is where nothing is said.
    fn number(
        &mut self,
        args: &mut Args,
        label: &'static str,
        bounds: Bounds,
        default: impl FnOnce() -> Exact,
    ) -> Option<Exact> {
        let Some(e) = args.labelled(label, self.sink) else {
            return Some(default());
        };
        let value = exact(e, self.scope).and_then(|x| bounded(x, bounds, e.span));
        report(value, self.sink)
    }

    /// `approximate: tanh`, or the exact one.
    fn gelu(&mut self, args: &mut Args) -> Option<nn::Activation> {
        let Some(e) = args.labelled("approximate", self.sink) else {
            return Some(nn::Activation::Gelu);
        };
        match name_of(e).as_ref().map(|n| n.name.as_str()) {
            Some("tanh") => Some(nn::Activation::GeluTanh),
            Some("none") => Some(nn::Activation::Gelu),
            _ => self.fail(
                Diagnostic::error(
                    codes::TYPE_MISMATCH,
                    e.span,
                    "GELU has no such approximation",
                )
                .label("`tanh` or `none` is expected"),
            ),
        }
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
        activation: Option<nn::Activation>,
        width: u64,
    ) -> Option<(Layer, u64)> {
        let bias = args.flag("bias");
        let hidden = args.size("hidden", self.scope, MAX_WIDTH, self.sink);
        let name = self.namer("mlp");
        let (up, down) = (map(&name, "up", bias), map(&name, "down", bias));
        let layer = Layer::Mlp {
            up,
            down,
            activation: activation?,
            hidden: hidden?,
            width,
        };
        Some((layer, width))
    }

    /// Which of q, k, v and o have a bias: `bias`, `bias: [q, k, v]`.
    fn biases(&mut self, args: &mut Args) -> Option<[bool; 4]> {
        let all = args.flag("bias");
        let Some(e) = args.labelled("bias", self.sink) else {
            return Some([all; 4]);
        };
        let wrong = |span| {
            let message = "`bias` takes a list of attention's maps";
            Diagnostic::error(codes::TYPE_MISMATCH, span, message)
                .label("a list of `q`, `k`, `v` and `o` is expected, each at most once")
                .help("write `bias` for all four, `bias: [q, k, v]` for three of them")
        };
        let mut found = [false; 4];
        let ExprKind::List(items) = &e.kind else {
            return self.fail(wrong(e.span));
        };
        for item in items {
            let name = name_of(item);
            let at = name.and_then(|n| MAPS.iter().position(|m| *m == n.name));
            match at {
                Some(i) if !found[i] && !all => found[i] = true,
                _ => return self.fail(wrong(item.span)),
            }
        }
        Some(found)
    }

    fn attention(&mut self, args: &mut Args, width: u64) -> Option<(Layer, u64)> {
        let causal = args.flag("causal");
        let rope = args.word("rope", self.sink);
        let biases = self.biases(args);
        let heads_expr = args.required("heads", self.sink);
        // All taken before anything can be wrong: what is left is called unknown.
        let kv_heads = args.labelled("kv_heads", self.sink);
        let window = args.labelled("window", self.sink);
        let scale = args.labelled("scale", self.sink);
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
        let head = width / heads;
        if rope.is_some() && !head.is_multiple_of(2) {
            return self.fail(
                Diagnostic::error(
                    codes::SHAPE_MISMATCH,
                    heads_expr.span,
                    format!("heads of {head} columns cannot be rotated"),
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
        let query_factor = match scale {
            Some(e) => self.query_factor(e, head)?,
            None => Exact::one(),
        };
        let rope = match rope {
            Some(mut inner) => {
                let base = self.number(&mut inner, "base", BASE, default_base);
                inner.finish(&[], self.sink);
                let base = base?.to_f64();
                Some(Angles { head, base })
            }
            None => None,
        };
        let biases = biases?;
        let [q, k, v, o] = [0, 1, 2, 3].map(|i| map(&name, MAPS[i], biases[i]));
        Some((
            Layer::Attention {
                q,
                k,
                v,
                o,
                attention,
                width,
                rope,
                query_factor,
            },
            width,
        ))
    }

    /// What makes a scale of scores that are divided by the root of a head's width.
    fn query_factor(&mut self, scale: &Expr, head: u64) -> Option<Exact> {
        let value = exact(scale, self.scope).and_then(|s| {
            let s = bounded(s, SCALE, scale.span)?;
            let root = Exact::int(i64::try_from(head).unwrap_or(i64::MAX)).root(2);
            let factor = root.and_then(|root| (&s * &root).checked());
            factor.map_err(|why| arithmetic(why.into(), scale.span))
        });
        report(value, self.sink)
    }
}

/// The linear maps of attention.
const MAPS: [&str; 4] = ["q", "k", "v", "o"];

/// The paths of a linear map.
fn map(name: impl Fn(&str, &str) -> String, part: &str, bias: bool) -> Map {
    Map {
        weight: name(part, "weight"),
        bias: bias.then(|| name(part, "bias")),
    }
}
