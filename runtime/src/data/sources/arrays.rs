//! Arrays in files: `.npz` archives, `.npy` and IDX, packed or not, and the names of files that belong together.
//!
//! What is packed is read into memory, at most [`MOST`] bytes of it whatever it says of itself. Leaves what arrays mean to those who ask for them.

use crate::data::DataError;
use crate::data::array::{self, Head, MOST_OF_A_HEAD};
use crate::system::input;
use crate::system::shown::Shown;
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;
use zip::result::ZipError;

/// The most bytes of an array that is unpacked.
const MOST: u64 = 4 << 30;

pub fn refused(path: &Path, reason: impl Into<String>) -> DataError {
    DataError::Images {
        path: path.shown(),
        reason: reason.into(),
    }
}

/// An archive of arrays, `.npz`.
pub struct Archive<'p> {
    path: &'p Path,
    zip: ZipArchive<File>,
}

impl Archive<'_> {
    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn open(path: &Path) -> Result<Archive<'_>, DataError> {
        let read = |source| DataError::Read {
            path: path.shown(),
            source,
        };
        let zip = ZipArchive::new(input::open(path).map_err(read)?);
        let zip = zip.map_err(|e| damaged(path, &e))?;
        Ok(Archive { path, zip })
    }

    pub fn has(&self, array: &str) -> bool {
        self.zip.index_for_name(&format!("{array}.npy")).is_some()
    }

    /// What it has, a few of many.
    pub fn names(&self) -> Vec<String> {
        let names = self.zip.file_names().take(8).filter_map(Result::ok);
        names.map(Cow::into_owned).collect()
    }

    /// An array, and what it is called in messages.
    ///
    /// # Errors
    /// When it is not there, or damaged.
    pub fn array(&mut self, name: &str) -> Result<(PathBuf, Head, Vec<u8>), DataError> {
        let place = self.path.join(format!("{name}.npy"));
        let file = self.zip.by_name(&format!("{name}.npy"));
        let mut file = file.map_err(|e| damaged(self.path, &e))?;
        let (head, bytes) = unpacked(&mut file, array::npy).map_err(|e| refused(&place, e))?;
        Ok((place, head, bytes))
    }
}

fn damaged(path: &Path, e: &ZipError) -> DataError {
    refused(path, format!("it cannot be read as .npz: {e}"))
}

/// What reads the head of an array.
pub type HeadOf = fn(&[u8]) -> Result<Head, String>;

pub fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

/// The file beside another one whose name has other words: those of a pair in the place of the first of it. Words of IDX do not tell files apart.
pub fn beside_of(path: &Path, pairs: &[(&str, &str)]) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let words = |name: &str| -> Vec<String> {
        let ends = |c: char| !c.is_ascii_alphanumeric();
        name.split_inclusive(ends).map(String::from).collect()
    };
    let mut changed = false;
    let other = words(name).into_iter().map(|word| {
        let letters = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let Some((_, other)) = pairs.iter().find(|(one, _)| *one == letters) else {
            return word;
        };
        changed |= !letters.starts_with("idx");
        word.replacen(letters, other, 1)
    });
    let other: String = other.collect();
    changed.then(|| path.with_file_name(other))
}

/// An array that is read whole.
pub fn whole(path: &Path, head_of: HeadOf) -> Result<(Head, Vec<u8>), DataError> {
    let read = |source| DataError::Read {
        path: path.shown(),
        source,
    };
    let file: File = input::open(path).map_err(read)?;
    let mut reader: Box<dyn Read> = match is_packed(path) {
        true => Box::new(MultiGzDecoder::new(io::BufReader::new(file))),
        false => Box::new(file),
    };
    unpacked(&mut *reader, head_of).map_err(|e| refused(path, e))
}

/// Head and elements of an array that is read from its beginning to its end: no more of it than its head says, and [`MOST`].
fn unpacked(from: &mut dyn Read, head_of: HeadOf) -> Result<(Head, Vec<u8>), String> {
    let damaged = |e: io::Error| format!("it cannot be read: {e}");
    let mut bytes = vec![];
    let first = from.take(MOST_OF_A_HEAD as u64).read_to_end(&mut bytes);
    first.map_err(damaged)?;
    let head = head_of(&bytes)?;
    let says = head.bytes().filter(|n| *n <= MOST);
    let says = says.ok_or_else(|| {
        format!(
            "it says that it holds {:?} elements, more than the {MOST} bytes that are unpacked",
            head.shape
        )
    })?;
    // What is not there takes no memory, whatever a head says.
    bytes.drain(..(head.start as usize).min(bytes.len()));
    let left = (says + 1).saturating_sub(bytes.len() as u64);
    from.take(left).read_to_end(&mut bytes).map_err(damaged)?;
    fits(&head, bytes.len() as u64)?;
    Ok((head, bytes))
}

/// Whether an array has as many bytes as its head says.
pub fn fits(head: &Head, has: u64) -> Result<(), String> {
    match head.bytes() {
        Some(says) if says == has => Ok(()),
        Some(says) if says < has => Err(format!(
            "it has more than the {says} bytes of elements that its head says"
        )),
        _ => Err(format!(
            "it is cut short: its head says {:?} elements, and it has {has} bytes of them",
            head.shape
        )),
    }
}
