//! The gradient of a step, from one batch or from several micro-batches.
//!
//! Takes batches; runs entry `grad` on each and, where the program takes several in a step, `accumulate` after each:
//! `sums ← keep·sums + share·grads`, the share being the micro-batch's part of all target tokens. So loss and gradient
//! are those of the mean over all tokens of the step, as in one large batch, up to the rounding of the sums. Leaves drawing batches
//! to [`crate::data`] and what is done with the gradient to entry `update`.

use crate::data::Batch;
use crate::depth::Made;
use crate::executor::{Executor, RunError, Value};
use odec_program::manifest::named;
use odec_program::{ACCUMULATE, Bindings, DType, TERM, noise};
use std::collections::BTreeMap;

/// What a gradient's runs found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub loss: f64,
    /// The terms of a loss that is a sum, by their names, without their coefficients.
    pub terms: BTreeMap<String, f64>,
    /// Steps of evolves whose number is decided while they run, the mean over micro-batches by their tokens.
    pub made: Made,
}

/// Computes the gradient that `update` reads; `drawn` are numbers of steps ([`crate::depth::drawn`]), the same for all micro-batches.
///
/// # Errors
/// When a batch does not fit the program, or adaptive steps do not reach their end.
pub fn gradient(
    x: &mut Executor,
    batches: &[Batch],
    drawn: &[(String, i32)],
) -> Result<Found, RunError> {
    let total: u64 = batches.iter().map(Batch::predicted).sum();
    let (mut loss, mut made, mut terms) = (0.0, Made::default(), BTreeMap::new());
    for (n, batch) in batches.iter().enumerate() {
        let found = alone(x, batch, drawn)?;
        if !x.has_entry(ACCUMULATE) {
            return Ok(found);
        }
        let share = batch.predicted() as f64 / total as f64;
        loss += share * found.loss;
        for (name, term) in found.terms {
            *terms.entry(name).or_insert(0.0) += share * term;
        }
        made.add_share(share, found.made);
        let keep = f64::from(u8::from(n > 0));
        let scalars = [(named::KEEP, keep), (named::SHARE, share)];
        x.run(ACCUMULATE, Bindings::new(1, 1), &[], &scalars)?;
    }
    let rounded = |sum: f64| match x.real() {
        DType::F64 => sum,
        _ => f64::from(sum as f32),
    };
    let terms = terms.into_iter().map(|(name, t)| (name, rounded(t)));
    Ok(Found {
        loss: rounded(loss),
        terms: terms.collect(),
        made,
    })
}

/// Loss and gradient of one batch.
///
/// # Errors
/// As [`gradient`].
pub fn alone(x: &mut Executor, batch: &Batch, drawn: &[(String, i32)]) -> Result<Found, RunError> {
    let at = Bindings::new(batch.rows, batch.columns);
    let key = [batch.key];
    let mut io = vec![
        ("tokens", Value::I32(&batch.tokens)),
        ("targets", Value::I32(&batch.targets)),
    ];
    if x.has_input("grad", noise::KEY) {
        io.push((noise::KEY, Value::I32(&key)));
    }
    let numbers = drawn.iter();
    io.extend(numbers.map(|(name, n)| (name.as_str(), Value::I32(std::slice::from_ref(n)))));
    let depths = x.manifest().depths.clone();
    let out = x.run("grad", at, &io, &[])?;
    let mut terms = BTreeMap::new();
    for (output, _) in out.shapes() {
        if let Some(name) = output.strip_prefix(TERM) {
            terms.insert(name.to_string(), out.scalar(output)?);
        }
    }
    Ok(Found {
        loss: out.scalar("loss")?,
        terms,
        made: Made::of(&depths, drawn, &out),
    })
}
