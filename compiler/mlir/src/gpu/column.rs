//! Blocks of one warp whose threads each take a column, for kernels that walk over tokens.

use crate::emit::{Emitter, Val};
use odec_program::gpu::{WARP, linear_attend};

const _: () = assert!(linear_attend::COLS == WARP);

/// What a thread takes.
pub(super) struct Column {
    /// The number of what has so many columns: a sequence, or a head of one.
    pub number: Val,
    pub column: Val,
    /// The last threads of the last block have no column.
    pub exists: Val,
}

impl Column {
    pub(super) fn of_thread(e: &mut Emitter, cols: u64) -> Column {
        let (thread, block) = (e.thread(), e.block());
        let blocks = e.int(cols.div_ceil(WARP) as i64);
        let (number, piece) = (e.div(block, blocks), e.rem(block, blocks));
        let first = e.mul_int(piece, WARP as i64);
        let column = e.add(first, thread);
        let end = e.int(cols as i64);
        let exists = e.below(column, end);
        Column {
            number,
            column,
            exists,
        }
    }
}
