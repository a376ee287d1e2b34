//! What is kept of a text while it is generated, where attention sees a window of it alone.
//!
//! The last rows of keys and values, which windows see, begin behind so many tokens that were dropped ([`crate::Bindings::dropped`]). Runs write behind them
//! until there is no room left; who runs them then moves what is still seen to the front (`runtime/src/executor/recent.rs`). Kernels know nothing of it: they
//! are given [`crate::Bindings::recent`] tokens in the place of all.

use serde::{Deserialize, Serialize};

/// Rows that are kept of a text for a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent {
    /// The longest window: a token sees so many, itself included.
    pub window: u64,
    pub rows: u64,
}

impl Recent {
    /// Tokens are dropped by blocks of so many. Those of attention's sums are as long, so what is left is added up as it is where all tokens are kept.
    pub const BLOCK: u64 = 64;

    /// Rows for the longest window of a model, a quarter more than it sees: so many tokens are read between two moves, each of which copies a window. `None` where all
    /// tokens of the context have no more rows.
    pub fn of(window: u64, context: u64) -> Option<Recent> {
        let free = (window / 4).max(Recent::BLOCK);
        let rows = window
            .saturating_add(Recent::BLOCK - 2)
            .saturating_add(free);
        let rows = rows.checked_next_multiple_of(Recent::BLOCK)?;
        (rows < context).then_some(Recent { window, rows })
    }

    /// The most tokens that a run may read, wherever it begins.
    pub fn piece(self) -> u64 {
        let kept = self.window.saturating_add(Recent::BLOCK - 2);
        self.rows.saturating_sub(kept)
    }

    /// How many of `past` tokens may be dropped: all blocks that the next token's window does not reach.
    pub fn dropped(self, past: u64) -> u64 {
        (past + 1).saturating_sub(self.window) / Recent::BLOCK * Recent::BLOCK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However long a text, a run finds room behind what its window sees, whose first block is whole.
    #[test]
    fn a_piece_fits_behind_a_window() {
        for window in [1, 2, 63, 64, 65, 66, 67, 500, 4096] {
            let recent = Recent::of(window, 1 << 20).unwrap();
            assert_eq!(recent.rows % Recent::BLOCK, 0);
            assert!(recent.piece() >= Recent::BLOCK && recent.piece() >= window / 4);
            assert!(recent.rows < window + window / 4 + 3 * Recent::BLOCK);
            for past in 0..3 * recent.rows {
                let dropped = recent.dropped(past);
                assert_eq!(dropped % Recent::BLOCK, 0);
                assert!(dropped == 0 || dropped + window <= past + 1);
                assert!(past - dropped + recent.piece() <= recent.rows);
            }
        }
        assert_eq!(Recent::of(4096, 8192).map(|r| r.rows), Some(5184));
        assert_eq!(Recent::of(5, 192), None);
        assert_eq!(Recent::of(u64::MAX, 192), None);
        assert_eq!(Recent::of(u64::MAX - 100, 192), None);
    }
}
