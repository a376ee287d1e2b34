//! Data files and their identity: how a run recognises its text or tokens.
//!
//! A [`DataFile`] is read, never mapped: a file that is cut short or changed while a run reads it is an error that names it. An
//! [`Identity`] is stored in the checkpoint, so that a run is not resumed on other data.

use crate::data::DataError;
use crate::system::hash::hex;
use crate::system::input;
use crate::system::shown::Shown;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How much of a file is hashed.
#[derive(Clone, Copy)]
struct Rule {
    /// Files of more bytes are known by a sample.
    whole: u64,
    /// Bytes of a block.
    block: u64,
    /// Blocks of a sample, the first and the last of the file among them.
    blocks: u64,
}

const RULE: Rule = Rule {
    whole: 4 << 30,
    block: 1 << 20,
    blocks: 1024,
};

/// What a file is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub path: String,
    pub bytes: u64,
    /// Nanoseconds since 1970.
    pub modified: i64,
    /// Of the whole file, or of the sample.
    pub sha256: String,
    /// Whether only 1,024 blocks of 1 MiB were hashed, evenly spread: so it is with files of more than 4 GiB.
    pub sampled: bool,
}

impl Identity {
    /// What tells this file from the one that it was; `None` where they are the same. The time of modification decides
    /// where only a sample was hashed: copying a file or checking it out changes its time, and nothing else.
    pub fn change(&self, was: &Identity) -> Option<String> {
        let path = &self.path;
        if self.bytes != was.bytes {
            let (is, was) = (self.bytes, was.bytes);
            return Some(format!("{path} has {is} bytes now and had {was}"));
        }
        if self.sha256 != was.sha256 {
            let (is, was) = (&self.sha256[..12], was.sha256.get(..12).unwrap_or("none"));
            let what = "has as many bytes as before, but others";
            return Some(format!("{path} {what} (SHA-256 {is}…, it was {was}…)"));
        }
        (self.sampled && self.modified != was.modified)
            .then(|| format!("{path} was changed since, and is too large to compare as a whole"))
    }

    /// The part of it that says what is in the file.
    pub fn contents(&self) -> String {
        let modified = self.sampled.then_some(self.modified);
        format!("{} {modified:?} {}", self.bytes, self.sha256)
    }
}

/// A file that is opened again whenever it is read: its length and its time say whether it is the same.
#[derive(Clone, Debug)]
pub struct Seen {
    path: PathBuf,
    bytes: u64,
    modified: i64,
}

impl Seen {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nanoseconds since 1970.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be read, or is not what it was.
    pub fn open(&self) -> Result<DataFile, DataError> {
        let opened = DataFile::open(&self.path).map_err(|e| match e {
            DataError::Missing { path } => DataError::Altered {
                path,
                what: "it is not there any more".into(),
            },
            e => e,
        });
        let file = DataFile {
            bytes: self.bytes,
            modified: self.modified,
            ..opened?
        };
        file.unchanged().map(|()| file)
    }
}

/// An open file of texts, tokens or images.
pub struct DataFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// When it was last written to.
    modified: i64,
}

impl DataFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it is missing, empty or unreadable.
    pub fn open(path: &Path) -> Result<DataFile, DataError> {
        let shown = || path.shown();
        let read = |source| DataError::Read {
            path: shown(),
            source,
        };
        let file = match input::open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(DataError::Missing { path: shown() });
            }
            opened => opened.map_err(read)?,
        };
        let there = file.metadata().map_err(read)?;
        if there.len() == 0 {
            return Err(DataError::Empty { path: shown() });
        }
        Ok(DataFile {
            path: path.to_path_buf(),
            bytes: there.len(),
            modified: modified(&there),
            file,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nanoseconds since 1970.
    pub fn modified(&self) -> i64 {
        self.modified
    }

    /// What it is opened again by.
    pub fn seen(&self) -> Seen {
        Seen {
            path: self.path.clone(),
            bytes: self.bytes,
            modified: self.modified,
        }
    }

    /// All of it in order, for what reads streams.
    pub fn reader(&self) -> Reader<'_> {
        Reader { file: self, at: 0 }
    }

    /// Reads from a place on until `out` is full.
    ///
    /// # Errors
    /// When the file is shorter or has other contents than when it was opened.
    pub fn read_at(&self, out: &mut [u8], place: u64) -> Result<(), DataError> {
        match read_exact_at(&self.file, out, place) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.altered(self.length_now()?))
            }
            Err(source) => Err(self.unreadable(source)),
            Ok(()) => self.unchanged(),
        }
    }

    /// Looked at behind a read, so that what was read is from before any change.
    ///
    /// # Errors
    /// When the file has changed since it was opened.
    pub fn unchanged(&self) -> Result<(), DataError> {
        let now = self.file.metadata().map_err(|e| self.unreadable(e))?;
        match now.len() == self.bytes && modified(&now) == self.modified {
            true => Ok(()),
            false => Err(self.altered(now.len())),
        }
    }

    fn length_now(&self) -> Result<u64, DataError> {
        let now = self.file.metadata().map_err(|e| self.unreadable(e))?;
        Ok(now.len())
    }

    fn altered(&self, bytes: u64) -> DataError {
        let had = self.bytes;
        let what = match bytes == had {
            true => "it was changed".into(),
            false => format!("it has {bytes} bytes now and had {had}"),
        };
        DataError::Altered {
            path: self.path.shown(),
            what,
        }
    }

    fn unreadable(&self, source: io::Error) -> DataError {
        DataError::Read {
            path: self.path.shown(),
            source,
        }
    }

    /// What the file is known by.
    ///
    /// # Errors
    /// When it cannot be read, or is changed meanwhile.
    pub fn identity(&self) -> Result<Identity, DataError> {
        Ok(Identity {
            path: self.path.shown(),
            bytes: self.bytes,
            modified: self.modified,
            sha256: hex(&self.hash()?),
            sampled: self.bytes > RULE.whole,
        })
    }

    fn hash(&self) -> Result<[u8; 32], DataError> {
        self.hash_by(RULE, 0)
    }

    /// SHA-256 of all bytes from a place on.
    ///
    /// # Errors
    /// As [`DataFile::identity`].
    pub fn hash_all(&self, from: u64) -> Result<[u8; 32], DataError> {
        let whole = u64::MAX;
        self.hash_by(Rule { whole, ..RULE }, from)
    }

    /// SHA-256 of the bytes from a place on, or, of many, of a sample of them and their number.
    fn hash_by(&self, rule: Rule, from: u64) -> Result<[u8; 32], DataError> {
        let Rule {
            whole,
            block,
            blocks,
        } = rule;
        let bytes = self.bytes.saturating_sub(from);
        let mut h = Sha256::new();
        let mut room = vec![0; block.min(bytes) as usize];
        let mut add = |start: u64| -> Result<(), DataError> {
            let length = block.min(bytes - start) as usize;
            self.read_at(&mut room[..length], from + start)?;
            h.update(&room[..length]);
            Ok(())
        };
        if bytes <= whole {
            for n in 0..bytes.div_ceil(block) {
                add(n * block)?;
            }
        } else {
            for n in 0..blocks {
                let skipped = u128::from(bytes - block) * u128::from(n) / u128::from(blocks - 1);
                add(skipped as u64)?;
            }
            h.update(bytes.to_le_bytes());
        }
        Ok(h.finalize().into())
    }
}

