//! Exponential integrators in reports: their stages, and their stiff order.
//!
//! Takes a step as numbers; gives facts with the words of reports. The conditions are in `odec_numerics::exponential`.

use crate::scheme::method::{LocatedStep, Unsupported};
use odec_numerics::exponential::{Exponential, StiffOrder, Unfit, stiff_order};
use serde_json::{Value, json};

/// What is true of a method whose coefficients are functions of a linear field.
#[derive(Clone, Debug)]
pub struct Stiff {
    pub stages: usize,
    pub order: StiffOrder,
}

/// `None`: no function of a linear field occurs.
pub fn stiff(p: &LocatedStep) -> Option<Result<Stiff, Unsupported>> {
    if !p.line.linear().contains(&true) {
        return None;
    }
    let beyond = |value, why: &str| Unsupported {
        span: p.span(value),
        why: why.into(),
    };
    let found = Exponential::new(&p.line).map_err(|Unfit { value, why }| beyond(value, why));
    Some(found.and_then(|m| {
        let long = "its coefficients are sums of too many functions";
        let order = stiff_order(&m).ok_or_else(|| beyond(p.line.result, long))?;
        Ok(Stiff {
            stages: m.stages(),
            order,
        })
    }))
}

impl Stiff {
    /// How the conditions of the last order hold, where that is not for all z.
    pub fn weakly(&self) -> Option<String> {
        let missed = self.order.missed.filter(|_| !self.order.strong)?;
        Some(format!("weakly: {missed} with bᵢ(0) alone"))
    }

    pub fn sentence(&self) -> String {
        let order = self.order.order;
        match (self.weakly(), self.order.missed) {
            (Some(weakly), _) => format!("{order}, {weakly}"),
            (None, Some(missed)) => format!("{order}, limited by {missed}"),
            (None, None) => format!("{order}, the highest whose conditions are known"),
        }
    }

    pub fn json(&self) -> Value {
        json!({ "order": self.order.order, "strong": self.order.strong, "missed": self.order.missed, "stages": self.stages })
    }
}
