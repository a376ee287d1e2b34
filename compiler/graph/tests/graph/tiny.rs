//! A small decoder with a scheme, built by hand the way the model stage does it.

use odec_graph::nn::{self, AttentionWeights, Rotary};
use odec_graph::ops::{Attention, Embedding, Input, Parameter};
use odec_graph::{Builder, Exact, Graph, Site, TensorType, TypeError, Value};
use odec_program::manifest::Init;
use std::collections::BTreeMap;

pub const WIDTH: u64 = 4;
pub const HIDDEN: u64 = 6;
pub const VOCAB: u64 = 7;
pub const HEADS: u64 = 2;

/// A model in the making: parameters are made once.
pub struct Tiny {
    pub b: Builder,
    parameters: BTreeMap<String, Value>,
    rotary: Rotary,
}

impl Tiny {
    pub fn new() -> Result<Tiny, TypeError> {
        let mut b = Builder::new();
        let rotary = nn::rotary(&mut b, 16, (WIDTH / HEADS, 1e4), Default::default())?;
        let parameters = BTreeMap::new();
        Ok(Tiny {
            b,
            parameters,
            rotary,
        })
    }

    pub fn parameter(&mut self, path: &str, shape: &[u64]) -> Result<Value, TypeError> {
        if let Some(v) = self.parameters.get(path) {
            return Ok(*v);
        }
        let init = if shape.len() > 1 {
            Init::Normal { std: 0.02 }
        } else {
            Init::Ones
        };
        let op = Parameter {
            path: path.into(),
            shape: shape.into(),
            init,
        };
        let v = self.b.push1(op, &[])?;
        self.parameters.insert(path.into(), v);
        Ok(v)
    }

    pub fn input(&mut self, name: &str) -> Result<Value, TypeError> {
        let ty = TensorType::index(TensorType::state(1).shape);
        self.b.push1(
            Input {
                name: name.into(),
                ty,
            },
            &[],
        )
    }

    fn site(&mut self, step: Option<u32>, evaluation: Option<u32>, path: &str) {
        let path = path.into();
        self.b.site = Site {
            step,
            evaluation,
            path,
            ..Site::default()
        }
        .into();
    }

    /// `rmsnorm |> attention(heads: 2, causal, rope)` with the parameters of `owner`.
    pub fn attention(&mut self, owner: &str, x: Value) -> Result<Value, TypeError> {
        let gain = self.parameter(&format!("{owner}.att.norm.gain"), &[WIDTH])?;
        let w = ["q", "k", "v", "o"]
            .map(|p| self.parameter(&format!("{owner}.att.{p}.weight"), &[WIDTH, WIDTH]));
        let [q, k, v, o] = w;
        let w = AttentionWeights {
            q: q?.into(),
            k: k?.into(),
            v: v?.into(),
            o: o?.into(),
        };
        let rotary = self.rotary;
        self.b.part("att", |b| {
            let normal = b.part("norm", |b| {
                nn::rmsnorm(b, x, gain, &Exact::ratio(1, 100_000))
            })?;
            nn::multi_head_attention(b, [normal; 2], w, Some(rotary), |b, qkv| {
                let attention = Attention::new(HEADS, true);
                nn::attend(b, attention, &qkv)
            })
        })
    }

    /// `rmsnorm |> swiglu(hidden: 6)`.
    pub fn ffn(&mut self, owner: &str, x: Value) -> Result<Value, TypeError> {
        let gain = self.parameter(&format!("{owner}.ffn.norm.gain"), &[WIDTH])?;
        let gate = self.parameter(&format!("{owner}.ffn.gate.weight"), &[HIDDEN, WIDTH])?;
        let up = self.parameter(&format!("{owner}.ffn.up.weight"), &[HIDDEN, WIDTH])?;
        let down = self.parameter(&format!("{owner}.ffn.down.weight"), &[WIDTH, HIDDEN])?;
        self.b.part("ffn", |b| {
            let normal = b.part("norm", |b| {
                nn::rmsnorm(b, x, gain, &Exact::ratio(1, 100_000))
            })?;
            nn::swiglu(b, normal, gate.into(), up.into(), down.into())
        })
    }

    /// The unsplit field `att + ffn`.
    pub fn both(
        &mut self,
        step: u32,
        evaluation: u32,
        owner: &str,
        x: Value,
    ) -> Result<Value, TypeError> {
        self.site(Some(step), Some(evaluation), "");
        let a = self.attention(owner, x)?;
        let f = self.ffn(owner, x)?;
        nn::combine(&mut self.b, &[(Exact::one(), a), (Exact::one(), f)])
    }

    pub fn combine(&mut self, step: u32, terms: &[(Exact, Value)]) -> Result<Value, TypeError> {
        self.site(Some(step), None, "");
        nn::combine(&mut self.b, terms)
    }

    pub fn embed(&mut self) -> Result<Value, TypeError> {
        self.site(None, None, "embed");
        let tokens = self.input("tokens")?;
        let table = self.parameter("embed.weight", &[VOCAB, WIDTH])?;
        self.b.push1(Embedding, &[table, tokens])
    }

