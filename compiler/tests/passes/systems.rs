//! Small decoders built by hand: the five systems without their `.ode` files.

use odec_compiler::passes::fuse::Fusion;
use odec_compiler::passes::lower::Tiling;
use odec_compiler::passes::{ModelParts, Options};
use odec_graph::nn::{self, AttentionWeights, Rotary};
use odec_graph::ops::{Attention, Embedding, Input, OpKind, Parameter};
use odec_graph::{Builder, Exact, Graph, TensorType, Value, autodiff};
use odec_program::ResultId;
use odec_program::kernel::Blocking;
use odec_program::manifest::{self, Data, Form, Init, Train};
use odec_program::optimizers::AdamW;
use odec_program::schedules::Constant;
use odec_program::{Bindings, Dim};

/// How a step advances the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Prenorm,
    Rk2,
    Rk4,
    /// Iterated implicit Euler with three iterations.
    Iie,
}

pub const SYSTEMS: [System; 4] = [System::Prenorm, System::Rk2, System::Rk4, System::Iie];

#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub system: System,
    pub steps: u32,
    pub width: u64,
    pub hidden: u64,
    pub heads: u64,
    pub vocab: u64,
    pub tied: bool,
    /// All steps use the weights of step 0.
    pub shared: bool,
    pub maxima: Bindings,
}

impl Shape {
    pub fn tiny(system: System) -> Shape {
        let maxima = Bindings::new(3, 7);
        Shape {
            system,
            steps: 2,
            width: 12,
            hidden: 20,
            heads: 2,
            vocab: 11,
            tied: true,
            shared: false,
            maxima,
        }
    }
}

/// The three graphs of a decoder.
pub struct Decoder {
    pub shape: Shape,
    pub params: Vec<Parameter>,
    pub forward: Graph,
    pub loss: Graph,
    pub grad: Graph,
}

impl Decoder {
    pub fn new(shape: Shape) -> Decoder {
        let (mut forward, logits) = Maker::decoder(shape);
        forward.b.output("logits", logits);
        let loss_graph = |named: bool| {
            let (mut m, logits) = Maker::decoder(shape);
            let targets = m.input("targets");
            let loss = nn::mean_cross_entropy(&mut m.b, logits, targets).unwrap();
            if named {
                m.b.output("loss", loss);
            }
            (m, loss)
        };
        let loss = loss_graph(true).0.b.finish();
        let (with_grad, value) = loss_graph(false);
        let params: Vec<(Parameter, Value)> = with_grad
            .b
            .graph()
            .nodes()
            .filter_map(|(node, n)| match &n.op {
                OpKind::Parameter(p) => Some((p.clone(), Value { node, port: 0 })),
                _ => None,
            })
            .collect();
        let wrt: Vec<Value> = params.iter().map(|p| p.1).collect();
        let (graph, grads) = autodiff::gradient(with_grad.b.finish(), value, &wrt).unwrap();
        let mut b = Builder::extend(graph);
        b.output("loss", value);
        for ((p, _), grad) in params.iter().zip(grads) {
            if let Some(g) = grad {
                b.output(ResultId::Gradient(&p.path).to_string(), g);
            }
        }
        Decoder {
            shape,
            params: params.into_iter().map(|p| p.0).collect(),
            forward: forward.b.finish(),
            loss,
            grad: b.finish(),
        }
    }

    pub fn model(&self) -> ModelParts<'_> {
        let s = self.shape;
        ModelParts {
            name: "tiny",
            source: "",
            model: manifest::Model {
                vocab: s.vocab,
                tokens: None,
                context: s.maxima.seq,
                source: 0,
                width: s.width,
                also: Default::default(),
            },
            params: &self.params,
            forward: &self.forward,
            decode: None,
            several: None,
            translation: None,
            loss: Some(&self.loss),
            grad: Some(&self.grad),
            train: Some(train()),
            precision: manifest::Precision::F32,
            claims: vec![],
            depths: vec![],
            maxima: s.maxima,
        }
    }
}

/// A blocking of its own, so that listings do not change with the tuning of a target.
pub fn options() -> Options {
    Options {
        tiling: Tiling {
            blocking: Blocking {
                mr: 4,
                nr: 8,
                kc: 16,
                nc: 16,
            },
            packs: true,
            pairs: None,
            warpgroups: None,
        },
        fusion: Fusion::On,
        weights: None,
        piece: u64::MAX,
    }
}

fn train() -> Train {
    Train {
        data: Data {
            files: vec!["none".into()],
            form: Form::Tokens,
            held_out_percent: 10,
        },
        groups: vec![],
        ema: None,
        evaluations: None,
        patience: None,
        optimizer: AdamW {
            lr: 1e-2,
            weight_decay: 0.1,
            ..AdamW::default()
        }
        .into(),
        schedule: Constant.into(),
        batch: 3,
        tokens: None,
        keep: None,
        accumulate: 1,
        steps: 10,
        clip: Some(1.0),
        seed: 0,
        memory: manifest::Memory::Store,
        precision: manifest::Precision::F32,
        loss: Default::default(),
        also: Default::default(),
        from: None,
        tune: Default::default(),
        spectral: None,
    }
}

struct Maker {
    b: Builder,
    shape: Shape,
    rotary: Option<Rotary>,
    params: std::collections::BTreeMap<String, Value>,
}

