//! One linear scan of the text before parsing: limits, brackets, and where items begin.
//!
//! Takes a text; gives its [`Token`]s, the [`Chunk`]s (one item each) and the errors that need no grammar: those of
//! `lex.rs`, brackets that do not pair, nesting and sizes beyond the limits. What passes is shallow enough for the
//! recursive parser, whatever the input was. Leaves the language itself to `odec.pest`.

use crate::codes;
use crate::diag::Diagnostic;
use crate::layout::ends_something;
use crate::lex::{Kind, MAX_ERRORS, Token, lex};
use crate::span::Span;
use crate::words::{ITEMS, LAYER};

/// Longest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of brackets.
pub const MAX_NESTING: usize = 128;
/// Most operators between two separators, summed over the open brackets: bounds the height of an expression.
pub const MAX_OPERATORS: usize = 512;

/// Tokens `start..end`: one item with its doc comments, or something that should have been one.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    pub start: usize,
    pub end: usize,
    /// The scan already found an error in it; the parser would only repeat it.
    pub broken: bool,
}

/// What one scan found.
#[derive(Debug, Default)]
pub struct Scan {
    pub tokens: Vec<Token>,
    pub chunks: Vec<Chunk>,
    pub errors: Vec<Diagnostic>,
}

/// Scans a whole file.
pub fn scan(source: u32, text: &str) -> Scan {
    let span = |start: usize, end: usize| Span {
        source,
        start: start as u32,
        end: end as u32,
    };
    let mut out = Scan::default();
    if text.len() > MAX_BYTES {
        out.errors.push(
            Diagnostic::error(
                codes::TOO_LARGE,
                span(0, 0),
                format!("the text has {} bytes, more than 1 MiB", text.len()),
            )
            .help("a description of a model is a few kilobytes; is this the right file?"),
        );
        return out;
    }
    let lexed = lex(source, text);
    out.tokens = lexed.tokens;
    out.errors = lexed.errors;
    let paired = pairs(&out.tokens, text, source, 0..out.tokens.len()).is_none();
    out.chunks = chunks(&out.tokens, text, paired);
    for at in 0..out.chunks.len() {
        // What lies behind the last token still belongs to the item.
        let end = out
            .chunks
            .get(at + 1)
            .map_or(text.len(), |next| out.tokens[next.start].start);
        let chunk = &mut out.chunks[at];
        let tokens = &out.tokens[chunk.start..chunk.end];
        let start = tokens[0].start;
        // `bad` is in source order, as the chunks are; a binary search keeps the whole scan linear.
        let first = lexed.bad.partition_point(|&at| at < start);
        chunk.broken = lexed.bad.get(first).is_some_and(|&at| at < end);
        if !chunk.broken
            && let Some(error) = pairs(&out.tokens, text, source, chunk.start..chunk.end)
                .or_else(|| too_tall(tokens, text, source))
        {
            chunk.broken = true;
            out.errors.push(error);
        }
        if out.errors.len() >= MAX_ERRORS {
            break;
        }
    }
    out
}

/// The first bracket that does not pair, or nesting beyond the limit.
fn pairs(
    tokens: &[Token],
    text: &str,
    source: u32,
    range: std::ops::Range<usize>,
) -> Option<Diagnostic> {
    let span = |t: Token| Span {
        source,
        start: t.start as u32,
        end: t.end as u32,
    };
    let mut open: Vec<usize> = Vec::new();
    // An opener whose closing brace stands at another indentation than the opener's line: the likely culprit.
    let mut suspect: Option<(usize, usize)> = None;
    for at in range {
        let token = tokens[at];
        match token.kind {
            Kind::Open => {
                open.push(at);
                if open.len() > MAX_NESTING {
                    return Some(
                        Diagnostic::error(
                            codes::NESTED_TOO_DEEPLY,
                            span(token),
                            "brackets are nested too deeply",
                        )
                        .label(format!("more than {MAX_NESTING} levels"))
                        .help("name inner parts with `let` or `field`"),
                    );
                }
            }
            Kind::Close => {
                let closes = token.text(text);
                let wants = match closes {
                    "}" => "{",
                    ")" => "(",
                    _ => "[",
                };
                match open.last() {
                    Some(&from) if tokens[from].text(text) == wants => {
                        open.pop();
                        let opener = tokens[from];
                        let astray = token.leads()
                            && token.line != opener.line
                            && token.indent() != opener.indent();
                        if closes == "}" && suspect.is_none() && astray {
                            suspect = Some((from, at));
                        }
                    }
                    Some(&from) if open.iter().any(|&from| tokens[from].text(text) == wants) => {
                        let missing = closer(tokens[from].text(text));
                        return Some(
                            Diagnostic::error(
                                codes::UNPAIRED_BRACKET,
                                span(token),
                                format!("`{closes}` does not match the open bracket"),
                            )
                            .label(format!("expected `{missing}` before this"))
                            .also(span(tokens[from]), "this is still open")
                            .help(format!(
                                "close it with `{missing}`, or remove the `{closes}`"
                            )),
                        );
                    }
                    _ => {
                        return Some(
                            Diagnostic::error(
                                codes::UNPAIRED_BRACKET,
                                span(token),
                                format!("`{closes}` has no opening bracket"),
                            )
                            .label(format!("no `{wants}` is open here"))
                            .help(format!("remove it, or add the missing `{wants}` before it")),
                        );
                    }
                }
            }
            _ => {}
        }
    }
    let from = *open.last()?;
    let opener = tokens[from].text(text);
    let missing = closer(opener);
    let error = Diagnostic::error(
        codes::UNPAIRED_BRACKET,
        span(tokens[from]),
        format!("this `{opener}` is never closed"),
    )
    .label(format!("no `{missing}` for it"));
    Some(match suspect {
        Some((opener, closer)) => error
            .also(span(tokens[opener]), "but this line")
            .also(span(tokens[closer]), "ends here, at another indentation")
            .help("the `}` is probably missing between these two"),
        None => error.help(format!("add the missing `{missing}`")),
    })
}

