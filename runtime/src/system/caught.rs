//! Turns panics of third-party code into errors: the only place that catches them.
//!
//! Takes a computation; gives its result, or what it said when it panicked, of which nothing is printed. Leaves aborts and endless
//! loops, which nobody can catch: what is computed has to be bounded before.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught and reported as an error.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f`.
///
/// # Errors
/// What it said when it panicked.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(f));
    QUIET.set(before);
    result.map_err(|said| words(&*said))
}

fn words(said: &(dyn Any + Send)) -> String {
    let text = said.downcast_ref::<&str>().map(|s| s.to_string());
    let text = text.or_else(|| said.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "it panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_are_their_words() {
        assert_eq!(caught(|| 3), Ok(3));
        let given = 7;
        assert_eq!(
            caught(|| panic!("not {given}")),
            Err::<(), _>("not 7".into())
        );
        let none: [u8; 0] = [];
        let said = caught(|| none.chunks(none.len()).count()).unwrap_err();
        assert!(said.contains("non-zero"), "{said}");
        assert!(!QUIET.get());
    }
}
