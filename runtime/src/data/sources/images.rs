//! Files of images with their classes.
//!
//! - `….npz` of NumPy: the arrays `images` and `labels`, or `x` and `y`, or `x_train` and `y_train`;
//! - `….npy`: images, and their classes in the file beside it that is named `labels` instead of `images`, or `y` instead of `x`;
//! - a folder of folders of PNG images, one for each class, whose numbers are those of the folders' names in order;
//! - any other file is IDX (`train-images-idx3-ubyte`, classes beside it in `train-labels-idx1-ubyte`), packed where its name ends in `.gz`.
//!
//! Images are `[n, height, width]` or `[n, height, width, channels]`, bytes from 0 to 255 or real numbers from 0 to 1. What is packed is read into memory;
//! arrays in files of their own are read when they are asked for.

use super::arrays::{Archive, HeadOf, beside_of, fits, is_packed, refused, whole};
use super::{DataSource, image_folder};
use crate::data::array::{self, Element, Head, MOST_OF_A_HEAD};
use crate::data::dataset::Dataset;
use crate::data::identity::{DataFile, Identity};
use crate::data::images::ImageSet;
use crate::data::picture::Size;
use crate::data::pixels::{Array, Bytes, Kind, Pixels};
use crate::data::{DataError, Source};
use crate::system::shown::Shown;
use odec_program::manifest::Images;
use std::path::Path;

/// Words of the names of files of images, each with that of the file of their classes.
const LABELS: [(&str, &str); 4] = [
    ("images", "labels"),
    ("x", "y"),
    ("idx3", "idx1"),
    ("idx4", "idx1"),
];
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

fn opened(path: &Path) -> Result<DataFile, DataError> {
    DataFile::open(path).map_err(|e| match e {
        DataError::Missing { path } => DataError::NoImagesAt { path },
        e => e,
    })
}

/// An archive of arrays.
fn npz(path: &Path, size: Size, classes: u64) -> Result<Found, DataError> {
    let known = opened(path)?.identity()?;
    let mut archive = Archive::open(path)?;
    let Some([images, labels]) =
        (NAMES.into_iter()).find(|pair| pair.iter().all(|name| archive.has(name)))
    else {
        let reason = format!(
            "it has no arrays `images` and `labels` (or `x` and `y`, or `x_train` and `y_train`); it has {:?}",
            archive.names()
        );
        return Err(refused(path, reason));
    };
    let (place, head, bytes) = archive.array(images)?;
    let pixels = pixels(&place, &head, size, Bytes::Memory(bytes))?;
    let (place, head, bytes) = archive.array(labels)?;
    let classes = numbers(&place, &head, &bytes, pixels.len(), classes)?;
    Ok(Found {
        files: vec![known],
        pixels,
        classes,
    })
}

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
    let labels = beside_of(path, &LABELS).ok_or_else(|| {
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
