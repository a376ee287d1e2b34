//! `adamw`: Adam with decoupled weight decay.

use super::{Group, Next, Numbers, Optimizer, OptimizerKind, Rule, Scale, Way};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};
use crate::expr::{BinaryOp, UnaryOp};

const RATE: Argument = Argument::needed("lr", "the rate α, which the schedule multiplies");
const BETAS: Argument = Argument::optional("betas", "β₁ and β₂: how much of the moments is kept");
const EPS: Argument = Argument::optional("eps", "ε, what is added below the fraction");
const DECAY: Argument = Argument::optional("weight_decay", "λ, of matrices only");

/// `1 / (1 − β₁^t)` and `1 / (1 − β₂^t)`, t counting from 1.
pub const BIAS1: &str = "bias1";
pub const BIAS2: &str = "bias2";

#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    pub lr: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> AdamW {
        AdamW {
            lr: 0.0,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }
}

impl Choice for AdamW {
    fn name(&self) -> &'static str {
        "adamw"
    }

    fn about(&self) -> About {
        About {
            summary: "Moves each parameter by the running mean of its gradients, divided by the root of the running mean of their squares.",
            formula: "m ← β₁ m + (1 − β₁) g;  v ← β₂ v + (1 − β₂) g²;  p ← p (1 − α λ) − α m/(1 − β₁ᵗ) / (√(v/(1 − β₂ᵗ)) + ε)",
            source: "Loshchilov & Hutter 2019, \"Decoupled weight decay regularization\", algorithm 2",
            notes: &[],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "adamw(lr: 3e-4)",
                meaning: "without decay",
            },
            Example {
                text: "adamw(lr: 2e-3, betas: (0.9, 0.999), eps: 1e-6, weight_decay: 0.1)",
                meaning: "with the betas of `torch.optim.AdamW`, and decay",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.number(&RATE, Bounds::NotNegative, &mut self.lr);
        v.pair(&BETAS, Bounds::BelowOne, &mut self.betas);
        v.number(&EPS, Bounds::Share, &mut self.eps);
        v.number(&DECAY, Bounds::NotNegative, &mut self.weight_decay);
    }
}

impl Optimizer for AdamW {
    fn rate(&self) -> f64 {
        self.lr
    }

    fn states(&self) -> &'static [&'static str] {
        &[
            "m, the running mean of the gradients",
            "v, the running mean of their squares",
        ]
    }

    fn scalars(&self, t: u64) -> Vec<(&'static str, f64)> {
        let bias = |beta: f64| 1.0 / (1.0 - beta.powf(t as f64));
        vec![(BIAS1, bias(self.betas.0)), (BIAS2, bias(self.betas.1))]
    }

    fn others(&self) -> Option<Group> {
        None
    }

    fn scaled(&self, by: Scale) -> Option<OptimizerKind> {
        let scaled = AdamW {
            lr: self.lr * by.rate,
            eps: self.eps * by.eps,
            weight_decay: self.weight_decay * by.decay,
            ..*self
        };
        Some(scaled.into())
    }

    fn way(&self) -> Way<'_> {
        Way::Numbers(self)
    }
}

impl Numbers for AdamW {
    fn update(&self, r: &mut Rule) -> Next {
        let (beta1, beta2) = self.betas;
        let values = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, self.eps];
        let [beta1, rest1, beta2, rest2, eps] = values.map(|x| r.value(x));
        let (decay, rate) = (r.decay(self.weight_decay), r.rate());
        let [bias1, bias2] = [BIAS1, BIAS2].map(|name| r.of_step(name));
        let g = r.gradient();
        let m = r.blend([beta1, r.state(0)], [rest1, g]);
        let square = r.body.mul(g, g);
        let v = r.blend([beta2, r.state(1)], [rest2, square]);
        let mean = r.body.mul(m, bias1);
        let variance = r.body.mul(v, bias2);
        let root = r.body.unary(UnaryOp::Sqrt, variance);
        let below = r.body.add(root, eps);
        let step = r.body.binary(BinaryOp::Div, mean, below);
        let step = r.body.mul(rate, step);
        Next {
            parameter: r.decayed([rate, decay], step),
            states: vec![m, v],
        }
    }
}
