//! `adafactor`: Adam's second moments, of each row and of each column.

use super::whole::{Kernel, Part, Plan};
use super::{Group, LR, Optimizer, OptimizerKind, Scale, Way, Whole};
use crate::bounds::Bounds;
use crate::choice::{About, Argument, Choice, Example, Visitor};
use crate::expr::ExprId;
use crate::manifest::added;

const RATE: Argument = Argument::needed("lr", "the rate α, which the schedule multiplies");
const POWER: Argument = Argument::optional("power", "c: the means keep 1 − t^−c at step t");
const CLIP: Argument = Argument::optional("clip", "d, the largest root mean square of a step before its rate");
const EPS: Argument = Argument::optional("eps", "ε₁, what is added to squares");
const STEP: Argument = Argument::optional(
    "step",
    "α as it is, or times the root mean square of the parameter, at least 10⁻³",
);
const DECAY: Argument = Argument::optional("weight_decay", "λ, of matrices only");

const FIXED: &str = "fixed";
const RELATIVE: &str = "relative";
const STEPS: [&str; 2] = [FIXED, RELATIVE];
/// ε₂ of the source.
const LEAST: f64 = 1e-3;

/// What the running means keep.
const KEEP: &str = "beta2";

#[derive(Clone, Debug, PartialEq)]
pub struct Adafactor {
    pub lr: f64,
    pub power: f64,
    pub clip: f64,
    pub eps: f64,
    /// `fixed` or `relative`.
    pub step: &'static str,
    pub weight_decay: f64,
}

impl Default for Adafactor {
    fn default() -> Adafactor {
        Adafactor {
            lr: 0.0,
            power: 0.8,
            clip: 1.0,
            eps: 1e-30,
            step: FIXED,
            weight_decay: 0.0,
        }
    }
}

impl Choice for Adafactor {
    fn name(&self) -> &'static str {
        "adafactor"
    }

    fn about(&self) -> About {
        About {
            summary: "Divides each gradient by the root of the running mean of its squares, of which it keeps the means of rows and columns alone.",
            formula: "β = 1 − t^−c;  R ← β R + (1 − β) mean over columns of (g² + ε₁);  C ← β C + (1 − β) mean over rows of (g² + ε₁);  U = g/√(R C/mean R);  p ← p (1 − α λ) − α U/max(1, rms(U)/d)",
            source: "Shazeer & Stern 2018, arXiv:1804.04235, algorithms 4 and 5, without momentum",
            notes: &[
                "R and C are in the checkpoint under the parameter's path with `.adafactor.rows` and `.adafactor.cols` behind it: rows + columns numbers instead of as many as the matrix has. Of vectors and scalars all means are kept, as C. A convolution is a matrix of `out` rows, experts are several matrices.",
            ],
        }
    }

    fn examples(&self) -> &'static [Example] {
        &[
            Example {
                text: "adafactor(lr: 1e-3)",
                meaning: "without decay",
            },
            Example {
                text: "adafactor(lr: 0.01, power: 0.9, clip: 0.5, step: relative, weight_decay: 0.1)",
                meaning: "steps relative to the size of the parameters, as in the source",
            },
        ]
    }

    fn arguments(&mut self, v: &mut dyn Visitor) {
        v.number(&RATE, Bounds::NotNegative, &mut self.lr);
        v.number(&POWER, Bounds::PositiveShare, &mut self.power);
        v.number(&CLIP, Bounds::Positive, &mut self.clip);
        v.number(&EPS, Bounds::PositiveShare, &mut self.eps);
        v.word(&STEP, &STEPS, &mut self.step);
        v.number(&DECAY, Bounds::NotNegative, &mut self.weight_decay);
    }
}

impl Optimizer for Adafactor {
    fn rate(&self) -> f64 {
        self.lr
    }

    fn states(&self) -> &'static [&'static str] {
        &[]
    }

    fn scalars(&self, t: u64) -> Vec<(&'static str, f64)> {
        vec![(KEEP, 1.0 - (t as f64).powf(-self.power))]
    }

    fn others(&self) -> Option<Group> {
        None
    }

    fn scaled(&self, _: Scale) -> Option<OptimizerKind> {
        None
    }

    fn way(&self) -> Way<'_> {
        Way::Wholes(self)
    }
}

