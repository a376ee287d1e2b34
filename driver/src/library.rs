//! The scheme library, embedded in the program.

use odec_library::{Library, LibraryScheme};

/// Every scheme that a file may name without a `use`.
pub const LIBRARY: Library = Library::new(include!(concat!(env!("OUT_DIR"), "/library.rs")));
