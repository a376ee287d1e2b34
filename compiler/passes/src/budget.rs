//! `memory budget(4 GiB)`: chooses the memory policy that recomputes least and fits the budget.
//!
//! Takes a model, a number of bytes and how programs are made; gives [`Memory::Store`], or [`Memory::Revolve`] with the most slots that
//! fit, found by bisection: each policy that is looked at is planned as it would be built, and the one that is given has been. Leaves what
//! is kept under a policy to [`super::revolve`].

use super::assemble::{AssembleError, ModelParts, Options, Passed, gradient};
use super::revolve::replays;
use crate::codes;
use crate::model::Built;
use odec_grammar::diag::Diagnostic;
use odec_program::manifest::Memory;
use odec_text::number::bytes;

/// Steps computed again, for each step, beyond which no policy is looked at: few slots for many steps are a program of millions of
/// launches.
const MOST_AGAIN: u64 = 4;

/// Replaces a budget by the policy that it gives; `None` without a budget.
///
/// # Errors
/// `Ok(Err)` where nothing fits: a message with the least memory that there is. Else as [`super::assemble()`].
pub fn resolve(
    built: &mut Built,
    options: Options,
) -> Result<Result<(), Diagnostic>, AssembleError> {
    let Some((budget, span)) = built.named.budget else {
        return Ok(Ok(()));
    };
    let model = ModelParts::new(built, "");
    let mut known = Passed::default();
    let mut arena = |memory| match gradient(&model, options, memory, known.before_memory()) {
        Ok(None) => Ok(0),
        Ok(Some((entry, passed))) => {
            known = passed.before_memory();
            Ok(entry.arena_bytes)
        }
        // Too large to be planned.
        Err(AssembleError::Plan { .. }) => Ok(u64::MAX),
        Err(e) => Err(e),
    };
    let steps = built.summary.steps;
    let mut least = (arena(Memory::Store)?, Memory::Store);
    let mut fits = (least.0 <= budget).then_some(Memory::Store);
    if fits.is_none() {
        let few = (1..steps).find(|s| replays(steps, *s) <= MOST_AGAIN * steps);
        let (mut low, mut high) = (few.unwrap_or(steps), steps);
        // The fewest slots first: if they do not fit, nothing does.
        let mut next = low;
        while low < high {
            let memory = Memory::Revolve { slots: next };
            let taken = arena(memory)?;
            if taken < least.0 {
                least = (taken, memory);
            }
            if taken <= budget {
                fits = Some(memory);
                low = next + 1;
            } else {
                high = next;
            }
            next = low + (high - low) / 2;
        }
    }
    if let (Some(memory), Some(train)) = (fits, &mut built.train) {
        train.memory = memory;
        return Ok(Ok(()));
    }
    let message = format!("no memory policy of this model fits into {}", bytes(budget));
    let d = Diagnostic::error(codes::TOO_LARGE, span, message);
    Ok(Err(d
        .label(format!("the least is {}, with `{}`", bytes(least.0), least.1))
        .help("activations and gradients are meant, without parameters and moments: a smaller `batch`, or `accumulate n`, takes less")))
}