/// What is kept of rows and columns.
const OF_ROWS: Part = Part::Beside(0);
const OF_COLS: Part = Part::Beside(1);

impl Whole for Adafactor {
    fn beside(&self, [rows, cols]: [u64; 2]) -> Vec<(&'static str, u64)> {
        vec![(added::ADAFACTOR_ROWS, rows), (added::ADAFACTOR_COLS, cols)]
    }

    fn update(&self, plan: &mut Plan) {
        let (rows, cols, eps) = (plan.rows, plan.cols, self.eps);
        let all = (rows * cols) as f64;
        let sums = plan.make(cols);
        let [mean, row_squares, row_sizes, factor] = [1, rows, rows, 1].map(|n| plan.make(n));
        // The mean of rows.
        plan.over(rows, cols, |k| {
            let (g, old) = (k.gradient(), k.of_row(OF_ROWS));
            let square = k.square(g);
            let sum = k.sum(square);
            let (part, eps) = (k.value(1.0 / cols as f64), k.value(eps));
            let new = k.b.fma(part, sum, eps);
            let keep = k.of_step(KEEP);
            let new = k.blend(keep, old, new);
            let new = k.if_finite(new, old);
            k.put(OF_ROWS, new);
        });
        plan.column_sums([rows, cols], sums, |k| {
            let g = k.gradient();
            k.square(g)
        });
        plan.over(1, cols, |k| {
            let (sum, old) = (k.each(sums), k.each(OF_COLS));
            let (part, eps) = (k.value(1.0 / rows as f64), k.value(eps));
            let new = k.b.fma(part, sum, eps);
            let keep = k.of_step(KEEP);
            let new = k.blend(keep, old, new);
            let new = k.if_finite(new, old);
            k.put_each(OF_COLS, new);
        });
        plan.over(1, rows, |k| {
            let r = k.each(OF_ROWS);
            let (sum, part) = (k.sum(r), k.value(1.0 / rows as f64));
            let all = k.b.mul(sum, part);
            k.put(mean, all);
        });
        plan.over(rows, cols, |k| {
            let u = direction(k, mean);
            let square = k.square(u);
            let sum = k.sum(square);
            k.put(row_squares, sum);
            let p = k.each(Part::Parameter);
            let square = k.square(p);
            let size = k.sum(square);
            k.put(row_sizes, size);
        });
        let (clip, relative) = (self.clip, self.step == RELATIVE);
        plan.over(1, rows, |k| {
            let rms = |k: &mut Kernel, of: Part| {
                let squares = k.each(of);
                let (sum, part) = (k.sum(squares), k.value(1.0 / all));
                let mean = k.b.mul(sum, part);
                k.root(mean)
            };
            let (one, size) = (k.b.konst(1.0), rms(k, row_squares));
            let most = k.value(clip);
            let over = k.over(size, most);
            let below = k.larger(over, one);
            let mut scale = k.over(one, below);
            if relative {
                let (least, size) = (k.value(LEAST), rms(k, row_sizes));
                let size = k.larger(size, least);
                scale = k.b.mul(scale, size);
            }
            k.put(factor, scale);
        });
        let decay = if plan.decays { self.weight_decay } else { 0.0 };
        plan.over(rows, cols, |k| {
            let u = direction(k, mean);
            let scale = k.number(factor);
            let u = k.b.mul(scale, u);
            let rate = k.of_step(LR);
            let [old, new] = k.moved(rate, decay, u);
            let new = k.if_finite(new, old);
            k.put_each(Part::Parameter, new);
        });
    }
}

/// `g/√(R C/mean R)`.
fn direction(k: &mut Kernel, mean: Part) -> ExprId {
    let g = k.gradient();
    let (r, c, mean) = (k.of_row(OF_ROWS), k.of_col(OF_COLS), k.number(mean));
    let share = k.over(r, mean);
    let variance = k.b.mul(share, c);
    let below = k.root(variance);
    k.over(g, below)
}
