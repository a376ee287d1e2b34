//! Files of several texts that belong together: all of them in each line of JSON or of a table, or a file for each, whose lines of the same number are meant.
//!
//! Gives them in their order, with the file and line that each is in; says what is wrong with a line by these. Tables have columns between tabs,
//! without quotes. Lines of JSON and of tables that are empty are passed over. Leaves what the texts are for to those who read them.

use crate::data::DataError;
use crate::data::identity::DataFile;
use crate::data::tokenise::not_json;
use crate::system::input::most;
use crate::system::shown::Shown;
use odec_program::manifest::Pairs;
use std::borrow::Cow;

/// Bytes of a text.
const LONGEST: usize = 1 << 20;
/// Rows that become tokens together, on all threads.
const TOGETHER: usize = 4096;

/// What the texts are, two at least, and where they are found.
pub(super) struct Columns<'a> {
    /// What they are called together in messages: `pairs`.
    pub called: &'static str,
    /// What each text is called in messages, `source` and `target`, and the key of a line of JSON, or the column of a table, that has it.
    pub texts: Vec<(&'a str, &'a String)>,
    /// Whether a whole number in JSON stands for the text that it is written as, too.
    pub whole: bool,
}

/// Texts that belong together, and where they are.
pub(super) struct Row<'f> {
    pub file: &'f DataFile,
    /// Counted from 0.
    pub line: usize,
    pub texts: Vec<String>,
}

impl Row<'_> {
    /// What is at fault with them.
    pub fn bad(&self, reason: String) -> DataError {
        bad(self.file, self.line, reason)
    }

    /// `path, line 7`.
    pub fn place(&self) -> String {
        format!("{}, line {}", self.file.path().shown(), self.line + 1)
    }
}

/// Is given the file of texts, their line, and the texts.
type TakeTexts<'t, 'f> = &'t mut dyn FnMut(&'f DataFile, usize, &[&str]) -> Result<(), DataError>;

