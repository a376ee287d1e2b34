//! Arrays in files: `.npz` archives, `.npy` and IDX, packed or not, and the names of files that belong together.
//!
//! What is packed is read into memory, at most [`MOST`] bytes of it whatever it says of itself. Leaves what arrays mean to those who ask for them.

use crate::data::DataError;
use crate::data::array::{self, Head, MOST_OF_A_HEAD};
use crate::data::identity::{DataFile, Reader};
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;
use zip::result::ZipError;

/// The most bytes of an array that is unpacked.
const MOST: u64 = 4 << 30;

/// An archive of arrays, `.npz`.
pub struct Archive<'f> {
    file: &'f DataFile,
    zip: ZipArchive<BufReader<Reader<'f>>>,
}

impl Archive<'_> {
    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be read, or is none.
    pub fn open(file: &DataFile) -> Result<Archive<'_>, DataError> {
        let zip = ZipArchive::new(BufReader::new(file.reader()));
        let zip = zip.map_err(|e| damaged(file.path(), &e))?;
        Ok(Archive { file, zip })
    }

    pub fn has(&self, array: &str) -> bool {
        self.zip.index_for_name(&format!("{array}.npy")).is_some()
    }

    /// What it has, a few of many.
    pub fn names(&self) -> Vec<String> {
        let names = self.zip.file_names().take(8).filter_map(Result::ok);
        names.map(Cow::into_owned).collect()
    }

    /// An array that fits, and what it is called in messages.
    ///
    /// # Errors
    /// When it is not there, or damaged, or does not fit.
    pub fn array(&mut self, name: &str, fit: Fit) -> Result<(PathBuf, Head, Vec<u8>), DataError> {
        let place = self.file.path().join(format!("{name}.npy"));
        let file = self.zip.by_name(&format!("{name}.npy"));
        let mut file = file.map_err(|e| damaged(self.file.path(), &e))?;
        let (head, bytes) = unpacked(&place, &mut file, array::npy, fit)?;
        Ok((place, head, bytes))
    }
}

fn damaged(path: &Path, e: &ZipError) -> DataError {
    DataError::images(path, format!("it cannot be read as .npz: {e}"))
}

/// What reads the head of an array.
pub type HeadOf = fn(&[u8]) -> Result<Head, String>;
/// Whether an array of this head is one that is read: asked before its elements are.
pub type Fit<'a> = &'a dyn Fn(&Path, &Head) -> Result<(), DataError>;

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
pub fn whole(file: &DataFile, head_of: HeadOf, fit: Fit) -> Result<(Head, Vec<u8>), DataError> {
    let path = file.path();
    let packed = || MultiGzDecoder::new(BufReader::new(file.reader()));
    let read = match is_packed(path) {
        true => unpacked(path, &mut packed(), head_of, fit),
        false => unpacked(path, &mut file.reader(), head_of, fit),
    };
    // What was changed is said before what that made of it.
    read.or_else(|e| file.unchanged().and(Err(e)))
}

/// Head and elements of an array that is read from its beginning to its end: no more of it than its head says, and [`MOST`].
pub fn unpacked(
    path: &Path,
    from: &mut dyn Read,
    head_of: HeadOf,
    fit: Fit,
) -> Result<(Head, Vec<u8>), DataError> {
    let refused = |reason| DataError::images(path, reason);
    let damaged = |e: io::Error| refused(format!("it cannot be read: {e}"));
    let mut bytes = vec![];
    let first = from.take(MOST_OF_A_HEAD as u64).read_to_end(&mut bytes);
    first.map_err(damaged)?;
    let head = head_of(&bytes).map_err(refused)?;
    fit(path, &head)?;
    let says = head.bytes().filter(|n| *n <= MOST);
    let says = says.ok_or_else(|| {
        refused(format!(
            "it says that it holds {:?} elements, more than the {MOST} bytes that are unpacked",
            head.shape
        ))
    })?;
    // What is not there takes no memory, whatever a head says.
    bytes.drain(..(head.start as usize).min(bytes.len()));
    let left = (says + 1).saturating_sub(bytes.len() as u64);
    from.take(left).read_to_end(&mut bytes).map_err(damaged)?;
    fits(&head, bytes.len() as u64).map_err(refused)?;
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
