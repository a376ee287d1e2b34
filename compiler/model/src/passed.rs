//! The states that a model passes: the first one, and that after each step.
//!
//! Takes a checked `Spec`; says whether its states are points that move, for `odec simulate`, and if not, why. Leaves what is asked of the
//! paths to the compiler's `simulate`.

use super::part::incompatible;
use super::spec::Spec;
use super::step_count::StepCount;
use crate::inputs::Unit;
use odec_grammar::diag::Diagnostic;
use odec_graph::{Exact, Value};

/// A state in the graph of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    /// The size of the step that leads to it; `None`: it is the first one.
    pub h: Option<f64>,
    /// `[batch, positions, width]`.
    pub state: Value,
}

impl Passed {
    pub(super) fn first(state: Value) -> Passed {
        Passed { h: None, state }
    }

    pub(super) fn after(h: &Exact, state: Value) -> Passed {
        Passed {
            h: Some(h.to_f64()),
            state,
        }
    }
}

/// Whether each row of each state is a point of the input, and the states are those after steps of known size.
///
/// # Errors
/// What of the model is another thing.
pub(super) fn of_points(spec: &Spec) -> Result<(), Diagnostic> {
    let embed = &spec.begin.embed;
    if spec.begin.input.unit() != Unit::Vector {
        let d = incompatible(embed.span, "only the states of vectors are paths of points");
        let what = spec.begin.input.unit().many();
        let d = d.label(format!("this model reads {what}"));
        return Err(d.help("write `input vectors(width: 3, context: 40)` and `embed id`"));
    }
    if let [_, later, ..] = &spec.begin.stages[..] {
        let d = incompatible(later.embed.span, "paths of points need states of one width");
        return Err(d.help("leave later stages out"));
    }
    if !embed.leading.is_empty() {
        let d = incompatible(embed.span, "a row before the vectors is no point");
        return Err(d.help("leave `class_token` out"));
    }
    if !embed.condition.is_empty() {
        let message = "points move by where they are, and these are told something more";
        let d = incompatible(embed.span, message);
        return Err(d.help("leave `condition` out"));
    }
    for e in &spec.evolves {
        let what = match &e.depth {
            _ if e.learn_h.is_some() => "the sizes of these steps are learned",
            StepCount::Known => continue,
            StepCount::Adaptive(_) | StepCount::Halting(_) | StepCount::Routed(_) => {
                "the number of these steps is decided while they are made"
            }
            StepCount::Random(_) => "the number of these steps is drawn",
        };
        let d = incompatible(
            e.span,
            "paths of points need steps that are written in the file",
        );
        let d = d.label(what);
        return Err(d.help("write, for example, `for 200 steps { h = 1/10 }`"));
    }
    Ok(())
}
