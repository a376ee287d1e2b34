//! The gradient of a step, from one batch or from several micro-batches.
//!
//! Takes batches; runs entry `grad` on each and, where the program takes several in a step, `accumulate` after each:
//! `sums ← keep·sums + share·grads`, the share being the micro-batch's part of all target tokens. So loss and gradient
//! are those of the mean over all tokens of the step, as in one large batch, up to the rounding of the sums. Leaves drawing batches
//! to [`crate::data`] and what is done with the gradient to entry `update`.

use crate::data::Batch;
use crate::executor::{Executor, RunError, Value};
use odec_program::manifest::named;
use odec_program::{ACCUMULATE, Bindings, DType, noise};

/// Computes the gradient that `update` reads; gives the loss.
///
/// # Errors
/// When a batch does not fit the program.
pub fn gradient(x: &mut Executor, batches: &[Batch]) -> Result<f64, RunError> {
    let total: u64 = batches.iter().map(Batch::predicted).sum();
    let mut loss = 0.0;
    for (n, batch) in batches.iter().enumerate() {
        let mean = alone(x, batch)?;
        if !x.has_entry(ACCUMULATE) {
            return Ok(mean);
        }
        let share = batch.predicted() as f64 / total as f64;
        loss += share * mean;
        let keep = f64::from(u8::from(n > 0));
        let scalars = [(named::KEEP, keep), (named::SHARE, share)];
        x.run(ACCUMULATE, Bindings::new(1, 1), &[], &scalars)?;
    }
    Ok(match x.real() {
        DType::F64 => loss,
        _ => f64::from(loss as f32),
    })
}

/// Loss and gradient of one batch.
///
/// # Errors
/// As [`gradient`].
pub fn alone(x: &mut Executor, batch: &Batch) -> Result<f64, RunError> {
    let at = Bindings::new(batch.rows, batch.columns);
    let key = [batch.key];
    let mut io = vec![
        ("tokens", Value::I32(&batch.tokens)),
        ("targets", Value::I32(&batch.targets)),
    ];
    if x.has_input("grad", noise::KEY) {
        io.push((noise::KEY, Value::I32(&key)));
    }
    x.run("grad", at, &io, &[])?.scalar("loss")
}
