//! Text files to token files.
//!
//! Takes texts (plain, or a text per line of JSON) and a [`Tokenizer`]; writes one token file, whole or not at all. A cache
//! keeps such files under names that hash all they depend on, so nothing is tokenised twice. A text is handed to
//! the tokenizer in pieces of about 256 KiB that end with a line which the next line follows without blanks between:
//! tokenizers of the GPT kind give the same tokens as for the whole, those that put a blank before a text put one before
//! each piece. Leaves windows and parts to [`crate::data`].

use crate::artifact::{hex, sha256};
use crate::data::DataError;
use crate::ffi;
use crate::files;
use crate::progress::{Show, Work};
use crate::shown::Shown;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::tokens::{WIDE, Width};
use sha2::{Digest, Sha256};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of a piece of text.
const PIECE: usize = 1 << 18;
/// Pieces encoded together, one per thread or so.
const TOGETHER: usize = 16;

/// How text files are read.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// Where a line of JSON has its text.
    pub key: &'a str,
    /// What follows the text of each line of JSON.
    pub separator: &'a str,
}

/// Whether a file holds a text per line of JSON.
pub fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "jsonl")
}

/// The token file of some texts, made if it is not there yet.
///
/// # Errors
/// When a text cannot be read or encoded, or the file not written.
pub fn cached(
    texts: &[PathBuf],
    reading: Reading,
    tokenizer: &Tokenizer,
    folder: &Path,
    show: Show,
) -> Result<PathBuf, DataError> {
    let mut h = Sha256::new();
    let settings = (
        "odec tokens 1",
        tokenizer.identity(),
        reading.key,
        reading.separator,
    );
    h.update(format!("{settings:?}"));
    for text in texts {
        let map = map(text)?;
        h.update(format!("\n{} {}", is_lines(text), sha256(&map)));
    }
    let end = match tokenizer.vocabulary() <= Width::Two.limit() {
        true => ".bin",
        false => WIDE,
    };
    let file = folder.join(format!("{}{end}", &hex(&h.finalize())[..24]));
    if !file.exists() {
        write(texts, reading, tokenizer, &file, show)?;
    }
    Ok(file)
}

/// Writes the token file of some texts; gives the number of tokens.
///
/// # Errors
/// When a text cannot be read or encoded, the file not written, or its width (by its name) is too small.
pub fn write(
    texts: &[PathBuf],
    reading: Reading,
    tokenizer: &Tokenizer,
    file: &Path,
    show: Show,
) -> Result<u64, DataError> {
    let width = Width::of(file);
    if tokenizer.vocabulary() > width.limit() {
        return Err(DataError::Narrow {
            path: file.shown(),
            vocabulary: tokenizer.vocabulary(),
        });
    }
    let maps = texts
        .iter()
        .map(|t| map(t))
        .collect::<Result<Vec<_>, _>>()?;
    let total = maps.iter().map(|m| m.len() as u64).sum();
    let mut work = Work::new(show, "tokenising", total);
    if let Some(folder) = file.parent().filter(|p| !p.as_os_str().is_empty()) {
        files::create_folder(folder).map_err(|e| cannot_write(folder, e))?;
    }
    // What went wrong with a text, where only errors of the disk can be returned.
    let mut refused = None;
    let mut count = 0;
    let written = files::write_file(file, |out| {
        let mut encode = |pieces: &mut Vec<String>| -> Result<(), DataError> {
            for tokens in tokenizer.encode_all(std::mem::take(pieces))? {
                count += tokens.len() as u64;
                put(out, &tokens, width).map_err(|e| cannot_write(file, e))?;
            }
            Ok(())
        };
        let mut all = || {
            let mut before = 0;
            for (path, map) in texts.iter().zip(&maps) {
                let mut pieces = Vec::new();
                each_piece(path, map, reading, &mut |piece, end| {
                    pieces.push(piece);
                    if pieces.len() == TOGETHER {
                        encode(&mut pieces)?;
                        work.at(before + end as u64);
                    }
                    Ok(())
                })?;
                encode(&mut pieces)?;
                before += map.len() as u64;
                work.at(before);
            }
            Ok(())
        };
        all().map_err(|e| {
            refused = Some(e);
            io::Error::other("a text is refused")
        })
    });
    work.finish();
    match (refused, written) {
        (Some(e), _) => Err(e),
        (None, Err(e)) => Err(cannot_write(file, e)),
        (None, Ok(())) => Ok(count),
    }
}

fn put(out: &mut dyn Write, tokens: &[u32], width: Width) -> io::Result<()> {
    for t in tokens {
        out.write_all(&t.to_le_bytes()[..width as usize])?;
    }
    Ok(())
}

/// Hands out the pieces of a file, each with the number of bytes read so far.
fn each_piece(
    path: &Path,
    bytes: &[u8],
    reading: Reading,
    take: &mut dyn FnMut(String, usize) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let text = std::str::from_utf8(bytes).map_err(|e| DataError::NotText {
        path: path.shown(),
        byte: e.valid_up_to(),
    })?;
    let mut end = 0;
    if !is_lines(path) {
        while end < text.len() {
            let piece = piece(&text[end..]);
            end += piece.len();
            take(piece.into(), end)?;
        }
        return Ok(());
    }
    let mut piece = String::new();
    for (n, line) in text.split_inclusive('\n').enumerate() {
        end += line.len();
        if line.trim().is_empty() {
            continue;
        }
        let value: serde_json::Value =
            serde_json::from_str(line).map_err(|e| bad_line(path, n, not_json(&e)))?;
        let found = value.get(reading.key).and_then(|v| v.as_str());
        let missing = || format!("there is no text under `{}`", reading.key);
        piece += found.ok_or_else(|| bad_line(path, n, missing()))?;
        piece += reading.separator;
        if piece.len() >= PIECE {
            take(std::mem::take(&mut piece), end)?;
        }
    }
    if !piece.is_empty() {
        take(piece, end)?;
    }
    Ok(())
}

/// The beginning of a text: all of it when it is short, or up to the first good place after [`PIECE`] bytes.
fn piece(text: &str) -> &str {
    let bytes = text.as_bytes();
    let blank = |b: &u8| b.is_ascii_whitespace();
    let good = |end: usize| {
        bytes[end - 1] == b'\n'
            && !blank(&bytes[end - 2])
            && bytes.get(end).is_some_and(|b| !blank(b))
    };
    let end = (PIECE..bytes.len()).find(|end| good(*end));
    &text[..end.unwrap_or(bytes.len())]
}

fn map(path: &Path) -> Result<memmap2::Mmap, DataError> {
    let shown = path.shown();
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() && m.len() == 0 => Err(DataError::Empty { path: shown }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(DataError::Missing { path: shown }),
        _ => ffi::map_file(path).map_err(|source| DataError::Read {
            path: shown,
            source,
        }),
    }
}

/// What a parser says of a line, without the number it gives to it.
fn not_json(e: &serde_json::Error) -> String {
    let said = e.to_string();
    let what = said.split(" at line ").next().unwrap_or(&said);
    format!("column {}: {what}", e.column())
}

fn bad_line(path: &Path, n: usize, reason: String) -> DataError {
    DataError::Line {
        path: path.shown(),
        line: n + 1,
        reason,
    }
}

fn cannot_write(path: &Path, source: io::Error) -> DataError {
    DataError::Write {
        path: path.shown(),
        source,
    }
}

impl From<TokenizerError> for DataError {
    fn from(e: TokenizerError) -> DataError {
        DataError::Tokenizer(e)
    }
}
