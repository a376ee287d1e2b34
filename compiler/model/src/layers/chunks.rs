//! In how many chunks of a text a recurrence is computed: an argument of layers that walk over tokens.

use super::{Argument, Reading};
use crate::codes;
use odec_grammar::diag::Diagnostic;
use odec_program::kernel::MOST_CHUNKS;

pub(super) const CHUNKS: Argument = Argument::whole(
    "chunks",
    "1",
    "chunks of the text that are computed beside each other and then joined: for GPUs and long texts; results are rounded otherwise than token by token",
);

/// The argument, or 1; `None`: something is wrong with it, and that has been said.
pub(super) fn chunks(r: &mut Reading) -> Option<u64> {
    let Some(said) = r.given(&CHUNKS) else {
        return Some(1);
    };
    let (n, context) = (r.whole(said, MOST_CHUNKS)?, r.context());
    if n <= context {
        return Some(n);
    }
    let message = format!("{n} chunks are more than the context of {context}");
    let d = Diagnostic::error(codes::OUT_OF_RANGE, said.span, message);
    r.fail(d.help(format!("write `chunks: {context}` or less")))
}
