//! The library as a table: every scheme and every layer that a file may name without a `use`, by name.
//!
//! Reads `schemes/` for the build script that embeds it, and for tests. Holds no text itself: functions that need the library take a
//! [`Library`].
//!
//! # Invariants
//!
//! - A name belongs to one file over all families, so a file may move to another folder without a change to any program ([`files`] refuses two of
//!   one name).
//! - A file holds one scheme or one layer, of the file's name. Files with a `model` are no part of the table.
//! - The table is sorted by name: it is the same on every machine, and [`Library::get`] searches it by halves.
//! - No text is compiled into this crate. The driver embeds the library, so an edited `.ode` file rebuilds the driver and the program alone; tests
//!   read the files as they run ([`shipped`]).

mod folder;
pub mod shipped;

pub use folder::{SchemeFile, files, read};

/// A file of the library: it holds one scheme or one layer, of the file's name, and no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryScheme {
    pub name: &'static str,
    /// The folder under `schemes/`: `runge_kutta/explicit`.
    pub family: &'static str,
    pub text: &'static str,
}

/// The folder under `schemes/` that holds layers.
const LAYERS: &str = "layers";

/// The library, sorted by name. The default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Library(&'static [LibraryScheme]);

impl Library {
    /// Takes files sorted by name.
    pub const fn new(files: &'static [LibraryScheme]) -> Library {
        Library(files)
    }

    /// All schemes, by name.
    pub fn iter(self) -> impl Iterator<Item = &'static LibraryScheme> + Clone {
        self.0.iter().filter(|file| !file.is_layer())
    }

    /// All layers, by name.
    pub fn layers(self) -> impl Iterator<Item = &'static LibraryScheme> + Clone {
        self.0.iter().filter(|file| file.is_layer())
    }

    /// The scheme or layer of this name.
    pub fn get(self, name: &str) -> Option<&'static LibraryScheme> {
        let at = self.0.binary_search_by(|s| s.name.cmp(name)).ok()?;
        Some(&self.0[at])
    }

    /// The number of schemes.
    pub fn len(self) -> usize {
        self.iter().count()
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl LibraryScheme {
    /// Whether it holds a layer.
    pub fn is_layer(&self) -> bool {
        self.family == LAYERS
    }

    /// Its file, from the root of the repository: `schemes/runge_kutta/explicit/rk4.ode`.
    pub fn path(&self) -> String {
        format!("schemes/{}/{}.ode", self.family, self.name)
    }
}
