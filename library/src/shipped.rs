//! The files of this checkout's `schemes/`, for tests: they read them as they run, so an edited file rebuilds no test.
//!
//! Panics where a file is missing or unreadable.

use crate::{Library, SchemeFile, files, read};
use std::path::Path;
use std::sync::OnceLock;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../schemes");

/// The library.
pub fn library() -> Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    *LIBRARY.get_or_init(|| read(Path::new(FOLDER)).expect("schemes/"))
}

/// All files, those of models too, by name.
pub fn all() -> &'static [SchemeFile] {
    static FILES: OnceLock<Vec<SchemeFile>> = OnceLock::new();
    FILES.get_or_init(|| files(Path::new(FOLDER)).expect("schemes/"))
}

/// The file of this name, of a scheme or of a model.
pub fn file(name: &str) -> &'static SchemeFile {
    let found = all().iter().find(|file| file.name == name);
    found.unwrap_or_else(|| panic!("schemes/ has no {name}.ode"))
}

/// Its text.
pub fn text(name: &str) -> &'static str {
    &file(name).text
}
