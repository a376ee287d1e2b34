//! How far a step moved each parameter, and where the learned coefficients are then.
//!
//! Takes the parameters before a step and after it; gives `‖w′ − w‖ / ‖w‖` of each that is trained, and the coefficients of schemes and step sizes. This is
//! looked at in the first step of a run and in the first one after each evaluation: the parameters are copied for it. Leaves what a record looks
//! like to `metrics.rs`.

use crate::executor::{Executor, RunError, State};
use crate::parameters::checkpoint::Progress;
use crate::train::metrics::Movement;
use odec_program::manifest::Param;
use odec_program::names::coefficient;
use std::collections::BTreeMap;

/// The parameters that are trained, before a step.
pub(crate) struct Before(Vec<Vec<f64>>);

/// Copies what is trained.
pub(crate) fn before(x: &mut Executor) -> Result<Before, RunError> {
    x.fetch(&[State::Params])?;
    let values = |p: &Param| x.of(State::Params, p).iter().collect();
    Ok(Before(x.manifest().trained().map(values).collect()))
}

/// What the step did, which has been made since.
pub(crate) fn after(
    before: &Before,
    at: &Progress,
    x: &mut Executor,
) -> Result<Movement, RunError> {
    x.fetch(&[State::Params])?;
    let mut movement = Movement {
        step: at.step,
        update_to_weight: BTreeMap::new(),
        coefficients: BTreeMap::new(),
        seconds: at.seconds,
    };
    for (p, old) in x.manifest().trained().zip(&before.0) {
        let new = x.of(State::Params, p);
        let squares = |sum: f64, x: f64| sum + x * x;
        let moved = new.iter().zip(old).map(|(a, b)| a - b).fold(0.0, squares);
        let size = old.iter().copied().fold(0.0, squares);
        // What begins at zero has no size that it could be compared with.
        if size > 0.0 {
            let ratio = (moved / size).sqrt();
            movement
                .update_to_weight
                .insert(p.path.clone(), digits(ratio));
        }
        if coefficient(&p.path).is_some() {
            let mean = new.iter().sum::<f64>() / old.len().max(1) as f64;
            movement.coefficients.insert(p.path.clone(), digits(mean));
        }
    }
    Ok(movement)
}

/// Five digits: it is for people to look at.
fn digits(x: f64) -> f64 {
    format!("{x:.4e}").parse().unwrap_or(x)
}
