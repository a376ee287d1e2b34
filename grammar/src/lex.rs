//! The lexer: words, numbers, strings, signs, and errors for everything else.
//!
//! Takes a text; gives its [`Token`]s without blanks and plain comments, and errors about strange characters, strings
//! without an end and numbers beyond the limits. One pass, no recursion.

use crate::codes;
use crate::diag::Diagnostic;
use crate::span::Span;
use odec_source::escape::commands;

/// Errors reported for one text.
pub const MAX_ERRORS: usize = 50;

/// Most digits of one number, and the largest exponent.
pub const MAX_DIGITS: usize = 200;
pub const MAX_EXPONENT: u32 = 999;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Word,
    Number,
    Str,
    Doc,
    Open,
    Close,
    Sign,
}

/// Bytes `start..end` of the text, and where its line and the first token of its line begin.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub kind: Kind,
    pub start: usize,
    pub end: usize,
    pub line: usize,
    pub first: usize,
}

impl Token {
    pub fn text<'a>(&self, text: &'a str) -> &'a str {
        &text[self.start..self.end]
    }
    /// Nothing precedes it on its line.
    pub fn leads(&self) -> bool {
        self.start == self.first
    }
    /// How far its line is indented, in bytes.
    pub fn indent(&self) -> usize {
        self.first - self.line
    }
}

/// What one pass found.
pub struct Lexed {
    pub tokens: Vec<Token>,
    pub errors: Vec<Diagnostic>,
    /// Where the tokens with errors begin, in source order.
    pub bad: Vec<usize>,
}

/// Reads a whole text, or up to its `MAX_ERRORS`th error.
pub fn lex(source: u32, text: &str) -> Lexed {
    let mut lexer = Lexer {
        source,
        text,
        at: 0,
        errors: Vec::new(),
        bad: Vec::new(),
    };
    let tokens = lexer.tokens();
    Lexed {
        tokens,
        errors: lexer.errors,
        bad: lexer.bad,
    }
}

/// The state of one pass.
struct Lexer<'a> {
    source: u32,
    text: &'a str,
    at: usize,
    errors: Vec<Diagnostic>,
    bad: Vec<usize>,
}

