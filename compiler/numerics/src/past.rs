//! Orders of methods of one field with exact past values, without trees.
//!
//! The exact solution at time τ has `τⁿ/γ(t)` for every tree t of n vertices. A value is *uniform* up to q where its coefficients are
//! `cₙ/γ(t)` for all trees of n ≤ q vertices. The solution is, and with any two values their combinations. Where moreover `cₙ = τⁿ` for n ≤ m, the
//! evaluation there has `n τⁿ⁻¹/γ(t)` for n ≤ m + 1, since 1/γ is a product over subtrees. So each fixed-point iteration is uniform up to one
//! order more, and one number stands for all conditions of an order (Hairer, Nørsett & Wanner 1993, III.2).

use crate::linear_step::{LinearStep, Step};
use crate::order::{Expansion, expected};
use crate::trees::{MAX_ORDER, TreeId, Trees};
use odec_exact::Exact;

/// `c₀, c₁, …`: up to where a value is uniform.
type Uniform = Vec<Exact>;

/// What a condition may be off where coefficients are rounded: of such a line more is asked than where it first fails.
const ROUNDED: f64 = 1e-6;

/// The result of a line: one number for each order.
pub struct Past(Uniform);

impl Past {
    /// `None`: the line has several fields, exact flows or implicit stages, or is not uniform up to the first order whose conditions do not hold.
    pub fn new(line: &LinearStep) -> Option<Past> {
        let powers = |time: &Exact| -> Uniform {
            let first = Some(Exact::one());
            std::iter::successors(first, |p| Some(p * time))
                .take(MAX_ORDER + 1)
                .collect()
        };
        if line.fields.len() != 1 || !line.steps.iter().any(|s| matches!(s, Step::Past(_))) {
            return None;
        }
        let mut values = vec![powers(&Exact::zero())];
        for step in &line.steps {
            values.push(match step {
                Step::Past(time) => powers(time),
                // An implicit stage reads what is made after it.
                Step::Eval { at, .. } => evaluation(values.get(*at)?),
                Step::Combine(terms) => {
                    let most = terms.iter().map(|(v, _)| values[*v].len()).min()?;
                    let sum = |n: usize| terms.iter().map(|(v, c)| c * &values[*v][n]).sum();
                    (0..most).map(sum).collect()
                }
                Step::Flow { .. } | Step::Phi { .. } => return None,
            });
        }
        let result = values.swap_remove(line.result);
        let is_state = result.first().is_some_and(Exact::is_one);
        let decided = match result.iter().find(|c| !c.is_one()) {
            None => result.len() > MAX_ORDER,
            Some(c) => (c - &Exact::one()).to_f64().abs() > ROUNDED,
        };
        (is_state && decided).then_some(Past(result))
    }
}

fn evaluation(at: &Uniform) -> Uniform {
    let mut all = vec![Exact::zero()];
    let mut power = Exact::one();
    // As long as the argument is the solution at time c₁.
    for (n, c) in at.iter().enumerate().take(MAX_ORDER) {
        if *c != power {
            break;
        }
        all.push(&power * &Exact::int(n as i64 + 1));
        let Some(time) = at.get(1) else {
            break;
        };
        power = &power * time;
    }
    all
}

impl Expansion for Past {
    fn coefficient(&mut self, trees: &Trees, t: TreeId) -> Exact {
        // Unsupported what is known nothing is asked: the first condition that does not hold is known.
        let c = self.0.get(trees.order(t)).cloned().unwrap_or_default();
        &c * &expected(trees, t)
    }
}
