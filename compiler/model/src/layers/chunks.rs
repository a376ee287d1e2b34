//! In how many chunks of a text a recurrence is computed: an argument of layers that walk over tokens.

use super::{Argument, Reading};
use odec_program::kernel::MOST_CHUNKS;

pub(super) const CHUNKS: Argument = Argument::whole(
    "chunks",
    "1",
    "chunks of the text that are computed beside each other and then joined: for GPUs and long texts; results are rounded otherwise than token by token",
);

/// The argument, or 1; `None`: something is wrong with it, and that has been said.
pub(super) fn chunks(r: &mut Reading) -> Option<u64> {
    match r.given(&CHUNKS) {
        Some(said) => r.whole(said, MOST_CHUNKS),
        None => Some(1),
    }
}
