//! `sgd`: gradient descent, with momentum.

use super::{Group, Next, Numbers, Optimizer, OptimizerKind, Rule, Scale, Way};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};

const RATE: Argument = Argument::needed("lr", "the rate α, which the schedule multiplies");
const MOMENTUM: Argument =
    Argument::optional("momentum", "μ, how much of the last direction is kept");
const DECAY: Argument = Argument::optional("weight_decay", "λ, of matrices only");

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sgd {
    pub lr: f64,
    pub momentum: f64,
    pub weight_decay: f64,
}

impl Choice for Sgd {
    fn name(&self) -> &'static str {
        "sgd"
    }

    fn about(&self) -> About {
        About {
            summary: "Moves each parameter against its gradient, or against the sum of its gradients so far, each weighed less the older it is.",
            formula: "u ← μ u + g + λ p;  p ← p − α u",
            source: "Robbins & Monro 1951; momentum: Polyak 1964; as in `torch.optim.SGD`",
            notes: &[
                "The decay is part of the gradient, as the derivative of λ/2 ‖p‖² is, and so of the momentum. Without momentum nothing is kept.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "sgd(lr: 0.1)",
                meaning: "gradient descent",
            },
            Example {
                text: "sgd(lr: 0.1, momentum: 0.9, weight_decay: 1e-4)",
                meaning: "with momentum and decay",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.number(&RATE, Bounds::NotNegative, &mut self.lr);
        v.number(&MOMENTUM, Bounds::BelowOne, &mut self.momentum);
        v.number(&DECAY, Bounds::NotNegative, &mut self.weight_decay);
    }
}

impl Optimizer for Sgd {
    fn rate(&self) -> f64 {
        self.lr
    }

    fn states(&self) -> &'static [&'static str] {
        match self.momentum == 0.0 {
            true => &[],
            false => &["u, the gradients so far"],
        }
    }

    fn scalars(&self, _: u64) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn others(&self) -> Option<Group> {
        None
    }

    fn scaled(&self, _: Scale) -> Option<OptimizerKind> {
        None
    }

    fn way(&self) -> Way<'_> {
        Way::Numbers(self)
    }
}

impl Numbers for Sgd {
    fn update(&self, r: &mut Rule) -> Next {
        let (decay, rate) = (r.decay(self.weight_decay), r.rate());
        let (p, g) = (r.parameter(), r.gradient());
        let mut u = r.body.fma(decay, p, g);
        let keeps = !self.states().is_empty();
        if keeps {
            let momentum = r.value(self.momentum);
            u = r.body.fma(momentum, r.state(0), u);
        }
        let step = r.body.mul(rate, u);
        Next {
            parameter: r.body.sub(p, step),
            states: if keeps { vec![u] } else { Vec::new() },
        }
    }
}
