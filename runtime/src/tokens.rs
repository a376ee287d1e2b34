//! Files of tokens, mapped.
//!
//! A token file is numbers and nothing else: unsigned, little-endian, of one width for the whole file. The name says which:
//! `….u32.bin` holds 4-byte tokens, any other name 2-byte ones (as nanoGPT's `train.bin`); a text is a file of 1-byte
//! tokens. Takes such files; gives windows of their concatenation. Leaves how they are made to [`mod@crate::tokenise`].

use crate::data::DataError;
use crate::ffi;
use crate::shown::Shown;
use memmap2::Mmap;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Bytes of a token in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Byte = 1,
    Two = 2,
    Four = 4,
}

/// The end of the names of files with 4-byte tokens.
pub const WIDE: &str = ".u32.bin";

impl Width {
    /// What the name of a token file says.
    pub fn of(path: &Path) -> Width {
        match path.to_string_lossy().ends_with(WIDE) {
            true => Width::Four,
            false => Width::Two,
        }
    }

    /// Tokens are numbered below this.
    pub fn limit(self) -> u64 {
        1 << (8 * self as u64)
    }
}

struct Part {
    map: Mmap,
    width: Width,
    /// Tokens in the parts before this one.
    start: usize,
}

impl Part {
    fn len(&self) -> usize {
        self.map.len() / self.width as usize
    }
}

/// Mapped token files, one after the other.
#[derive(Default)]
pub struct Tokens {
    parts: Vec<Part>,
}

impl Tokens {
    /// Adds a file at the end.
    ///
    /// # Errors
    /// When it is missing, empty or unreadable, or does not hold whole tokens.
    pub fn add(&mut self, path: &Path, width: Width) -> Result<(), DataError> {
        let shown = || path.shown();
        let read = |source| DataError::Read {
            path: shown(),
            source,
        };
        let found = match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(DataError::Missing { path: shown() });
            }
            found => found.map_err(read)?,
        };
        if found.is_file() && found.len() == 0 {
            return Err(DataError::Empty { path: shown() });
        }
        let map = ffi::map_file(path).map_err(read)?;
        if !map.len().is_multiple_of(width as usize) {
            return Err(DataError::Cut {
                path: shown(),
                bytes: map.len(),
                width: width as usize,
            });
        }
        let start = self.len();
        self.parts.push(Part { map, width, start });
        Ok(())
    }

    /// Tokens of all files.
    pub fn len(&self) -> usize {
        self.parts.last().map_or(0, |p| p.start + p.len())
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tokens of a range, which must be there.
    pub fn window(&self, range: Range<usize>) -> Vec<i32> {
        let mut out = Vec::with_capacity(range.len());
        for p in &self.parts {
            let from = range.start.max(p.start);
            let to = range.end.min(p.start + p.len());
            if from >= to {
                continue;
            }
            let width = p.width as usize;
            let bytes = &p.map[(from - p.start) * width..(to - p.start) * width];
            match p.width {
                Width::Byte => out.extend(bytes.iter().map(|b| i32::from(*b))),
                Width::Two => {
                    let tokens = bytes.as_chunks().0.iter();
                    out.extend(tokens.map(|b| i32::from(u16::from_le_bytes(*b))));
                }
                // A number beyond i32 is beyond any vocabulary too, and is refused there.
                Width::Four => {
                    let tokens = bytes.as_chunks().0.iter();
                    out.extend(tokens.map(|b| i32::from_le_bytes(*b)));
                }
            }
        }
        debug_assert_eq!(out.len(), range.len());
        out
    }
}
