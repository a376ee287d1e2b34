//! What a report says about a step program with two states: orders of both, structure, energy, and whether a step can be undone.
//!
//! Takes a flow; gives facts and their sentences. Leaves the mathematics to `odec-numerics`.

use super::pair::{Pair, pair};
use super::pair_start::{limited, steps_off};
use crate::scheme::flow::Flow;
use odec_exact::Exact;
use odec_numerics::order::expected;
use odec_numerics::partitioned::Unsymplectic;
use odec_numerics::partitioned::energy::first_change;
use odec_numerics::prove;
use odec_text::number::number;
use odec_text::page::Page;
use serde_json::{Value, json};

/// Highest order that is looked for, of solutions and of the energy.
const MAX_ORDER: usize = 12;
const MAX_ENERGY: usize = 12;

#[derive(Clone, Debug, PartialEq)]
pub struct PairFacts {
    pub pair: Pair,
    /// As it is computed; `None`: nothing is known of the start.
    pub state: Option<usize>,
    /// Of what is kept, as the velocity or momentum at its time.
    pub kept: Option<usize>,
    /// The part of a step by which that time is off the time of the state.
    pub offset: Exact,
    /// Or the condition that does not hold.
    pub symplectic: Result<(), String>,
    /// The part of a step by which what is kept must be off for the method to be symmetric, if it is.
    pub symmetric: Option<Exact>,
    pub explicit_backwards: bool,
    /// The power of h in which a step changes the energy.
    pub energy: Option<usize>,
}

/// The facts of a flow; `None`: it does not keep two states.
pub fn facts(flow: &Flow) -> Option<PairFacts> {
    let pair = pair(flow).ok()?;
    let (mut started, mut trees) = (pair.method.started(), pair.method.trees());
    let order = prove(&mut started, &mut trees, MAX_ORDER, None).order;
    let offset = started.offset(&mut trees);
    let at_offset = |trees: &odec_numerics::Trees, t| {
        let power = (0..trees.order(t)).fold(Exact::one(), |p, _| &p * &offset);
        Some(&expected(trees, t) * &power)
    };
    let off = started.agrees(&mut trees, order, &mut { at_offset });
    let off = off.map_or(order, |(t, ..)| trees.order(t));
    let state = match limited(flow, &pair, order) {
        Ok(first) => Some(first.map_or(order, |f| f.order)),
        Err(_) => None,
    };
    Some(PairFacts {
        state,
        kept: state.map(|p| p.min(off)),
        symplectic: pair.method.symplectic().map_err(|u| broken(&u)),
        symmetric: pair.method.symmetric_with_offset(),
        explicit_backwards: pair.method.is_explicit_backwards(),
        energy: first_change(&pair.method, MAX_ENERGY),
        offset,
        pair,
    })
}

/// The first condition of symplecticity that does not hold.
pub fn broken(u: &Unsymplectic) -> String {
    let without = |reduced: bool| match reduced {
        true => "without unused and repeated stages, ",
        false => "",
    };
    match u {
        Unsymplectic::Pair(b) => super::decide::equation(b),
        Unsymplectic::Nystrom(b) => {
            let (i, of) = (b.stages.0 + 1, without(b.reduced));
            let (left, right) = (number(&b.left), number(&b.right));
            match b.stages.1.map(|j| j + 1) {
                None => format!("{of}b̄{i} = {left}, where b{i} (1 − c{i}) = {right}"),
                Some(j) => format!(
                    "{of}b{i} (b̄{j} − ā{i}{j}) = {left}, where b{j} (b̄{i} − ā{j}{i}) = {right}"
                ),
            }
        }
    }
}

impl PairFacts {
    /// `x'' = F(x); v is x' at t − 1/2 h`.
    fn equation(&self) -> String {
        let equation = self.pair.equation();
        let v = &self.pair.kept;
        let time = match self.offset.is_zero() {
            true => String::new(),
            false => format!(" at t {}", steps_off(&self.offset)),
        };
        match (self.pair.is_second_order(), time.is_empty()) {
            (true, _) if self.pair.velocity[0].is_zero() => {
                format!("{equation}; {v} is the velocity{time}, or a multiple of it")
            }
            (true, _) => format!("{equation}; x and {v} give the velocity{time}"),
            (false, true) => equation,
            (false, false) => format!("{equation}; {v} is kept{time}"),
        }
    }

    fn symmetric(&self) -> String {
        let v = &self.pair.kept;
        match &self.symmetric {
            None => "no".into(),
            Some(off) if off.is_zero() => match self.pair.is_second_order() {
                true => format!("yes; the same steps with {v} reversed lead back to the start"),
                false => "yes".into(),
            },
            Some(off) => format!("no, but it is with {v} at t {}", steps_off(off)),
        }
    }

    fn backwards(&self) -> &'static str {
        match self.explicit_backwards {
            true => "explicit: a reversible backward pass needs no stored states",
            false => "implicit: to undo a step, an equation has to be solved",
        }
    }

    fn energy(&self) -> String {
        let change = match self.energy {
            Some(n) => format!("a step changes it by O(h^{n})"),
            None => format!("a step does not change it up to h^{MAX_ENERGY}"),
        };
        match &self.symplectic {
            Ok(()) => format!("{change}, without drift: a modified energy is kept"),
            Err(_) => format!("{change}, and changes can accumulate"),
        }
    }

    /// The section of a report.
    pub fn section(&self, page: &mut Page) {
        let order = |p: Option<usize>| p.map_or("not known".to_string(), |p| p.to_string());
        page.section("Two states");
        page.fact("equation", &self.equation());
        page.fact("order of x", &order(self.state));
        page.fact(&format!("order of {}", self.pair.kept), &order(self.kept));
        match &self.symplectic {
            Ok(()) => page.fact("symplectic", "yes"),
            Err(why) => page.fact("symplectic", &format!("no: {why}")),
        }
        page.fact("symmetric", &self.symmetric());
        page.fact("backwards", self.backwards());
        page.fact("energy", &self.energy());
    }

    pub fn json(&self) -> Value {
        json!({
            "equation": self.pair.equation(), "kept": self.pair.kept,
            "order_of_x": self.state, "order_of_kept": self.kept, "offset": self.offset.to_string(),
            "symplectic": self.symplectic.is_ok(),
            "symmetric": self.symmetric.as_ref().is_some_and(Exact::is_zero),
            "symmetric_with_offset": self.symmetric.as_ref().map(Exact::to_string),
            "explicit_backwards": self.explicit_backwards,
            "energy_change": self.energy,
        })
    }
}
