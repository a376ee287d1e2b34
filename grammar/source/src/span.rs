//! Source texts and positions in them.

use odec_library::Library;
use serde::Serialize;

/// Bytes `start..end` of the `source`-th text of a [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Span {
    pub source: u32,
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub fn to(self, other: Span) -> Span {
        Span {
            source: self.source,
            start: self.start.min(other.start),
            end: self.end.max(other.end),
        }
    }
}

/// All texts of one compilation: the user's file, imports and those library schemes that are named.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    texts: Vec<(String, String)>,
    library: Library,
}

impl Sources {
    /// No text yet. Library schemes are found in `library`; `Sources::default()` has none.
    pub fn with(library: Library) -> Sources {
        Sources {
            texts: Vec::new(),
            library,
        }
    }
    pub fn library(&self) -> Library {
        self.library
    }
    /// Registers a text under the name that errors show.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.texts.push((name.into(), text.into()));
        self.texts.len() as u32 - 1
    }
    pub fn name(&self, source: u32) -> &str {
        &self.texts[source as usize].0
    }
    pub fn text(&self, source: u32) -> &str {
        &self.texts[source as usize].1
    }
    pub fn len(&self) -> usize {
        self.texts.len()
    }
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
