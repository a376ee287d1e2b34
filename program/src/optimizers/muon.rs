//! `muon`: momentum, made orthogonal.

use super::whole::{Part, Plan};
use super::{AdamW, Group, LR, Optimizer, OptimizerKind, Scale, Way, Whole, group};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};

const RATE: Argument = Argument::needed("lr", "the rate α of matrices, which the schedule multiplies");
const OTHERS: Argument = Argument::needed(
    "others",
    "the rate of AdamW, which embeddings, outputs, vectors and scalars follow; the schedule multiplies it too",
);
const MOMENTUM: Argument = Argument::optional("momentum", "μ, how much of the last direction is kept");
const DECAY: Argument = Argument::optional("weight_decay", "λ, of matrices only");

/// The polynomial `a x + b x³ + c x⁵` of the source, whose iterates bring numbers from 0 to 1 near 1.
const POLYNOMIAL: [f64; 3] = [3.4445, -4.7750, 2.0315];
const ITERATIONS: usize = 5;
/// What is added to the norm that the direction is divided by.
const EPS: f64 = 1e-7;

#[derive(Clone, Debug, PartialEq)]
pub struct Muon {
    pub lr: f64,
    pub others: f64,
    pub momentum: f64,
    pub weight_decay: f64,
}

impl Default for Muon {
    fn default() -> Muon {
        Muon {
            lr: 0.0,
            others: 0.0,
            momentum: 0.95,
            weight_decay: 0.0,
        }
    }
}

impl Choice for Muon {
    fn name(&self) -> &'static str {
        "muon"
    }

    fn about(&self) -> About {
        About {
            summary: "Moves each matrix of fields by its momentum, whose singular values are brought near 1. Embeddings, outputs, vectors and scalars follow AdamW.",
            formula: "u ← μ u + g;  X = (g + μ u)/(‖g + μ u‖ + 10⁻⁷);  five times X ← a X + (b A + c A²) X, A = X Xᵀ;  p ← p (1 − α λ) − α √max(1, rows/columns) X",
            source: "Jordan et al. 2024, \"Muon: an optimizer for hidden layers in neural networks\", with its a = 3.4445, b = −4.775, c = 2.0315",
            notes: &[
                "Where a matrix has more rows than columns, A = Xᵀ X stands on the other side, which is the same. All is computed in the type of the parameters, in the source in bf16. A convolution is a matrix of `out` rows, experts are several matrices.",
                "The others follow `adamw` with betas 0.9 and 0.95, without decay: `except embed by adamw(…)` says something else of them.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "muon(lr: 0.02, others: 3e-4)",
                meaning: "with the rate of the source for matrices",
            },
            Example {
                text: "muon(lr: 0.01, others: 1e-3, momentum: 0.9, weight_decay: 0.1)",
                meaning: "with decay, as Liu et al. 2025 (arXiv:2502.16982) have it",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.number(&RATE, Bounds::NotNegative, &mut self.lr);
        v.number(&OTHERS, Bounds::NotNegative, &mut self.others);
        v.number(&MOMENTUM, Bounds::BelowOne, &mut self.momentum);
        v.number(&DECAY, Bounds::NotNegative, &mut self.weight_decay);
    }
}

impl Optimizer for Muon {
    fn rate(&self) -> f64 {
        self.lr
    }

    fn states(&self) -> &'static [&'static str] {
        &["u, the gradients so far"]
    }

    fn scalars(&self, _: u64) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    fn others(&self) -> Option<Group> {
        let of = ["embed", "output", group::VECTORS].map(String::from);
        let optimizer = AdamW {
            lr: self.others,
            ..AdamW::default()
        };
        Some(Group {
            of: of.into(),
            optimizer: optimizer.into(),
            vectors_decay: false,
        })
    }

    fn scaled(&self, _: Scale) -> Option<OptimizerKind> {
        None
    }

    fn way(&self) -> Way<'_> {
        Way::Wholes(self)
    }
}

impl Whole for Muon {
    fn beside(&self, _: [u64; 2]) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    fn update(&self, plan: &mut Plan) {
        let (rows, cols) = (plan.rows, plan.cols);
        let (momentum, u) = (self.momentum, Part::State(0));
        let [direction, squares, x] = [rows * cols, rows, rows * cols].map(|n| plan.make(n));
        let shrink = plan.make(1);
        plan.over(rows, cols, |k| {
            let (g, old) = (k.gradient(), k.each(u));
            let momentum = k.value(momentum);
            let new = k.b.fma(momentum, old, g);
            let d = k.b.fma(momentum, new, g);
            let kept = k.if_finite(new, old);
            let square = k.square(d);
            let sum = k.sum(square);
            k.put_each(u, kept);
            k.put_each(direction, d);
            k.put(squares, sum);
        });
        plan.over(1, rows, |k| {
            let squares = k.each(squares);
            let sum = k.sum(squares);
            let norm = k.root(sum);
            let (one, eps) = (k.b.konst(1.0), k.b.konst(EPS));
            let below = k.b.add(norm, eps);
            let scale = k.over(one, below);
            k.put(shrink, scale);
        });
        plan.over(rows, cols, |k| {
            let (d, scale) = (k.each(direction), k.number(shrink));
            let unit = k.b.mul(d, scale);
            k.put_each(x, unit);
        });
        let [a, b, c] = POLYNOMIAL;
        let (tall, n) = (rows > cols, rows.min(cols));
        let [square, polynomial] = [n * n, n * n].map(|n| plan.make(n));
        let (mut from, mut to) = (x, direction);
        for _ in 0..ITERATIONS {
            let long = rows.max(cols);
            plan.product([n, n, long], (from, tall), (from, !tall), None, square);
            let terms = Some((c, b, square));
            plan.product([n, n, n], (square, false), (square, false), terms, polynomial);
            let sides = match tall {
                true => [from, polynomial],
                false => [polynomial, from],
            };
            let [left, right] = sides.map(|part| (part, false));
            plan.product([rows, cols, n], left, right, Some((1.0, a, from)), to);
            (from, to) = (to, from);
        }
        let scale = (rows as f64 / cols as f64).max(1.0).sqrt();
        let decay = if plan.decays { self.weight_decay } else { 0.0 };
        plan.over(rows, cols, |k| {
            let (o, scale) = (k.each(from), k.value(scale));
            let o = k.b.mul(scale, o);
            let rate = k.of_step(LR);
            let [old, new] = k.moved(rate, decay, o);
            let new = k.if_finite(new, old);
            k.put_each(Part::Parameter, new);
        });
    }
}
