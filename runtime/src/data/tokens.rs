//! Files of tokens.
//!
//! A token file is numbers and nothing else: unsigned, little-endian, of one width for the whole file. The name says which:
//! `….u32.bin` holds 4-byte tokens, any other name 2-byte ones (as nanoGPT's `train.bin`); a text is a file of 1-byte
//! tokens. Takes such files; gives windows of their concatenation. Leaves how they are made to [`mod@crate::data::tokenise`].

use crate::data::DataError;
use crate::data::identity::DataFile;
use crate::system::shown::Shown;
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

    /// The width of so many bytes.
    pub fn of_bytes(bytes: u64) -> Option<Width> {
        [Width::Byte, Width::Two, Width::Four]
            .into_iter()
            .find(|w| *w as u64 == bytes)
    }

    /// The width that a vocabulary takes.
    pub fn for_vocabulary(tokens: u64) -> Width {
        match tokens <= Width::Two.limit() {
            true => Width::Two,
            false => Width::Four,
        }
    }

    /// Tokens are numbered below this.
    pub fn limit(self) -> u64 {
        1 << (8 * self as u64)
    }
}

struct Part {
    file: DataFile,
    /// Bytes before the first token.
    skip: u64,
    width: Width,
    /// Tokens in the parts before this one.
    start: usize,
    len: usize,
}

/// Token files, one after the other.
#[derive(Default)]
pub struct Tokens {
    parts: Vec<Part>,
    /// All are numbered below this, where it is not known from how they were made.
    vocab: Option<u64>,
}

/// Tokens that are looked at together.
const BLOCK: usize = 1 << 20;

impl Tokens {
    /// None yet, of files of others: each is compared with a vocabulary when it is read.
    pub fn below(vocab: u64) -> Tokens {
        Tokens {
            parts: Vec::new(),
            vocab: Some(vocab),
        }
    }

    /// Reads a range once, so that what is wrong in it is said now.
    ///
    /// # Errors
    /// As [`Tokens::window`].
    pub fn look_at(&self, range: Range<usize>) -> Result<(), DataError> {
        for from in range.clone().step_by(BLOCK) {
            self.window(from..range.end.min(from + BLOCK))?;
        }
        Ok(())
    }

    /// Adds a file at the end, whose tokens begin behind `skip` bytes.
    ///
    /// # Errors
    /// When it does not hold whole tokens.
    pub fn add(&mut self, file: DataFile, skip: u64, width: Width) -> Result<(), DataError> {
        let bytes = file.bytes().saturating_sub(skip);
        if !bytes.is_multiple_of(width as u64) {
            return Err(DataError::Cut {
                path: file.path().shown(),
                bytes: bytes as usize,
                width: width as usize,
            });
        }
        self.parts.push(Part {
            file,
            skip,
            width,
            start: self.len(),
            len: (bytes / width as u64) as usize,
        });
        Ok(())
    }

    /// Tokens of all files.
    pub fn len(&self) -> usize {
        self.parts.last().map_or(0, |p| p.start + p.len)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the last `percent` per cent begin, rounded down to tokens.
    pub fn first_held_out(&self, percent: u32) -> usize {
        self.len() - (self.len() as u128 * u128::from(percent) / 100) as usize
    }

    /// The tokens of a range, which must be there.
    ///
    /// # Errors
    /// When a file cannot be read, has changed since it was opened, or holds a token beyond the vocabulary.
    pub fn window(&self, range: Range<usize>) -> Result<Vec<i32>, DataError> {
        let mut out = Vec::with_capacity(range.len());
        for p in &self.parts {
            let from = range.start.max(p.start);
            let to = range.end.min(p.start + p.len);
            if from >= to {
                continue;
            }
            let width = p.width as usize;
            let before = out.len();
            let mut bytes = vec![0; (to - from) * width];
            let place = p.skip + ((from - p.start) * width) as u64;
            p.file.read_at(&mut bytes, place)?;
            match p.width {
                Width::Byte => out.extend(bytes.iter().map(|b| i32::from(*b))),
                Width::Two => {
                    let tokens = bytes.as_chunks().0.iter();
                    out.extend(tokens.map(|b| i32::from(u16::from_le_bytes(*b))));
                }
                // A number beyond i32 is beyond any vocabulary too.
                Width::Four => {
                    let tokens = bytes.as_chunks().0.iter();
                    out.extend(tokens.map(|b| i32::from_le_bytes(*b)));
                }
            }
            let Some(vocab) = self.vocab else { continue };
            let beyond = |t: &i32| u64::from(*t as u32) >= vocab;
            if let Some(at) = out[before..].iter().position(beyond) {
                return Err(DataError::Token {
                    path: p.file.path().shown(),
                    token: out[before + at] as u32,
                    byte: place + (at * width) as u64,
                    vocab,
                });
            }
        }
        debug_assert_eq!(out.len(), range.len());
        Ok(out)
    }
}
