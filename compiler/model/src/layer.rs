//! What the inside of a field computes: its parameters and its graph.
//!
//! A [`Layer`] is made by `pipeline.rs`, with widths that fit; it lists its parameters and, on demand, appends its
//! nodes. Leaves whose parameters they are to `params.rs`.

use odec_graph::ops::{
    AddPositions, Attention, Broadcast, Concat, Dropout, Exp, Mul, Reshape, Sigmoid,
};
use odec_graph::{Builder, Exact, TypeError, Value, nn};
use odec_program::manifest::{Init, Waves};

/// Base of the sinusoids' wave lengths (Vaswani et al. 2017).
pub const SINUSOID_BASE: f64 = 10_000.0;

/// A map from states to states (or, inside a pipeline, between widths).
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// `x / √(mean(x²) + eps) · gain` (Zhang & Sennrich 2019).
    RmsNorm {
        gain: String,
        width: u64,
        eps: Exact,
    },
    /// `(x − mean(x)) / √(var(x) + eps) · gain + bias` (Ba, Kiros & Hinton 2016).
    LayerNorm {
        gain: String,
        bias: String,
        width: u64,
        eps: Exact,
    },
    /// Multi-head attention of the tokens to each other; rotary positions (Su et al. 2021) on q and k. Heads may share keys
    /// and values (Ainslie et al. 2023), and see the last tokens only (Beltagy, Peters & Cohan 2020). The op divides scores by the root
    /// of a head's width; another scale is a factor of the queries, so that kernels do not depend on it.
    Attention {
        q: Map,
        k: Map,
        v: Map,
        o: Map,
        attention: Attention,
        width: u64,
        rope: Option<Angles>,
        query_factor: Exact,
    },
    /// `D(silu(G(x)) · U(x))` (Shazeer 2020).
    SwiGlu {
        gate: Map,
        up: Map,
        down: Map,
        hidden: u64,
        width: u64,
    },
    /// Two linear maps with an activation between them: `gelu`, exact or by tanh (Hendrycks & Gimpel 2016), `relu`.
    Mlp {
        up: Map,
        down: Map,
        activation: nn::Activation,
        hidden: u64,
        width: u64,
    },
    Linear {
        map: Map,
        input: u64,
        output: u64,
    },
    /// `1 / (1 + e^(−x))`.
    Sigmoid,
    Identity,
    /// A number below 0 for each column, times the column.
    Decay(Decay),
    /// Part of the elements zero while the model is trained; the field's n-th.
    Dropout {
        rate: Exact,
        number: u32,
    },
    /// Features of the time, the same for all tokens.
    Time {
        width: u64,
    },
    /// Sinusoids of each token's position (Vaswani et al. 2017), as wide as the state.
    Positions {
        width: u64,
    },
    /// One of the values that a field is evaluated at.
    Argument(usize),
    /// Results side by side.
    Concat(Vec<Layer>),
    Pipe(Vec<Layer>),
    /// `Σ cᵢ fᵢ(x)`.
    Sum(Vec<(Exact, Layer)>),
}

/// `λ = −rate·e^w`: a decay, however w moves (as in Gu & Dao 2023).
#[derive(Clone, Debug, PartialEq)]
pub struct Decay {
    /// The path of w.
    pub log_rate: String,
    pub rate: Exact,
    pub width: u64,
}

/// The parameters of `x Wᵀ + b`, by their paths below the field.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub weight: String,
    pub bias: Option<String>,
}

/// What turns the columns of a head: by `position · base^(−2i/head)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Angles {
    pub head: u64,
    pub base: f64,
}

/// A parameter of a layer, by its path below the field.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerParam {
    pub path: String,
    pub shape: Vec<u64>,
    pub start: Start,
}

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Matrices: normal, with the model's deviation.
    Normal,
    /// Gains.
    Ones,
    /// Biases.
    Zeros,
}

impl LayerParam {
    /// The start, given the deviation of random ones.
    pub fn init(&self, std: f64) -> Init {
        match self.start {
            Start::Normal => Init::Normal { std },
            Start::Ones => Init::Ones,
            Start::Zeros => Init::Zeros,
        }
    }
}

