//! `lion`: steps of one size, in the direction of a running mean.

use super::{Group, Next, Numbers, Optimizer, OptimizerKind, Rule, Scale, Way};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};
use crate::expr::CmpOp;

const RATE: Argument = Argument::needed("lr", "the rate α, which the schedule multiplies");
const BETAS: Argument =
    Argument::optional("betas", "β₁, of the direction, and β₂, of what is kept");
const DECAY: Argument = Argument::optional("weight_decay", "λ, of matrices only");

#[derive(Clone, Debug, PartialEq)]
pub struct Lion {
    pub lr: f64,
    pub betas: (f64, f64),
    pub weight_decay: f64,
}

impl Default for Lion {
    fn default() -> Lion {
        Lion {
            lr: 0.0,
            betas: (0.9, 0.99),
            weight_decay: 0.0,
        }
    }
}

impl Choice for Lion {
    fn name(&self) -> &'static str {
        "lion"
    }

    fn about(&self) -> About {
        About {
            summary: "Moves each number of a parameter by the rate, up or down: by the sign of a running mean of its gradients.",
            formula: "p ← p (1 − α λ) − α sign(β₁ m + (1 − β₁) g);  m ← β₂ m + (1 − β₂) g",
            source: "Chen et al. 2023, arXiv:2302.06675, algorithm 2",
            notes: &[
                "It keeps half as much as `adamw`. A step is as long as the rate allows, so rates are three to ten times smaller, and decays as many times larger.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "lion(lr: 1e-4)",
                meaning: "without decay",
            },
            Example {
                text: "lion(lr: 1e-4, betas: (0.95, 0.98), weight_decay: 1)",
                meaning: "with the betas for language models, and decay",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.number(&RATE, Bounds::NotNegative, &mut self.lr);
        v.pair(&BETAS, Bounds::BelowOne, &mut self.betas);
        v.number(&DECAY, Bounds::NotNegative, &mut self.weight_decay);
    }
}

impl Optimizer for Lion {
    fn rate(&self) -> f64 {
        self.lr
    }

    fn states(&self) -> &'static [&'static str] {
        &["m, the running mean of the gradients"]
    }

    fn scalars(&self, _: u64) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn others(&self) -> Option<Group> {
        None
    }

    fn scaled(&self, by: Scale) -> Option<OptimizerKind> {
        let scaled = Lion {
            lr: self.lr * by.rate,
            weight_decay: self.weight_decay * by.decay,
            ..*self
        };
        Some(scaled.into())
    }

    fn way(&self) -> Way<'_> {
        Way::Numbers(self)
    }
}

impl Numbers for Lion {
    fn update(&self, r: &mut Rule) -> Next {
        let (beta1, beta2) = self.betas;
        let values = [beta1, 1.0 - beta1, beta2, 1.0 - beta2];
        let [beta1, rest1, beta2, rest2] = values.map(|x| r.value(x));
        let (decay, rate) = (r.decay(self.weight_decay), r.rate());
        let (m, g) = (r.state(0), r.gradient());
        let direction = r.blend([beta1, m], [rest1, g]);
        let kept = r.blend([beta2, m], [rest2, g]);
        let b = &mut r.body;
        let [zero, up, down] = [0.0, 1.0, -1.0].map(|x| b.konst(x));
        let below = b.select(CmpOp::Lt, direction, zero, down, zero);
        let sign = b.select(CmpOp::Lt, zero, direction, up, below);
        let step = b.mul(rate, sign);
        Next {
            parameter: r.decayed([rate, decay], step),
            states: vec![kept],
        }
    }
}
