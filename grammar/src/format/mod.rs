//! The formatter: one text for one meaning.
//!
//! Takes a text without errors; gives the same tokens and comments in the house style, so that the syntax tree stays
//! the same apart from spans. Three looks at the text: `trivia.rs` finds the comments and line ends between the tokens,
//! `structure.rs` reads from the parse where statements, rows and operators are, `print.rs` lays them out, with
//! `align.rs` for what stands in columns. Leaves files and the command line to `odec fmt`.
//!
//! What the author decides: which statements share a line, whether a block that fits stands on one line, single blank
//! lines, comments and where they stand. Everything else follows from the tokens, so formatting twice changes nothing.
//! Only `;` between statements and commas before a closing bracket come and go.

mod align;
mod print;
mod structure;
mod trivia;

use crate::codes;
use crate::diag::Diagnostic;
use crate::parse::parse;
use crate::scan::MAX_BYTES;
use crate::span::Span;
use structure::Structure;

/// Columns of a line. Strings, comments and tableau rows may be longer.
const WIDTH: usize = 100;
/// Blanks per level of nesting, and before the continuation of a statement.
const INDENT: usize = 2;

/// Formats one text, the `source`-th of a `Sources`. A text with errors is refused with all of them, as `parse` gives
/// them; so is one that would grow beyond the longest text that is read (`too-large`).
pub fn format(source: u32, text: &str) -> Result<String, Vec<Diagnostic>> {
    let Some(structure) = Structure::read(source, text) else {
        return Err(parse(source, text).1);
    };
    let out = print::print(&structure);
    if out.len() > MAX_BYTES {
        let start = Span {
            source,
            start: 0,
            end: 0,
        };
        let message = format!(
            "formatted, the text has {} bytes, more than 1 MiB",
            out.len()
        );
        return Err(vec![
            Diagnostic::error(codes::TOO_LARGE, start, message)
                .help("a description of a model is a few kilobytes; is this the right file?"),
        ]);
    }
    Ok(out)
}
