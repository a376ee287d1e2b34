//! Finds where statements begin and end, by brackets and line ends alone.
//!
//! Takes the tokens of one item with paired brackets; gives token ranges. The parser does not need it; recovery and
//! error messages do.

use crate::lex::{Kind, Token};
use crate::words::{self, is_keyword};
use std::ops::Range;

/// For every token the index of the opening bracket around it. A bracket's own partner counts as outside.
pub fn parents(tokens: &[Token]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(tokens.len());
    for (at, token) in tokens.iter().enumerate() {
        if token.kind == Kind::Close {
            open.pop();
        }
        parents.push(open.last().copied());
        if token.kind == Kind::Open {
            open.push(at);
        }
    }
    parents
}

/// The opening brace of the block that token `at` lies in.
pub fn block(tokens: &[Token], text: &str, parents: &[Option<usize>], at: usize) -> Option<usize> {
    let mut parent = parents.get(at).copied().flatten();
    while let Some(open) = parent {
        if tokens[open].text(text) == "{" {
            break;
        }
        parent = parents[open];
    }
    parent
}

/// The tokens of the statement that holds token `at`: from a `;`, brace or line end of its block to the next one. All
/// tokens from 0 when `at` lies in no block.
pub fn statement(tokens: &[Token], text: &str, at: usize) -> Range<usize> {
    let parents = parents(tokens);
    let mut at = at.min(tokens.len().saturating_sub(1));
    // A closing brace belongs to what it closes.
    while at > 0 && tokens[at].kind == Kind::Close {
        at -= 1;
    }
    let Some(open) = block(tokens, text, &parents, at) else {
        return 0..tokens.len();
    };
    let rows = is_rows(tokens, text, open);
    let begins = |token: usize| {
        let (here, before) = (tokens[token], tokens[token - 1]);
        let next_line = here.leads()
            && here.kind != Kind::Close
            && (rows || ends_something(before, text) || begins_something(tokens, text, token));
        parents[token] == Some(open) && (token == open + 1 || before.text(text) == ";" || next_line)
    };
    let mut start = at;
    while start > open + 1 && !begins(start) {
        start -= 1;
    }
    let mut end = at + 1;
    while end < tokens.len() && parents[end] != parents[open] && !begins(end) {
        end += 1;
    }
    start..end
}

/// The statement around the block that token `at` closes or lies in.
pub fn around(tokens: &[Token], text: &str, at: usize) -> Range<usize> {
    let parents = parents(tokens);
    let inner = at.min(tokens.len()).saturating_sub(1);
    match block(tokens, text, &parents, inner) {
        Some(open) => statement(tokens, text, open),
        None => 0..tokens.len(),
    }
}

/// Whether the block opened at `open` holds rows, one to a line.
pub fn is_rows(tokens: &[Token], text: &str, open: usize) -> bool {
    open > 0 && matches!(tokens[open - 1].text(text), "tableau" | "multistep")
}

/// Whether a statement certainly begins with token `at`, the first of its line: `name =`, or a keyword that is no
/// operand.
fn begins_something(tokens: &[Token], text: &str, at: usize) -> bool {
    let word = tokens[at].text(text);
    let assigns =
        tokens[at].kind == Kind::Word && tokens.get(at + 1).is_some_and(|t| t.text(text) == "=");
    assigns || (is_keyword(word) && !matches!(word, "flow" | "from" | "in" | "for"))
}

/// Whether an expression or a block may end with this token.
pub fn ends_something(token: Token, text: &str) -> bool {
    match token.kind {
        Kind::Close | Kind::Number | Kind::Str | Kind::Doc => true,
        Kind::Word => !words::ITEMS.contains(&token.text(text)),
        Kind::Sign => matches!(token.text(text), ";" | "%"),
        Kind::Open => false,
    }
}
