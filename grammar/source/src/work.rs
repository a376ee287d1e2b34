//! How much was done, counted in loops that could grow faster than their input: comparisons, nodes, places looked at.
//!
//! One number for each thread. Tests compare it for small and large inputs; nothing else reads it.

use std::cell::Cell;

thread_local! {
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Counts so many more.
pub fn add(count: usize) {
    DONE.set(DONE.get().saturating_add(count as u64));
}

/// What this thread has counted so far.
pub fn done() -> u64 {
    DONE.get()
}
