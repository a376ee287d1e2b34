//! Files of two texts that belong together: both in each line of JSON or of a table, or two files, whose lines of the same number are meant.
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

/// What the two texts are, and where they are found.
pub(super) struct TwoTexts<'a> {
    /// What they are called together in messages: `pairs`.
    pub called: &'static str,
    /// What each text is called in messages: `source`, `target`.
    pub what: [&'static str; 2],
    /// The keys of a line of JSON, or the columns of a table.
    pub keys: [&'a String; 2],
    /// Whether a whole number in JSON stands for the text that it is written as, too.
    pub whole: bool,
}

/// Two texts, and where they are.
pub(super) struct Both<'f> {
    pub file: &'f DataFile,
    /// Counted from 0.
    pub line: usize,
    pub texts: [String; 2],
}

impl Both<'_> {
    /// What is at fault with them.
    pub fn bad(&self, reason: String) -> DataError {
        bad(self.file, self.line, reason)
    }

    /// `path, line 7`.
    pub fn place(&self) -> String {
        format!("{}, line {}", self.file.path().shown(), self.line + 1)
    }
}

/// Is given the file of two texts, their line, and both.
type TakeTexts<'t, 'f> = &'t mut dyn FnMut(&'f DataFile, usize, [&str; 2]) -> Result<(), DataError>;

impl TwoTexts<'_> {
    /// Hands out those of all files.
    ///
    /// # Errors
    /// When a file cannot be read, a line has no two texts, or `take` says so.
    pub fn read<'f>(
        &self,
        found: &'f [DataFile],
        take: &mut dyn FnMut(Both<'f>) -> Result<(), DataError>,
    ) -> Result<(), DataError> {
        let names: Vec<String> = found.iter().map(|f| f.path().shown()).collect();
        if let Some(alone) = Pairs::alone(&names) {
            return Err(DataError::Pairs {
                path: alone.into(),
                reason: format!(
                    "no file of {}s is named behind it; files named ….jsonl or ….tsv have both",
                    self.what[1]
                ),
            });
        }
        let mut take = |file: &'f DataFile, line: usize, texts: [&str; 2]| {
            for (what, text) in self.what.into_iter().zip(texts) {
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
            let texts = texts.map(String::from);
            take(Both { file, line, texts })
        };
        let mut rest = found.iter();
        while let Some(file) = rest.next() {
            let bytes = self.whole_file(file)?;
            let name = file.path().to_string_lossy();
            if name.ends_with(".jsonl") {
                self.json(file, &bytes, &mut take)?;
            } else if name.ends_with(".tsv") {
                self.table(file, &bytes, &mut take)?;
            } else if let Some(other) = rest.next() {
                let others = self.whole_file(other)?;
                let (mut sources, mut targets) = (lines(file, &bytes), lines(other, &others));
                let mut n = 0;
                loop {
                    match (sources.next().transpose()?, targets.next().transpose()?) {
                        (Some((_, source)), Some((_, target))) => take(file, n, [source, target])?,
                        (None, None) => break,
                        (source, _) => {
                            let (long, short) = match source {
                                Some(_) => (file, other),
                                None => (other, file),
                            };
                            let more = match source {
                                Some(_) => sources.count(),
                                None => targets.count(),
                            };
                            return Err(DataError::Pairs {
                                path: long.path().shown(),
                                reason: format!(
                                    "it has {} lines and {} has {n}; lines of the same number belong together",
                                    n + 1 + more,
                                    short.path().shown()
                                ),
                            });
                        }
                    }
                    n += 1;
                }
            }
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
            let [first, second] = self.keys;
            take(file, n, [&text(first)?, &text(second)?])?;
        }
        Ok(())
    }

    fn table<'f>(
        &self,
        file: &'f DataFile,
        bytes: &[u8],
        take: TakeTexts<'_, 'f>,
    ) -> Result<(), DataError> {
        let asked = self.keys;
        let numbers = asked.map(|column| column.parse().ok().filter(|n: &usize| *n > 0));
        let mut columns = match numbers {
            [Some(source), Some(target)] => Some([source - 1, target - 1]),
            _ => None,
        };
        for line in lines(file, bytes) {
            let (n, line) = line?;
            if line.trim().is_empty() {
                continue;
            }
            let cells: Vec<&str> = line.split('\t').collect();
            let Some(columns) = columns else {
                let column = |name: &String| {
                    let found = cells.iter().position(|c| c == name);
                    let names = || format!("it has no column `{name}`, but {}", cells.join(", "));
                    found.ok_or_else(|| bad(file, n, names()))
                };
                columns = Some([column(asked[0])?, column(asked[1])?]);
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
                cells.get(column).ok_or_else(|| bad(file, n, missing()))
            };
            take(file, n, [cell(columns[0])?, cell(columns[1])?])?;
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