    /// Final norm, tied logits, mean cross-entropy; names the outputs.
    pub fn head(mut self, x: Value) -> Result<Graph, TypeError> {
        self.site(None, None, "output");
        let gain = self.parameter("output.norm.gain", &[WIDTH])?;
        let normal = self.b.part("norm", |b| {
            nn::rmsnorm(b, x, gain, &Exact::ratio(1, 100_000))
        })?;
        let table = self.parameter("embed.weight", &[VOCAB, WIDTH])?;
        let logits = self.b.part("logits", |b| nn::linear(b, normal, table))?;
        self.site(None, None, "loss");
        let targets = self.input("targets")?;
        let loss = nn::mean_cross_entropy(&mut self.b, logits, targets)?;
        self.b.output("logits", logits);
        self.b.output("loss", loss);
        Ok(self.b.finish())
    }
}

/// Iterated implicit Euler: `y⁰ = x + F(x)`, `yⁱ = x + F(yⁱ⁻¹)`, i = 1..r.
pub fn iie(steps: u32, r: u32) -> Graph {
    let build = || {
        let mut m = Tiny::new()?;
        let mut x = m.embed()?;
        for k in 0..steps {
            let mut y = x;
            for e in 0..=r {
                let f = m.both(k, e, &format!("step.{k}"), y)?;
                y = m.combine(k, &[(Exact::one(), x), (Exact::one(), f)])?;
            }
            x = y;
        }
        m.head(x)
    };
    build().expect("a sound model")
}

/// The classical Runge–Kutta method, one set of weights for all steps.
pub fn rk4_shared(steps: u32) -> Graph {
    let one = Exact::one;
    let build = || {
        let mut m = Tiny::new()?;
        let mut x = m.embed()?;
        for k in 0..steps {
            let k1 = m.both(k, 0, "shared", x)?;
            let y = m.combine(k, &[(one(), x), (Exact::ratio(1, 2), k1)])?;
            let k2 = m.both(k, 1, "shared", y)?;
            let y = m.combine(k, &[(one(), x), (Exact::ratio(1, 2), k2)])?;
            let k3 = m.both(k, 2, "shared", y)?;
            let y = m.combine(k, &[(one(), x), (one(), k3)])?;
            let k4 = m.both(k, 3, "shared", y)?;
            let (sixth, third) = (Exact::ratio(1, 6), Exact::ratio(1, 3));
            let terms = [
                (one(), x),
                (sixth.clone(), k1),
                (third.clone(), k2),
                (third, k3),
                (sixth, k4),
            ];
            x = m.combine(k, &terms)?;
        }
        m.head(x)
    };
    build().expect("a sound model")
}

/// Iterated implicit Euler on a whole layer, `Φ(x) − x` with Φ = attention then feed-forward, each field an evaluation.
pub fn iie_of_layer(steps: u32, r: u32) -> Graph {
    let one = Exact::one;
    let build = || {
        let mut m = Tiny::new()?;
        let mut x = m.embed()?;
        for k in 0..steps {
            let owner = format!("step.{k}");
            let mut y = x;
            for i in 0..=r {
                m.site(Some(k), Some(2 * i), "");
                let a = m.attention(&owner, y)?;
                let u = m.combine(k, &[(one(), y), (one(), a)])?;
                m.site(Some(k), Some(2 * i + 1), "");
                let f = m.ffn(&owner, u)?;
                y = m.combine(k, &[(one(), x), (one(), a), (one(), f)])?;
            }
            x = y;
        }
        m.head(x)
    };
    build().expect("a sound model")
}

/// Adams–Bashforth 2, `x' = x + 3/2 k − 1/2 k[−1]`, started by Euler; two evolves, the second with two parallel fields.
pub fn history() -> Graph {
    let one = Exact::one;
    let build = || {
        let mut m = Tiny::new()?;
        let mut x = m.embed()?;
        let mut before = None;
        for k in 0..4 {
            let f = m.both(k, 0, &format!("step.{k}"), x)?;
            x = match before {
                None => m.combine(k, &[(one(), x), (one(), f)])?,
                Some(g) => {
                    let terms = [
                        (one(), x),
                        (Exact::ratio(3, 2), f),
                        (Exact::ratio(-1, 2), g),
                    ];
                    m.combine(k, &terms)?
                }
            };
            before = Some(f);
        }
        for k in 0..2 {
            m.site(Some(k), Some(0), "");
            m.b.site.evolve = "core".into();
            let a = m.attention("core", x)?;
            m.b.site.evaluation = Some(1);
            let f = m.ffn("core", x)?;
            m.b.site.evaluation = None;
            let half = || Exact::ratio(1, 2);
            x = nn::combine(&mut m.b, &[(one(), x), (half(), a), (half(), f)])?;
        }
        m.head(x)
    };
    build().expect("a sound model")
}