impl Lexer<'_> {
    fn tokens(&mut self) -> Vec<Token> {
        let bytes = self.text.as_bytes();
        let mut tokens = Vec::new();
        let mut line = 0;
        let mut first = None;
        if self.text.starts_with('\u{feff}') {
            self.at = '\u{feff}'.len_utf8();
        }
        while self.at < bytes.len() && self.errors.len() < MAX_ERRORS {
            let start = self.at;
            let byte = bytes[start];
            let next = bytes.get(start + 1).copied().unwrap_or(0);
            let kind = match byte {
                b'\n' => {
                    self.at += 1;
                    line = self.at;
                    first = None;
                    continue;
                }
                b' ' | b'\t' | b'\r' => {
                    self.at += 1;
                    continue;
                }
                b'/' if next == b'/' => {
                    self.at = self.line_end(start);
                    let doc =
                        bytes.get(start + 2) == Some(&b'/') && bytes.get(start + 3) != Some(&b'/');
                    if !doc {
                        continue;
                    }
                    Kind::Doc
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    self.skip(|b| b.is_ascii_alphanumeric() || b == b'_');
                    Kind::Word
                }
                b'0'..=b'9' => {
                    self.number();
                    Kind::Number
                }
                b'"' => {
                    let end = self.line_end(start);
                    match bytes[start + 1..end].iter().position(|&b| b == b'"') {
                        Some(len) => {
                            self.at = start + len + 2;
                            self.control(start);
                        }
                        None => {
                            let end = start + self.text[start..end].trim_end().len();
                            self.at = end;
                            self.error(
                                Diagnostic::error(
                                    codes::UNTERMINATED_STRING,
                                    self.span(start, end),
                                    "this string is not closed",
                                )
                                .label("no closing `\"` on this line")
                                .help("close the string with `\"`; a string stays on one line"),
                                start,
                            );
                        }
                    }
                    Kind::Str
                }
                b'{' | b'(' | b'[' => {
                    self.at += 1;
                    Kind::Open
                }
                b'}' | b')' | b']' => {
                    self.at += 1;
                    Kind::Close
                }
                _ => {
                    let long = ["..=", "..", "|>"]
                        .into_iter()
                        .find(|sign| self.text[start..].starts_with(sign));
                    match long {
                        Some(sign) => self.at += sign.len(),
                        None if b"=,;:|+-*/^%.".contains(&byte) => self.at += 1,
                        None => {
                            self.strange(start);
                            continue;
                        }
                    }
                    Kind::Sign
                }
            };
            tokens.push(Token {
                kind,
                start,
                end: self.at,
                line,
                first: *first.get_or_insert(start),
            });
        }
        tokens
    }

    fn span(&self, start: usize, end: usize) -> Span {
        Span {
            source: self.source,
            start: start as u32,
            end: end as u32,
        }
    }

    fn error(&mut self, error: Diagnostic, at: usize) {
        self.errors.push(error);
        self.bad.push(at);
    }

    fn line_end(&self, from: usize) -> usize {
        self.text[from..]
            .find('\n')
            .map_or(self.text.len(), |len| from + len)
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().position(|&b| !wanted(b)).unwrap_or(rest.len());
    }

    /// `3`, `0.25`, `1e-3`: digits, maybe a fraction, maybe an exponent.
    fn number(&mut self) {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
        self.skip(|b| b.is_ascii_digit());
        if bytes.get(self.at) == Some(&b'.') && digit(self.at + 1) {
            self.at += 1;
            self.skip(|b| b.is_ascii_digit());
        }
        let mantissa = self.at - start;
        let mut exponent = "";
        if bytes.get(self.at) == Some(&b'e') {
            let sign = usize::from(matches!(bytes.get(self.at + 1), Some(b'+' | b'-')));
            if digit(self.at + 1 + sign) {
                self.at += 1 + sign;
                let digits = self.at;
                self.skip(|b| b.is_ascii_digit());
                exponent = &self.text[digits..self.at];
            }
        }
        let huge =
            !exponent.is_empty() && !exponent.parse::<u32>().is_ok_and(|e| e <= MAX_EXPONENT);
        if mantissa > MAX_DIGITS || huge {
            let limit = format!(
                "numbers have at most {MAX_DIGITS} digits and exponents up to {MAX_EXPONENT}"
            );
            self.error(
                Diagnostic::error(
                    codes::NUMBER_TOO_LONG,
                    self.span(start, self.at),
                    "this number is too long to keep exactly",
                )
                .help(limit),
                start,
            );
        }
    }

    /// Strings hold text: no NUL, no escape sequences for the terminal.
    fn control(&mut self, start: usize) {
        let string = &self.text[start..self.at];
        if let Some((at, c)) = string
            .char_indices()
            .find(|(_, c)| c.is_control() && *c != '\t')
        {
            let error = Diagnostic::error(
                codes::STRANGE_CHARACTER,
                self.span(start + at, start + at + c.len_utf8()),
                format!(
                    "the character `U+{:04X}` is not allowed in a string",
                    c as u32
                ),
            );
            self.error(error, start);
        }
    }

    /// A character the language does not have; a run of them is one error.
    fn strange(&mut self, start: usize) {
        let rest = &self.text[start..self.line_end(start)];
        let first = rest.chars().next().unwrap_or('\0');
        let quote = |c: char| "'‘’“”„«»`".contains(c);
        let length = match first {
            '#' => rest.trim_end().len(),
            // A string in the wrong quotes, whole.
            c if quote(c) => {
                let closing = rest.char_indices().skip(1).find(|&(_, c)| quote(c));
                closing.map_or(first.len_utf8(), |(at, c)| at + c.len_utf8())
            }
            _ => {
                let alike = |c: char| {
                    c == first || !c.is_ascii() && c.is_alphabetic() && first.is_alphabetic()
                };
                rest.chars()
                    .take_while(|&c| alike(c))
                    .map(char::len_utf8)
                    .sum()
            }
        };
        self.at = start + length.max(1);
        let shown = if commands(first) || first.is_whitespace() {
            format!("U+{:04X}", first as u32)
        } else {
            first.to_string()
        };
        let error = Diagnostic::error(
            codes::STRANGE_CHARACTER,
            self.span(start, self.at),
            format!("the character `{shown}` is not part of the language"),
        );
        let arrow = first == '>' && self.text[..start].ends_with('-');
        let instead = match first {
            '→' => Some("fields are chained with `|>`".to_string()),
            '>' if arrow => Some("fields are chained with `|>`, not with `->`".to_string()),
            '×' | '·' | '∙' | '⋅' => Some("write a product as `a*b`".to_string()),
            '−' | '–' | '—' => Some("write the minus sign as `-`".to_string()),
            '÷' => Some("write a quotient as `a/b`".to_string()),
            '“' | '”' | '„' | '‘' | '’' | '\'' => {
                Some("write strings in straight double quotes: `\"…\"`".to_string())
            }
            '…' => Some("write a range as `0..n`".to_string()),
            '#' => Some("comments begin with `//`".to_string()),
            c if c.is_whitespace() => Some("write a blank in its place".to_string()),
            c if commands(c) => Some("remove it: it is not visible".to_string()),
            // Wide forms of the signs of ASCII, in its order.
            '\u{ff01}'..='\u{ff5e}' if !first.is_alphanumeric() => {
                let narrow = char::from_u32(first as u32 - 0xfee0);
                narrow.map(|c| format!("write `{c}`"))
            }
            '!' | '<' | '>' | '&' => {
                Some("the language has no comparisons and no logic".to_string())
            }
            c if c.is_alphabetic() => Some("names consist of a-z, A-Z, 0-9 and `_`".to_string()),
            _ => None,
        };
        let error = match instead {
            Some(help) => error.help(help),
            None => error,
        };
        self.error(error, start);
    }
}
