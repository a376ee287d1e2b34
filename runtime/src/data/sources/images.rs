//! Files of images with their classes.
//!
//! - `….npz` of NumPy: the arrays `images` and `labels`, or `x` and `y`, or `x_train` and `y_train`;
//! - `….npy`: images, and their classes in the file beside it that is named `labels` instead of `images`, or `y` instead of `x`;
//! - a folder of folders of PNG images, one for each class, whose numbers are those of the folders' names in order;
//! - any other file is IDX (`train-images-idx3-ubyte`, classes beside it in `train-labels-idx1-ubyte`), packed where its name ends in `.gz`.
//!
//! Images are `[n, height, width]` or `[n, height, width, channels]`, bytes from 0 to 255 or real numbers from 0 to 1. What is packed is read into memory,
//! and bounded ([`super::arrays`]); arrays in files of their own are read when they are asked for.

use super::arrays::{self, Archive, beside_of, fits, is_packed, whole};
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
        if path.is_dir() {
            return image_folder::read(path, size, classes);
        }
        let file = DataFile::open(path).map_err(DataError::of_images)?;
        match path.extension().and_then(|e| e.to_str()) {
            Some("npz") => {
                let read = npz(&file, size, classes);
                read.or_else(|e| file.unchanged().and(Err(e)))
            }
            Some("npy") => beside(file, size, classes, array::npy),
            _ => beside(file, size, classes, array::idx),
        }
    }
}

/// An archive of arrays.
fn npz(file: &DataFile, size: Size, classes: u64) -> Result<Found, DataError> {
    let path = file.path();
    let known = file.identity()?;
    let mut archive = Archive::open(file)?;
    let Some([images, labels]) =
        (NAMES.into_iter()).find(|pair| pair.iter().all(|name| archive.has(name)))
    else {
        let reason = format!(
            "it has no arrays `images` and `labels` (or `x` and `y`, or `x_train` and `y_train`); it has {:?}",
            archive.names()
        );
        return Err(DataError::images(path, reason));
    };
    let fit = |path: &Path, head: &Head| kind_of(path, head, size).map(drop);
    let (place, head, bytes) = archive.array(images, &fit)?;
    let pixels = pixels(&place, &head, size, Bytes::Memory(bytes))?;
    let fit = |path: &Path, head: &Head| are_classes(path, head, pixels.len());
    let (place, head, bytes) = archive.array(labels, &fit)?;
    let classes = numbers(&place, &head, &bytes, classes)?;
    Ok(Found {
        files: vec![known],
        pixels,
        classes,
    })
}

/// An array of images in a file of its own, with its classes in another one.
fn beside(
    file: DataFile,
    size: Size,
    classes: u64,
    head_of: arrays::HeadOf,
) -> Result<Found, DataError> {
    let path = &file.path().to_path_buf();
    let known = file.identity()?;
    let (head, bytes) = match is_packed(path) {
        true => {
            let fit = |path: &Path, head: &Head| kind_of(path, head, size).map(drop);
            let (head, bytes) = whole(&file, head_of, &fit)?;
            (head, Bytes::Memory(bytes))
        }
        false => {
            let mut first = vec![0; file.bytes().min(MOST_OF_A_HEAD as u64) as usize];
            file.read_at(&mut first, 0)?;
            let head = head_of(&first).map_err(|e| DataError::images(path, e))?;
            let has = file.bytes().saturating_sub(head.start);
            fits(&head, has).map_err(|e| DataError::images(path, e))?;
            let start = head.start;
            (head, Bytes::File(file, start))
        }
    };
    let pixels = pixels(path, &head, size, bytes)?;
    let labels = beside_of(path, &LABELS).ok_or_else(|| {
        let reason = "its name has neither `images` nor `x` as a word, so where its classes are is not known";
        DataError::images(path, reason)
    })?;
    let of_labels = DataFile::open(&labels).map_err(|e| match e {
        DataError::Missing { path: labels } => {
            DataError::images(path, format!("its classes are not beside it, in {labels}"))
        }
        e => e,
    })?;
    let fit = |path: &Path, head: &Head| are_classes(path, head, pixels.len());
    let (head, bytes) = whole(&of_labels, head_of, &fit)?;
    let classes = numbers(&labels, &head, &bytes, classes)?;
    Ok(Found {
        files: vec![known, of_labels.identity()?],
        pixels,
        classes,
    })
}

