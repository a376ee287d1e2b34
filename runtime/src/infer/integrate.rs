//! An entry run again and again on its own result: a method of one step, step by step.
//!
//! Takes the parameters' values, a state and a number of runs; gives the state after them. Leaves which method it is, and its error, to
//! the compiler's `measure`.

use crate::executor::init;
use crate::executor::{Executor, RunError, State, Value};
use odec_program::{Bindings, EntryId};

/// Runs `forward`, which maps the input `from` to the output `to`.
///
/// # Errors
/// When the entry is another one.
pub fn integrate(
    x: &mut Executor,
    params: &[(&str, &[f64])],
    start: &[f64],
    (from, to): (&str, &str),
    runs: usize,
) -> Result<Vec<f64>, RunError> {
    let artifact = x.artifact().clone();
    let real = x.real();
    x.fetch(&[State::Params])?;
    for p in &artifact.manifest().params {
        let given = params.iter().find(|(path, _)| *path == p.path);
        let values = given.map_or(&[][..], |(_, values)| values);
        let mut memory = x.state_mut(State::Params);
        memory
            .part(init::range(p, real))
            .fill(values.iter().copied());
    }
    let mut state = start.to_vec();
    for _ in 0..runs {
        let io = [(from, Value::F64(&state))];
        let out = x.run(EntryId::Forward, Bindings::new(1, 1), &io, &[])?;
        state = out.reals(to)?.iter().collect();
    }
    Ok(state)
}