/// A file from its beginning to its end, which can be moved in.
pub struct Reader<'a> {
    file: &'a DataFile,
    at: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.file.bytes.saturating_sub(self.at);
        let n = left.min(out.len() as u64) as usize;
        let read = self.file.read_at(&mut out[..n], self.at);
        read.map_err(io::Error::other)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Reader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
            SeekFrom::End(n) => self.file.bytes.checked_add_signed(n),
        };
        self.at = place.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

fn modified(m: &Metadata) -> i64 {
    // A file system without times has none that changes.
    let time = m.modified().unwrap_or(UNIX_EPOCH);
    let nanoseconds = |a: SystemTime, b| a.duration_since(b).map_or(0, |d| d.as_nanos() as i64);
    nanoseconds(time, UNIX_EPOCH) - nanoseconds(UNIX_EPOCH, time)
}

#[cfg(unix)]
fn read_exact_at(file: &File, out: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, place)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, out: &mut [u8], place: u64) -> io::Result<()> {
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::time::Duration;

    #[test]
    fn a_file_that_changes_under_its_reader_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let read = |change: &dyn Fn(&Path)| {
            fs::write(&path, [7; 100]).unwrap();
            let file = DataFile::open(&path).unwrap();
            let mut out = [0; 10];
            file.read_at(&mut out, 90).unwrap();
            assert_eq!(out, [7; 10]);
            change(&path);
            file.read_at(&mut out, 90).map_err(|e| e.to_string())
        };
        let cut = read(&|path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(50).unwrap();
        });
        let said = cut.unwrap_err();
        assert!(
            said.contains("text has changed while it was read"),
            "{said}"
        );
        assert!(said.contains("it has 50 bytes now and had 100"), "{said}");
        let written = read(&|path| {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            let later = SystemTime::now() + Duration::from_secs(60);
            file.set_modified(later).unwrap();
        });
        assert!(written.unwrap_err().contains("it was changed"));
        // Another file of that name is another file.
        read(&|path| {
            fs::write(path.with_extension("new"), [8; 3]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        })
        .unwrap();
    }

    #[test]
    fn what_changed_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let known = |contents: &[u8]| {
            fs::write(&path, contents).unwrap();
            DataFile::open(&path).unwrap().identity().unwrap()
        };
        let was = known(b"abc");
        let later = Identity {
            modified: was.modified + 1,
            ..was.clone()
        };
        assert_eq!(later.change(&was), None);
        let sampled = |i: &Identity| Identity {
            sampled: true,
            ..i.clone()
        };
        let since = sampled(&later).change(&sampled(&was)).unwrap();
        assert!(since.contains("was changed since"), "{since}");
        let longer = known(b"abcd").change(&was).unwrap();
        assert!(
            longer.ends_with("text has 4 bytes now and had 3"),
            "{longer}"
        );
        let other = known(b"abd").change(&was).unwrap();
        assert!(other.contains("it was ba7816bf8f01…"), "{other}");
    }

    #[test]
    fn a_sample_has_the_first_and_the_last_block() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("text");
        let rule = Rule {
            whole: 100,
            block: 10,
            blocks: 4,
        };
        let hash = |length: usize, at: usize| {
            let mut bytes = vec![0; length];
            bytes[at] = 1;
            fs::write(&path, bytes).unwrap();
            let file = DataFile::open(&path).unwrap();
            file.hash_by(rule, 0).unwrap()
        };
        assert_ne!(hash(100, 15), hash(100, 16), "all of it");
        let unseen = hash(101, 15);
        assert_eq!(unseen, hash(101, 16));
        for seen in [0, 9, 30, 69, 91, 100] {
            assert_ne!(hash(101, seen), unseen, "{seen}");
        }
        assert_ne!(hash(102, 15), unseen, "the length");
    }
}
