//! How the first steps are taken, whose history is too short, and what that means for the order.
//!
//! A step of order q has a local error of order q + 1, so a fixed number of them leaves an error of that order at the end
//! (Hairer, Nørsett & Wanner 1993, III.4). Takes a scheme with settings; gives a sentence.

use super::claims::{Instance, MAX_CLAIM, expanded};
use super::line::{placed, short_steps};
use super::stand_in::{alone, settings};
use crate::scheme::flow::Flow;
use crate::scheme::per_use::SHARED;
use crate::scheme::resolve::count;
use crate::scheme::stage::Steps;

/// What `start by` does.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub by: String,
    pub order: usize,
    /// How many steps it takes.
    pub steps: usize,
}

/// The start of a scheme, on a flow of it; `None`: it has none, or nothing is known of its order.
pub fn started(i: &Instance, flow: &Flow) -> Option<Started> {
    let method = i.start_by.as_ref()?;
    let starter = alone(&method.scheme, None, settings(&method.settings, 0), 0);
    let line = placed(&starter, Steps::Exact, &SHARED).ok()?;
    let proof = expanded(&line).ok()?.prove(MAX_CLAIM as usize, None);
    Some(Started {
        by: method.scheme.name.name.clone(),
        order: proof.order,
        steps: short_steps(flow),
    })
}

impl Started {
    /// The order that is left of a method's own.
    pub fn limit(&self, order: usize) -> Option<usize> {
        let left = self.order + 1;
        (self.steps > 0 && left < order).then_some(left)
    }

    /// `rk4, of order 4, for 3 steps`, `euler, of order 1: the first 3 steps limit the global order to 2`.
    pub fn sentence(&self, order: usize) -> String {
        let by = format!("{}, of order {}", self.by, self.order);
        match self.limit(order) {
            None => format!("{by}, for {}", count(self.steps, "step")),
            Some(left) => {
                let first = match self.steps {
                    1 => "the first step limits".to_string(),
                    n => format!("the first {n} steps limit"),
                };
                format!("{by}: {first} the global order to {left}")
            }
        }
    }
}
