//! Files of images with their classes.
//!
//! - `….npz` of NumPy: the arrays `images` and `labels`, or `x` and `y`, or `x_train` and `y_train`;
//! - `….npy`: images, and their classes in the file beside it that is named `labels` instead of `images`, or `y` instead of `x`;
//! - a folder of folders of PNG images, one for each class, whose numbers are those of the folders' names in order;
//! - any other file is IDX (`train-images-idx3-ubyte`, classes beside it in `train-labels-idx1-ubyte`), packed where its name ends in `.gz`.
//!
//! Images are `[n, height, width]` or `[n, height, width, channels]`, bytes from 0 to 255 or real numbers from 0 to 1. What is packed is read into memory,
//! at most [`MOST`] bytes of it whatever it says of itself; arrays in files of their own are read when they are asked for.

use super::{DataSource, image_folder};
use crate::data::array::{self, Element, Head, MOST_OF_A_HEAD};
use crate::data::dataset::Dataset;
use crate::data::identity::{DataFile, Identity};
use crate::data::images::ImageSet;
use crate::data::picture::Size;
use crate::data::pixels::{Array, Bytes, Kind, Pixels};
use crate::data::{DataError, Source};
use crate::system::input;
use crate::system::shown::Shown;
use flate2::read::MultiGzDecoder;
use odec_program::manifest::Images;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zip::ZipArchive;
use zip::result::ZipError;

/// The most bytes of an array that is unpacked.
const MOST: u64 = 4 << 30;
/// What arrays of images and classes are called in `.npz` files.
const NAMES: [[&str; 2]; 3] = [["images", "labels"], ["x", "y"], ["x_train", "y_train"]];

pub struct ImageFiles<'a> {
    pub shape: &'a Images,
}

/// What was read of one file or folder.
pub(super) struct Found {
    pub files: Vec<Identity>,
    pub pixels: Pixels,
    pub classes: Vec<i32>,
}

impl DataSource for ImageFiles<'_> {
    fn open(&self, s: &Source, _: u64) -> Result<Box<dyn Dataset>, DataError> {
        let size = Size {
            height: self.shape.height,
            width: self.shape.width,
            channels: self.shape.channels,
        };
        let (mut files, mut pixels, mut classes) = (vec![], vec![], vec![]);
        for f in &s.data.files {
            let found = self.found(Path::new(f), size)?;
            files.extend(found.files);
            pixels.push(found.pixels);
            classes.extend(found.classes);
        }
        let name = s.data.files.join(", ");
        if u32::try_from(classes.len()).is_err() {
            let reason = format!("{} images; at most {} are read", classes.len(), u32::MAX);
            return Err(DataError::Images { path: name, reason });
        }
        let percent = s.data.held_out_percent;
        let read = (pixels, classes);
        let set = ImageSet::new(name, files, self.shape.clone(), read, percent);
        Ok(Box::new(set))
    }
}

impl ImageFiles<'_> {
    fn found(&self, path: &Path, size: Size) -> Result<Found, DataError> {
        let classes = self.shape.classes;
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        match extension {
            _ if path.is_dir() => image_folder::read(path, size, classes),
            "npz" => npz(path, size, classes),
            "npy" => beside(path, size, classes, array::npy),
            _ => beside(path, size, classes, array::idx),
        }
    }
}

fn refused(path: &Path, reason: impl Into<String>) -> DataError {
    DataError::Images {
        path: path.shown(),
        reason: reason.into(),
    }
}

fn opened(path: &Path) -> Result<DataFile, DataError> {
    DataFile::open(path).map_err(|e| match e {
        DataError::Missing { path } => DataError::NoImagesAt { path },
        e => e,
    })
}

/// An archive of arrays.
fn npz(path: &Path, size: Size, classes: u64) -> Result<Found, DataError> {
    let known = opened(path)?.identity()?;
    let read = |source| DataError::Read {
        path: path.shown(),
        source,
    };
    let damaged = |e: ZipError| refused(path, format!("it cannot be read as .npz: {e}"));
    let mut archive = ZipArchive::new(input::open(path).map_err(read)?).map_err(damaged)?;
    let has = |name: &&str| archive.index_for_name(&format!("{name}.npy")).is_some();
    let Some([images, labels]) = NAMES.into_iter().find(|pair| pair.iter().all(has)) else {
        let names = archive.file_names().take(8).filter_map(Result::ok);
        let names: Vec<String> = names.map(Cow::into_owned).collect();
        let reason = format!(
            "it has no arrays `images` and `labels` (or `x` and `y`, or `x_train` and `y_train`); it has {names:?}"
        );
        return Err(refused(path, reason));
    };
    let mut unpack = |name: &str| -> Result<(PathBuf, Head, Vec<u8>), DataError> {
        let place = path.join(format!("{name}.npy"));
        let mut file = archive.by_name(&format!("{name}.npy")).map_err(damaged)?;
        let (head, bytes) = unpacked(&mut file, array::npy).map_err(|e| refused(&place, e))?;
        Ok((place, head, bytes))
    };
    let (place, head, bytes) = unpack(images)?;
    let pixels = pixels(&place, &head, size, Bytes::Memory(bytes))?;
    let (place, head, bytes) = unpack(labels)?;
    let classes = numbers(&place, &head, &bytes, pixels.len(), classes)?;
    Ok(Found {
        files: vec![known],
        pixels,
        classes,
    })
}