impl Columns<'_> {
    /// Hands out those of all files, as many at a time as become tokens together.
    ///
    /// # Errors
    /// When a file cannot be read, a line lacks a text, or `take` says so.
    pub fn read<'f>(
        &self,
        found: &'f [DataFile],
        take: &mut dyn FnMut(Vec<Row<'f>>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let names: Vec<String> = found.iter().map(|f| f.path().shown()).collect();
        if let Some((alone, lacks)) = Pairs::alone(&names, self.texts.len()) {
            return Err(DataError::Pairs {
                path: alone.into(),
                reason: format!(
                    "no file of {}s is named behind it; files named ….jsonl or ….tsv have all texts",
                    self.texts[lacks].0
                ),
            });
        }
        let mut rows = Vec::new();
        let mut take_row = |file: &'f DataFile, line: usize, texts: &[&str]| {
            for ((what, _), text) in self.texts.iter().zip(texts) {
                if text.trim().is_empty() {
                    return Err(bad(file, line, format!("its {what} is empty")));
                }
                if text.len() > LONGEST {
                    let has = text.len();
                    let reason =
                        format!("its {what} has {has} bytes, and a text at most {LONGEST}");
                    return Err(bad(file, line, reason));
                }
            }
            let texts = texts.iter().map(|text| text.to_string()).collect();
            rows.push(Row { file, line, texts });
            match rows.len() < TOGETHER {
                true => Ok(()),
                false => take(std::mem::take(&mut rows)),
            }
        };
        let mut rest = found.iter();
        while let Some(file) = rest.next() {
            let name = file.path().to_string_lossy();
            if name.ends_with(".jsonl") {
                self.json(file, &self.whole_file(file)?, &mut take_row)?;
            } else if name.ends_with(".tsv") {
                self.table(file, &self.whole_file(file)?, &mut take_row)?;
            } else {
                let others = rest.by_ref().take(self.texts.len() - 1);
                self.beside([file].into_iter().chain(others).collect(), &mut take_row)?;
            }
        }
        take(rows)
    }

    /// Lines of the same number in several files.
    fn beside<'f>(
        &self,
        files: Vec<&'f DataFile>,
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        let bytes = files.iter().map(|file| self.whole_file(file));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        let both = files.iter().zip(&bytes);
        let mut each: Vec<_> = both.map(|(file, bytes)| lines(file, bytes)).collect();
        for n in 0.. {
            let next = each.iter_mut().map(|lines| lines.next().transpose());
            let next = next.collect::<Result<Vec<_>, _>>()?;
            let texts: Vec<&str> = next.iter().flatten().map(|(_, text)| *text).collect();
            if texts.len() == files.len() {
                take(files[0], n, &texts)?;
                continue;
            }
            let Some(long) = next.iter().position(Option::is_some) else {
                break;
            };
            let short = next.iter().position(Option::is_none).unwrap_or(0);
            let more = each.swap_remove(long).count();
            return Err(DataError::Pairs {
                path: files[long].path().shown(),
                reason: format!(
                    "it has {} lines and {} has {n}; lines of the same number belong together",
                    n + 1 + more,
                    files[short].path().shown()
                ),
            });
        }
        Ok(())
    }

    fn json<'f>(
        &self,
        file: &'f DataFile,
        bytes: &[u8],
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        for line in lines(file, bytes) {
            let (n, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|e| bad(file, n, not_json(&e)))?;
            let text = |key: &String| {
                let found = match value.get(key) {
                    Some(serde_json::Value::String(text)) => Some(Cow::Borrowed(&text[..])),
                    Some(number) if self.whole && (number.is_u64() || number.is_i64()) => {
                        Some(Cow::Owned(number.to_string()))
                    }
                    _ => None,
                };
                let sought = match self.whole {
                    true => "text or whole number",
                    false => "text",
                };
                found.ok_or_else(|| bad(file, n, format!("there is no {sought} under `{key}`")))
            };
            let texts = self.texts.iter().map(|(_, key)| text(key));
            let texts = texts.collect::<Result<Vec<_>, _>>()?;
            take(
                file,
                n,
                &texts.iter().map(|text| &text[..]).collect::<Vec<_>>(),
            )?;
        }
        Ok(())
    }

    fn table<'f>(
        &self,
        file: &'f DataFile,
        bytes: &[u8],
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        let number = |key: &String| key.parse().ok().filter(|n: &usize| *n > 0);
        let numbers = self.texts.iter().map(|(_, key)| Some(number(key)? - 1));
        let mut columns: Option<Vec<usize>> = numbers.collect();
        for line in lines(file, bytes) {
            let (n, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let cells: Vec<&str> = line.split('\t').collect();
            let Some(columns) = &columns else {
                let column = |name: &String| {
                    let found = cells.iter().position(|c| c == name);
                    let names = || format!("it has no column `{name}`, but {}", cells.join(", "));
                    found.ok_or_else(|| bad(file, n, names()))
                };
                let found = self.texts.iter().map(|(_, key)| column(key));
                columns = Some(found.collect::<Result<_, _>>()?);
                continue;
            };
            let cell = |column: usize| {
                let has = cells.len();
                let missing = || {
                    format!(
                        "it has {has} columns, and column {} is asked for",
                        column + 1
                    )
                };
                let found = cells.get(column).copied();
                found.ok_or_else(|| bad(file, n, missing()))
            };
            let texts = columns.iter().map(|column| cell(*column));
            take(file, n, &texts.collect::<Result<Vec<_>, _>>()?)?;
        }
        Ok(())
    }

    /// All bytes of a file.
    fn whole_file(&self, file: &DataFile) -> Result<Vec<u8>, DataError> {
        if file.bytes() > most::PAIRS {
            let (has, most, many) = (file.bytes(), most::PAIRS, self.called);
            return Err(DataError::Pairs {
                path: file.path().shown(),
                reason: format!("it has {has} bytes; a file of {many} has at most {most}"),
            });
        }
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// What is at fault with a line; lines are counted from 0 here.
fn bad(file: &DataFile, line: usize, reason: String) -> DataError {
    DataError::Pair {
        path: file.path().shown(),
        line: line + 1,
        reason,
    }
}

/// Lines with their numbers from 0, without what ends them.
fn lines<'b>(
    file: &DataFile,
    bytes: &'b [u8],
) -> impl Iterator<Item = Result<(usize, &'b str), DataError>> {
    let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let each = text.split(|b| *b == b'\n').enumerate();
    each.map(move |(n, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let text = std::str::from_utf8(line);
        let text =
            text.map_err(|e| bad(file, n, format!("byte {} is not UTF-8", e.valid_up_to())))?;
        Ok((n, text))
    })
}