fn closer(opener: &str) -> &'static str {
    match opener {
        "{" => "}",
        "(" => ")",
        _ => "]",
    }
}

/// Whether expressions may grow higher than the parser and everything after it can recurse.
fn too_tall(tokens: &[Token], text: &str, source: u32) -> Option<Diagnostic> {
    let mut counts = vec![0usize];
    let mut total = 0;
    for token in tokens {
        match (token.kind, token.text(text)) {
            (Kind::Open, _) => counts.push(0),
            (Kind::Close, _) => {
                total -= counts.pop().unwrap_or(0);
                if counts.is_empty() {
                    counts.push(0);
                }
            }
            (Kind::Sign, "=" | "," | ";" | ":" | "|") => {
                total -= counts.last_mut().map_or(0, std::mem::take)
            }
            (Kind::Sign, "+" | "-" | "*" | "/" | "^" | "|>") => {
                if let Some(count) = counts.last_mut() {
                    *count += 1;
                    total += 1;
                }
                if total > MAX_OPERATORS {
                    let span = Span {
                        source,
                        start: token.start as u32,
                        end: token.end as u32,
                    };
                    return Some(
                        Diagnostic::error(
                            codes::NESTED_TOO_DEEPLY,
                            span,
                            "this expression is too long",
                        )
                        .label(format!("more than {MAX_OPERATORS} operators"))
                        .help("name inner parts with `let` or `field`"),
                    );
                }
            }
            _ => {}
        }
    }
    None
}

/// Cuts the tokens into items. Where brackets pair, an item begins at depth 0; where they do not, at any item keyword
/// in the first column, so that one missing brace costs one item.
fn chunks(tokens: &[Token], text: &str, paired: bool) -> Vec<Chunk> {
    let mut starts: Vec<usize> = Vec::new();
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate() {
        let after = at == 0 || ends_something(tokens[at - 1], text);
        let head = token.kind == Kind::Word
            && match ITEMS.contains(&token.text(text)) || begins_layer(tokens, text, at) {
                true if depth == 0 => after || (token.leads() && looks_like_head(tokens, text, at)),
                true => !paired && token.start == token.line && looks_like_head(tokens, text, at),
                // No statement continues with a word on a new line, so this is a misspelt keyword.
                false => depth == 0 && token.leads() && after,
            };
        if head {
            depth = 0;
            let mut start = at;
            while start > starts.last().map_or(0, |&s| s + 1) && tokens[start - 1].kind == Kind::Doc
            {
                start -= 1;
            }
            starts.push(start);
        }
        match token.kind {
            Kind::Open => depth += 1,
            Kind::Close => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if !tokens.is_empty() && starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    let ends = starts.iter().skip(1).copied().chain([tokens.len()]);
    starts
        .iter()
        .zip(ends)
        .map(|(&start, end)| Chunk {
            start,
            end,
            broken: false,
        })
        .collect()
}

/// `layer name(`, `layer name as`, `layer name =` or `layer name {`.
fn begins_layer(tokens: &[Token], text: &str, at: usize) -> bool {
    let name = tokens.get(at + 1).is_some_and(|t| t.kind == Kind::Word);
    let after = tokens.get(at + 2).map(|t| t.text(text));
    tokens[at].text(text) == LAYER && name && matches!(after, Some("(" | "as" | "=" | "{"))
}

/// `scheme name`, `train {`, `use "…"`: an item keyword and what must follow it.
fn looks_like_head(tokens: &[Token], text: &str, at: usize) -> bool {
    let next = tokens.get(at + 1);
    match tokens[at].text(text) {
        "train" | "explore" => next.is_some_and(|t| t.text(text) == "{"),
        "use" => next.is_some_and(|t| t.kind == Kind::Str),
        _ => next.is_some_and(|t| t.kind == Kind::Word),
    }
}