/// What reads the head of an array.
type HeadOf = fn(&[u8]) -> Result<Head, String>;

/// An array of images in a file of its own, with its classes in another one.
fn beside(path: &Path, size: Size, classes: u64, head_of: HeadOf) -> Result<Found, DataError> {
    let file = opened(path)?;
    let known = file.identity()?;
    let (head, bytes) = match is_packed(path) {
        true => {
            let (head, bytes) = whole(path, head_of)?;
            (head, Bytes::Memory(bytes))
        }
        false => {
            let mut first = vec![0; file.bytes().min(MOST_OF_A_HEAD as u64) as usize];
            file.read_at(&mut first, 0)?;
            let head = head_of(&first).map_err(|e| refused(path, e))?;
            let has = file.bytes().saturating_sub(head.start);
            fits(&head, has).map_err(|e| refused(path, e))?;
            let start = head.start;
            (head, Bytes::File(file, start))
        }
    };
    let pixels = pixels(path, &head, size, bytes)?;
    let labels = labels_of(path).ok_or_else(|| {
        let reason = "its name has neither `images` nor `x` as a word, so where its classes are is not known";
        refused(path, reason)
    })?;
    let of_labels = DataFile::open(&labels).map_err(|e| match e {
        DataError::Missing { path: labels } => {
            refused(path, format!("its classes are not beside it, in {labels}"))
        }
        e => e,
    })?;
    let (head, bytes) = whole(&labels, head_of)?;
    let classes = numbers(&labels, &head, &bytes, pixels.len(), classes)?;
    Ok(Found {
        files: vec![known, of_labels.identity()?],
        pixels,
        classes,
    })
}

fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "gz")
}

/// The file that has the classes of a file of images.
fn labels_of(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let words = |name: &str| -> Vec<String> {
        let ends = |c: char| !c.is_ascii_alphanumeric();
        name.split_inclusive(ends).map(String::from).collect()
    };
    let mut changed = false;
    let other = words(name).into_iter().map(|word| {
        let letters = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let other = match letters {
            "images" => "labels",
            "x" => "y",
            "idx3" | "idx4" => "idx1",
            _ => return word,
        };
        changed |= !letters.starts_with("idx");
        word.replacen(letters, other, 1)
    });
    let other: String = other.collect();
    changed.then(|| path.with_file_name(other))
}

/// An array that is read whole.
fn whole(path: &Path, head_of: HeadOf) -> Result<(Head, Vec<u8>), DataError> {
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
fn fits(head: &Head, has: u64) -> Result<(), String> {
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

/// Images of the size that the model reads.
fn pixels(path: &Path, head: &Head, size: Size, bytes: Bytes) -> Result<Pixels, DataError> {
    let kind = match head.element {
        Element::Unsigned(1) => Kind::U8,
        Element::Float(4) => Kind::F32,
        Element::Float(8) => Kind::F64,
        _ => {
            let reason = "its numbers are neither bytes (0 to 255) nor real (0 to 1)";
            return Err(refused(path, reason));
        }
    };
    let (images, found) = match head.shape[..] {
        [n, height, width] => (n, [height, width, 1]),
        [n, height, width, channels] => (n, [height, width, channels]),
        _ => {
            let reason = format!(
                "its shape is {:?}; images are [n, height, width] or [n, height, width, channels]",
                head.shape
            );
            return Err(refused(path, reason));
        }
    };
    let [height, width, channels] = found;
    let found = Size {
        height,
        width,
        channels,
    };
    if found != size {
        let reason = format!("it holds images of {found}; this model reads {size}");
        return Err(refused(path, reason));
    }
    if images == 0 {
        return Err(refused(path, "it holds no images"));
    }
    Ok(Pixels::Array(Array {
        path: path.shown(),
        kind,
        images: images as usize,
        numbers: size.numbers(),
        bytes,
    }))
}

/// The classes of so many images.
fn numbers(
    path: &Path,
    head: &Head,
    bytes: &[u8],
    images: usize,
    classes: u64,
) -> Result<Vec<i32>, DataError> {
    let count = match head.shape[..] {
        [n] | [n, 1] => n,
        _ => {
            let reason = format!("its shape is {:?}; classes are [n]", head.shape);
            return Err(refused(path, reason));
        }
    };
    if matches!(head.element, Element::Float(_)) {
        let reason = "its numbers are real; classes are whole numbers from 0";
        return Err(refused(path, reason));
    }
    if count != images as u64 {
        let reason = format!("it has the classes of {count} images, and there are {images}");
        return Err(refused(path, reason));
    }
    let each = bytes.chunks_exact(head.element.bytes()).enumerate();
    each.map(|(n, b)| {
        let class = head.element.whole(b).and_then(|c| i32::try_from(c).ok());
        let known = class.filter(|c| (0..classes as i64).contains(&i64::from(*c)));
        known.ok_or_else(|| DataError::Image {
            path: path.shown(),
            number: n as u64,
            reason: format!(
                "its class is {}; the model has the classes 0 to {}",
                head.element
                    .whole(b)
                    .map_or("beyond 64 bits".into(), |c| c.to_string()),
                classes - 1
            ),
        })
    })
    .collect()
}
