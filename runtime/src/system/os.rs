//! Two system calls that Rust cannot check: the user's number, and memory-mapped files.

#![allow(unsafe_code)]

use super::input;
use memmap2::Mmap;
use std::path::Path;

/// The number of the user that this process acts for.
pub fn user() -> u32 {
    // SAFETY: the call takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// A file mapped for reading.
///
/// # Errors
/// When it cannot be opened or mapped.
pub fn map_file(path: &Path) -> std::io::Result<Mmap> {
    let file = input::open(path)?;
    // SAFETY: the bytes are only read, as plain numbers, so a change under our feet gives other numbers.
    // Shortening the file while it is mapped ends the process; checkpoints are replaced by renaming, which
    // leaves the mapped file alone, and texts are not mapped.
    unsafe { Mmap::map(&file) }
}
