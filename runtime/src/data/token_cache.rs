//! The cache of token files, so that no text is tokenised twice.
//!
//! A file is named by the hash of all that its tokens follow from: the texts, how they are read, the tokenizer. It begins
//! with 128 bytes that say what it is, that hash, and the length and hash of its tokens, which are compared whenever it is
//! opened. A file that is not what it says is made anew, never trained on. Processes that make the same file at the same
//! time write beside each other, and the last one's stays.

use crate::data::DataError;
use crate::data::identity::{DataFile, Identity};
use crate::data::tokenise::{Texts, cannot_write, is_lines, refuse};
use crate::data::tokens::Width;
use crate::system::files;
use crate::system::hash::hex;
use crate::system::progress::{Display, Show};
use crate::system::shown::Shown;
use sha2::{Digest, Sha256};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

/// How a file begins: this, then width and number of tokens, the hash of what they were made of, and theirs.
const MAGIC: [u8; 16] = *b"odec tokens\n\0\0\0\x01";
/// Bytes before the tokens.
pub const HEADER: u64 = 128;
/// The end of the files' names.
const SUFFIX: &str = "tokens";

/// A token file of the cache.
pub struct TokenFile {
    pub file: DataFile,
    pub width: Width,
}

/// The token file of some texts, made if it is not there yet. `known` is what the texts are known by.
///
/// # Errors
/// When a text cannot be read or encoded, or the file not written.
pub fn tokens(texts: &Texts, known: &[Identity], folder: &Path) -> Result<TokenFile, DataError> {
    let key = key(texts, known);
    let path = folder.join(format!("{}.{SUFFIX}", &hex(&key)[..24]));
    if files::is_taken(&path) {
        match open(&path, &key)? {
            Ok(made) => return Ok(made),
            Err(why) => warn(
                texts.show,
                &format!("{} {why}; it is rebuilt", path.shown()),
            ),
        }
    }
    files::create_folder(folder).map_err(|e| cannot_write(folder, e))?;
    make(texts, &key, &path)?;
    let wrong = |why: &str| cannot_write(&path, std::io::Error::other(why));
    open(&path, &key)?.map_err(wrong)
}

/// The hash of all that tokens follow from.
fn key(texts: &Texts, known: &[Identity]) -> [u8; 32] {
    let mut h = Sha256::new();
    let reading = texts.reading;
    let settings = (
        "odec tokens 3",
        texts.tokenizer.identity(),
        reading.key,
        reading.separator,
    );
    h.update(format!("{settings:?}"));
    for (text, known) in texts.files.iter().zip(known) {
        h.update(format!("\n{} {}", is_lines(text.path()), known.contents()));
    }
    h.finalize().into()
}

fn make(texts: &Texts, key: &[u8; 32], path: &Path) -> Result<(), DataError> {
    let width = Width::for_vocabulary(texts.tokenizer.vocabulary());
    let mut encoded = Ok(0);
    let written = files::write_file(path, |out| {
        out.write_all(&[0; HEADER as usize])?;
        let mut hashed = Hashed {
            out,
            hash: Sha256::new(),
        };
        encoded = texts.encode(&mut hashed, path, width);
        refuse(&encoded)?;
        let hash = hashed.hash.finalize().into();
        out.seek(SeekFrom::Start(0))?;
        out.write_all(&header(width, *encoded.as_ref().unwrap_or(&0), key, &hash))
    });
    encoded?;
    written.map_err(|e| cannot_write(path, e))
}

/// Hashes what is written through it.
struct Hashed<'a, W> {
    out: &'a mut W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.hash.update(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn header(width: Width, tokens: u64, key: &[u8; 32], hash: &[u8; 32]) -> [u8; HEADER as usize] {
    let parts = [
        &MAGIC[..],
        &(width as u64).to_le_bytes(),
        &tokens.to_le_bytes(),
        key,
        hash,
    ]
    .concat();
    let mut header = [0; HEADER as usize];
    header[..parts.len()].copy_from_slice(&parts);
    header
}

/// Opens a file of the cache and compares it with what it says; else, what is wrong with it.
fn open(path: &Path, key: &[u8; 32]) -> Result<Result<TokenFile, &'static str>, DataError> {
    let file = match DataFile::open(path) {
        Err(DataError::Empty { .. }) => return Ok(Err("is empty")),
        opened => opened?,
    };
    if file.bytes() < HEADER {
        return Ok(Err("is cut short"));
    }
    let mut said = [0; HEADER as usize];
    file.read_at(&mut said, 0)?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| said[at + i]));
    let (bytes, tokens) = (number(16), number(24));
    let Some(width) = Width::of_bytes(bytes).filter(|_| said[..16] == MAGIC) else {
        return Ok(Err("is not a file of tokens"));
    };
    if tokens.checked_mul(bytes) != Some(file.bytes() - HEADER) {
        return Ok(Err("is cut short"));
    }
    let hash = file.hash_all(HEADER)?;
    Ok(match said == header(width, tokens, key, &hash) {
        true => Ok(TokenFile { file, width }),
        false => Err("is damaged"),
    })
}

fn warn(show: Show, text: &str) {
    let display = Display::new(show);
    display.warn(text);
    display.finish();
}
