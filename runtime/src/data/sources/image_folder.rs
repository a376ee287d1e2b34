//! A folder of folders of PNG images: a class for each folder, numbered in the order of their names.
//!
//! Folders of few images are decoded when they are opened, all others when a batch asks for them, in threads. Names that begin with a dot
//! are passed over, anything else that is no PNG image is refused: it would be missing without a word.

use super::images::Found;
use crate::data::DataError;
use crate::data::identity::{DataFile, Identity, Seen};
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
            return Err(DataError::images(of_class, reason));
        }
        let images = inside(of_class)?;
        if let Some(other) = images.iter().find(|f| !is_png(f)) {
            let reason = "it is no PNG image; folders of images hold nothing else";
            return Err(DataError::images(other, reason));
        }
        if images.is_empty() {
            let reason = "it has no PNG images; a class without any is no folder";
            return Err(DataError::images(of_class, reason));
        }
        numbers.resize(numbers.len() + images.len(), class as i32);
        for image in images {
            let file = DataFile::open(&image).map_err(DataError::of_images)?;
            files.push(file.seen());
        }
    }
    if folders.len() as u64 > classes {
        let reason = format!(
            "it has {} folders, and the model has {classes} classes",
            folders.len()
        );
        return Err(DataError::images(folder, reason));
    }
    if files.is_empty() {
        let reason = "it has no folders with PNG images, one for each class";
        return Err(DataError::images(folder, reason));
    }
    let known = identity(folder, &files, &numbers)?;
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

/// What a folder is known by: the names of its files, the numbers of their classes, and what is in them.
fn identity(folder: &Path, files: &[Seen], classes: &[i32]) -> Result<Identity, DataError> {
    let bytes = files.iter().map(Seen::bytes).sum();
    let modified = files.iter().map(Seen::modified).max().unwrap_or(0);
    let sampled = bytes > HASHED;
    let mut hash = Sha256::new();
    for (f, class) in files.iter().zip(classes) {
        let name = f.path().strip_prefix(folder).unwrap_or(f.path());
        hash.update(name.as_os_str().as_encoded_bytes());
        hash.update(b"\0");
        hash.update(class.to_le_bytes());
        hash.update(f.bytes().to_le_bytes());
        match sampled {
            true => hash.update(f.modified().to_le_bytes()),
            false => hash.update(f.open()?.hash_all(0)?),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_known_by_its_classes_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["a.png", "b.png"].map(|name| dir.path().join(name));
        let files: Vec<Seen> = paths
            .iter()
            .map(|path| {
                fs::write(path, "bytes").unwrap();
                DataFile::open(path).unwrap().seen()
            })
            .collect();
        let known = |classes: &[i32]| identity(dir.path(), &files, classes).unwrap();
        let was = known(&[0, 1]);
        assert_eq!(known(&[0, 1]).change(&was), None);
        assert!(known(&[0, 2]).change(&was).is_some());
    }
}
