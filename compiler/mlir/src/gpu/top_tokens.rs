//! The tokens of each sequence with the largest scores.
//!
//! Takes a [`TopTokens`] spec. A thread takes a token and compares it with all others of its sequence, so that no thread waits for another.

use crate::emit::{Elem, Emitter};
use crate::top_tokens::Text;
use odec_program::gpu::top_tokens::THREADS;
use odec_program::kernel::TopTokens;

/// Emits the kernel.
///
/// # Errors
/// None: every kernel that was not refused can be made.
pub(super) fn emit(e: &mut Emitter, kernel: &TopTokens) -> Result<(), String> {
    let (thread, block, seq) = (e.thread(), e.block(), e.dim(1));
    let blocks = e.div_ceil(seq, THREADS as i64);
    let (sequence, piece) = (e.div(block, blocks), e.rem(block, blocks));
    let first = e.mul_int(piece, THREADS as i64);
    let token = e.add(first, thread);
    let exists = e.below(token, seq);
    e.when(exists, |e| {
        let text = Text::new(e, sequence);
        let [score, open] = [0, 1].map(|n| {
            let from = text.at(e, n, token);
            e.load(from, e.scalar())
        });
        let number = e.convert(token, Elem::I32);
        let chosen = text.chosen(e, kernel, score, open, number);
        let to = text.at(e, 2, token);
        e.store(chosen, to);
    });
    Ok(())
}