/// What the numbers of an array of images are stored as, and how many images it has, of the size that the model reads.
fn kind_of(path: &Path, head: &Head, size: Size) -> Result<(Kind, usize), DataError> {
    let refused = |reason: String| DataError::images(path, reason);
    let kind = match head.element {
        Element::Unsigned(1) => Kind::U8,
        Element::Float(4) => Kind::F32,
        Element::Float(8) => Kind::F64,
        _ => {
            let reason = "its numbers are neither bytes (0 to 255) nor real (0 to 1)";
            return Err(refused(reason.into()));
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
            return Err(refused(reason));
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
        return Err(refused(reason));
    }
    match usize::try_from(images).unwrap_or(usize::MAX) {
        0 => Err(refused("it holds no images".into())),
        images => Ok((kind, images)),
    }
}

fn pixels(path: &Path, head: &Head, size: Size, bytes: Bytes) -> Result<Pixels, DataError> {
    let (kind, images) = kind_of(path, head, size)?;
    Ok(Pixels::Array(Array {
        path: path.shown(),
        kind,
        images,
        numbers: size.numbers(),
        bytes,
    }))
}

/// Whether an array has the classes of so many images.
fn are_classes(path: &Path, head: &Head, images: usize) -> Result<(), DataError> {
    let refused = |reason: String| Err(DataError::images(path, reason));
    let count = match head.shape[..] {
        [n] | [n, 1] => n,
        _ => {
            let reason = format!("its shape is {:?}; classes are [n]", head.shape);
            return refused(reason);
        }
    };
    if matches!(head.element, Element::Float(_)) {
        return refused("its numbers are real; classes are whole numbers from 0".into());
    }
    if count != images as u64 {
        return refused(format!(
            "it has the classes of {count} images, and there are {images}"
        ));
    }
    Ok(())
}

/// The elements of an array as numbers of classes.
fn numbers(path: &Path, head: &Head, bytes: &[u8], classes: u64) -> Result<Vec<i32>, DataError> {
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

#[cfg(test)]
mod tests {
    use super::arrays::unpacked;
    use super::*;
    use crate::data::array::MOST_OF_A_HEAD;
    use std::fs;
    use std::io::{self, Read, Write};

    const SIZE: Size = Size {
        height: 4,
        width: 6,
        channels: 1,
    };

    /// A head, and what follows; counts what is asked for.
    struct Counting {
        head: io::Cursor<Vec<u8>>,
        /// Zeros behind the head.
        left: u64,
        read: u64,
        /// The longest room that was given.
        room: usize,
    }

    impl Counting {
        fn new(shape: &str, zeros: u64) -> Counting {
            let (head, left) = (io::Cursor::new(npy(shape, &[])), zeros);
            let (read, room) = (0, 0);
            Counting {
                head,
                left,
                read,
                room,
            }
        }
    }

    impl Read for Counting {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            self.room = self.room.max(out.len());
            let mut n = self.head.read(out)?;
            if n == 0 {
                n = self.left.min(out.len() as u64) as usize;
                out[..n].fill(0);
                self.left -= n as u64;
            }
            self.read += n as u64;
            Ok(n)
        }
    }

    fn npy(shape: &str, data: &[u8]) -> Vec<u8> {
        let head = format!("{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (head.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\0", &length[..], head.as_bytes(), data].concat()
    }

    #[test]
    fn no_more_of_an_array_is_read_than_is_asked_for() {
        let path = Path::new("x.npy");
        let head = MOST_OF_A_HEAD as u64;
        let read = |shape: &str, zeros: u64| {
            let mut from = Counting::new(shape, zeros);
            let fit = |path: &Path, head: &Head| kind_of(path, head, SIZE).map(drop);
            let result = unpacked(path, &mut from, array::npy, &fit);
            let result = result.map(|(_, bytes)| bytes.len());
            (result.map_err(|e| e.to_string()), from.read, from.room)
        };
        let endless = u64::MAX;
        // Another size is refused by the head alone, whatever stands behind it.
        let (result, n, _) = read("(100000000, 4, 7)", endless);
        assert!(result.unwrap_err().contains("it holds images of 4 × 7"));
        assert!(n <= head, "{n} bytes");
        // What a head does not say is not read.
        let (result, n, _) = read("(2, 4, 6)", endless);
        assert!(
            result
                .unwrap_err()
                .contains("it has more than the 48 bytes")
        );
        assert!(n <= head, "{n} bytes");
        let (result, n, _) = read("(10000, 4, 6)", endless);
        assert!(
            result
                .unwrap_err()
                .contains("it has more than the 240000 bytes")
        );
        assert!(n <= head + 240_000, "{n} bytes");
        // What is not there takes no room.
        let (result, _, room) = read("(170000000, 4, 6)", 100);
        assert!(result.unwrap_err().contains("is cut short"));
        assert!(room <= 1 << 20, "{room} bytes at once");
        assert_eq!(read("(10000, 4, 6)", 240_000).0, Ok(240_000));
        // Classes are counted before they are read.
        let mut labels = Counting::new("(100000000,)", endless);
        let fit = |path: &Path, head: &Head| are_classes(path, head, 12);
        let refused = unpacked(path, &mut labels, array::npy, &fit).map(drop);
        assert!(
            refused
                .unwrap_err()
                .to_string()
                .contains("100000000 images, and there are 12")
        );
        assert!(labels.read <= head);
    }

    /// Of a name that gets another file meanwhile, all is read of the first.
    #[test]
    fn a_file_is_hashed_and_read_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let archive = |grey: u8| {
            let mut out = zip::ZipWriter::new(io::Cursor::new(vec![]));
            let plain = zip::write::SimpleFileOptions::default();
            for (name, bytes) in [
                ("x", npy("(1, 4, 6)", &[grey; 24])),
                ("y", npy("(1,)", &[3])),
            ] {
                out.start_file(format!("{name}.npy"), plain).unwrap();
                out.write_all(&bytes).unwrap();
            }
            out.finish().unwrap().into_inner()
        };
        fs::write(at("a.npz"), archive(255)).unwrap();
        let file = DataFile::open(&at("a.npz")).unwrap();
        let known = file.identity().unwrap();
        fs::write(at("b.npz"), archive(0)).unwrap();
        fs::rename(at("b.npz"), at("a.npz")).unwrap();
        let found = npz(&file, SIZE, 10).unwrap();
        let mut image = [0.0; 24];
        found.pixels.read(vec![(0, &mut image[..])]).unwrap();
        assert_eq!((found.files, image), (vec![known], [1.0; 24]));
        // The same of packed arrays.
        let idx = |shape: &[u8], data: &[u8]| {
            let lengths = shape.iter().flat_map(|n| [0, 0, 0, *n]);
            let head = [0, 0, 8, shape.len() as u8].into_iter().chain(lengths);
            let bytes: Vec<u8> = head.chain(data.iter().copied()).collect();
            let mut out = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
            out.write_all(&bytes).unwrap();
            out.finish().unwrap()
        };
        fs::write(at("labels-idx1.gz"), idx(&[1], &[3])).unwrap();
        fs::write(at("images-idx3.gz"), idx(&[1, 4, 6], &[255; 24])).unwrap();
        let file = DataFile::open(&at("images-idx3.gz")).unwrap();
        fs::write(at("other.gz"), idx(&[1, 4, 6], &[0; 24])).unwrap();
        fs::rename(at("other.gz"), at("images-idx3.gz")).unwrap();
        let found = beside(file, SIZE, 10, array::idx).unwrap();
        image = [0.0; 24];
        found.pixels.read(vec![(0, &mut image[..])]).unwrap();
        assert_eq!(image, [1.0; 24]);
    }
}
