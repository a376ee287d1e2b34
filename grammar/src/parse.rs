//! Text to syntax tree, with as many errors as there are broken statements.
//!
//! Takes a text and its number in `Sources`; gives the tree of everything that parsed and located errors for the rest.
//! The text is scanned once (`scan.rs`), cut into items, and each item parsed on its own. Where an item fails, the
//! statement around the failure is blanked out and the item parsed again, so that several mistakes in one item are all
//! seen. Leaves names and meaning to `odec-compiler`.

use crate::ast::{Expr, File};
use crate::diag::Diagnostic;
use crate::explain::Failure;
use crate::layout;
use crate::lex::{Kind, MAX_ERRORS};
use crate::rules::{OdecParser, Rule};
use crate::scan::{self, Chunk, MAX_BYTES, Scan};
use crate::tree::{Builder, Top};
use pest::Parser;
use std::ops::Range;

/// Parses one text. The tree holds what could be read even when there are errors; a caller that continues with it must
/// expect parts to be missing.
pub fn parse(source: u32, text: &str) -> (File, Vec<Diagnostic>) {
    let mut scan = scan::scan(source, text);
    let mut file = File::default();
    let mut errors = std::mem::take(&mut scan.errors);
    // Every retry reads its item again; together they may read this much.
    let mut budget = MAX_BYTES;
    for chunk in &scan.chunks {
        if errors.len() >= MAX_ERRORS {
            break;
        }
        if !chunk.broken {
            item(
                source,
                text,
                &scan,
                *chunk,
                &mut file,
                &mut errors,
                &mut budget,
            );
        }
    }
    errors.sort_by_key(|e| e.labels[0].span);
    errors.truncate(MAX_ERRORS);
    (file, errors)
}

/// Parses an expression that stands alone: the bytes `start..` of a text, such as the value of `--set path=value`.
pub fn parse_value(source: u32, text: &str, start: usize) -> Result<Expr, Diagnostic> {
    let rest = text.get(start..).unwrap_or("");
    let scan = scan::scan(source, &format!("{:start$}{rest}", ""));
    if let Some(error) = scan.errors.into_iter().next() {
        return Err(error);
    }
    let tokens = scan.tokens;
    match OdecParser::parse(Rule::source_value, rest) {
        Ok(mut pairs) => {
            let builder = Builder {
                source,
                base: start,
                tokens: &tokens,
            };
            let value = pairs.next().and_then(|p| p.into_inner().next());
            Ok(builder.value(value.expect("odec.pest promises a value")))
        }
        Err(error) => Err(Failure::new(source, text, &tokens, start, &error).explain()),
    }
}

/// Parses one item, again and again without the statements that failed.
fn item(
    source: u32,
    text: &str,
    scan: &Scan,
    chunk: Chunk,
    file: &mut File,
    errors: &mut Vec<Diagnostic>,
    budget: &mut usize,
) {
    let tokens = &scan.tokens[chunk.start..chunk.end];
    let (base, end) = (tokens[0].start, tokens[tokens.len() - 1].end);
    let mut copy = text[base..end].to_string();
    let mut blanked: Vec<Range<usize>> = Vec::new();
    loop {
        let error = match OdecParser::parse(Rule::source_item, &copy) {
            Ok(mut pairs) => {
                let builder = Builder {
                    source,
                    base,
                    tokens: &scan.tokens,
                };
                match builder.top(pairs.next().expect("odec.pest promises an item")) {
                    Top::Use(path) => file.uses.push(path),
                    Top::Item(item) => file.items.push(item),
                }
                return;
            }
            Err(error) => error,
        };
        let failure = Failure::new(source, text, tokens, base, &error);
        // A block left empty by an earlier blanking is no news: blank the statement around it.
        let before = failure.at.checked_sub(1);
        let echo = blanked
            .iter()
            .any(|range| before.is_some_and(|at| range.contains(&at)))
            && tokens.get(failure.at).is_none_or(|t| t.kind == Kind::Close);
        let range = if echo {
            layout::around(tokens, text, failure.at)
        } else {
            errors.push(failure.explain());
            layout::statement(tokens, text, failure.blame())
        };
        // Nothing is left of an item without its head. Every retry reads the whole item: together they are bounded.
        let spent = budget.checked_sub(copy.len());
        let (Some(left), false) = (
            spent,
            range.start == 0 || range.is_empty() || blanked.contains(&range),
        ) else {
            return;
        };
        if errors.len() >= MAX_ERRORS {
            return;
        }
        *budget = left;
        let (from, to) = (
            tokens[range.start].start - base,
            tokens[range.end - 1].end - base,
        );
        let blank: String = copy[from..to]
            .bytes()
            .map(|b| if b == b'\n' { '\n' } else { ' ' })
            .collect();
        copy.replace_range(from..to, &blank);
        blanked.push(range);
    }
}
