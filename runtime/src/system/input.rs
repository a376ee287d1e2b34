//! Opens files that a user names: regular files, up to a size.
//!
//! Takes a path; gives the file or its contents. Never waits for a writer to a pipe, and never reads without end: what is no
//! regular file, or longer than it may be, is refused in words.

use crate::system::files;
use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// The most bytes of a file that is read whole.
pub mod most {
    /// A manifest: thousands of times those of the library's models.
    pub const MANIFEST: u64 = 1 << 30;
    /// All kernels of a model.
    pub const CODE: u64 = 1 << 30;
    /// A line with a hash or a signature.
    pub const LINE: u64 = 1 << 12;
    /// A `tokenizer.json`; those of 250,000 tokens have 32 MiB.
    pub const TOKENIZER: u64 = 1 << 28;
    /// A file of pairs of texts.
    pub const PAIRS: u64 = 1 << 32;
    /// A map of names.
    pub const MAP: u64 = 1 << 26;
    /// The tensors of `odec exec --interpret`.
    pub const TENSORS: u64 = 1 << 34;
    /// The metrics of a run: ten million steps.
    pub const METRICS: u64 = 1 << 31;
    /// A picture that becomes part of a page: thousands of marks.
    pub const PICTURE: u64 = 1 << 22;
}

/// A regular file.
///
/// # Errors
/// When there is none, or it is something else: a folder, a pipe, a device.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(path, 0)
}

/// The same, when it may not be a link.
///
/// # Errors
/// As [`open`].
pub fn open_itself(path: &Path) -> io::Result<File> {
    open_with(path, libc::O_NOFOLLOW)
}

fn open_with(path: &Path, flags: i32) -> io::Result<File> {
    // Looked at before it is opened, for opening a device may do something; and after, for it may have been exchanged.
    let there = std::fs::metadata(path).map_err(|e| files::at_link(path, e))?;
    regular(there.file_type())?;
    let mut options = OpenOptions::new();
    let file = options
        .read(true)
        .custom_flags(flags | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

fn regular(found: FileType) -> io::Result<()> {
    let what = match found {
        f if f.is_file() => return Ok(()),
        f if f.is_dir() => "a folder",
        f if f.is_fifo() => "a pipe",
        f if f.is_socket() => "a socket",
        _ => "a device",
    };
    Err(io::Error::other(format!("it is {what}, not a file")))
}

/// All of a file that is open, unless that is more than so many bytes.
///
/// # Errors
/// When it is, or cannot be read.
pub fn all(file: File, most: u64) -> io::Result<Vec<u8>> {
    let long = |bytes: u64| {
        let more = if bytes > most { "" } else { "more than " };
        io::Error::other(format!(
            "it has {more}{bytes} bytes; at most {most} are read"
        ))
    };
    let length = file.metadata()?.len();
    if length > most {
        return Err(long(length));
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // Files of the system say no length, and others may grow.
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(long(most)),
        false => Ok(bytes),
    }
}

/// The contents of a regular file of at most so many bytes.
///
/// # Errors
/// When there is none, it is longer, or cannot be read.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    all(open(path)?, most)
}

/// The same, when it must be text.
///
/// # Errors
/// As [`read`], or when it is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("byte {at} is not UTF-8"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn only_regular_files_are_opened_up_to_their_size() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let pipe = at("pipe");
        assert!(
            Command::new("mkfifo")
                .arg(&pipe)
                .status()
                .unwrap()
                .success()
        );
        std::fs::write(at("text"), "12345").unwrap();
        // No bytes on the disk, and a length beyond any memory.
        let long = File::create(at("long")).unwrap();
        long.set_len(1 << 42).unwrap();
        std::os::unix::fs::symlink(at("text"), at("link")).unwrap();
        let said = |path: &Path| read(path, 5).unwrap_err().to_string();
        assert_eq!(said(&pipe), "it is a pipe, not a file");
        assert_eq!(said(dir.path()), "it is a folder, not a file");
        assert_eq!(said(Path::new("/dev/zero")), "it is a device, not a file");
        assert_eq!(
            said(&at("long")),
            "it has 4398046511104 bytes; at most 5 are read"
        );
        assert_eq!(read(&at("text"), 5).unwrap(), b"12345");
        assert!(read(&at("text"), 4).is_err());
        assert_eq!(read(&at("link"), 5).unwrap(), b"12345");
        assert!(open_itself(&at("link")).is_err());
        // Its length is 0 until it is read.
        assert!(read(Path::new("/proc/self/maps"), 5).is_err());
        assert_eq!(
            read(&at("none"), 5).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
