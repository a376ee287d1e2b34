//! Where the numbers of images are: an array in a file, read when it is asked for; one in memory; or a file for each image.
//!
//! Takes numbers of images; gives their numbers from 0 to 1, in the order of y, x and channel. Leaves what is in files to
//! [`mod@crate::data::sources`].

use crate::data::DataError;
use crate::data::identity::{DataFile, Seen};
use crate::data::picture::{self, Size};
use crate::system::pool;
use std::sync::{Mutex, PoisonError};

/// What a number of an array is stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From 0 to 255.
    U8,
    /// From 0 to 1, little-endian.
    F32,
    F64,
}

impl Kind {
    pub fn bytes(self) -> usize {
        match self {
            Kind::U8 => 1,
            Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }

    /// Stored numbers as those from 0 to 1; the first other one is an error.
    fn decode(self, bytes: &[u8], out: &mut [f32]) -> Result<(), String> {
        match self {
            Kind::U8 => {
                let pairs = out.iter_mut().zip(bytes);
                pairs.for_each(|(x, b)| *x = f32::from(*b) / 255.0);
            }
            Kind::F32 => {
                let pairs = out.iter_mut().zip(bytes.as_chunks().0);
                pairs.for_each(|(x, b)| *x = f32::from_le_bytes(*b));
            }
            Kind::F64 => {
                let pairs = out.iter_mut().zip(bytes.as_chunks().0);
                pairs.for_each(|(x, b)| *x = f64::from_le_bytes(*b) as f32);
            }
        }
        match out.iter().find(|x| !(0.0..=1.0).contains(*x)) {
            Some(x) => Err(format!(
                "it has the number {x}; real numbers are from 0 to 1"
            )),
            None => Ok(()),
        }
    }
}

/// An array of images.
pub struct Array {
    /// For messages.
    pub path: String,
    pub kind: Kind,
    pub images: usize,
    /// Numbers of an image.
    pub numbers: usize,
    pub bytes: Bytes,
}

/// The bytes of an array.
pub enum Bytes {
    /// In a file, from a place on.
    File(DataFile, u64),
    Memory(Vec<u8>),
}

/// Images of one source.
pub enum Pixels {
    Array(Array),
    /// A file for each image.
    Files {
        files: Vec<Seen>,
        size: Size,
    },
}

impl Pixels {
    /// Images.
    pub fn len(&self) -> usize {
        match self {
            Pixels::Array(a) => a.images,
            Pixels::Files { files, .. } => files.len(),
        }
    }

    /// Reads images, each into its row.
    ///
    /// # Errors
    /// When a file cannot be read, has changed or is damaged, or a number is not from 0 to 1.
    pub fn read(&self, rows: Vec<(usize, &mut [f32])>) -> Result<(), DataError> {
        match self {
            Pixels::Array(a) => rows.into_iter().try_for_each(|(n, row)| a.read(n, row)),
            Pixels::Files { files, size } => {
                let wanted = rows.into_iter().map(|(n, row)| (&files[n], row));
                decode_all(wanted.collect(), *size)
            }
        }
    }
}

impl Array {
    fn read(&self, n: usize, row: &mut [f32]) -> Result<(), DataError> {
        let length = self.numbers * self.kind.bytes();
        let refused = |reason| DataError::Image {
            path: self.path.clone(),
            number: n as u64,
            reason,
        };
        match &self.bytes {
            Bytes::Memory(all) => {
                let bytes = &all[n * length..(n + 1) * length];
                self.kind.decode(bytes, row).map_err(refused)
            }
            Bytes::File(file, skip) => {
                let mut bytes = vec![0; length];
                file.read_at(&mut bytes, skip + (n * length) as u64)?;
                self.kind.decode(&bytes, row).map_err(refused)
            }
        }
    }
}

fn decode_all(files: Vec<(&Seen, &mut [f32])>, size: Size) -> Result<(), DataError> {
    in_threads(files, |file, row| {
        let bytes = picture::read(file, size)?;
        let decoded = Kind::U8.decode(&bytes, row);
        decoded.map_err(|reason| DataError::images(file.path(), reason))
    })
}

/// The bytes of images in files, one after the other.
///
/// # Errors
/// When a file cannot be read, or is no image of that size.
pub fn pictures(files: &[Seen], size: Size) -> Result<Vec<u8>, DataError> {
    let mut all = vec![0; files.len() * size.numbers()];
    let rows = all.chunks_exact_mut(size.numbers());
    in_threads(files.iter().zip(rows).collect(), |file, row| {
        row.copy_from_slice(&picture::read(file, size)?);
        Ok(())
    })?;
    Ok(all)
}

/// Does the same with each file and its row, in as many threads as there are. Of several errors, that of the first file is given.
fn in_threads<T: Send>(
    files: Vec<(&Seen, &mut [T])>,
    each: impl Fn(&Seen, &mut [T]) -> Result<(), DataError> + Sync,
) -> Result<(), DataError> {
    let threads = pool::default_threads().min(files.len());
    // Handed out in order, none behind an error: those before it are under way or done.
    let queue = Mutex::new((files.into_iter().enumerate(), None::<(usize, DataError)>));
    let state = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    let next = || {
        let (files, error) = &mut *state();
        error.is_none().then(|| files.next()).flatten()
    };
    let work = || {
        while let Some((n, (file, row))) = next() {
            if let Err(e) = each(file, row) {
                let first = &mut state().1;
                if first.as_ref().is_none_or(|(other, _)| n < *other) {
                    *first = Some((n, e));
                }
            }
        }
    };
    std::thread::scope(|s| {
        for _ in 1..threads {
            // Where the system starts no more threads, fewer do the work.
            let _ = std::thread::Builder::new().spawn_scoped(s, work);
        }
        work();
    });
    let error = state().1.take();
    error.map_or(Ok(()), |(_, e)| Err(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::time::{Duration, SystemTime};

    #[test]
    fn pictures_that_are_read_again_are_the_same_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.png");
        let write = |grey: u8| {
            let mut encoder = png::Encoder::new(File::create(&path).unwrap(), 2, 1);
            encoder.set_color(png::ColorType::Grayscale);
            let mut writer = encoder.write_header().unwrap();
            writer.write_image_data(&[grey; 2]).unwrap();
        };
        write(255);
        let seen = DataFile::open(&path).unwrap().seen();
        let size = Size {
            height: 1,
            width: 2,
            channels: 1,
        };
        let pixels = Pixels::Files {
            files: vec![seen],
            size,
        };
        let read = || {
            let mut image = [0.0; 2];
            let result = pixels.read(vec![(0, &mut image[..])]);
            result.map(|()| image)
        };
        assert_eq!(read().unwrap(), [1.0; 2]);
        write(0);
        let later = SystemTime::now() + Duration::from_secs(60);
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(later).unwrap();
        let said = |e: DataError| match e {
            DataError::Altered { what, .. } => what,
            e => panic!("{e}"),
        };
        assert_eq!(said(read().unwrap_err()), "it was changed");
        fs::remove_file(&path).unwrap();
        assert_eq!(said(read().unwrap_err()), "it is not there any more");
    }
}
