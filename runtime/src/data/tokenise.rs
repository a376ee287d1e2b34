//! Converts text files to tokens.
//!
//! Takes texts (plain, or a text per line of JSON) and a [`Tokenizer`]; writes one token file, whole or not at all. A text
//! is handed to the tokenizer in pieces of about 256 KiB that end with a line which the next line follows without blanks
//! between, and of at most 1 MiB where there is none: tokenizers of the GPT kind give the same tokens as for the whole if
//! no line is longer than 768 KiB, those that put a blank before a text put one before each piece. Leaves windows and parts
//! to [`crate::data`], files that are kept to [`mod@crate::data::token_cache`].

use crate::data::DataError;
use crate::data::identity::DataFile;
use crate::data::tokenizer::{Tokenizer, TokenizerError};
use crate::data::tokens::Width;
use crate::system::files;
use crate::system::output::{self, OutputError};
use crate::system::progress::{Show, Work};
use crate::system::shown::Shown;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Bytes of a piece of text that has lines.
const PIECE: usize = 1 << 18;
/// No piece is longer.
const LONGEST: usize = 1 << 20;
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

/// Texts, and what makes tokens of them.
pub struct Texts<'a> {
    pub files: &'a [DataFile],
    pub reading: Reading<'a>,
    pub tokenizer: &'a Tokenizer,
    pub show: Show,
}

/// Whether a file holds a text per line of JSON.
pub fn is_lines(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "jsonl")
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
    // Its texts are arguments, not those of `--data`.
    let opened = |t: &PathBuf| {
        DataFile::open(t).map_err(|e| match e {
            DataError::Missing { path } => DataError::Read {
                path,
                source: io::Error::new(io::ErrorKind::NotFound, "there is no such file"),
            },
            e => e,
        })
    };
    let files: Result<Vec<_>, _> = texts.iter().map(opened).collect();
    let texts = Texts {
        files: &files?,
        reading,
        tokenizer,
        show,
    };
    let folder = files::parent(file);
    files::create_folder(folder).map_err(|e| cannot_write(folder, e))?;
    let mut encoded = Ok(0);
    let written = output::write(file, |out| {
        encoded = texts.encode(out, file, width);
        refuse(&encoded)
    });
    let tokens = encoded?;
    written?;
    Ok(tokens)
}

/// Has a file given up whose contents are refused; why is known already.
pub(crate) fn refuse<T>(encoded: &Result<T, DataError>) -> io::Result<()> {
    match encoded {
        Ok(_) => Ok(()),
        Err(_) => Err(io::Error::other("a text was refused")),
    }
}

impl Texts<'_> {
    /// Writes the tokens of all texts; gives how many.
    ///
    /// # Errors
    /// When a text cannot be read or encoded, or `file`, which `out` writes to, not written.
    pub fn encode(&self, out: &mut dyn Write, file: &Path, width: Width) -> Result<u64, DataError> {
        let total = self.files.iter().map(DataFile::bytes).sum();
        let mut work = Work::new(self.show, "tokenising", total);
        let (mut count, mut before) = (0, 0);
        let mut encode = |pieces: &mut Vec<String>| -> Result<(), DataError> {
            for tokens in self.tokenizer.encode_all(std::mem::take(pieces))? {
                count += tokens.len() as u64;
                put(out, &tokens, width).map_err(|e| cannot_write(file, e))?;
            }
            Ok(())
        };
        let mut all = || {
            for text in self.files {
                let mut pieces = Vec::new();
                each_piece(text, self.reading, &mut |piece, end| {
                    pieces.push(piece);
                    if pieces.len() == TOGETHER {
                        encode(&mut pieces)?;
                        work.at(before + end);
                    }
                    Ok(())
                })?;
                encode(&mut pieces)?;
                before += text.bytes();
                work.at(before);
            }
            Ok(())
        };
        let done = all();
        work.finish();
        done.map(|()| count)
    }
}

fn put(out: &mut dyn Write, tokens: &[u32], width: Width) -> io::Result<()> {
    for t in tokens {
        out.write_all(&t.to_le_bytes()[..width as usize])?;
    }
    Ok(())
}

/// The beginning of a text that was read, and where that is in its file.
struct Beginning<'a> {
    file: &'a DataFile,
    read: Vec<u8>,
    /// Bytes of `read` that were taken.
    taken: usize,
    /// Where the rest of `read` begins in the file.
    at: u64,
}

