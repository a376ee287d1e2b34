//! The library as a table: every scheme and every layer that a file may name without a `use`, by name.
//!
//! Reads `schemes/` for the build script that embeds it, and for tests. Holds no text itself: functions that need the library take a
//! [`Library`].

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
