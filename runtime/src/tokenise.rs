//! Text files to tokens.
//!
//! Takes texts (plain, or a text per line of JSON) and a [`Tokenizer`]; writes one token file, whole or not at all. A text
//! is handed to the tokenizer in pieces of about 256 KiB that end with a line which the next line follows without blanks
//! between: tokenizers of the GPT kind give the same tokens as for the whole, those that put a blank before a text put one
//! before each piece. Leaves windows and parts to [`crate::data`], files that are kept to [`mod@crate::token_cache`].

use crate::data::DataError;
use crate::files;
use crate::identity::DataFile;
use crate::output::{self, OutputError};
use crate::progress::{Show, Work};
use crate::shown::Shown;
use crate::tokenizer::{Tokenizer, TokenizerError};
use crate::tokens::Width;
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
    let files: Result<Vec<_>, _> = texts.iter().map(|t| DataFile::open(t)).collect();
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
        Err(_) => Err(io::Error::other("a text is refused")),
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
            take(std::mem::take(&mut piece), text.at)?;
        }
    }
    if !piece.is_empty() {
        take(piece, text.at)?;
    }
    Ok(())
}

fn end_of_line(bytes: &[u8], from: usize) -> Option<usize> {
    let end = bytes[from..].iter().position(|b| *b == b'\n')?;
    Some(from + end + 1)
}

/// The first good place to end a piece of at least [`PIECE`] bytes, at `from` or behind it.
fn end_of_piece(bytes: &[u8], from: usize) -> Option<usize> {
    let blank = |b: &u8| b.is_ascii_whitespace();
    let good =
        |end: usize| bytes[end - 1] == b'\n' && !blank(&bytes[end - 2]) && !blank(&bytes[end]);
    (from.max(PIECE)..bytes.len()).find(|end| good(*end))
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
