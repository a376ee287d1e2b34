//! A folder of folders of PNG images: a class for each folder, numbered in the order of their names.
//!
//! Folders of few images are decoded when they are opened, all others when a batch asks for them, in threads. Names that begin with a dot
//! are passed over, anything else that is no PNG image is refused: it would be missing without a word.

use super::images::Found;
use crate::data::DataError;
use crate::data::identity::{DataFile, Identity};
use crate::data::picture::Size;
use crate::data::pixels::{Array, Bytes, Kind, Pixels, pictures};
use crate::system::hash::hex;
use crate::system::shown::Shown;
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

/// Images are decoded when they are opened, where all of them have no more bytes.
const FEW: u64 = 1 << 28;
/// Folders of more bytes are known by the names, lengths and times of their files alone.
const HASHED: u64 = 4 << 30;

pub fn read(folder: &Path, size: Size, classes: u64) -> Result<Found, DataError> {
    let (mut files, mut numbers) = (vec![], vec![]);
    let folders = inside(folder)?;
    for (class, of_class) in folders.iter().enumerate() {
        if !of_class.is_dir() {
            let reason = format!(
                "it is no folder; {} has a folder for each class",
                folder.shown()
            );
            return Err(refused(of_class, reason));
        }
        let images = inside(of_class)?;
        if let Some(other) = images.iter().find(|f| !is_png(f)) {
            let reason = "it is no PNG image; folders of images hold nothing else";
            return Err(refused(other, reason));
        }
        numbers.resize(numbers.len() + images.len(), class as i32);
        files.extend(images);
    }
    if folders.len() as u64 > classes {
        let reason = format!(
            "it has {} folders, and the model has {classes} classes",
            folders.len()
        );
        return Err(refused(folder, reason));
    }
    if files.is_empty() {
        let reason = "it has no folders with PNG images, one for each class";
        return Err(refused(folder, reason));
    }
    let known = identity(folder, &files)?;
    let bytes = (size.numbers() as u64).saturating_mul(files.len() as u64);
    let pixels = match bytes <= FEW {
        true => Pixels::Array(Array {
            path: folder.shown(),
            kind: Kind::U8,
            images: files.len(),
            numbers: size.numbers(),
            bytes: Bytes::Memory(pictures(&files, size)?),
        }),
        false => Pixels::Files { files, size },
    };
    Ok(Found {
        files: vec![known],
        pixels,
        classes: numbers,
    })
}

fn refused(path: &Path, reason: impl Into<String>) -> DataError {
    DataError::Images {
        path: path.shown(),
        reason: reason.into(),
    }
}

fn is_png(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("png"))
}

/// What is in a folder, by its name.
fn inside(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let unread = |source| DataError::Read {
        path: folder.shown(),
        source,
    };
    let entries = fs::read_dir(folder).map_err(unread)?;
    let paths = entries.map(|e| e.map(|e| e.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(unread)?;
    let hidden = |p: &PathBuf| {
        let name = p.file_name().map(|n| n.as_encoded_bytes());
        name.is_some_and(|n| n.starts_with(b"."))
    };
    paths.retain(|p| !hidden(p));
    paths.sort_unstable();
    Ok(paths)
}

/// What a folder is known by: the names of its files, and what is in them.
fn identity(folder: &Path, files: &[PathBuf]) -> Result<Identity, DataError> {
    let (mut bytes, mut modified) = (0, i64::MIN);
    for f in files {
        let file = DataFile::open(f)?;
        bytes += file.bytes();
        modified = modified.max(file.modified());
    }
    let sampled = bytes > HASHED;
    let mut hash = Sha256::new();
    for f in files {
        let file = DataFile::open(f)?;
        let name = f.strip_prefix(folder).unwrap_or(f);
        hash.update(name.as_os_str().as_encoded_bytes());
        hash.update(b"\0");
        hash.update(file.bytes().to_le_bytes());
        match sampled {
            true => hash.update(file.modified().to_le_bytes()),
            false => hash.update(file.hash_all(0)?),
        }
    }
    Ok(Identity {
        path: folder.shown(),
        bytes,
        modified,
        sha256: hex(&hash.finalize()),
        sampled,
    })
}