impl Maker {
    fn decoder(shape: Shape) -> (Maker, Value) {
        let mut m = Maker {
            b: Builder::new(),
            shape,
            rotary: None,
            params: Default::default(),
        };
        let (w, v) = (shape.width, shape.vocab);
        let tokens = m.input("tokens");
        m.rotary = Some(
            nn::rotary(
                &mut m.b,
                shape.maxima.seq,
                (w / shape.heads, 1e4),
                Default::default(),
            )
            .unwrap(),
        );
        let table = m.matrix("embed.weight", &[v, w]);
        m.b.site.path = "embed".into();
        let mut x = m.b.push1(Embedding, &[table, tokens]).unwrap();
        for k in 0..shape.steps {
            m.b.site.step = Some(k);
            x = m.step(x, k);
        }
        m.b.site = Default::default();
        m.b.site.path = "output".into();
        let x = m.norm("output.norm", x);
        let head = match shape.tied {
            true => table,
            false => m.matrix("output.weight", &[v, w]),
        };
        let logits = nn::linear(&mut m.b, x, head).unwrap();
        (m, logits)
    }

    fn input(&mut self, name: &str) -> Value {
        let ty = TensorType::index([Dim::Batch, Dim::Seq, Dim::Fixed(1)]);
        self.b
            .push1(
                Input {
                    name: name.into(),
                    ty,
                },
                &[],
            )
            .unwrap()
    }

    fn param(&mut self, path: &str, shape: &[u64], init: Init) -> Value {
        if let Some(v) = self.params.get(path) {
            return *v;
        }
        let p = Parameter {
            path: path.into(),
            shape: shape.to_vec(),
            init,
        };
        let v = self.b.push1(p, &[]).unwrap();
        self.params.insert(path.into(), v);
        v
    }

    fn matrix(&mut self, path: &str, shape: &[u64]) -> Value {
        self.param(path, shape, Init::Normal { std: 0.3 })
    }

    fn norm(&mut self, path: &str, x: Value) -> Value {
        let gain = self.param(&format!("{path}.gain"), &[self.shape.width], Init::Ones);
        nn::rmsnorm(&mut self.b, x, gain, &Exact::ratio(1, 100_000)).unwrap()
    }

    fn att(&mut self, k: u32, x: Value) -> Value {
        let w = self.shape.width;
        self.b.site.path = "att".into();
        let x = self.norm(&format!("step.{k}.att.norm"), x);
        let mut matrix = |part: &str| self.matrix(&format!("step.{k}.att.{part}.weight"), &[w, w]);
        let weights = AttentionWeights {
            q: matrix("q").into(),
            k: matrix("k").into(),
            v: matrix("v").into(),
            o: matrix("o").into(),
        };
        let attention = Attention::new(self.shape.heads, true);
        let attend = |b: &mut Builder, qkv: [Value; 3]| nn::attend(b, attention, &qkv);
        nn::multi_head_attention(&mut self.b, [x; 2], weights, self.rotary, attend).unwrap()
    }

    fn ffn(&mut self, k: u32, x: Value) -> Value {
        let (w, h) = (self.shape.width, self.shape.hidden);
        self.b.site.path = "ffn".into();
        let x = self.norm(&format!("step.{k}.ffn.norm"), x);
        let gate = self.matrix(&format!("step.{k}.ffn.gate.weight"), &[h, w]);
        let up = self.matrix(&format!("step.{k}.ffn.up.weight"), &[h, w]);
        let down = self.matrix(&format!("step.{k}.ffn.down.weight"), &[w, h]);
        nn::swiglu(&mut self.b, x, gate.into(), up.into(), down.into()).unwrap()
    }

    fn combine(&mut self, terms: &[(Exact, Value)]) -> Value {
        self.b.site.path = "combine".into();
        nn::combine(&mut self.b, terms).unwrap()
    }

    /// Φ(x) − x of a whole layer.
    fn increment(&mut self, k: u32, evaluation: u32, x: Value) -> Value {
        self.b.site.evaluation = Some(evaluation);
        let a = self.att(k, x);
        let mid = self.combine(&[(Exact::one(), x), (Exact::one(), a)]);
        let f = self.ffn(k, mid);
        self.combine(&[(Exact::one(), a), (Exact::one(), f)])
    }

    fn step(&mut self, x: Value, k: u32) -> Value {
        let k = if self.shape.shared { 0 } else { k };
        let one = Exact::one;
        match self.shape.system {
            System::Prenorm => {
                self.b.site.evaluation = Some(0);
                let a = self.att(k, x);
                let x = self.combine(&[(one(), x), (one(), a)]);
                self.b.site.evaluation = Some(1);
                let f = self.ffn(k, x);
                self.combine(&[(one(), x), (one(), f)])
            }
            System::Rk2 => {
                let k1 = self.increment(k, 0, x);
                let y = self.combine(&[(one(), x), (one(), k1)]);
                let k2 = self.increment(k, 1, y);
                let half = Exact::ratio(1, 2);
                self.combine(&[(one(), x), (half.clone(), k1), (half, k2)])
            }
            System::Rk4 => {
                let mut ks = vec![self.increment(k, 0, x)];
                for (i, c) in [Exact::ratio(1, 2), Exact::ratio(1, 2), one()]
                    .into_iter()
                    .enumerate()
                {
                    let y = self.combine(&[(one(), x), (c, ks[i])]);
                    ks.push(self.increment(k, i as u32 + 1, y));
                }
                let c = [1, 2, 2, 1].map(|c| Exact::ratio(c, 6));
                let terms: Vec<(Exact, Value)> = [(one(), x)]
                    .into_iter()
                    .chain(c.into_iter().zip(ks))
                    .collect();
                self.combine(&terms)
            }
            System::Iie => {
                let mut y = x;
                for i in 0..4 {
                    let f = self.increment(k, i, y);
                    y = self.combine(&[(one(), x), (one(), f)]);
                }
                y
            }
        }
    }
}
