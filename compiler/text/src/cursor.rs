//! A place in a text, and errors that say where and what was expected.

use super::word::is_word;
use thiserror::Error;

/// Why a text cannot be read. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}, column {column}: {what}")]
pub struct ParseError {
    pub line: u32,
    pub column: u32,
    pub what: String,
}

pub type Parsed<T> = Result<T, ParseError>;

/// Reads one line at a time; never past its end.
#[derive(Clone, Copy)]
pub struct Cursor<'t> {
    text: &'t str,
    pub at: usize,
}

impl<'t> Cursor<'t> {
    pub fn new(text: &'t str) -> Cursor<'t> {
        Cursor { text, at: 0 }
    }

    pub fn error<T>(&self, at: usize, what: impl Into<String>) -> Parsed<T> {
        let before = &self.text[..at];
        let line = before.rfind('\n').map_or(0, |n| n + 1);
        Err(ParseError {
            line: before.matches('\n').count() as u32 + 1,
            column: before[line..].chars().count() as u32 + 1,
            what: what.into(),
        })
    }

    /// All that is left of the text.
    pub fn left(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// `expected …, found …`, here.
    pub fn expected<T>(&mut self, what: &str) -> Parsed<T> {
        let rest = self.rest();
        let found = match rest.chars().next() {
            None => "the end of the line".to_string(),
            Some(c) if is_word(c) => {
                let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
                format!("`{}`", word.chars().take(40).collect::<String>())
            }
            Some(c) => format!("`{}`", c.escape_debug()),
        };
        self.error(self.at, format!("expected {what}, found {found}"))
    }

    /// What is left of the line, without spaces in front and comments.
    pub fn rest(&mut self) -> &'t str {
        let line = &self.text[self.at..];
        let line = &line[..line.find('\n').unwrap_or(line.len())];
        let rest = line.trim_start();
        self.at += line.len() - rest.len();
        match rest.starts_with("//") {
            true => "",
            false => rest,
        }
    }

    /// Goes to the next line; `false`: there is none.
    pub fn next_line(&mut self) -> bool {
        match self.text[self.at..].find('\n') {
            Some(end) => self.at += end + 1,
            None => self.at = self.text.len(),
        }
        self.at < self.text.len()
    }

    pub fn take(&mut self, sign: &str) -> bool {
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    pub fn need(&mut self, sign: &str) -> Parsed<()> {
        match self.take(sign) {
            true => Ok(()),
            false => self.expected(&format!("`{sign}`")),
        }
    }

    /// The end of the line.
    pub fn end(&mut self) -> Parsed<()> {
        match self.rest().is_empty() {
            true => Ok(()),
            false => self.expected("the end of the line"),
        }
    }

    /// Letters, digits, `_`, `.` and `-`; `None`: something else stands here.
    pub fn plain(&mut self) -> Option<&'t str> {
        let rest = self.rest();
        let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
        self.at += word.len();
        (!word.is_empty()).then_some(word)
    }

    /// The same without `.` and `-`: a name.
    pub fn name(&mut self, what: &str) -> Parsed<&'t str> {
        let rest = self.rest();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let word = &rest[..rest.find(|c| !part(c)).unwrap_or(rest.len())];
        if word.is_empty() {
            return self.expected(what);
        }
        self.at += word.len();
        Ok(word)
    }

    /// A word, in quotation marks or not.
    pub fn word(&mut self, what: &str) -> Parsed<String> {
        if !self.rest().starts_with('"') {
            return match self.plain() {
                Some(word) => Ok(word.to_string()),
                None => self.expected(what),
            };
        }
        let start = self.at;
        let raw = self.quoted()?;
        match unquoted(raw) {
            Some(word) => Ok(word),
            None => self.error(start, "expected `\\\\`, `\\\"` or `\\u{…}` after `\\`"),
        }
    }

    /// A text with its quotation marks.
    fn quoted(&mut self) -> Parsed<&'t str> {
        let rest = &self.text[self.at..];
        let mut escaped = false;
        for (i, c) in rest.char_indices().skip(1) {
            match c {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => {
                    self.at += i + 1;
                    return Ok(&rest[..=i]);
                }
                _ => {}
            }
        }
        self.error(self.at, "these quotation marks are not closed in this line")
    }

    /// The value of an attribute: up to a space or a colon outside of brackets and quotation marks.
    pub fn value(&mut self) -> Parsed<&'t str> {
        let start = self.at;
        let mut open = Vec::new();
        while let Some(c) = self.text[self.at..].chars().next() {
            match c {
                '\n' => break,
                '"' => {
                    self.quoted()?;
                    continue;
                }
                '(' => open.push(')'),
                '[' => open.push(']'),
                ')' | ']' if open.pop() != Some(c) => {
                    return self.error(self.at, format!("`{c}` closes nothing here"));
                }
                c if (c.is_whitespace() || c == ':') && open.is_empty() => break,
                _ => {}
            }
            self.at += c.len_utf8();
        }
        match (open.last(), &self.text[start..self.at]) {
            (Some(c), _) => self.expected(&format!("`{c}`")),
            (None, "") => self.expected("a value"),
            (None, value) => Ok(value),
        }
    }
}

/// A text without its quotation marks and escapes.
pub fn unquoted(raw: &str) -> Option<String> {
    let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
    let (mut word, mut chars) = (String::new(), inside.chars());
    while let Some(c) = chars.next() {
        word.push(match c {
            '\\' => match chars.next()? {
                'u' => {
                    let (code, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                    chars = rest.chars();
                    char::from_u32(u32::from_str_radix(code, 16).ok()?)?
                }
                c @ ('"' | '\\') => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(word)
}