impl<'a> Beginning<'a> {
    fn of(file: &'a DataFile) -> Beginning<'a> {
        Beginning {
            file,
            read: Vec::new(),
            taken: 0,
            at: 0,
        }
    }

    /// What was read and not taken.
    fn rest(&self) -> &[u8] {
        &self.read[self.taken..]
    }

    /// Reads on; whether there was more.
    fn more(&mut self) -> Result<bool, DataError> {
        self.read.drain(..std::mem::take(&mut self.taken));
        let end = self.at + self.read.len() as u64;
        let next = (self.file.bytes() - end).min(PIECE as u64) as usize;
        let old = self.read.len();
        self.read.resize(old + next, 0);
        self.file.read_at(&mut self.read[old..], end)?;
        Ok(next > 0)
    }

    /// Takes so many bytes, which are text.
    fn take(&mut self, length: usize) -> Result<String, DataError> {
        let text = String::from_utf8(self.rest()[..length].to_vec());
        let text = text.map_err(|e| DataError::NotText {
            path: self.file.path().shown(),
            byte: self.at as usize + e.utf8_error().valid_up_to(),
        })?;
        self.taken += length;
        self.at += length as u64;
        Ok(text)
    }

    /// Takes as much as `end` says, which is asked about the rest from a place on: what is before was looked at already.
    /// All that is left where it finds no end.
    fn take_to(
        &mut self,
        end: impl Fn(&[u8], usize) -> Option<usize>,
    ) -> Result<Option<String>, DataError> {
        let mut seen = 0;
        loop {
            if let Some(end) = end(self.rest(), seen) {
                return self.take(end).map(Some);
            }
            seen = self.rest().len();
            if !self.more()? {
                let text = self.take(seen)?;
                return Ok((!text.is_empty()).then_some(text));
            }
        }
    }
}

/// Hands out the pieces of a file, each with the number of bytes read so far.
fn each_piece(
    file: &DataFile,
    reading: Reading,
    take: &mut dyn FnMut(String, u64) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut text = Beginning::of(file);
    if !is_lines(file.path()) {
        while let Some(piece) = text.take_to(end_of_piece)? {
            take(piece, text.at)?;
        }
        return Ok(());
    }
    let (path, mut piece, mut number) = (file.path(), String::new(), 0);
    while let Some(line) = text.take_to(end_of_line)? {
        let n = number;
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        let value: serde_json::Value =
            serde_json::from_str(&line).map_err(|e| bad_line(path, n, not_json(&e)))?;
        let found = value.get(reading.key).and_then(|v| v.as_str());
        let missing = || format!("there is no text under `{}`", reading.key);
        piece += found.ok_or_else(|| bad_line(path, n, missing()))?;
        piece += reading.separator;
        if piece.len() >= PIECE {
            each_of(&std::mem::take(&mut piece), text.at, take)?;
        }
    }
    each_of(&piece, text.at, take)
}

/// Hands out the pieces of a text that ends there in its file.
fn each_of(
    text: &str,
    end: u64,
    take: &mut dyn FnMut(String, u64) -> Result<(), DataError>,
) -> Result<(), DataError> {
    pieces(text).try_for_each(|piece| take(piece.into(), end))
}

/// A text whole, or in pieces if it is longer than a piece may be.
pub(crate) fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let long = (rest.len() > LONGEST).then(|| end_of_piece(rest.as_bytes(), 0));
        let (piece, after) = rest.split_at(long.flatten().unwrap_or(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

fn end_of_line(bytes: &[u8], from: usize) -> Option<usize> {
    let end = bytes[from..].iter().position(|b| *b == b'\n')?;
    Some(from + end + 1)
}

/// The first good place to end a piece of at least [`PIECE`] bytes, at `from` or behind it. Where there is none in [`LONGEST`]
/// bytes, before the last word of these; where there is no word either, after the last character.
fn end_of_piece(bytes: &[u8], from: usize) -> Option<usize> {
    let blank = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
    let line = |end: &usize| bytes[end - 1] == b'\n' && !blank(end - 2) && !blank(*end);
    let word = |end: &usize| bytes[*end] == b' ' && !blank(end - 1) && !blank(end + 1);
    let character = |end: &usize| bytes[*end] & 0xC0 != 0x80;
    let most = bytes.len().min(LONGEST + 1);
    if let Some(end) = (from.max(PIECE)..most).find(line) {
        return Some(end);
    }
    (bytes.len() > LONGEST).then(|| {
        let end = (PIECE..LONGEST).rev().find(word);
        end.or_else(|| (LONGEST - 3..=LONGEST).rev().find(character))
            .unwrap_or(LONGEST)
    })
}

/// A parser's error about a line, without its line number.
pub(crate) fn not_json(e: &serde_json::Error) -> String {
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

pub(crate) fn cannot_write(path: &Path, source: io::Error) -> DataError {
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

impl From<OutputError> for DataError {
    fn from(e: OutputError) -> DataError {
        DataError::Output(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str) -> Vec<usize> {
        assert_eq!(pieces(text).collect::<String>(), text);
        pieces(text).map(str::len).collect()
    }

    #[test]
    fn texts_are_cut_at_lines_then_at_words_then_anywhere() {
        assert_eq!(pieces("").count(), 0);
        assert_eq!(lengths(&"x".repeat(LONGEST)), [LONGEST]);
        // Lines of 10 bytes: the first end of one from 256 KiB on.
        let lines = "123456789\n".repeat(LONGEST / 9);
        assert_eq!(lengths(&lines)[0], PIECE + 6);
        // Lines that blanks follow are not cut; words of 7 bytes and a blank are, before the last one that fits.
        let words = "1234567 ".repeat(LONGEST / 4);
        assert_eq!(lengths(&words)[..2], [LONGEST - 1, LONGEST - 8]);
        // Lines without blanks, of characters of three bytes.
        let long = "\u{20ac}".repeat(LONGEST);
        assert_eq!(lengths(&long)[0], LONGEST - LONGEST % 3);
        assert!(lengths(&long).iter().all(|n| *n <= LONGEST));
    }

    /// Files are cut where texts are, whatever was read of them at a time.
    #[test]
    fn no_line_of_a_file_is_longer_than_a_piece() {
        let dir = tempfile::tempdir().unwrap();
        let reading = Reading {
            key: "text",
            separator: "",
        };
        let cut = |name: &str, contents: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, contents).unwrap();
            let (file, mut found) = (DataFile::open(&path).unwrap(), Vec::new());
            each_piece(&file, reading, &mut |piece, _| {
                found.push(piece);
                Ok(())
            })
            .unwrap();
            found
        };
        let long = "\u{20ac}".repeat(LONGEST);
        let expected: Vec<&str> = pieces(&long).collect();
        assert_eq!(cut("long.txt", &long), expected);
        assert_eq!(
            cut("long.jsonl", &format!("{{\"text\": \"{long}\"}}\n")),
            expected
        );
    }
}
