//! Counts the work of loops that could grow faster than their input: comparisons, nodes, places.
//!
//! One counter for each thread. Tests compare the counts for small and large inputs; nothing else reads them.

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
