//! Compares steps with exact solutions: by the weights of tableaus, words in flows, recursions, or series.
//!
//! Takes a [`LocatedStep`] line; gives an expansion and the trees that it is compared on. Leaves the mathematics to `odec-numerics`.

use super::method::{LocatedStep, Unsupported};
use odec_exact::Exact;
use odec_numerics::linear_step::Step;
use odec_numerics::order::{Expansion, Proof, Violation, Weights, highest, prove};
use odec_numerics::past::Past;
use odec_numerics::series::Series;
use odec_numerics::words::Words;
use odec_numerics::{Trees, draw};

/// Highest order that a claim may name.
pub const MAX_CLAIM: u64 = 30;

/// The form of an expansion, and the trees it is compared on.
pub struct Expanded {
    pub method: Box<dyn Expansion>,
    pub trees: Trees,
    pub fields: Vec<String>,
}

/// The expansion of a line: by its tableau where there is one, word by word for products of flows.
pub fn expanded(p: &LocatedStep) -> Result<Expanded, Unsupported> {
    let steps = &p.line.steps;
    let one_step = |s: &Step| matches!(s, Step::Eval { .. } | Step::Combine(_));
    let (n, fields) = (p.line.fields.len(), p.line.fields.clone());
    if steps.iter().all(one_step)
        && !p.line.is_recursion()
        && p.line.has_ring()
        && let Some(weights) = Weights::new(&p.tableau()?)
    {
        return Ok(Expanded {
            method: Box::new(weights),
            trees: Trees::new(n).for_values(steps.len()),
            fields,
        });
    }
    if p.line.comparable().is_ok()
        && let Some(past) = Past::new(&p.line)
    {
        return Ok(Expanded {
            method: Box::new(past),
            // One tree of each order.
            trees: Trees::tall(n),
            fields,
        });
    }
    let words = Words::new(&p.line).map_err(|no| p.why_not(&no))?;
    if let Some(words) = words {
        return Ok(Expanded {
            method: Box::new(words),
            trees: Trees::tall(n).for_values(steps.len()),
            fields,
        });
    }
    let series = Series::new(&p.line).map_err(|no| p.why_not(&no))?;
    Ok(Expanded {
        method: Box::new(series),
        trees: match p.line.is_product_of_flows() {
            true => Trees::tall(n),
            false => Trees::new(n).linear(p.line.linear()),
        }
        .for_values(steps.len()),
        fields,
    })
}

impl Expanded {
    pub fn prove(&mut self, up_to: usize, within: Option<&Exact>) -> Proof {
        prove(&mut *self.method, &mut self.trees, up_to, within)
    }

    /// The order alone.
    pub fn highest(&mut self, up_to: usize) -> usize {
        highest(&mut *self.method, &mut self.trees, up_to)
    }

    /// The tree, the elementary differential and both values.
    pub fn shown(&self, v: &Violation) -> String {
        format!(
            "the order condition of {} fails: the scheme has {}, the exact solution has {}\n{}",
            draw::differential(&self.trees, v.tree, &self.fields),
            short(&v.value),
            v.expected,
            draw::tree(&self.trees, v.tree, &self.fields),
        )
    }

    /// `F'F has 1/4, exact 1/2`.
    pub fn brief(&self, v: &Violation) -> String {
        format!(
            "{} has {}, exact {}",
            draw::differential(&self.trees, v.tree, &self.fields),
            short(&v.value),
            v.expected
        )
    }
}

/// A number, and about how large it is where it is long.
fn short(x: &Exact) -> String {
    let text = x.to_string();
    match text.len() {
        0..=40 => text,
        _ => format!("about {:e}", x.to_f64()),
    }
}
