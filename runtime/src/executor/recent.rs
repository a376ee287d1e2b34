//! Where the tokens of a run stand among those that windows keep ([`odec_program::recent`]).
//!
//! Takes the places of texts; gives those that kernels are told. Leaves memory to [`crate::executor::kept`].

use crate::executor::RunError;
use crate::executor::io_buffers::Value;
use crate::executor::kept::{KeptMemory, Of};
use odec_program::{Bindings, EntryId, Recent, names};

/// Makes room for a run. Gives its size, with the tokens that are dropped, and where the token of each of several texts stands among those that are kept.
pub(crate) fn make_room(
    kept: &mut KeptMemory,
    of: Of,
    recent: Recent,
    at: Bindings,
    inputs: &[(&str, Value)],
) -> Result<(Bindings, Vec<i32>), RunError> {
    let pasts = match of.entry {
        EntryId::Decode => vec![at.past],
        entry => pasts(entry, at, inputs)?,
    };
    let places = kept.make_room(of, recent, at, &pasts)?;
    let longest = places.iter().copied().max().unwrap_or(0);
    let places = places.into_iter().map(|n| n as i32).collect();
    Ok((at.dropping(at.past.saturating_sub(longest)), places))
}

/// The tokens before that of each of several texts.
fn pasts(entry: EntryId, at: Bindings, inputs: &[(&str, Value)]) -> Result<Vec<u64>, RunError> {
    let given = inputs.iter().find(|(name, _)| *name == names::PLACES);
    let Some((_, Value::I32(places))) = given else {
        return Err(RunError::MissingInput {
            entry: entry.as_str().into(),
            name: names::PLACES.into(),
        });
    };
    let past = |(position, place): (usize, &i32)| {
        let past = u64::try_from(*place).ok();
        past.filter(|n| *n <= at.past).ok_or(RunError::Token {
            name: names::PLACES.into(),
            position,
            token: *place,
            vocab: at.past + 1,
        })
    };
    let batch = usize::try_from(at.batch).unwrap_or(usize::MAX);
    places.iter().enumerate().take(batch).map(past).collect()
}
