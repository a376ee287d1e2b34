//! Stability of an implicit method as it is computed: with a fixed number of iterations it is an explicit step, with its own limits.
//!
//! Takes a scheme given as an implicit tableau or multistep method; gives the stability of the iterated step. Gives nothing where the
//! equation is solved to a tolerance.

use super::general::general;
use super::notation::{extent, polynomial};
use crate::scheme::flow::Flow;
use odec_numerics::Tableau;
use odec_numerics::glm::axis;
use odec_numerics::glm::characteristic::Characteristic;
use odec_numerics::poly::{Extent, Poly};
use odec_numerics::stability::Stability;
use odec_numerics::steps::StepBounds;

/// Highest degree of a polynomial that is written out.
const MAX_DEGREE: usize = 6;

fn stability(computed: &Tableau) -> Option<Stability> {
    match computed.fields.len() {
        1 => Stability::new(computed),
        _ => None,
    }
}

/// Stability of the step that is computed.
#[derive(Clone, Debug)]
pub struct Iterated {
    /// R, which is a polynomial; `None`: the method has several steps.
    pub function: Option<Poly>,
    pub real: Option<Extent>,
    /// As y²; of methods of one step.
    pub imaginary_squared: Option<Extent>,
    /// How long a step may be; of methods of one step, in reports.
    pub steps: Option<StepBounds>,
}

impl Iterated {
    /// Of a tableau's iterations.
    pub fn of_tableau(computed: &Tableau) -> Option<Iterated> {
        let s = stability(computed)?;
        Some(Iterated {
            function: Some(s.function.numerator),
            real: s.real,
            imaginary_squared: s.imaginary_squared,
            steps: None,
        })
    }

    /// The same, with all that a report says.
    pub fn with_steps(computed: &Tableau) -> Option<Iterated> {
        let steps = StepBounds::new(computed, &stability(computed)?);
        Some(Iterated {
            steps: Some(steps),
            ..Iterated::of_tableau(computed)?
        })
    }

    /// Of the iterations of a multistep method.
    pub fn of_steps(flow: &Flow) -> Option<Iterated> {
        let phi = Characteristic::of(&general(flow).ok()?.glm)?;
        Some(Iterated {
            function: None,
            real: axis::real(&phi),
            imaginary_squared: None,
            steps: None,
        })
    }

    /// `R(z) = 1 + z + z²`, or its degree.
    pub fn shown(&self) -> Option<String> {
        let p = self.function.as_ref()?;
        Some(match p.degree() {
            0..=MAX_DEGREE => format!("R(z) = {}", polynomial(p)),
            n => format!("R, a polynomial of degree {n}"),
        })
    }

    /// `the iterated step is stable to -1 on the negative axis`.
    pub fn sentence(&self) -> String {
        let real = match &self.real {
            Some(Extent::Zero) => "on no part of the negative axis".to_string(),
            Some(Extent::Infinite) => "on all of the negative axis".to_string(),
            Some(Extent::Until { .. }) => {
                format!("to {} on the negative axis", extent(&self.real, false, "-"))
            }
            None => "to a bound that odec cannot decide".to_string(),
        };
        match self.shown() {
            Some(function) => format!("the iterated step, {function}, is stable {real}"),
            None => format!("the iterated step is stable {real}"),
        }
    }
}
