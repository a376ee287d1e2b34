//! The scheme library as a table: every scheme that a file may name without a `use`, by name.
//!
//! Reads `schemes/` for the build script that embeds it and for tests. Holds no text itself: whoever needs the library is handed a [`Library`].

mod folder;
pub mod shipped;

pub use folder::{SchemeFile, files, read};

/// A scheme of the library: one file that holds one scheme of the file's name and no model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LibraryScheme {
    pub name: &'static str,
    /// The folder under `schemes/`: `runge_kutta/explicit`.
    pub family: &'static str,
    pub text: &'static str,
}

/// The schemes of the library, sorted by name. The default is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Library(&'static [LibraryScheme]);

impl Library {
    /// Takes schemes sorted by name.
    pub const fn new(schemes: &'static [LibraryScheme]) -> Library {
        Library(schemes)
    }

    /// All schemes, by name.
    pub fn iter(self) -> impl Iterator<Item = &'static LibraryScheme> + Clone {
        self.0.iter()
    }

    /// The scheme of this name.
    pub fn get(self, name: &str) -> Option<&'static LibraryScheme> {
        let at = self.0.binary_search_by(|s| s.name.cmp(name)).ok()?;
        Some(&self.0[at])
    }

    pub fn len(self) -> usize {
        self.0.len()
    }

    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }
}

impl LibraryScheme {
    /// Its file, from the root of the repository: `schemes/runge_kutta/explicit/rk4.ode`.
    pub fn path(&self) -> String {
        format!("schemes/{}/{}.ode", self.family, self.name)
    }
}