/// Where a layer finds parameters, tables and the tokens it attends to while its graph is built.
pub trait Weights {
    fn param(&mut self, b: &mut Builder, path: &str) -> Result<Value, TypeError>;
    fn rotary(&mut self, b: &mut Builder, angles: Angles) -> Result<nn::Rotary, TypeError>;
    fn attend(
        &mut self,
        b: &mut Builder,
        attention: Attention,
        qkv: [Value; 3],
    ) -> Result<Value, TypeError>;
    /// The field's n-th mask: its stream and the key of the run; `None` where nothing is dropped.
    fn mask(&mut self, b: &mut Builder, number: u32) -> Result<Option<(u32, Value)>, TypeError>;
    /// Features of the time, `[1, columns]`.
    fn time(&mut self, b: &mut Builder, waves: Waves) -> Result<Value, TypeError>;
    /// Sinusoids of the positions, a row for each.
    fn positions(&mut self, b: &mut Builder) -> Result<Value, TypeError>;
}

impl Layer {
    /// All parameters, in the order of the computation.
    pub fn params(&self) -> Vec<LayerParam> {
        let param = |path: &String, shape: Vec<u64>, start| LayerParam {
            path: path.clone(),
            shape,
            start,
        };
        let matrix =
            |path: &String, rows: u64, cols: u64| param(path, vec![rows, cols], Start::Normal);
        let affine = |m: &Map, rows: u64, cols: u64| {
            let bias = m.bias.iter().map(|p| param(p, vec![rows], Start::Zeros));
            [matrix(&m.weight, rows, cols)]
                .into_iter()
                .chain(bias)
                .collect::<Vec<_>>()
        };
        match self {
            Layer::RmsNorm { gain, width, .. } => vec![param(gain, vec![*width], Start::Ones)],
            Layer::LayerNorm {
                gain, bias, width, ..
            } => vec![
                param(gain, vec![*width], Start::Ones),
                param(bias, vec![*width], Start::Zeros),
            ],
            Layer::Attention {
                q,
                k,
                v,
                o,
                attention,
                width,
                ..
            } => {
                let narrow = width / attention.heads * attention.kv_heads;
                [(q, *width), (k, narrow), (v, narrow), (o, *width)]
                    .into_iter()
                    .flat_map(|(m, rows)| affine(m, rows, *width))
                    .collect()
            }
            Layer::SwiGlu {
                gate,
                up,
                down,
                hidden,
                width,
            } => [
                affine(gate, *hidden, *width),
                affine(up, *hidden, *width),
                affine(down, *width, *hidden),
            ]
            .concat(),
            Layer::Mlp {
                up,
                down,
                hidden,
                width,
                ..
            } => [affine(up, *hidden, *width), affine(down, *width, *hidden)].concat(),
            Layer::Linear { map, input, output } => affine(map, *output, *input),
            Layer::Decay(d) => vec![param(&d.log_rate, vec![d.width], Start::Zeros)],
            Layer::Sigmoid
            | Layer::Identity
            | Layer::Dropout { .. }
            | Layer::Time { .. }
            | Layer::Positions { .. }
            | Layer::Argument(_) => Vec::new(),
            Layer::Pipe(parts) | Layer::Concat(parts) => {
                parts.iter().flat_map(Layer::params).collect()
            }
            Layer::Sum(terms) => terms.iter().flat_map(|(_, l)| l.params()).collect(),
        }
    }

    /// Whether a token's result depends on tokens after it.
    pub fn looks_ahead(&self) -> bool {
        match self {
            Layer::Attention { attention, .. } => !attention.causal,
            Layer::Pipe(parts) | Layer::Concat(parts) => parts.iter().any(Layer::looks_ahead),
            Layer::Sum(terms) => terms.iter().any(|(_, l)| l.looks_ahead()),
            _ => false,
        }
    }

    /// Whether it adds something of its own to each position.
    pub fn sees_positions(&self) -> bool {
        match self {
            Layer::Positions { .. } => true,
            Layer::Pipe(parts) | Layer::Concat(parts) => parts.iter().any(Layer::sees_positions),
            Layer::Sum(terms) => terms.iter().any(|(_, l)| l.sees_positions()),
            _ => false,
        }
    }

    /// How heads are rotated.
    pub fn rotated(&self) -> Vec<Angles> {
        match self {
            Layer::Attention { rope, .. } => rope.iter().copied().collect(),
            Layer::Pipe(parts) | Layer::Concat(parts) => {
                parts.iter().flat_map(Layer::rotated).collect()
            }
            Layer::Sum(terms) => terms.iter().flat_map(|(_, l)| l.rotated()).collect(),
            _ => Vec::new(),
        }
    }

    /// Appends its nodes at the builder's site; `at` is what it is applied to.
    pub fn build(
        &self,
        b: &mut Builder,
        at: &[Value],
        w: &mut dyn Weights,
    ) -> Result<Value, TypeError> {
        let &[x, ..] = at else {
            return Err(TypeError {
                op: "field",
                what: "is evaluated at nothing".into(),
            });
        };
        match self {
            Layer::Sigmoid => b.push1(Sigmoid, &[x]),
            Layer::Identity => Ok(x),
            Layer::Decay(d) => {
                let rates = d.rates(b, w)?;
                b.push1(Mul, &[x, rates])
            }
            Layer::Dropout { rate, number } => match w.mask(b, *number)? {
                Some((stream, key)) => {
                    let rate = rate.clone();
                    b.push1(Dropout { rate, stream }, &[x, key])
                }
                None => Ok(x),
            },
            Layer::Time { width } => {
                let waves = Waves::Positions {
                    width: *width,
                    base: SINUSOID_BASE,
                };
                let row = w.time(b, waves)?;
                let row = b.push1(Reshape { to: vec![*width] }, &[row])?;
                let to = b.ty(x).with_cols(*width);
                b.push1(Broadcast { to }, &[row])
            }
            Layer::Positions { width } => {
                let table = w.positions(b)?;
                let to = b.ty(x).with_cols(*width);
                let none = nn::constant(b, Exact::zero())?;
                let none = b.push1(Broadcast { to }, &[none])?;
                b.push1(AddPositions, &[none, table])
            }
            Layer::Argument(i) => at.get(*i).copied().ok_or_else(|| TypeError {
                op: "field",
                what: format!("has no argument {i}"),
            }),
            Layer::Concat(parts) => {
                let parts: Result<Vec<Value>, _> =
                    parts.iter().map(|l| l.build(b, at, w)).collect();
                b.push1(Concat, &parts?)
            }
            Layer::RmsNorm { gain, eps, .. } => {
                let g = w.param(b, gain)?;
                b.part(part_of(gain), |b| nn::rmsnorm(b, x, g, eps))
            }
            Layer::LayerNorm {
                gain, bias, eps, ..
            } => {
                let (g, s) = (w.param(b, gain)?, w.param(b, bias)?);
                b.part(part_of(gain), |b| nn::layernorm(b, x, g, s, eps))
            }
            Layer::Attention {
                q,
                k,
                v,
                o,
                attention,
                rope,
                query_factor,
                ..
            } => {
                let weights = nn::AttentionWeights {
                    q: q.build(b, w)?,
                    k: k.build(b, w)?,
                    v: v.build(b, w)?,
                    o: o.build(b, w)?,
                };
                let rotary = match rope {
                    Some(angles) => Some(w.rotary(b, *angles)?),
                    None => None,
                };
                nn::self_attention(b, x, weights, rotary, |b, [q, k, v]| {
                    let q = nn::combine(b, &[(query_factor.clone(), q)])?;
                    w.attend(b, *attention, [q, k, v])
                })
            }
            Layer::SwiGlu { gate, up, down, .. } => {
                let [gate, up, down] = [gate.build(b, w)?, up.build(b, w)?, down.build(b, w)?];
                nn::swiglu(b, x, gate, up, down)
            }
            Layer::Mlp {
                up,
                down,
                activation,
                ..
            } => {
                let (up, down) = (up.build(b, w)?, down.build(b, w)?);
                nn::mlp(b, x, up, down, *activation)
            }
            Layer::Linear { map, .. } => {
                let affine = map.build(b, w)?;
                b.part(part_of(&map.weight), |b| nn::affine(b, x, affine))
            }
            Layer::Pipe(parts) => {
                let mut value = at.to_vec();
                for l in parts {
                    value = vec![l.build(b, &value, w)?];
                }
                Ok(value[0])
            }
            Layer::Sum(terms) => {
                let values: Vec<(Exact, Value)> = terms
                    .iter()
                    .map(|(c, l)| Ok((c.clone(), l.build(b, at, w)?)))
                    .collect::<Result<_, TypeError>>()?;
                nn::combine(b, &values)
            }
        }
    }
}

impl Decay {
    /// λ, a number for each column.
    pub fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> Result<Value, TypeError> {
        let logs = w.param(b, &self.log_rate)?;
        let rates = b.push1(Exp, &[logs])?;
        nn::combine(b, &[(-&self.rate, rates)])
    }
}

impl Map {
    fn build(&self, b: &mut Builder, w: &mut dyn Weights) -> Result<nn::Affine, TypeError> {
        let weight = w.param(b, &self.weight)?;
        let bias = match &self.bias {
            Some(path) => Some(w.param(b, path)?),
            None => None,
        };
        Ok(nn::Affine { weight, bias })
    }
}

/// `norm.2.gain` → `norm.2`.
fn part_of(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(part, _)| part)
}
